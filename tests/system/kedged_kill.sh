#!/bin/sh
# The scheduler is killed: workers train on; attach starts a new one that takes them back; and `kedge stop` ends the run
# when there is no scheduler at all. Also when an agent was killed with it, so that only the run's mark is left to find its workers.
# seconds: 240
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have killed the scheduler"

holder() { cut -d ' ' -f 1 "$(run_folder tiny)/$1.lock"; }

profile tiny run.steps=100000
kedge run "$TMP/tiny.ini" --detach >"$TMP/out" 2>&1 || fail "run: $(cat "$TMP/out")"
wait_for 30 step_reached tiny 3 || fail "no step was trained"
at=$(step_of tiny)
stages="$(pid_of tiny r0s0) $(pid_of tiny r0s1)"
kill -9 "$(holder kedged)"
sleep 2
for pid in $stages; do lives "$pid" || fail "a stage ended with the scheduler"; done
kedge run "$TMP/tiny.ini" --detach >"$TMP/out" 2>&1
[ $? = 4 ] && grep -q 'no scheduler.*kedge attach tiny.*kedge stop tiny' "$TMP/out" || fail "run beside leftovers: $(cat "$TMP/out")"

"$O/kedge" attach tiny >"$TMP/attached" 2>&1 &
console=$!
wait_for 30 is_phase tiny training || fail "the new scheduler does not train: $(kedge status tiny; cat "$TMP/attached")"
wait_for 30 step_reached tiny $((at + 3)) || fail "no progress under the new scheduler: $(kedge status tiny)"
[ "$(pid_of tiny r0s0) $(pid_of tiny r0s1)" = "$stages" ] || fail "the stages are not those of before"
kill -INT $console
wait $console

kill -9 "$(holder kedged)"
kedge stop tiny >"$TMP/stop" || fail "stop without scheduler: $(cat "$TMP/stop")"
nothing_left tiny || fail "after stop without scheduler"
for pid in $stages; do gone "$pid" || fail "stage $pid is left"; done

kedge run "$TMP/tiny.ini" --detach >"$TMP/out" 2>&1 || fail "run again: $(cat "$TMP/out")"
wait_for 30 step_reached tiny 2 || fail "no step was trained the second time"
stages="$(pid_of tiny r0s0) $(pid_of tiny r0s1)"
kill -9 "$(holder kedged)" "$(holder agent@a)" "$(holder agent@b)"
kedge stop tiny >"$TMP/stop" || fail "stop without agents: $(cat "$TMP/stop")"
nothing_left tiny || fail "after stop without agents"
for pid in $stages; do gone "$pid" || fail "stage $pid is left"; done
