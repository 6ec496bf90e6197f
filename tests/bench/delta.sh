#!/bin/sh
# What a snapshot costs to send: exact differences of bf16 words, of base-mild adapted to grade-school maths, by learning rate and by the steps
# between two snapshots. Prints CSV: learning rate, steps between, snapshots, share of the full bf16 bytes of the first one, mean of the others.
#
#   delta.sh [RATE:EVERY]…     without: 0.00002:20 0.00002:5 0.0002:20 0.001:20
set -eu
O=${O:-build}
case $O in /*) ;; *) O=$PWD/$O ;; esac
data=$PWD/../shared/data
[ -e "$data/base-mild/model.safetensors" ] || { echo "no $data/base-mild: nothing to adapt"; exit 77; }
folder=$(mktemp -d "${TMPDIR:-/tmp}/kedge-delta.XXXXXX")
export XDG_STATE_HOME="$folder/state"
trap '"$O/kedge" stop --now delta >/dev/null 2>&1; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
[ $# -gt 0 ] || set -- 0.00002:20 0.00002:5 0.0002:20 0.001:20
echo 'learning_rate,every,snapshots,first_share,mean_share'
for row in "$@"; do
    every=${row#*:}
    rm -rf "$folder/state" # its log would go on
    cat >"$folder/delta.ini" <<END
[run]
name = delta
steps = $((4 * every + 10))
[model]
path = $data/base-mild
[data]
path = $data/gsm8k_train.jsonl
validation_windows = 1
[train]
sequence = 128
micro_batch = 4
micro_batches = 1
learning_rate = ${row%:*}
schedule = constant
warmup = 0
[pipeline]
stages = 2
[boundary]
codec = dense
[anchor]
host = c
every = $every
staleness = $every
limit = $((4 * every))
filter = none
evaluate = no
lifeboat = no
[host a]
threads = 1
[host b]
threads = 1
[host c]
threads = 1
END
    "$O/kedge" run "$folder/delta.ini" --headless >"$folder/out" 2>&1 || { cat "$folder/out"; exit 1; }
    sed -n 's/.*holds version [0-9]*, the [0-9]*th: \([0-9]*\) of \([0-9]*\) bytes.*/\1 \2/p' "$folder/state/kedge/delta/log/anchor.log" |
        awk -v rate="${row%:*}" -v every="$every" 'NR == 1 { first = $1 / $2 } NR > 1 { sum += $1 / $2 }
            END { printf "%s,%s,%d,%.4f,%s\n", rate, every, NR, first, (NR > 1 ? sprintf("%.4f", sum / (NR - 1)) : "-") }'
done
