#!/bin/sh
# An anchor that follows rounds (anchor.follow): over more than fifty of them its versions are whole with nothing asked for again, and are the weights
# that snapshots would have brought, to the last digit of their loss; another anchor takes the place of one that dies, and another replica tells
# when the one that told has died.
# seconds: 400
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have looked at what the anchor says"

anchor_of() { kedge anchor "$1" --json | json "j['anchor']$2"; }
events_of() { kedge events "$1" --json | json '"\n".join(e["level"] + " " + e["code"] + " " + e["source"] + ": " + e["text"] for e in j["events"])'; }
has_event() { events_of "$1" | grep -q "$2"; }
snapshots() { [ "$(anchor_of "$1" '["snapshots"]')" -ge "$2" ] 2>/dev/null; }
used() { [ "$(anchor_of "$1" '["used"] is not None and j["anchor"]["used"] > '"$2")" = True ]; }
# begin NAME [KEY=VALUE...] : two replicas with a round every second step and an anchor
begin() {
    name=$1
    shift
    profile "$name" run.steps=100000 replicas.count=2 sync.every=6 sync.overlap=1 link.slow_delay=10ms anchor.host=c anchor.every=1 anchor.staleness=8 \
        anchor.limit=60 anchor.rank=8 "$@"
    printf '\n[host c]\nkind = local\nthreads = 1\n' >>"$TMP/$name.ini"
    kedge run "$TMP/$name.ini" --detach >"$TMP/out" 2>&1 || fail "$name: $(cat "$TMP/out")"
}
# losses NAME : version and loss, all digits, of what the anchor has evaluated
losses() { kedge decode "$(run_folder "$1")/run.db" | sed -n 's/^samples .*step=\([0-9]*\) kind=1 loss=\([^ ]*\) .*process="anchor".*/\1 \2/p' | sort -u; }
same() { losses words >"$TMP/words" && [ "$(join "$TMP/rounds" "$TMP/words" | wc -l)" -ge 3 ]; }

# ---- the same versions as by snapshots ----
begin rounds anchor.follow=yes anchor.mix=0 sync.payload=powersgd sync.rank=4
wait_for 150 snapshots rounds 40 || fail "few versions: $(kedge anchor rounds; events_of rounds | tail -n 20)"
wait_for 100 step_reached rounds 120 || fail "few steps: $(step_of rounds)"
kedge status rounds >"$TMP/status" || fail "status"
grep -q "^anchor on host c, following the replicas' rounds: " "$TMP/status" || fail "status says nothing of rounds: $(cat "$TMP/status")"
grep -q "^[0-9]* snapshots: .* of rounds travelled for " "$TMP/status" || fail "status does not say what travels: $(cat "$TMP/status")"
[ "$(anchor_of rounds '["follows"]')" = True ] || fail "$(anchor_of rounds)"
kedge stop rounds >/dev/null || fail "stop rounds"
nothing_left rounds || fail "after rounds"
events_of rounds >"$TMP/events"
! grep -Eq 'come again|^[a-z]* (drift|round-skipped|snapshot-late|anchor-lost) ' "$TMP/events" || fail "$(cat "$TMP/events")"
grep -q 'are whole at the anchor: .* of rounds travelled for ' "$TMP/events" || fail "nobody says what travels: $(cat "$TMP/events")"
losses rounds >"$TMP/rounds"
begin words anchor.mix=0 sync.payload=powersgd sync.rank=4
wait_for 150 same || fail "no versions of the same steps: $(head "$TMP/rounds") ... $(head "$TMP/words")"
kedge stop words >/dev/null || fail "stop words"
join "$TMP/rounds" "$TMP/words" | awk '$2 != $3 { print; bad = 1 } END { exit bad }' >"$TMP/out" || fail "other weights than by snapshots: $(cat "$TMP/out")"

# ---- who dies ----
begin dies anchor.follow=yes run.timeout=2s anchor.filter=wiener model.hidden=128 model.ffn=256 # fragments of more than one piece
wait_for 60 used dies 0 || fail "nothing is used: $(kedge anchor dies; events_of dies | tail -n 20)"
kill -KILL "$(pid_of dies anchor)"
wait_for 30 has_event dies '^[a-z]* anchor-exit' || fail "nobody says that the anchor died: $(events_of dies | tail -n 20)"
step=$(step_of dies)
wait_for 60 used dies "$step" || fail "another anchor does not follow: $(kedge anchor dies; events_of dies | tail -n 30)"
kill -KILL "$(pid_of dies r0s1)"
wait_for 30 has_event dies '^info anchor-follows kedged: it is told of rounds from replica 1 from now on' || fail "nobody tells the anchor now: $(events_of dies | tail -n 20)"
step=$(step_of dies)
wait_for 60 used dies "$step" || fail "replica 1 is not followed: $(kedge anchor dies; events_of dies | tail -n 30)"
wait_for 60 has_event dies '^info replica-joined kedged: replica 0 joined at step' || fail "replica 0 does not come back: $(events_of dies | tail -n 20)"
step=$(step_of dies)
wait_for 60 used dies "$step" || fail "with replica 0 directions are old: $(kedge anchor dies; events_of dies | tail -n 30)"
! events_of dies | grep -Eq '^[a-z]* (drift|round-skipped|holds) ' || fail "$(events_of dies)"
kedge stop dies >/dev/null || fail "stop dies"
nothing_left dies || fail "after dies"
exit 0
