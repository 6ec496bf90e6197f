#!/bin/sh
# Hosts of a run are drained, restarted and replaced while it goes on: replicas leave at the end of a round and come back, on the same host or
# on a spare one; the others go on and learn, and all have the same weights after every round. What would lose weights is refused, with the
# remedy. Each stands in the ledger with who and when, and a new scheduler knows who is where.
# seconds: 600
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have drained, restarted and replaced hosts"

events_of() { kedge events "$1" --json | json '"\n".join(e["level"] + " " + e["code"] + " " + e["source"] + ": " + e["text"] for e in j["events"])'; }
happened() { events_of sea | grep -q "$1"; }
use_of() { kedge hosts sea --json | json '[h["use"] for h in j["hosts"] if h["host"] == "'"$1"'"][0]'; }
on_host() { kedge hosts sea --json | json '" ".join(p["process"] for p in j["processes"] if p["host"] == "'"$1"'" and p["state"] == "ready" and p["role"] != "agent")'; }
ledger() { kedge get sea --json | json '"\n".join(" ".join([c["name"], c["old"], c["new"], c["state"]]) for c in j["ledger"])'; }
go_on() { # everybody that is here trains on, and nothing was told twice in two ways
    at=$(step_of sea)
    wait_for 60 step_reached sea $((at + 40)) || fail "the others do not go on: $(kedge status sea; events_of sea | tail -n 30)"
    events_of sea >"$TMP/events"
    ! grep -Eq '^[a-z]* (drift|round-skipped|holds) |^alert ' "$TMP/events" || fail "$(cat "$TMP/events")"
}
refused() { # WORDS COMMAND...
    words=$1
    shift
    ! "$O/kedge" "$@" >"$TMP/out" 2>&1 || fail "not refused: $*: $(cat "$TMP/out")"
    tr '\n' ' ' <"$TMP/out" | grep -q "$words" || fail "$*: $(cat "$TMP/out")"
}
changed() { # WORDS COMMAND...
    words=$1
    shift
    "$O/kedge" "$@" >"$TMP/out" 2>&1 || fail "$*: $(cat "$TMP/out"; events_of sea | tail -n 30)"
    grep -q "$words" "$TMP/out" || fail "$*: $(cat "$TMP/out")"
}

kill_scheduler() { # and it is gone before anybody looks for it
    scheduler=$(cut -d ' ' -f 1 "$(run_folder sea)/kedged.lock")
    kill -9 "$scheduler"
    wait_for 10 gone "$scheduler" || fail "kedged outlives kill -9"
}

profile sea run.steps=100000 replicas.count=2 train.micro_batches=1 train.evaluate_every=40 sync.every=6 anchor.host=d anchor.every=8 \
    anchor.staleness=8 anchor.limit=30 anchor.rank=8
printf '[host c]\nkind = local\nspare = yes\nthreads = 1\n[host d]\nkind = local\nthreads = 1\n' >>"$TMP/sea.ini"
kedge run "$TMP/sea.ini" --detach >"$TMP/headless" 2>&1 || fail "run: $(cat "$TMP/headless")"
wait_for 60 step_reached sea 25 || fail "does not begin: $(cat "$TMP/headless")"
[ "$(use_of a) $(use_of b) $(use_of c)" = "in use in use spare" ] || fail "uses: $(kedge hosts sea)"

# What cannot be: a host that is not there, one that is nothing to restart, one whose agent has work already.
refused "there is no host 'z' in this run" drain sea z
refused "host c has no process of the run" restart sea c
refused "host a has processes of the run: only one that has none" replace sea b a

# Drained: only its agent is left there. The others learn on, and the last replica is never ended.
first=$(kedge status sea --json | json 'j["first_validation_loss"]')
changed "host b is drained" drain sea b
[ "$(use_of b)" = drained ] && [ -z "$(on_host b)" ] || fail "not drained: $(kedge hosts sea)"
happened '^info replica-left kedged: replica 1 leaves the run: .* drains host b; 1 of 2 replicas go on' || fail "$(events_of sea | tail -n 20)"
! happened 'no round of its replicas has ended everywhere' || fail "it did not wait for a round: $(events_of sea | tail -n 20)"
refused "nobody would be left" drain sea a
changed "drained already" drain sea b
go_on
learnt() { kedge status sea --json | json 'j["validation_loss"] < '"$first"' - 0.3' | grep -qx True; }
wait_for 60 learnt || fail "it does not learn: $(kedge status sea)"
! happened 'replica-starts' || fail "a replica of a drained host is started: $(events_of sea | tail -n 20)"

# Another scheduler leaves it drained.
kill_scheduler
"$O/kedge" attach sea >"$TMP/attach" 2>&1 &
watcher=$!
adopted() { happened '^warn adopt '; }
wait_for 30 adopted || fail "no new scheduler: $(cat "$TMP/attach")"
go_on
[ "$(use_of b)" = drained ] && ! happened replica-starts || fail "a new scheduler forgot who is drained: $(kedge hosts sea; events_of sea | tail -n 20)"

# It comes back; a host of the anchor alone is restarted, too.
changed "host b is restarted: replica 1" restart sea b
[ "$(use_of b)" = "in use" ] && [ "$(on_host b)" = "r1s0 r1s1" ] || fail "not back: $(kedge hosts sea)"
go_on
changed "host d is restarted: the anchor" restart sea d

# Another host takes the place of one: the lowest replica, which speaks for all. A former scheduler's word about places holds.
changed "host c has taken the place of host a: replica 0" replace sea a c
[ "$(use_of a) $(use_of c)" = "drained in use" ] && [ "$(on_host c)" = "r0s0 r0s1" ] || fail "not replaced: $(kedge hosts sea)"
go_on
changed "host a has taken the place of host d: the anchor" replace sea d a
kill_scheduler
"$O/kedge" attach sea >"$TMP/attach" 2>&1 &
other=$!
again() { [ "$(events_of sea | grep -c '^warn adopt ')" = 2 ]; }
wait_for 30 again || fail "no new scheduler: $(cat "$TMP/attach")"
go_on
[ "$(on_host c)" = "r0s0 r0s1" ] && [ "$(on_host a)" = anchor ] && [ "$(use_of d)" = drained ] || fail "a new scheduler forgot who is where: $(kedge hosts sea)"
cat >"$TMP/wanted" <<END
host.drain b drained active
host.restart b restarted active
host.restart d restarted active
host.replace a c active
host.replace d a active
END
ledger >"$TMP/ledger"
cmp -s "$TMP/wanted" "$TMP/ledger" || fail "the ledger: $(cat "$TMP/ledger")"
kedge checkpoint sea >"$TMP/out" 2>&1 || fail "no weights: $(cat "$TMP/out")"
kedge stop sea >/dev/null || fail "stop"
wait $watcher $other
nothing_left sea || fail "something is left"

# Of one replica nothing can be taken away.
profile one run.steps=100000
kedge run "$TMP/one.ini" --headless >"$TMP/headless" 2>&1 &
console=$!
wait_for 60 step_reached one 3 || fail "does not begin: $(cat "$TMP/headless")"
refused "the only replica, whose weights nobody else holds: 'kedge checkpoint one' and 'kedge stop one'" drain one b
refused "the only replica" restart one a
kedge stop one >/dev/null || fail "stop"
wait $console
exit 0
