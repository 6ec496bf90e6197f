#!/bin/sh
# Reference and directions of the cuts measured by the anchor on its un-masked passes: they come with every snapshot, are used by both ends
# from a stamped step on, with and without corrections of gradients, of codecs with and without directions, for two replicas; their bytes are
# counted on the anchor's roads as planned; and when the anchor falls silent for longer than boundary.stale, cuts are dense, and it is said.
# seconds: 200
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have looked at what the anchor says"

third="
[host c]
kind = local
threads = 1"
# measured NAME [KEY=VALUE...] : steps of some tens of milliseconds on any machine, three stages, two cuts
measured() {
    name=$1
    shift
    profile "$name" run.steps=60 train.micro_batches=4 train.sequence=64 link.slow_delay=5ms pipeline.stages=3 boundary.statistics=anchor \
        boundary.reference=tokens anchor.host=c anchor.every=8 anchor.staleness=8 anchor.limit=30 anchor.rank=8 "$@"
    echo "$third" >>"$TMP/$name.ini"
}
anchor_of() { kedge anchor "$1" --json | json "j['anchor']$2"; }
has_event() { kedge events "$1" --json >"$TMP/events" && grep -q "$2" "$TMP/events"; }
# bulk NAME : bytes that the anchor sent
bulk() { kedge links "$1" --json | json 'sum(l["sent_bytes"] for l in j["links"] if l["lane"] == "bulk" and l["from"] == "anchor")'; }

run() {
    name=$1
    shift
    measured "$name" "$@"
    kedge run "$TMP/$name.ini" --headless >"$TMP/out" 2>&1 || fail "$name: $(cat "$TMP/out")"
    nothing_left "$name" || fail "after $name"
    [ "$(anchor_of "$name" '["used"] is not None and abs(j["anchor"]["staleness_steps"] - 8) <= 3')" = True ] || fail "$name: $(kedge anchor "$name") $(kedge events "$name")"
    ! has_event "$name" '"drift"' || fail "$name: $(kedge events "$name")"
    # By what it trained on: sixty steps of a mask are few for what is measured without one.
    kedge status "$name" --json | json 'j["loss"] < j["first_validation_loss"] - 0.5' | grep -qx True || fail "$name did not learn: $(kedge status "$name")"
}

for codec in mask subspace; do
    run "$codec" boundary.codec=$codec anchor.filter=none
    has_event "$codec" "cuts are coded by what the anchor found" || fail "$codec: $(kedge events "$codec")"
done
run both boundary.codec=subspace anchor.filter=wiener
has_event both "gradients are corrected and cuts are coded" || fail "both: $(kedge events both)"
run means boundary.codec=mask boundary.reference=mean anchor.filter=none
run still boundary.codec=subspace anchor.filter=none train.frozen=1 pipeline.layers=1,2,1
run two boundary.codec=hybrid anchor.filter=none replicas.count=2 sync.every=10

# ---- what was planned travelled: as many versions as came, but for those that are computed, wait or travel when the run ends, to both ends
# of both cuts, 27 bytes of frame and message each ----
planned=$(kedge plan "$TMP/subspace.ini" --json | json 'j["anchor"]["statistics_bytes"]')
versions=$(anchor_of subspace '["snapshots"]')
sent=$(bulk subspace)
[ "$versions" -ge 6 ] && [ "$sent" -gt $((planned * (versions - 4))) ] && [ "$sent" -lt $(((planned + 20000) * versions)) ] ||
    fail "$sent bytes came from the anchor; planned are $planned each of $versions times"

# ---- silence ----
measured silent boundary.codec=subspace anchor.filter=none run.steps=100000 run.timeout=2s boundary.stale=40
kedge run "$TMP/silent.ini" --detach >"$TMP/out" 2>&1 || fail "silent: $(cat "$TMP/out")"
used() { [ "$(anchor_of "$1" '["used"] is not None and j["anchor"]["used"] > '"$2")" = True ]; }
wait_for 40 used silent 0 || fail "nothing is used: $(kedge anchor silent)"
pid=$(pid_of silent anchor)
kill -STOP "$pid" || fail "no anchor process: $(kedge hosts silent)"
wait_for 60 has_event silent "cuts are dense until there are new ones" || fail "nobody says that statistics are old: $(kedge events silent)"
step=$(step_of silent)
wait_for 30 step_reached silent $((step + 10)) || fail "steps stopped with the anchor"
kill -KILL "$pid"
wait_for 60 has_event silent "the boundaries have directions again" || fail "another anchor did not measure: $(kedge anchor silent) $(kedge events silent | tail -n 20)"
is_phase silent training || fail "the run is $(phase_of silent)"
kedge stop silent >"$TMP/out" 2>&1 || fail "stop: $(cat "$TMP/out")"
nothing_left silent || fail "after stop: $(cat "$TMP/out")"
exit 0
