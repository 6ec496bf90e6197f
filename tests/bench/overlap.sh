#!/bin/sh
# Does the exchange of replicas hide behind training? Two replicas of one stage; the road between them is shaped so that a round of the whole
# model (int4) takes five steps. With sync.overlap = 6 a step must not take longer than without any exchange; with 2 it waits, and says so.
# A step without exchange is measured once more at the end: what the two differ by is the machine's, and ratios mean nothing below it.
set -eu
O=${O:-build}
case $O in /*) ;; *) O=$PWD/$O ;; esac
command -v python3 >/dev/null || { echo "python3 is not here to read JSON"; exit 0; }
folder=$(mktemp -d "${TMPDIR:-/tmp}/kedge-overlap.XXXXXX")
trap '"$O/kedge" stop --now overlap >/dev/null 2>&1; rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
export XDG_STATE_HOME="$folder/state" XDG_CONFIG_HOME="$folder/config"
cat ssh/*/*.[ch] >"$folder/text.txt"

profile() { # EVERY OVERLAP RATE
    cat >"$folder/overlap.ini" <<END
[run]
name = overlap
seed = 1
steps = ${STEPS:-50}
[model]
hidden = 256
layers = 4
heads = 4
kv_heads = 4
ffn = 512
vocabulary = 256
[data]
path = $folder/text.txt
validation_windows = 1
[train]
sequence = 128
micro_batch = 4
micro_batches = 2
warmup = 2
[pipeline]
stages = 1
[boundary]
codec = dense
[replicas]
count = 2
[sync]
every = $1
fragments = 1
overlap = $2
table = payload
[link]
security = plain
slow_rate = $3
[host a]
threads = 1
[host b]
threads = 1
END
}
# run : "mean step in ms, share of it that waits for a sibling in %", of the steps after the first round
run() {
    "$O/kedge" run "$folder/overlap.ini" --headless >"$folder/out" 2>&1 || { cat "$folder/out" >&2; exit 1; }
    "$O/kedge" decode "$XDG_STATE_HOME/kedge/overlap/run.db" | python3 -c '
import re, sys
steps, waits = [], []
for line in sys.stdin:
    row = dict(re.findall(r"(\w+)=(\"[^\"]*\"|\S+)", line))
    if line.startswith("samples ") and row["kind"] == "0" and int(row["step"]) > 6:
        steps.append(int(row["step_ns"]))
        waits.append(int(row["wait_sync_ns"]))
print("%.1f %.2f" % (sum(steps) / len(steps) / 1e6, 100 * sum(waits) / sum(steps)))'
}

profile 1000000 0 0
set -- $(run)
alone=$1
bytes=$("$O/kedge" plan --json "$folder/overlap.ini" | python3 -c 'import json, sys; print(sum(s["parameters"] for s in json.load(sys.stdin)["stages"]) // 2 // 2 * 1.04)')
rate=$(python3 -c "print('%dbit' % (8 * $bytes / (5 * $alone / 1000)))")
echo "overlap.step_alone $alone ms (no exchange; a round of $bytes bytes at $rate takes five such steps)"
for overlap in 6 2; do
    profile 12 $overlap "$rate"
    set -- $(run)
    python3 -c "print('overlap.step_overlap_$overlap %s ms (%+.1f %% to none; waits for its sibling %s %% of the time)' % ('$1', 100 * ($1 / $alone - 1), '$2'))"
    "$O/kedge" events overlap --json | python3 -c '
import json, sys
for event in json.load(sys.stdin)["events"]:
    if event["code"] == "sync-wait":
        print("overlap.says " + event["source"] + ": " + event["text"])
        break'
done
profile 1000000 0 0
set -- $(run)
python3 -c "print('overlap.step_alone_again $1 ms (%+.1f %%)' % (100 * ($1 / $alone - 1)))"
