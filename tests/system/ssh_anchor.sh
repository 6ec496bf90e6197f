#!/bin/sh
# The whole of it on hosts: two replicas of two stages and an anchor, each behind an sshd of its own. Headless to its end; then from a terminal:
# launched, watched, left, looked at, stopped.
# seconds: 300
. tests/system/lib/common.sh
. tests/tui/lib/tui.sh
. tests/system/lib/ssh.sh
trap 'status=$?; tui kill-server 2>/dev/null; (exit $status); clean_up_hosts' EXIT

for number in 1 2 3 4 5; do host h$number 127.0.0.2$number; done
# five NAME [KEY=VALUE...]
five() {
    name=$1
    shift
    profile "$name" run.timeout=10s replicas.count=2 sync.every=10 link.slow_delay=5ms anchor.host=e anchor.every=8 anchor.staleness=8 anchor.limit=30 anchor.rank=16 anchor.filter=wiener "$@"
    printf '[host c]\nthreads = 1\n[host d]\nthreads = 1\n[host e]\nthreads = 1\n' >>"$TMP/$name.ini"
    number=0
    for letter in a b c d e; do
        number=$((number + 1))
        use_host "$TMP/$name.ini" $letter h$number
    done
}

five short run.steps=300 # versions need time on a loaded machine
kedge run "$TMP/short.ini" --headless >"$TMP/out" 2>&1 || fail "short: $(tail -n 20 "$TMP/out")"
kedge anchor short --json | json 'j["anchor"]["snapshots"] >= 3 and j["anchor"]["used"] is not None' | grep -qx True || fail "short: $(kedge anchor short)"
nothing_left short && nothing_on "h1 h2 h3 h4 h5" short || fail "after short"

five long run.steps=100000
open_terminal 120 40 "exec env XDG_STATE_HOME='$XDG_STATE_HOME' XDG_CONFIG_HOME='$XDG_CONFIG_HOME' HOME='$HOME' '$O/kedge' run '$TMP/long.ini'"
wait_for 100 step_reached long 10 || fail "no step was trained: $(picture)"
wait_shows 20 "training"
wait_shows 20 "r1s1"
wait_shows 20 "3 Anchor"
press q
wait_shows 20 "left: long goes on"
before=$(step_of long)
wait_for 60 step_reached long $((before + 3)) || fail "it does not go on without the screen: $(kedge status long)"
kedge hosts long --json | json 'sorted((p["process"], p["host"]) for p in j["processes"] if p["process"][:5] != "agent")' >"$TMP/hosts"
grep -q "('anchor', 'e').*('r0s0', 'a'), ('r0s1', 'b'), ('r1s0', 'c'), ('r1s1', 'd')" "$TMP/hosts" || fail "processes are on $(cat "$TMP/hosts")"
kedge stop long >"$TMP/stop" 2>&1 || fail "stop: $(cat "$TMP/stop")"
nothing_left long && nothing_on "h1 h2 h3 h4 h5" long || fail "after stop: $(cat "$TMP/stop")"
exit 0
