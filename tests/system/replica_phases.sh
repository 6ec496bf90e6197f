#!/bin/sh
# kill -9 of a replica in each phase of a round. A road of 50 ms makes a step of two stages last at least 100 ms, so that a step that is seen
# from outside is a few steps old at most; a round is sent every 40 steps. Idle: no round is under way. Sending: a contribution takes as long
# as tens of steps. Ready: all have all of it, and it is applied much later. The others go on, agree, learn; the dead one comes back. A machine
# on which a step is seen too late has two more tries.
# seconds: 480
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have killed replicas"

events_of() { kedge events "$1" --json | json '"\n".join(e["level"] + " " + e["code"] + " " + e["source"] + ": " + e["text"] for e in j["events"])'; }
happened() { events_of "$1" | grep -q "$2"; }
has_agreed() { [ "$(kedge status "$1" --json | json 'j["step"] > '"$2"' and j["validation_loss"] < j["first_validation_loss"] - 0.2')" = True ]; }

# phase NAME FROM TO SETTINGS... : a replica dies when the run says that it is beyond step FROM and before step TO
phase_once() {
    name=$1 from=$2 to=$3
    shift 3
    profile "$name" run.steps=100000 replicas.count=3 sync.every=40 sync.fragments=1 train.micro_batches=1 train.evaluate_every=20 link.slow_delay=50ms "$@"
    "$O/kedge" run "$TMP/$name.ini" --headless >"$TMP/$name.out" 2>&1 &
    console=$!
    wait_for 60 step_reached "$name" 1 || fail "$name does not begin: $(cat "$TMP/$name.out")"
    pid=$(pid_of "$name" r1s1)
    wait_for 120 step_reached "$name" "$from" || fail "$name does not reach step $from: $(events_of "$name" | tail -n 20)"
    at=$(step_of "$name")
    kill -9 "$pid"
    wait_for 30 happened "$name" '^alert replica-left kedged: replica 1 leaves the run: r1s1 on host . was killed by signal 9' || fail "$name: $(events_of "$name" | tail -n 20)"
    left=$(kedge events "$name" --json | json '[e["step"] for e in j["events"] if e["code"] == "replica-left"][0]')
    if [ "$left" -ge "$to" ]; then
        echo "$name: step $at was seen, and it died after step $left"
        kedge stop "$name" >/dev/null
        wait $console
        return 1
    fi
    case " $* " in *' replicas.rejoin=no '*) ;; *) wait_for 90 happened "$name" '^info replica-joined kedged: replica 1 joined at step .*; 3 of 3 replicas train$' ;; esac || fail "$name: it does not join: $(events_of "$name" | tail -n 30)"
    at=$(step_of "$name")
    wait_for 90 has_agreed "$name" "$((at + 60))" || fail "$name does not go on and learn: $(kedge status "$name"; events_of "$name" | tail -n 20)"
    events_of "$name" >"$TMP/$name.events"
    ! grep -Eq '^[a-z]* (drift|round-skipped|holds) ' "$TMP/$name.events" || fail "$name: $(cat "$TMP/$name.events")"
    kedge stop "$name" >/dev/null || fail "stop $name"
    wait $console
    nothing_left "$name" || fail "after $name"
}

phase() { # as phase_once
    called=$1
    shift
    for try in 1 2 3; do phase_once "$called$try" "$@" && return; done
    fail "$called: it always dies too late"
}

phase idle 46 78 sync.overlap=2
phase ready 48 76 sync.overlap=38
# 361 kB at 800 kbit/s are 3.6 s, as much as 36 steps; a copy for one that comes back would take long.
phase sending 42 75 sync.overlap=38 sync.payload=fp32 replicas.rejoin=no link.slow_rate=800kbit
exit 0
