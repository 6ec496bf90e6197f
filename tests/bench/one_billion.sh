#!/bin/sh
# A stage of the 1.2 B model of one_billion.c as a real process of a real run, beside what `kedge plan` printed: one_billion.sh
# [PRECISION [STEPS]]. Stage 1 has its four layers of 2048 channels; small stages, of one layer and 256 tokens, feed it on both sides,
# so that the run needs 6 GiB and not 24. The process's memory is the most that it ever had (VmHWM), looked at while it lives.
set -eu
O=${O:-build}
precision=${1:-fp32} steps=${2:-2}
command -v python3 >/dev/null || { echo "one_billion: python3 is not here to read the plan"; exit 77; }
awk '/MemAvailable/ { exit $2 < 8000000 }' /proc/meminfo || { echo "one_billion: less than 8 GB of memory is free"; exit 77; }
folder=$(mktemp -d "${TMPDIR:-/tmp}/kedge-bench.XXXXXX")
export XDG_STATE_HOME="$folder/state"
trap '"$O/kedge" stop billion >/dev/null 2>&1; rm -rf "$folder"' EXIT
cat >"$folder/billion.ini" <<PROFILE
[run]
name = billion
steps = $steps
timeout = 60s
[model]
hidden = 2048
layers = 6
heads = 32
kv_heads = 8
ffn = 8192
vocabulary = 256
rope_theta = 500000
[data]
path = /usr/share/common-licenses/*
tokenizer = bytes
validation_windows = 1
[train]
sequence = 512
micro_batch = 1
micro_batches = 4
learning_rate = 0.00002
precision = $precision
[pipeline]
stages = 3
layers = 1,4,1
[boundary]
codec = mask
[host a]
kind = local
[host b]
kind = local
[host c]
kind = local
PROFILE
planned=$("$O/kedge" plan "$folder/billion.ini" --json | python3 -c 'import json, sys
print(json.load(sys.stdin)["stages"][1]["memory_bytes"]["total"])')
"$O/kedge" run "$folder/billion.ini" --headless >"$folder/out" 2>&1 &
run=$!
peak=0 process=
while kill -0 $run 2>/dev/null; do
    sleep 0.2
    [ -n "$process" ] || process=$(pgrep -f "kedge-worker stage .*$folder/.* --name r0s1 " | head -n 1)
    now=$(awk '/VmHWM/ { printf "%d", $2 }' "/proc/${process:-none}/status" 2>/dev/null) || now=
    [ "${now:-0}" -gt "$peak" ] && peak=$now
done
wait $run || { cat "$folder/out"; exit 1; }
"$O/kedge" status billion --json >"$folder/status"
tokens=$(sed -n 's/.*"tokens_per_second": *\([0-9.]*\).*/\1/p' "$folder/status")
echo "$planned $((peak * 1024))" | awk -v name="one_billion.run.$precision" -v tokens="$tokens" '{
    printf "%s.memory %.0f MiB planned, %.0f MiB at most in the process (%.3f)\n", name, $1 / 1048576, $2 / 1048576, $2 / $1
    printf "%s.tokens_per_second %s tokens/s through three stages\n", name, tokens }'
