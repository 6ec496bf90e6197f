#!/bin/sh
# The end of a host's lease (host.lease_until): in time before it the weights are saved; with another replica that stays the host is drained
# and the other goes on, whose weights those are; else the run is stopped, and its last event names the weights. Nothing begins on a host
# whose lease is over.
# seconds: 900
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have watched the end of a lease"

in_seconds() { date -u -d "@$(($(date +%s) + $1))" +%Y-%m-%dT%H:%M:%SZ; }
events_of() { kedge events "$1" --json | json '"\n".join(e["level"] + " " + e["code"] + " " + e["source"] + ": " + e["text"] for e in j["events"])'; }
happened() { events_of "$1" | grep -q "$2"; }

profile late host.b.lease_until=2026-01-01T00:00Z
for command in check run; do
    kedge $command "$TMP/late.ini" >"$TMP/out" 2>&1
    [ $? = 2 ] && grep -q '^kedge: host b: its lease is over (lease_until = 2026-01-01T00:00:00Z): write when it ends now' "$TMP/out" || fail "$command with a lease that is over: $(cat "$TMP/out")"
done

# With a timeout of 60 s saving begins about 170 s (one replica) and 185 s (two) before the end. How long a start takes here is measured, and five
# times that must pass before: a slow machine trains by then, too.
profile first run.steps=3
began=$(date +%s)
kedge run "$TMP/first.ini" --headless >"$TMP/out" 2>&1 || fail "run: $(cat "$TMP/out")"
spare=$((10 + 5 * ($(date +%s) - began)))
profile one run.steps=1000000000 run.timeout=60s train.warmup=0 host.b.lease_until="$(in_seconds $((170 + spare)))"
kedge run "$TMP/one.ini" --detach >"$TMP/out" 2>&1 || fail "run: $(cat "$TMP/out")"
profile two run.steps=1000000000 run.timeout=60s train.warmup=0 replicas.count=2 sync.every=6 host.a.lease_until="$(in_seconds $((185 + spare)))"
kedge run "$TMP/two.ini" --detach >"$TMP/out" 2>&1 || fail "run: $(cat "$TMP/out")"

over() { is_phase one stopped && nothing_left one >/dev/null; }
wait_for $((150 + spare)) over || fail "it goes on: $(kedge status one; events_of one | tail -n 20)"
happened one '^warn lease kedged: the lease of host b ends at .*Z, in .* s: the weights are saved, then the run is stopped' || fail "no warning: $(events_of one)"
step=$(events_of one | sed -n 's/^info checkpoint kedged: the weights after step \([0-9]*\) are in .*/\1/p' | tail -n 1)
last=$(events_of one | tail -n 1)
echo "$last" | grep -q "stopping → stopped: the lease of host b ends at .*Z; the weights after step ${step:-none} are in checkpoint/$step: 'kedge export one DIR'" || fail "the last event: $last"
kedge export one "$TMP/taken" >"$TMP/out" 2>&1 || fail "the weights cannot be taken out: $(cat "$TMP/out")"
[ -s "$TMP/taken/model.safetensors" ] || fail "no weights were taken out"

drained() { happened two '^info host kedged: host a is drained'; }
wait_for $((180 + spare)) drained || fail "it is not drained: $(kedge status two; events_of two | tail -n 20)"
happened two '^warn lease kedged: the lease of host a ends at .*Z, in .* s: the weights are saved, then the host is drained' || fail "no warning: $(events_of two)"
happened two '^info replica-left kedged: replica 0 leaves the run: the lease of host a drains host a; 1 of 2 replicas go on' || fail "who left: $(events_of two)"
ls "$(run_folder two)/checkpoint"/*/ >"$TMP/files"
grep -q '^r1s0.safetensors' "$TMP/files" && ! grep -q '^r0s' "$TMP/files" || fail "the weights are on the host that goes: $(cat "$TMP/files")"
at=$(step_of two)
wait_for 60 step_reached two $((at + 5)) || fail "the other does not go on: $(kedge status two)"
! events_of two | grep -Eq '^[a-z]* (drift|holds) |^alert ' || fail "$(events_of two)"
kedge get two --json | json '[(c["name"], c["old"], c["state"], c["who"]) for c in j["ledger"]]' | grep -qxF "[('host.drain', 'a', 'active', 'the lease of host a')]" || fail "ledger: $(kedge get two)"
kedge stop two >"$TMP/out" 2>&1 || fail "stop: $(cat "$TMP/out")"
nothing_left two || fail "something is left"
exit 0
