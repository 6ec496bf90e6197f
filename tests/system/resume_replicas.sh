#!/bin/sh
# Two replicas of which everything is killed -9 go on from a set of both: losses of every step behind it, and what rounds end with, are those
# of a run that was left alone, to the last bit. Sets are written where no exchange is under way, whatever checkpoint.every is. Two stages with
# PowerSGD and an outer optimiser; one stage with gradients that are averaged. A set of one replica alone is refused.
# seconds: 300
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; replicas would have been killed and gone on"

# curve NAME FROM : PROCESS STEP KIND LOSS of every sample from step FROM on, and the hash of every round that ended then, sorted
curve() {
    kedge decode "$(run_folder "$1")/run.db" >"$TMP/journal" || fail "decode"
    sed -n 's/^samples .*step=\([0-9]*\) kind=\([0-9]*\) loss=\([^ ]*\) .*process="\([^"]*\)".*/\4 \1 \2 \3/p' "$TMP/journal" |
        awk -v from="$2" '$2 >= from' | sort
}
sets_of() { for set in "$(run_folder "$1")"/checkpoint/*/manifest.json; do basename "$(dirname "$set")"; done | sort -n; }
has_set() { [ "$(sets_of "$1" | tail -n 1)" -ge "$2" ] 2>/dev/null; }
kill_all() {
    victims=$(pids_of "$1")
    for pid in $victims; do kill -9 "$pid" 2>/dev/null; done
    for pid in $victims; do wait_for 20 gone "$pid" || fail "$pid does not go"; done
}

# check NAME PROCESSES SETTINGS...
check() {
    name=$1 processes=$2
    shift 2
    profile "$name" run.steps=240 run.timeout=60s replicas.count=2 "$@"
    kedge run "$TMP/$name.ini" --headless >"$TMP/out" 2>&1 || fail "$name: $(cat "$TMP/out")"
    curve "$name" 1 >"$TMP/$name.whole"
    set_key "$TMP/$name.ini" checkpoint.every 20
    kedge run "$TMP/$name.ini" --detach >"$TMP/out" 2>&1 || fail "$name with sets: $(cat "$TMP/out")"
    wait_for 120 has_set "$name" 20 || fail "$name writes no set: $(kedge status "$name")"
    kill_all "$name"
    at=$(sets_of "$name" | tail -n 1)
    [ "$at" -lt 240 ] || fail "$name was through before it was killed"
    [ "$(ls "$(run_folder "$name")/checkpoint/$at" | grep -c safetensors)" = "$processes" ] || fail "$name: $(ls "$(run_folder "$name")/checkpoint/$at")"
    kedge run "$TMP/$name.ini" --resume --headless >"$TMP/out" 2>&1 || fail "$name does not go on: $(cat "$TMP/out")"
    grep -q "goes on from checkpoint/$at, with step $((at + 1)) of 240" "$TMP/out" || fail "$name: $(cat "$TMP/out")"
    curve "$name" $((at + 1)) >"$TMP/$name.rest"
    awk -v from=$((at + 1)) '$2 >= from' "$TMP/$name.whole" | cmp -s - "$TMP/$name.rest" ||
        fail "$name is another run from step $at on: $(awk -v from=$((at + 1)) '$2 >= from' "$TMP/$name.whole" | diff - "$TMP/$name.rest" | head -n 6)"
    kedge export "$name" "$TMP/$name.out" >"$TMP/out" 2>&1 || fail "$name: export: $(cat "$TMP/out")"
    nothing_left "$name" || fail "after $name"
}

check rounds 4 sync.every=10 sync.payload=powersgd sync.power=alternating sync.rank=4 sync.table=rows mask.rate=0.9
check averaged 2 pipeline.stages=1 boundary.codec=dense sync.every=1 sync.fragments=1 sync.overlap=0 sync.outer=none sync.payload=fp32

set_key "$TMP/rounds.ini" sync.overlap 4 # of 10 steps for 3 fragments
kedge plan "$TMP/rounds.ini" >"$TMP/out" 2>&1 && fail "sets that could never be written are no mistake"
grep -q 'sync.overlap = 4 an exchange is under way after every step' "$TMP/out" || fail "says $(cat "$TMP/out")"
set_key "$TMP/rounds.ini" sync.overlap 3
kedge plan "$TMP/rounds.ini" >"$TMP/out" 2>&1 || fail "an overlap that leaves a step: $(cat "$TMP/out")"
set_key "$TMP/rounds.ini" sync.overlap 2
set_key "$TMP/rounds.ini" run.steps 100000
kedge run "$TMP/rounds.ini" --resume=240 --headless >"$TMP/out" 2>&1 && fail "it went on from one replica's weights"
grep -q 'the set of step 240 has nothing of r1s0' "$TMP/out" || fail "says $(cat "$TMP/out")"
nothing_left rounds || fail "at the end"
