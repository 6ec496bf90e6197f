#!/bin/sh
# kill -9 of a stage: its neighbour reports it by name within two heartbeats, its agent reports the signal, the run holds with the
# reason, nothing hangs, stop works, and a new run starts at once.
# seconds: 180
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have killed a stage"

events() { kedge events "$1" --json; }
said() { events tiny | grep -q "$1"; }

for victim in r0s1 r0s0; do
    profile tiny run.steps=100000
    kedge run "$TMP/tiny.ini" --detach >"$TMP/out" 2>&1 || fail "run: $(cat "$TMP/out")"
    wait_for 30 step_reached tiny 2 || fail "no step was trained"
    neighbour=r0s0
    [ $victim = r0s1 ] || neighbour=r0s1
    kill -9 "$(pid_of tiny $victim)"
    wait_for 10 is_phase tiny holding || fail "the run does not hold: $(kedge status tiny)"
    wait_for 5 said '"peer-lost"' || fail "$neighbour did not report $victim: $(events tiny)"
    events tiny | json '[e for e in j["events"] if e["code"] == "peer-lost" and e["source"] == "'$neighbour'" and "'$victim'" in e["text"]] != []' |
        grep -qx True || fail "the report does not name $victim: $(events tiny)"
    events tiny | json 'min(e["step"] for e in j["events"] if e["code"] == "peer-lost") >= 1' |
        grep -qx True || fail "the report does not say at which step: $(events tiny)"
    # Two heartbeats (timeout / 10 each), from the agent's word to the neighbour's: the road itself told at once.
    events tiny | json 'abs(min(e["wall_ms"] for e in j["events"] if e["code"] == "peer-lost") - min(e["wall_ms"] for e in j["events"] if "signal 9" in e["text"])) <= '$((1000 * patience)) |
        grep -qx True || fail "the neighbour's report came late: $(events tiny)"
    kedge status tiny --json | json 'j["reason"]' >"$TMP/reason"
    grep -q "$victim.*signal 9" "$TMP/reason" || fail "the reason is $(cat "$TMP/reason")"
    lives "$(pid_of tiny $neighbour)" || fail "$neighbour did not survive"
    kedge stop tiny >"$TMP/stop" || fail "stop: $(cat "$TMP/stop")"
    nothing_left tiny || fail "after stop"
done
