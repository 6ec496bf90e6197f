#!/bin/sh
# Snapshots share a road of 16 Mbit/s with activations, shaped by the kernel: what comes of them is in use anchor.staleness steps after they
# were taken, ± 3, over 300 steps, and as well over 300 more after the road has been halved under the running run. What comes back is paced
# as what goes out is, though nobody has told how much the road takes.
# seconds: 300
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have looked at events"
in_network 16mbit || skip "no network namespace with a shaped interface is permitted here; it would have halved a road under a running anchor"

# A difference of all weights is some 300 kB, and twenty steps of 20 ms each way take a second and more on any machine.
profile held run.steps=100000 run.timeout=20s train.micro_batches=4 train.learning_rate=0.0002 train.schedule=constant link.slow_delay=20ms \
    model.hidden=128 model.ffn=256 anchor.host=c anchor.every=20 anchor.staleness=20 anchor.limit=200 anchor.rank=8 anchor.evaluate=no anchor.lifeboat=no
printf '\n[host c]\nkind = local\nthreads = 1\n' >>"$TMP/held.ini"
kedge run "$TMP/held.ini" --detach >"$TMP/out" 2>&1 || fail "run: $(cat "$TMP/out")"

# used AFTER : staleness of each version that came into use after that step, one a line
used() {
    kedge events held --json | python3 -c '
import json, re, sys
for event in json.load(sys.stdin)["events"]:
    found = re.search(r"from step (\d+) on: staleness (\d+),", event["text"])
    if found and int(found.group(1)) > int(sys.argv[1]):
        print(found.group(2))' "$1"
}
# holds WHAT : over the next 300 steps
holds() {
    from=$(step_of held)
    wait_for 150 step_reached held $((from + 300)) || fail "$1: no 300 steps: $(kedge status held)"
    used "$from" >"$TMP/used"
    [ "$(wc -l <"$TMP/used")" -ge 10 ] || fail "$1: too little is used: $(kedge events held)"
    awk '{ d = $1 - 20; if (d < -3 || d > 3) bad = 1 } END { exit bad }' "$TMP/used" || fail "$1: staleness was $(tr '\n' ' ' <"$TMP/used"): $(kedge events held | tail -n 40)"
}
some() { [ -n "$(used 0)" ]; }
wait_for 60 some || fail "nothing is used: $(kedge anchor held) $(kedge events held)"
# paced FROM TO : bulk on that road waits for its own pace
paced() {
    [ "$(kedge links held --json | json 'any(r["from"] == "'"$1"'" and r["to"] == "'"$2"'" and r["lane"] == "bulk" and "pace" in r["holds"] for r in j["links"])')" = True ]
}
# What waits in the road's queue has not left: of two stages of one chunk each other shares are seen than none, a half and all.
leaves() {
    [ "$(kedge anchor held --json | json 'min(abs((j["anchor"]["sent_share"] or 0) - share) for share in (0, 0.5, 1)) > 0.02')" = True ]
}
wait_for 60 leaves || fail "a snapshot leaves at once: $(kedge anchor held)"
for stage in r0s0 r0s1; do
    wait_for 60 paced "$stage" anchor || fail "a snapshot is never paced: $(kedge links held)"
    wait_for 60 paced anchor "$stage" || fail "what comes back is never paced: $(kedge links held)"
done
holds "16 Mbit/s"
tc qdisc change dev lo root tbf rate 8mbit burst 16k latency 50ms || fail "lo cannot be slowed down"
holds "8 Mbit/s"

kedge stop held >"$TMP/out" 2>&1 || fail "stop: $(cat "$TMP/out")"
nothing_left held || fail "after stop: $(cat "$TMP/out")"
exit 0
