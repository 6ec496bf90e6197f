#!/bin/sh
# Snapshots come from the lowest replica. When that dies the next one sends them, the anchor gets a whole one, and directions newer than the
# death are used by those that are left; when it comes back it is corrected again, too.
# seconds: 180
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have looked at what the anchor says"

events_of() { kedge events "$1" --json | json '"\n".join(e["level"] + " " + e["code"] + " " + e["source"] + ": " + e["text"] for e in j["events"])'; }
happened() { events_of follows | grep -q "$1"; }
used() { [ "$(kedge anchor follows --json | json 'j["anchor"]["used"] is not None and j["anchor"]["used"] > '"$1")" = True ]; }

profile follows run.steps=100000 run.timeout=2s replicas.count=2 sync.every=10 train.micro_batches=4 train.sequence=64 link.slow_delay=5ms anchor.host=c anchor.every=8 \
    anchor.staleness=8 anchor.limit=60 anchor.rank=16 anchor.filter=wiener
printf '\n[host c]\nkind = local\nthreads = 1\n' >>"$TMP/follows.ini"
kedge run "$TMP/follows.ini" --detach >"$TMP/out" 2>&1 || fail "follows: $(cat "$TMP/out")"
wait_for 60 used 0 || fail "nothing is used: $(kedge anchor follows; events_of follows | tail -n 20)"

kill -9 "$(pid_of follows r0s1)"
wait_for 30 happened '^info anchor-follows kedged: snapshots come from replica 1 from now on' || fail "nobody sends snapshots now: $(events_of follows | tail -n 20)"
step=$(step_of follows)
wait_for 60 used "$step" || fail "directions are old: $(kedge anchor follows; events_of follows | tail -n 30)"

wait_for 60 happened '^info replica-joined kedged: replica 0 joined at step' || fail "replica 0 does not come back: $(events_of follows | tail -n 20)"
step=$(step_of follows)
wait_for 60 used "$step" || fail "with replica 0 directions are old: $(kedge anchor follows; events_of follows | tail -n 30)"
events_of follows >"$TMP/events"
! grep -Eq '^[a-z]* (drift|round-skipped|holds) ' "$TMP/events" || fail "$(cat "$TMP/events")"
kedge stop follows >/dev/null || fail "stop"
nothing_left follows || fail "after stop"
exit 0
