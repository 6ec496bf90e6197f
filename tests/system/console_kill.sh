#!/bin/sh
# kill -9 of the console is a supported way to leave: the run goes on, another console attaches; Ctrl-C leaves too, and says so.
# seconds: 180
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have killed the console of a run"

profile tiny run.steps=100000
"$O/kedge" run "$TMP/tiny.ini" --headless >"$TMP/out" 2>&1 &
console=$!
wait_for 30 step_reached tiny 2 || fail "no step was trained: $(cat "$TMP/out")"
kill -9 $console
wait $console
at=$(step_of tiny)
wait_for 20 step_reached tiny $((at + 3)) || fail "the run did not go on without its console"

"$O/kedge" attach tiny >"$TMP/attached" 2>&1 &
console=$!
wait_for 20 grep -q '^step ' "$TMP/attached" || fail "attach shows nothing: $(cat "$TMP/attached")"
kill -INT $console
wait $console
[ $? = 130 ] || fail "Ctrl-C ended with $?"
grep -q "^left: tiny goes on .*kedge attach tiny.*kedge stop tiny" "$TMP/attached" || fail "leaving says $(cat "$TMP/attached")"
at=$(step_of tiny)
wait_for 20 step_reached tiny $((at + 2)) || fail "the run did not go on after Ctrl-C"
kedge stop tiny >/dev/null || fail "stop"
nothing_left tiny || fail "after stop"

# Ctrl-C while it starts: either nothing has begun and nothing is left, or it has begun and goes on. Nothing between.
for delay in 0.01 0.05 0.1 0.3; do
    "$O/kedge" run "$TMP/tiny.ini" --headless >"$TMP/out" 2>&1 &
    console=$!
    sleep $delay
    # A shell's background command begins with INT ignored: on a slow machine the first one may come before kedge takes signals.
    while kill -INT $console 2>/dev/null; do sleep 0.5; done
    wait $console
    code=$?
    if grep -q '^left: tiny goes on' "$TMP/out"; then
        [ $code = 130 ] || fail "left with $code"
        kedge stop tiny >/dev/null || fail "stop"
    elif [ $code = 130 ] && [ -s "$TMP/out" ]; then
        grep -q 'interrupted while .tiny. was starting' "$TMP/out" || fail "interrupted says $(cat "$TMP/out")"
    fi # else: killed before it took signals at all
    nothing_left tiny || fail "after Ctrl-C at $delay s"
done
