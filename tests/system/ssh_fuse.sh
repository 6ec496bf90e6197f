#!/bin/sh
# Deadline and budget are armed on hosts over SSH before the first worker is started, and hold with console and scheduler dead: each host ends what it
# has by itself, says why, and stop finds nothing more to do.
# seconds: 500
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh

host one 127.0.0.2
host two 127.0.0.3
no_process() { [ -z "$(pids_of "$1")" ]; }
# burns NAME [SECTION.KEY=VALUE...] : started, orphaned, and gone by itself
burns() {
    name=$1
    profile "$@" run.steps=100000 run.timeout=3s
    use_host "$TMP/$name.ini" a one
    use_host "$TMP/$name.ini" b two
    kedge run "$TMP/$name.ini" --detach >"$TMP/out" 2>&1 || fail "$name: $(cat "$TMP/out")"
    for words in 'one a' 'two b'; do # what the agent was told before it could start anything
        tr '\0' ' ' <"/proc/$(cut -d' ' -f1 "$(host_folder "${words% *}" "$name")/agent@${words#* }.lock")/cmdline" | grep -q -- ' --fuse [0-9]*ms ' || fail "$name: host ${words% *} has no fuse"
    done
    kill -9 "$(cut -d' ' -f1 "$(run_folder "$name")/kedged.lock")"
    ! no_process "$name" || fail "$name: nothing lives after the scheduler was killed"
    wait_for 120 no_process "$name" || fail "$name: the hosts do not hold it: $(pids_of "$name")"
    for words in 'one a' 'two b'; do
        grep -q "stops: the run's deadline or budget is used up" "$(host_folder "${words% *}" "$name")/log/agent@${words#* }.log" || fail "$name: host ${words% *}: $(tail -n 5 "$(host_folder "${words% *}" "$name")"/log/agent*.log)"
    done
    kedge stop "$name" >"$TMP/stop" 2>&1 || fail "$name: stop: $(cat "$TMP/stop")"
    nothing_left "$name" && nothing_on "one two" "$name" || fail "$name: after stop"
}
burns timed run.deadline=20s
burns paid run.budget=0.005 host.a.price_per_hour=0.4 host.b.price_per_hour=0.6
exit 0
