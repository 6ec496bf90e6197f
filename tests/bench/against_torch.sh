#!/bin/sh
# The same model trained here and with PyTorch, in turn: against_torch.sh [THREADS [STEPS [ROUNDS [MODES]]]]. Needs a python with torch
# (PYTHON=…); without one only a line is printed. PyTorch runs as it is fastest: fused attention and AdamW, plain and compiled, fp32
# and bf16 autocast. A ratio is that of the medians of the rounds against the better of PyTorch's; "cpu" counts the seconds that
# processors spent, which other programs on the machine disturb less.
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
    O=$O "$O/tests/bench/step" "$threads" "$steps" >>"$folder/kedge" || exit 1
    for mode in $modes; do
        "$PYTHON" tests/bench/torch_step.py "$mode" "$threads" "$steps" 8 512 >>"$folder/$mode" 2>"$folder/err" ||
            { echo "against_torch: $mode does not run: $(tail -n 1 "$folder/err")"; continue 2; }
    done
done
median() { # FILE KEY
    sed -n "s/^[a-z]*\.$2 \([0-9.]*\).*/\1/p" "$1" | sort -n | awk '{ value[NR] = $1 } END { print NR ? value[int((NR + 1) / 2)] : 0 }'
}
grep -h -m 1 '^step:' "$folder/kedge"
for mode in kedge $modes; do
    echo "against_torch.$mode $(median "$folder/$mode" tokens_per_second) tokens/s, $(median "$folder/$mode" tokens_per_cpu_second)" \
        "tokens/s of a processor, peak $(median "$folder/$mode" peak) MiB"
done
for mode in $modes; do
    for key in tokens_per_second tokens_per_cpu_second peak; do echo "$key $(median "$folder/$mode" $key)"; done
done | awk -v ours="$(median "$folder/kedge" tokens_per_second)" -v cpu="$(median "$folder/kedge" tokens_per_cpu_second)" \
    -v peak="$(median "$folder/kedge" peak)" '
    $1 == "peak" { if ($2 && (!least || $2 < least)) least = $2; next }
    $2 > best[$1] { best[$1] = $2 }
    END { printf "against_torch.ratio %.3f of the better tokens/s, %.3f by processor time; peak %.3f of the smaller\n",
                 ours / best["tokens_per_second"], cpu / best["tokens_per_cpu_second"], peak / least }'
tail -n 2 "$folder/kedge"
