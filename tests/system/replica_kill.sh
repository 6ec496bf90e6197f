#!/bin/sh
# kill -9 of replicas at every moment of a round: the others go on by kedged's word, agree about every round, finish, and say in one sentence
# what happened. Three replicas of two stages lose one at random moments, then another, so that one is left; the lowest ones too.
# seconds: 300
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have killed replicas"

events_of() { kedge events "$1" --json | json '"\n".join(e["level"] + " " + e["code"] + " " + e["source"] + ": " + e["text"] for e in j["events"])'; }
has_left() { events_of "$1" | grep -q "^alert replica-left kedged: replica $2 leaves the run: "; }

begin() { # NAME SETTINGS...
    name=$1
    shift
    profile "$name" run.steps=400 replicas.count=3 sync.every=6 train.micro_batches=1 "$@"
    "$O/kedge" run "$TMP/$name.ini" --headless >"$TMP/$name.out" 2>&1 &
    console=$!
    wait_for 60 step_reached "$name" 1 || fail "$name does not begin: $(cat "$TMP/$name.out")"
}
lose() { # NAME STEP PROCESS...
    name=$1 step=$2 pids=
    shift 2
    for process; do pids="$pids $(pid_of "$name" "$process")"; done
    wait_for 60 step_reached "$name" "$step" || fail "$name does not reach step $step: $(events_of "$name" | tail -n 20)"
    kill -9 $pids
}
check() { # NAME
    wait $console || fail "$1 failed: $(cat "$TMP/$1.out")"
    kedge status "$1" --json >"$TMP/$1.status"
    json 'j["phase"], j["step"]' <"$TMP/$1.status" | grep -qx 'finished 400' || fail "$1 did not finish: $(cat "$TMP/$1.status")"
    json 'j["validation_loss"] < j["first_validation_loss"] - 0.3' <"$TMP/$1.status" | grep -qx True || fail "$1 did not learn: $(cat "$TMP/$1.status")"
    events_of "$1" >"$TMP/$1.events"
    ! grep -Eq '^[a-z]* (drift|round-skipped|holds) ' "$TMP/$1.events" || fail "$1: $(cat "$TMP/$1.events")"
    nothing_left "$1" || fail "after $1"
}

begin one
lose one 15 r2s1
wait_for 30 has_left one 2 || fail "nobody says that replica 2 left: $(events_of one | tail -n 20)"
check one
grep -q '^alert replica-left kedged: replica 2 leaves the run: r2s1 on host b was killed by signal 9 (Killed); 2 of 3 replicas go on' "$TMP/one.events" || fail "$(cat "$TMP/one.events")"
ls "$(run_folder one)"/checkpoint/400/manifest.json >/dev/null || fail "the weights of 'one' were not written"

# The lowest one, which speaks for all and writes the weights, then another at once: the last one ends the run alone.
begin two sync.payload=powersgd sync.rank=4 sync.power=two-sided sync.overlap=3
lose two 20 r0s0 r1s1
check two
grep -q '1 of 3 replicas go on' "$TMP/two.events" || fail "$(cat "$TMP/two.events")"
ls "$(run_folder two)"/checkpoint/400/manifest.json >/dev/null || fail "the weights of 'two' were not written"

# At other moments of a round, over a road on which a contribution takes several steps.
for at in 13 16; do
    begin at$at link.slow_delay=20ms sync.overlap=5
    lose at$at $at r1s0
    check at$at
    grep -q 'replica-left kedged: replica 1 leaves' "$TMP/at$at.events" || fail "$(cat "$TMP/at$at.events")"
done
exit 0
