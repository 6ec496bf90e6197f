#!/bin/sh
# The same model trained here and with PyTorch, in turn: against_torch.sh [THREADS [STEPS [ROUNDS [MODES]]]]. Needs a python with torch
# (PYTHON=…); without one only a line is printed. Each round runs kedge and PyTorch in fp32 and in bf16 (there autocast), PyTorch as it is
# fastest: fused attention and AdamW, plain and compiled. Ratios are those of the medians of the rounds against the better of PyTorch's
# modes of the same precision, and last of all modes; "cpu" counts the seconds that processors spent, which other programs on the
# machine disturb less. Behind them, for each precision, the products that the step is made of beside the same ones alone.
set -u
O=${O:-build} PYTHON=${PYTHON:-python3}
threads=${1:-$(nproc)} steps=${2:-2} rounds=${3:-1} modes=${4:-"eager compile eager-bf16 compile-bf16"}
"$PYTHON" -c 'import torch' 2>/dev/null || { echo "against_torch: $PYTHON has no torch; PYTHON=… names one that has"; exit 0; }
folder=$(mktemp -d "${TMPDIR:-/tmp}/kedge-bench.XXXXXX")
trap 'rm -rf "$folder"' EXIT
export OMP_NUM_THREADS="$threads" TORCHINDUCTOR_CACHE_DIR="$folder/inductor"
round=0
while [ $round -lt "$rounds" ]; do
    round=$((round + 1))
    for mode in kedge kedge-bf16 $modes; do
        case $mode in
        kedge) O=$O "$O/tests/bench/step" "$threads" "$steps" 8 512 fp32 ;;
        kedge-bf16) O=$O "$O/tests/bench/step" "$threads" "$steps" 8 512 bf16 ;;
        *) "$PYTHON" tests/bench/torch_step.py "$mode" "$threads" "$steps" 8 512 ;;
        esac >>"$folder/$mode" 2>"$folder/err" || { echo "against_torch: $mode does not run: $(tail -n 1 "$folder/err")"; exit 1; }
    done
done
median() { # MODE KEY
    sed -n "s/^[a-z]*\.$2 \([0-9.]*\).*/\1/p" "$folder/$1" | sort -n | awk '{ value[NR] = $1 } END { print NR ? value[int((NR + 1) / 2)] : 0 }'
}
grep -h -m 1 '^step:' "$folder/kedge" "$folder/kedge-bf16"
grep -h -m 1 '^torch:' $(printf "$folder/%s " $modes)
for mode in kedge kedge-bf16 $modes; do
    echo "against_torch.$mode $(median "$mode" tokens_per_second) tokens/s, $(median "$mode" tokens_per_cpu_second)" \
        "tokens/s of a processor, peak $(median "$mode" peak) MiB"
done
compare() { # NAME OURS MODES…
    name=$1 ours=$2
    shift 2
    for mode in "$@"; do
        for key in tokens_per_second tokens_per_cpu_second peak; do echo "$key $(median "$mode" $key)"; done
    done | awk -v name="$name" -v ours="$(median "$ours" tokens_per_second)" -v cpu="$(median "$ours" tokens_per_cpu_second)" \
        -v peak="$(median "$ours" peak)" '
        $1 == "peak" { if ($2 && (!least || $2 < least)) least = $2; next }
        $2 > best[$1] { best[$1] = $2 }
        END { if (NR) printf "against_torch.ratio %s: %.3f of the better tokens/s, %.3f by processor time; peak %.3f of the smaller\n",
                             name, ours / best["tokens_per_second"], cpu / best["tokens_per_cpu_second"], peak / least }'
}
narrow=$(printf '%s\n' $modes | grep bf16) wide=$(printf '%s\n' $modes | grep -v bf16)
compare fp32 kedge $wide
compare bf16 kedge-bf16 $narrow
compare best kedge-bf16 $modes
for mode in kedge kedge-bf16; do tail -n 2 "$folder/$mode" | sed "s/^step\./against_torch.$mode./"; done
