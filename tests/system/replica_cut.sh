#!/bin/sh
# A host with a replica is cut off from everybody while all its processes live: nothing of it moves for longer than anybody waits, then it is
# back and believes that nothing has happened. By then kedged's side has gone on without it. There are not two histories: what the old life
# says is of no use to anybody, it is ended, writes no weights, and its replica comes back with what the others have.
# seconds: 240
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have cut off a replica"

events_of() { kedge events "$1" --json | json '"\n".join(e["level"] + " " + e["code"] + " " + e["source"] + ": " + e["text"] for e in j["events"])'; }
happened() { events_of "$1" | grep -q "$2"; }
learnt() { [ "$(kedge status "$1" --json | json 'j["validation_step"] > '"$2"' and j["validation_loss"] < j["first_validation_loss"] - 0.3')" = True ]; }

cut_off() { # NAME REPLICAS : replica 1, which has host b to itself
    name=$1 replicas=$2
    profile "$name" run.steps=100000 replicas.count="$replicas" pipeline.stages=1 boundary.codec=dense train.micro_batches=1 train.evaluate_every=50 sync.every=6
    [ "$replicas" = 2 ] || printf '[host c]\nthreads = 1\n' >>"$TMP/$name.ini"
    kedge run "$TMP/$name.ini" --headless >"$TMP/$name.out" 2>&1 &
    console=$!
    wait_for 60 step_reached "$name" 20 || fail "$name does not begin: $(cat "$TMP/$name.out")"
    stage=$(pid_of "$name" r1s0) agent=$(pid_of "$name" agent@b)
    kill -STOP "$stage" "$agent"
    wait_for 60 happened "$name" '^alert replica-left kedged: replica 1 leaves the run: ' || fail "$name: nobody lets it go: $(events_of "$name" | tail -n 20)"
    at=$(step_of "$name")
    wait_for 60 step_reached "$name" $((at + 30)) || fail "$name: the others do not go on: $(kedge status "$name"; events_of "$name" | tail -n 20)"
    lives "$stage" || fail "$name: it was ended while it was cut off; nothing is tried here"
    kill -CONT "$stage" "$agent"
    wait_for 60 gone "$stage" || fail "$name: its old life goes on: $(events_of "$name" | tail -n 20)"
    wait_for 60 happened "$name" "^info replica-joined kedged: replica 1 joined at step .*; $replicas of $replicas replicas train\$" ||
        fail "$name: it does not join: $(events_of "$name" | tail -n 20)"
    at=$(step_of "$name")
    wait_for 90 learnt "$name" $((at + 60)) || fail "$name does not go on and learn: $(kedge status "$name"; events_of "$name" | tail -n 20)"
    kedge checkpoint "$name" >"$TMP/saved" 2>&1 || fail "$name cannot write its weights: $(cat "$TMP/saved")"
    wait_for 30 happened "$name" '^info checkpoint kedged: the weights after step' || fail "$name wrote no weights: $(events_of "$name" | tail -n 20)"
    events_of "$name" >"$TMP/$name.events"
    ! grep -Eq '^[a-z]* (drift|round-skipped|holds) ' "$TMP/$name.events" || fail "$name: $(cat "$TMP/$name.events")"
    ! grep -q '^alert replica-left kedged: replica [02] leaves' "$TMP/$name.events" || fail "$name: the wrong one left: $(cat "$TMP/$name.events")"
    kedge stop "$name" >/dev/null || fail "stop $name"
    wait $console
    nothing_left "$name" || fail "after $name"
}

cut_off three 3
cut_off two 2
exit 0
