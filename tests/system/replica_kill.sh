#!/bin/sh
# kill -9 of replicas at every moment of a round: the others go on by kedged's word, agree about every round, learn, write their weights, and
# one sentence says what happened. Three replicas of two stages lose one, the lowest one and another at once, and one over a slow road.
# seconds: 420
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have killed replicas"

events_of() { kedge events "$1" --json | json '"\n".join(e["level"] + " " + e["code"] + " " + e["source"] + ": " + e["text"] for e in j["events"])'; }
happened() { events_of "$1" | grep -q "$2"; }
learnt() { kedge status "$1" --json | json 'j["validation_step"] > '"$2"' and j["validation_loss"] < j["first_validation_loss"] - 0.3' | grep -qx True; }

begin() { # NAME SETTINGS...
    name=$1
    shift
    profile "$name" run.steps=100000 replicas.count=3 replicas.rejoin=no sync.every=6 train.micro_batches=1 train.evaluate_every=50 "$@"
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
check() { # NAME WORDS-OF-LEAVING
    wait_for 60 happened "$1" "^alert replica-left kedged: $2" || fail "$1: '$2' is not said: $(events_of "$1" | tail -n 20)"
    at=$(step_of "$1")
    wait_for 90 learnt "$1" "$((at + 60))" || fail "$1 does not go on and learn: $(kedge status "$1"; events_of "$1" | tail -n 20)"
    kedge checkpoint "$1" >"$TMP/$1.saved" 2>&1 || fail "$1 cannot write its weights: $(cat "$TMP/$1.saved")"
    wait_for 30 happened "$1" '^info checkpoint kedged: the weights after step' || fail "$1 wrote no weights: $(events_of "$1" | tail -n 20)"
    events_of "$1" >"$TMP/$1.events"
    ! grep -Eq '^[a-z]* (drift|round-skipped|holds) ' "$TMP/$1.events" || fail "$1: $(cat "$TMP/$1.events")"
    kedge stop "$1" >/dev/null || fail "stop $1"
    wait $console
    nothing_left "$1" || fail "after $1"
}

begin one
lose one 15 r2s1
check one 'replica 2 leaves the run: r2s1 on host b was killed by signal 9 (Killed); 2 of 3 replicas go on'

# The lowest one, which speaks for all and writes the weights, and another one at once.
begin two sync.payload=powersgd sync.rank=4 sync.overlap=3
lose two 20 r0s0 r1s1
check two 'replica [01] leaves the run: .*; 1 of 3 replicas go on'

# A road on which a contribution takes several steps: it dies while it sends.
for at in 13 16; do
    begin at$at link.slow_delay=5ms sync.overlap=5
    lose at$at $at r1s0
    check at$at 'replica 1 leaves the run: '
done
exit 0
