#!/bin/sh
# What replicas exchange, changed while they train: every change holds from one and the same step on all replicas and stages, stands in the
# ledger, and the common weights stay the same bits; what cannot be is refused with the reason.
# seconds: 240
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have compared ledgers"

profile live run.steps=100000 replicas.count=3 sync.every=10 sync.overlap=1 sync.payload=powersgd sync.rank=4
"$O/kedge" run "$TMP/live.ini" --headless >"$TMP/out" 2>&1 &
console=$!
wait_for 60 step_reached live 12 || fail "no round was trained: $(cat "$TMP/out")"

refused() { # SETTING=VALUE WORDS
    ! kedge set live "$1" >"$TMP/set" 2>&1 || fail "$1 was accepted: $(cat "$TMP/set")"
    grep -q "$2" "$TMP/set" || fail "$1 is refused with: $(cat "$TMP/set")"
}
refused sync.every=2 "sync.fragments = 3"
refused sync.rank=5 "more than the 4"
refused sync.outer_rate=nan "sync.outer_rate"
refused sync.fragments=2 "cannot be changed while a run goes on"

# used NAME VALUE : the steps that the replicas say, one word each
used() { kedge events live --json | json '"\n".join(e["source"] + " " + e["text"] for e in j["events"] if e["code"] == "knob")' |
    sed -n "s/^r\([0-9]\)s0 $1 is $2 from step \([0-9]*\) on.*/\2/p"; }
is_active() { [ "$(used "$1" "$2" | wc -l)" = 3 ]; }
for change in sync.every=6 sync.rank=2 sync.outer_rate=0.5 sync.merge=0.25 sync.rank=3 sync.every=24; do
    name=${change%%=*} value=${change#*=}
    kedge set live "$change" >"$TMP/set" 2>&1 || fail "$change: $(cat "$TMP/set")"
    wait_for 60 is_active "$name" "$value" || fail "$change is not used: $(kedge events live | tail -n 30)"
    [ "$(used "$name" "$value" | sort -u | wc -l)" = 1 ] || fail "$change at different steps: $(used "$name" "$value")"
done
kedge get live --json >"$TMP/get" || fail "get"
json 'sorted([r["name"], r["new_value"]] for r in j["ledger"] if r["state"] != "active")' <"$TMP/get" | grep -qx '\[\]' || fail "not active: $(cat "$TMP/get")"

kedge events live --json >"$TMP/events"
! grep -Eq '"(drift|round-skipped)"' "$TMP/events" || fail "$(cat "$TMP/events")"
kedge stop live >/dev/null
wait $console
nothing_left live || fail "after stop"
exit 0
