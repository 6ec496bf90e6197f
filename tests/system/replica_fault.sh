#!/bin/sh
# A device of one replica computes what is not finite, in all its weights, just before a round: everybody refuses that contribution, the
# round is skipped and named on all replicas, no copy drifts, nothing halts. The replica takes what the others have in common, and it learns
# on with them. Real programs; only the backend's optimiser step is wrong, once.
# seconds: 240
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have spoilt a replica"
faulty="$O/tests/system/lib/faulty.so"
[ -e "$faulty" ] || skip "$faulty is not built here ('make tests'); it would have computed NaN"

# Programs look for the backend beside themselves.
mkdir -p "$TMP/bin" && cp "$O/kedge" "$O/kedged" "$O/kedge-worker" "$TMP/bin/" && cp "$O/kedge-cpu.so" "$TMP/bin/kedge-true.so" &&
    cp "$faulty" "$TMP/bin/kedge-cpu.so" || fail "cannot copy the programs"
O=$TMP/bin

events_of() { kedge events "$1" --json | json '"\n".join(e["level"] + " " + e["code"] + " " + e["source"] + ": " + e["text"] for e in j["events"])'; }
happened() { events_of "$1" | grep -q "$2"; }
skipped_by() { events_of "$1" | grep "^warn round-skipped $2: round [0-9]*, fragment [0-9]*: the contribution of replica $3 is not finite"; }
fault_taken() { [ ! -e "$TMP/bin/fault" ]; }
validated() { [ "$(kedge status "$1" --json | json 'j["validation_step"]')" -gt "$2" ] 2>/dev/null; }

spoil() { # NAME REPLICAS SETTINGS... : every step has a round, whose contribution is made of the weights of that step
    name=$1 replicas=$2
    shift 2
    profile "$name" run.steps=100000 replicas.count=$replicas train.micro_batches=1 train.evaluate_every=20 sync.overlap=0 sync.fragments=1 sync.every=1 "$@"
    kedge run "$TMP/$name.ini" --headless >"$TMP/$name.out" 2>&1 &
    console=$!
    wait_for 60 step_reached "$name" 20 || fail "$name does not begin: $(cat "$TMP/$name.out")"
    echo r1s0 >"$TMP/bin/fault.new" && mv "$TMP/bin/fault.new" "$TMP/bin/fault"
    wait_for 30 fault_taken || fail "$name: r1s0 makes no optimiser steps: $(events_of "$name" | tail -n 20)"
    for replica in $(seq 0 $((replicas - 1))); do
        wait_for 30 skipped_by "$name" "r${replica}s0" 1 >/dev/null || fail "$name: r${replica}s0 does not refuse it: $(events_of "$name" | tail -n 20)"
    done
    wait_for 30 happened "$name" '^alert weights-restored r1s0: [1-9][0-9]* tensors of stage 0 of replica 1 were not finite' ||
        fail "$name: its weights stay as they are: $(events_of "$name" | tail -n 20)"
    at=$(step_of "$name")
    wait_for 90 validated "$name" $((at + 60)) || fail "$name does not go on: $(kedge status "$name"; events_of "$name" | tail -n 20)"
    kedge status "$name" --json | json 'j["validation_loss"] < j["first_validation_loss"] - 0.3' | grep -qx True || fail "$name does not learn: $(kedge status "$name")"
    events_of "$name" >"$TMP/$name.events"
    ! grep -Eq '^[a-z]* (drift|holds|frozen|replica-left) ' "$TMP/$name.events" || fail "$name: $(cat "$TMP/$name.events")"
    [ "$(grep -c '^alert weights-restored ' "$TMP/$name.events")" = 1 ] || fail "$name: not once: $(cat "$TMP/$name.events")"
    kedge stop "$name" >/dev/null || fail "stop $name"
    wait $console
    nothing_left "$name" || fail "after $name"
}

spoil dense 3 pipeline.stages=1 boundary.codec=dense
spoil low-rank 2 boundary.codec=dense sync.payload=powersgd sync.rank=4 sync.table=rows
exit 0
