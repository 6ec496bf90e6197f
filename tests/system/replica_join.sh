#!/bin/sh
# A replica that died comes back by itself: it copies what the others have in common and takes part from a round on, at every offset of a
# short schedule, with rounds under way or not; the lowest one, too, and two at once. One that dies while it joins holds up nobody and comes
# again; one that dies too often stays away. Never is there another history: weights are the same bits after every round.
# seconds: 480
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have let replicas die and come back"

events_of() { kedge events "$1" --json | json '"\n".join(e["level"] + " " + e["code"] + " " + e["source"] + ": " + e["text"] for e in j["events"])'; }
happened() { events_of "$1" | grep -q "$2"; }
# joined NAME REPLICA TIMES
joined() { [ "$(events_of "$1" | grep -c "^info replica-joined kedged: replica $2 joined at step ")" -ge "$3" ]; }
agreed_after() { # NAME STEP : everybody has trained beyond that step, and what it learnt stays
    step_reached "$1" "$2" && kedge status "$1" --json | json 'j["validation_loss"] < j["first_validation_loss"] - 0.3' | grep -qx True
}
begin() { # NAME SETTINGS...
    name=$1
    shift
    profile "$name" run.steps=100000 replicas.count=3 train.micro_batches=1 train.evaluate_every=40 "$@"
    "$O/kedge" run "$TMP/$name.ini" --headless >"$TMP/$name.out" 2>&1 &
    console=$!
    wait_for 60 step_reached "$name" 25 || fail "$name does not begin: $(cat "$TMP/$name.out")"
}
lose() { # NAME PROCESS...
    name=$1 pids=
    shift
    for process; do pids="$pids $(pid_of "$name" "$process")"; done
    kill -9 $pids
}
back() { # NAME REPLICA TIMES
    wait_for 60 joined "$1" "$2" "$3" || fail "$1: replica $2 does not join: $(events_of "$1" | tail -n 30)"
}
end() { # NAME
    at=$(step_of "$1")
    wait_for 90 agreed_after "$1" "$((at + 60))" || fail "$1 does not go on and learn: $(kedge status "$1"; events_of "$1" | tail -n 30)"
    events_of "$1" >"$TMP/$1.events"
    ! grep -Eq '^[a-z]* (drift|round-skipped|holds) ' "$TMP/$1.events" || fail "$1: $(cat "$TMP/$1.events")"
    kedge stop "$1" >/dev/null || fail "stop $1"
    wait $console
    nothing_left "$1" || fail "after $1"
}

# What is let in with a round trains two steps after that is applied: with one fragment every 4 steps these are all offsets of the schedule.
for overlap in 0 1 2 3; do
    case $overlap in
    0) payload=sync.payload=int4 ;;
    1) payload="sync.payload=powersgd sync.rank=4" ;;
    2) payload="sync.payload=powersgd sync.rank=4 sync.power=alternating sync.table=rows" ;;
    3) payload=sync.payload=e3m0 ;;
    esac
    begin "offset$overlap" sync.every=4 sync.fragments=1 sync.overlap=$overlap replicas.count=2 $payload
    lose "offset$overlap" r1s1
    back "offset$overlap" 1 1
    steps=$(events_of "offset$overlap" | sed -n 's/.*replica 1 joined at step \([0-9]*\), round .*; 2 of 2 replicas train$/\1/p')
    for step in $steps; do # on a machine that is busy for long it may have left and come back once more
        [ "$((step % 4))" = "$(((overlap + 2) % 4))" ] || fail "offset$overlap: joined at step $step"
    done
    [ -n "$steps" ] || fail "offset$overlap: no step is said: $(events_of "offset$overlap" | tail -n 20)"
    end "offset$overlap"
done

# The lowest one, which speaks for all and writes the weights, and another one with it, while three rounds are under way. A setting that is
# changed afterwards holds for those that came back.
begin two sync.every=6 sync.overlap=5 sync.payload=powersgd sync.rank=4
lose two r0s0 r1s1
back two 0 1
back two 1 1
events_of two | grep -q 'replica [01] joined at .*; 3 of 3 replicas train$' || fail "two: $(events_of two | tail -n 20)"
kedge set two sync.every=12 >"$TMP/set" 2>&1 || fail "set: $(cat "$TMP/set")"
is_active() { [ "$(kedge events two --json | json '"\n".join(e["text"] for e in j["events"] if e["code"] == "knob")' | grep -c 'sync.every is 12 from step')" = 3 ]; }
wait_for 60 is_active || fail "sync.every is not used by all: $(events_of two | tail -n 20)"
[ "$(kedge events two --json | json '"\n".join(e["text"] for e in j["events"] if e["code"] == "knob")' | grep 'sync.every is 12 from step' | sort -u | wc -l)" = 1 ] || fail "at different steps: $(events_of two)"
kedge checkpoint two >"$TMP/saved" 2>&1 || fail "cannot write weights: $(cat "$TMP/saved")"
wait_for 30 happened two '^info checkpoint kedged: the weights after step' || fail "no weights: $(events_of two | tail -n 20)"
end two

# A copy that takes seconds: it dies in the middle of it, nobody waits, and its next life joins. Then it dies until it stays away.
begin slow sync.every=8 sync.overlap=7 link.slow_rate=2Mbit pipeline.stages=1 boundary.codec=dense
lose slow r1s0
wait_for 30 happened slow '^info hello r1s0: .* says hello, pid' || fail "it is not started: $(events_of slow | tail -n 20)"
wait_for 30 happened slow '^info replica-starts kedged: replica 1 is started again' || fail "it is not started: $(events_of slow | tail -n 20)"
is_loaded() { [ "$(events_of slow | grep -c '^info loaded r1s0: ')" -ge 2 ]; }
wait_for 30 is_loaded || fail "it does not load: $(events_of slow | tail -n 20)"
lose slow r1s0
wait_for 30 happened slow '^warn join-failed kedged: replica 1 did not join: r1s0 on host . was killed by signal 9' || fail "slow: $(events_of slow | tail -n 20)"
at=$(step_of slow)
wait_for 60 step_reached slow $((at + 40)) || fail "the others wait for one that died while it joined: $(kedge status slow; events_of slow | tail -n 20)"
back slow 1 1
# It copies for longer than an exchange may take: the others wait for that, and say for whom and why.
wait_for 30 happened slow '^warn sync-wait r[02]s0: stage 0 of replica [02] waited for replica 1, round [0-9]*, [0-9.]* s: it has just joined' ||
    fail "slow: nobody says that it waits: $(events_of slow | tail -n 20)"
lose slow r1s0
back slow 1 2
lose slow r1s0
wait_for 30 happened slow '^alert replica-down kedged: replica 1 ended 3 more times within ten minutes' || fail "slow: $(events_of slow | tail -n 20)"
end slow

# Who does not want that gets none of it.
begin never sync.every=6 replicas.rejoin=no
lose never r2s0
wait_for 30 happened never '^alert replica-left kedged: replica 2 leaves the run' || fail "never: $(events_of never | tail -n 20)"
end never
! happened never '^info replica-starts' || fail "never: $(events_of never | tail -n 20)"
exit 0
