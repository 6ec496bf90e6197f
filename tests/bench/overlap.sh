#!/bin/sh
# Does the exchange of replicas hide behind training? Two replicas of one stage; the road between them is shaped so that a round of the whole
# model (int4) takes five steps. With sync.overlap = 6 a step must not take longer than without any exchange; 8 is for siblings that differ
# by more than a step; with 2 it waits, and says so. EVERY: sync.every, 30 as in the papers' table (the default of a profile is 15).
set -eu
EVERY=${EVERY:-30}
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
steps = ${STEPS:-330}
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
# run : "mean step in ms, what a round's steps took beyond its own steps without an exchange in %, share of time that waits for a sibling in %".
# Of a round of EVERY steps an exchange is under way in the first OVERLAP + 2 at most; to the others of the same round it is
# compared, and the median of all rounds is taken: this machine may be a fifth faster a minute later, and that is not ours.
run() { # OVERLAP
    "$O/kedge" run "$folder/overlap.ini" --headless >"$folder/out" 2>&1 || { cat "$folder/out" >&2; exit 1; }
    "$O/kedge" decode "$XDG_STATE_HOME/kedge/overlap/run.db" | python3 -c '
import re, sys
from statistics import mean, median
rounds, steps, waits, every = {}, [], [], int(sys.argv[2])
for line in sys.stdin:
    row = dict(re.findall(r"(\w+)=(\"[^\"]*\"|\S+)", line))
    step = int(row.get("step", 0))
    if line.startswith("samples ") and row["kind"] == "0" and step > every:
        rounds.setdefault((row["process"], (step - 1) // every), {})[(step - 1) % every] = int(row["step_ns"])
        steps.append(int(row["step_ns"]))
        waits.append(int(row["wait_sync_ns"]))
beyond = [mean(of.values()) / mean(of[i] for i in range(int(sys.argv[1]) + 2, every)) - 1 for of in rounds.values() if len(of) == every]
print("%.1f %.2f %.2f" % (mean(steps) / 1e6, 100 * median(beyond), 100 * sum(waits) / sum(steps)))' "$1" "$EVERY"
}
says() {
    "$O/kedge" events overlap --json | python3 -c '
import json, sys
for event in json.load(sys.stdin)["events"]:
    if event["code"] == "sync-wait":
        print("overlap.says " + event["source"] + ": " + event["text"])
        break'
}
profile 1000000 0 0
set -- $(run 6)
alone=$1
bytes=$("$O/kedge" plan --json "$folder/overlap.ini" | python3 -c 'import json, sys; print(sum(s["parameters"] for s in json.load(sys.stdin)["stages"]) // 2 // 2 * 1.04)')
rate=$(python3 -c "print('%dbit' % (8 * $bytes / (5 * $alone / 1000)))")
echo "overlap.step_alone $alone ms (no exchange; a round of $bytes bytes at $rate takes five such steps; the first eight of $EVERY: $2 %)"
for overlap in 6 8 2; do
    profile "$EVERY" $overlap "$rate"
    set -- $(run $overlap)
    echo "overlap.step_overlap_$overlap $2 % (a round's steps beyond those of it without an exchange; $1 ms; waits for its sibling $3 % of the time)"
    says
done
