#!/bin/sh
# A profile becomes a run: it trains, tells, obeys a knob at a step that it names, stops without leaving anything, and can
# be started again at once. A short one ends by itself.
# seconds: 240
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have driven a whole run"

profile tiny run.steps=100000
kedge run "$TMP/tiny.ini" --detach >"$TMP/out" 2>&1 || fail "run --detach: $(cat "$TMP/out")"
wait_for 30 step_reached tiny 3 || fail "no step was trained: $(kedge status tiny)"

kedge status tiny --json >"$TMP/status" || fail "status --json"
json 'j["format"]' <"$TMP/status" | grep -qx 1 || fail "no format in $(cat "$TMP/status")"
json 'j["run"], j["phase"], j["steps"], len(j["processes"])' <"$TMP/status" >"$TMP/words"
grep -qx 'tiny training 100000 4' "$TMP/words" || fail "status says $(cat "$TMP/words")"
grep -qi 'nan' "$TMP/status" && fail "NaN in $(cat "$TMP/status")"
kedge status tiny >/dev/null && kedge links tiny >/dev/null && kedge hosts tiny >/dev/null || fail "a view failed"
kedge ls | grep -q '^tiny .*training' || fail "ls: $(kedge ls)"
[ "$(kedge get tiny mask.rate)" = 0.95 ] || fail "get mask.rate: $(kedge get tiny mask.rate)"
[ "$(kedge get tiny model.hidden)" = 64 ] || fail "get model.hidden"

kedge logs tiny >"$TMP/logs" || fail "logs"
for process in kedged agent@a agent@b r0s0 r0s1; do grep -q "^$process " "$TMP/logs" || fail "no line of $process in the logs"; done
awk '{ print $2 }' "$TMP/logs" | LC_ALL=C sort -c || fail "the logs are not in the order of time"
kedge logs tiny r0s1 | grep -q '^20.*stage 1 of 2' || fail "logs of r0s1: $(kedge logs tiny r0s1)"
timeout 3 "$O/kedge" status tiny --watch --json >"$TMP/watch"
[ "$(grep -c '^{"format":1' "$TMP/watch")" -ge 2 ] || fail "status --watch says $(cat "$TMP/watch")"
timeout 3 "$O/kedge" logs tiny kedged -f >"$TMP/follow" &
timeout 3 "$O/kedge" events tiny -f --json >"$TMP/events" &
sleep 1

kedge set tiny mask.rate=0.9 --ascii >"$TMP/set" || fail "set: $(cat "$TMP/set")"
grep -Eq '^mask.rate 0.95 -> 0.9 active from step [0-9]+$' "$TMP/set" || fail "set says $(cat "$TMP/set")"
[ "$(kedge get tiny mask.rate)" = 0.9 ] || fail "get after set: $(kedge get tiny mask.rate)"
kedge get tiny --json | json '[(r["old"], r["new"], r["state"]) for r in j["ledger"]]' >"$TMP/ledger"
grep -q "('0.95', '0.9', 'active')" "$TMP/ledger" || fail "ledger: $(cat "$TMP/ledger")"
wait
grep -q 'mask.rate' "$TMP/follow" || fail "logs -f did not follow: $(cat "$TMP/follow")"
grep -q '"code":"knob"' "$TMP/events" || fail "events -f did not follow: $(cat "$TMP/events")"

kedge pause tiny >/dev/null || fail "pause"
at=
for i in 1 2 3 4 5 6 7 8; do # the step that is under way is finished first
    last=$at at=$(step_of tiny)
    [ "$last" != "$at" ] || break
    sleep 1
done
[ "$last" = "$at" ] || fail "it trained on while paused"
kedge resume tiny >/dev/null || fail "resume"
wait_for 20 step_reached tiny $((at + 2)) || fail "it did not go on after resume"

kedge run "$TMP/tiny.ini" --detach >"$TMP/out" 2>&1
[ $? = 4 ] && grep -q "is going already" "$TMP/out" || fail "a second start: $(cat "$TMP/out")"

kedge stop tiny >"$TMP/stop" || fail "stop: $(cat "$TMP/stop")"
tail -n 1 "$TMP/stop" | grep -q '^tiny stopped at step [0-9]*: no process, socket or lock is left$' || fail "stop says $(cat "$TMP/stop")"
nothing_left tiny || fail "after stop"
is_phase tiny stopped || fail "the record says $(phase_of tiny)"
kedge events tiny --json | json 'len(j["events"]) > 0' | grep -qx True || fail "no events in the record"
kedge stop tiny | grep -q 'was not running' || fail "stop of what is stopped"

# At once again, this time to its end, watched.
profile tiny run.steps=12
kedge run "$TMP/tiny.ini" --headless >"$TMP/out" 2>&1 || fail "run to the end: $(cat "$TMP/out")"
grep -q '^tiny finished: 12 steps' "$TMP/out" || fail "headless says $(cat "$TMP/out")"
nothing_left tiny || fail "after the end"
is_phase tiny finished || fail "the record says $(phase_of tiny)"
