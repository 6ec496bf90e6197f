#!/bin/sh
# Connections that break in every phase of a start, noisy shells, stale locks, other people's processes, a key that is revoked while the
# run goes on: the start goes on or ends with a sentence, and nothing is left; a run needs nobody's connection.
# seconds: 900
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh

host one 127.0.0.2
host two 127.0.0.3 "Banner $TMP/banner"
echo "*** all activity is recorded ***" >"$TMP/banner"
# Shells that talk: to whoever starts them.
printf 'echo "Welcome to your new machine"\necho noise >&2\n' | tee "$TMP/ssh/two/home/.bashrc" >"$TMP/ssh/two/home/.profile"
profile far run.steps=100000 run.timeout=15s
use_host "$TMP/far.ini" a one
use_host "$TMP/far.ini" b two

# breaks PHASE : the connections to b are killed when it says so. The start is whole, or nothing is left of it. A fast machine may be
# through with a phase before a line of it is printed: then they are killed after the start.
breaks() {
    rm -rf "$TMP/ssh/two/home/.local/share"
    : >"$TMP/out" # what the one before said is not what this one says
    timeout 100 "$O/kedge" run "$TMP/far.ini" --detach >"$TMP/out" 2>&1 </dev/null &
    run=$!
    wait_for 60 grep -q "^b: $1\\|^agent@b is ready" "$TMP/out" || fail "never $1: $(cat "$TMP/out")"
    end_sessions two
    wait $run
    status=$?
    if [ $status = 0 ]; then
        wait_for 60 step_reached far 1 || fail "broken while $1: it says it stands: $(cat "$TMP/out"); $(kedge status far)"
        kedge stop far >"$TMP/stop" 2>&1 || fail "stop: $(cat "$TMP/stop")"
    else
        [ $status = 3 ] && tail -n 1 "$TMP/out" | grep -q '^kedge: host b' || fail "broken while $1: $status: $(cat "$TMP/out")"
    fi
    nothing_left far && nothing_on "one two" far || fail "broken while $1: $(cat "$TMP/out")"
    echo "$1: $status" >>"$TMP/phases"
}
for phase in "\(greeting\|logging in\)" "verifying programs" "delivering credentials" prepared; do breaks "$phase"; done
# While a host is looked at and while programs travel a break is mended. The end of sessions may come when the next phase has begun,
# which is not: then once more.
for phase in looking "sending programs"; do
    for try in 1 2 3 4 5; do
        breaks "$phase"
        [ $status != 0 ] || break
    done
    [ $status = 0 ] || fail "a break was not mended: $(cat "$TMP/phases")"
done

# A half-pushed folder is finished; locks that nobody holds and the lock of a process that is another one now stop nobody.
programs=$(echo "$TMP/ssh/two/home/.local/share/kedge/programs"/*[0-9a-f])
rm -f "$programs/.whole" "$programs/kedged"
touch "$programs.lock"
sleep 600 &
stranger=$!
echo "$stranger 1 0123456789abcdef" >"$(host_folder two far)/agent@b.lock"
echo "$stranger $(awk '{ print $22 }' /proc/$stranger/stat) 0123456789abcdef" >"$(host_folder one far)/kedged.lock"
kedge run "$TMP/far.ini" --detach >"$TMP/out" 2>&1 || fail "run with stale locks: $(cat "$TMP/out")"
wait_for 60 step_reached far 3 || fail "no step was trained: $(kedge status far)"
[ -x "$programs/kedged" ] || fail "the folder was not finished"

# Nobody needs the connections, nor the keys, of the start.
end_sessions one
end_sessions two
mv "$TMP/ssh/authorized_keys" "$TMP/ssh/authorized_keys.away"
at=$(step_of far)
wait_for 60 step_reached far $((at + 5)) || fail "it does not train on: $(kedge status far)"
kedge stop far >"$TMP/stop" 2>&1
[ $? = 4 ] && grep -q 'cannot be looked at: .* accepts none of our keys' "$TMP/stop" || fail "stop with revoked keys says $(cat "$TMP/stop")"
mv "$TMP/ssh/authorized_keys.away" "$TMP/ssh/authorized_keys"
kedge stop far >"$TMP/stop" 2>&1 || fail "stop: $(cat "$TMP/stop")"
lives $stranger || fail "a stranger was killed"
rm -f "$(host_folder two far)/agent@b.lock" "$(host_folder one far)/kedged.lock"
kill $stranger

# The agent of a host and the scheduler are killed: stop finds the orphans by their mark, on the host.
kedge run "$TMP/far.ini" --detach >"$TMP/out" 2>&1 || fail "run: $(cat "$TMP/out")"
wait_for 60 step_reached far 3 || fail "no step was trained: $(kedge status far)"
kill -9 "$(pid_of far agent@b)" "$(cut -d' ' -f1 "$(run_folder far)/kedged.lock")"
kedge stop far >"$TMP/stop" 2>&1 || fail "stop without agent and scheduler: $(cat "$TMP/stop")"
nothing_left far && nothing_on "one two" far || fail "orphans: $(cat "$TMP/stop")"
exit 0
