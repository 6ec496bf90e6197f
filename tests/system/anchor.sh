#!/bin/sh
# The anchor as a process: snapshots come whole, its directions are used at the step that anchor.staleness says, gradients are corrected and the
# model learns; with mix 0 every loss is the same bits as without an anchor; nobody waits for one that stands still or dies, and the next one
# takes its place; its knob, its commands, its lifeboat; two replicas.
# seconds: 400
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have looked at what the anchor says"

third="
[host c]
kind = local
threads = 1"
# anchored NAME [KEY=VALUE...] : a run with an anchor on a third host, of steps that take some tens of milliseconds on any machine
anchored() {
    name=$1
    shift
    profile "$name" run.steps=60 run.timeout=20s train.micro_batches=4 train.sequence=64 link.slow_delay=10ms anchor.host=c anchor.every=8 anchor.staleness=8 anchor.limit=30 anchor.rank=16 "$@"
    echo "$third" >>"$TMP/$name.ini"
}
anchor_of() { kedge anchor "$1" --json | json "j['anchor']$2"; }
has_event() { kedge events "$1" --json >"$TMP/events" && grep -q "\"$2\"" "$TMP/events"; }
# losses NAME : step, kind and loss of every sample of the stages, with all digits
losses() { kedge decode "$(run_folder "$1")/run.db" | sed -n 's/^samples .*step=\([0-9]*\) kind=\([01]\) loss=\([^ ]*\) .*process="\(r[^"]*\)".*/\4 \1 \2 \3/p' | sort; }

# ---- it works, each filter ----
for filter in tikhonov wiener; do
    anchored "$filter" anchor.filter=$filter
    kedge run "$TMP/$filter.ini" --headless >"$TMP/out" 2>&1 || fail "$filter: $(cat "$TMP/out")"
    [ "$(anchor_of $filter '["snapshots"]')" -ge 4 ] || fail "$filter: $(kedge anchor $filter) $(kedge events $filter)"
    [ "$(anchor_of $filter '["used"] is not None and abs(j["anchor"]["staleness_steps"] - 8) <= 3')" = True ] || fail "$filter: $(kedge anchor $filter)"
    [ "$(anchor_of $filter '["changed"] > 0.01 and len(j["anchor"]["matrices"]) == 7')" = True ] || fail "$filter: $(kedge anchor $filter --json)"
    [ "$(anchor_of $filter '["validation_loss"] < 5.3')" = True ] || fail "$filter: $(kedge anchor $filter --json)"
    [ "$(anchor_of $filter '["computed"] is not None and 0 <= j["anchor"]["returned_share"] <= 1')" = True ] || fail "$filter: $(kedge anchor $filter --json)"
    [ "$(anchor_of $filter '["spectra"].__len__() == 28 and all(s["rank"] == 16 and len(s["values"]) == 16 and s["values"] == sorted(s["values"], reverse=True) and sum(v * v for v in s["values"]) <= 1.05 * s["energy"] for s in j["anchor"]["spectra"])')" = True ] || fail "$filter: $(kedge anchor $filter --json)"
    ! grep -q "come again" "$TMP/out" || fail "$filter: chunks came again: $(cat "$TMP/out")"
    nothing_left "$filter" || fail "after $filter"
    [ -s "$(run_folder $filter)/lifeboat/model.safetensors" ] || fail "$filter: no lifeboat"
done

# ---- gradients come back whole ----
anchored whole anchor.filter=gradient anchor.returns=gradient anchor.mix=0.1
kedge run "$TMP/whole.ini" --headless >"$TMP/out" 2>&1 || fail "whole: $(cat "$TMP/out")"
[ "$(anchor_of whole '["used"] is not None and len(j["anchor"]["matrices"]) == 7 and j["anchor"]["spectra"] == []')" = True ] || fail "whole: $(kedge anchor whole --json)"
[ "$(anchor_of whole '["cosine"] is not None and j["anchor"]["changed"] != 0 and j["anchor"]["validation_loss"] < 5.3')" = True ] || fail "whole: $(kedge anchor whole --json)"

# ---- two replicas: what they have in common goes out, all their stages get the directions ----
anchored two replicas.count=2 sync.every=10 anchor.filter=wiener
kedge run "$TMP/two.ini" --headless >"$TMP/out" 2>&1 || fail "two: $(cat "$TMP/out")"
[ "$(anchor_of two '["used"] is not None and abs(j["anchor"]["staleness_steps"] - 8) <= 3')" = True ] || fail "two: $(kedge anchor two) $(kedge events two)"
! has_event two drift || fail "two: $(kedge events two)"
kedge status two --json | json 'j["validation_loss"] < j["first_validation_loss"] - 0.5' | grep -qx True || fail "two did not learn: $(kedge status two)"
nothing_left two || fail "after two"

# ---- without an anchor, gradients shrunk by themselves ----
profile shrink run.steps=10 anchor.filter=shrink anchor.rank=16
kedge run "$TMP/shrink.ini" --headless >"$TMP/out" 2>&1 || fail "shrink: $(cat "$TMP/out")"
kedge anchor shrink | grep -q "no anchor" || fail "$(kedge anchor shrink)"

# ---- mix 0: the same bits ----
anchored zero run.steps=30 anchor.mix=0
profile plain run.steps=30 train.micro_batches=4 train.sequence=64
kedge run "$TMP/zero.ini" --headless >"$TMP/out" 2>&1 || fail "zero: $(cat "$TMP/out")"
kedge run "$TMP/plain.ini" --headless >"$TMP/out" 2>&1 || fail "plain: $(cat "$TMP/out")"
[ "$(anchor_of zero '["used"] is not None')" = True ] || fail "with mix 0 nothing was used: $(kedge anchor zero)"
losses zero >"$TMP/zero.losses"
losses plain >"$TMP/plain.losses"
[ "$(wc -l <"$TMP/plain.losses")" -ge 60 ] || fail "few losses: $(cat "$TMP/plain.losses")"
cmp "$TMP/zero.losses" "$TMP/plain.losses" || fail "mix 0 is not the plain gradient: $(diff "$TMP/zero.losses" "$TMP/plain.losses" | head -n 5)"

# ---- nobody waits ----
anchored alone run.steps=100000 run.timeout=2s
kedge run "$TMP/alone.ini" --detach >"$TMP/out" 2>&1 || fail "alone: $(cat "$TMP/out")"
used() { [ "$(anchor_of "$1" '["used"] is not None and j["anchor"]["used"] > '"$2")" = True ]; }
wait_for 40 used alone 0 || fail "nothing is used: $(kedge anchor alone)"
kedge snapshot alone >"$TMP/out" 2>&1 || fail "snapshot: $(cat "$TMP/out")"
grep -q "are whole at the anchor" "$TMP/out" || fail "snapshot says: $(cat "$TMP/out")"
kedge set alone anchor.mix=0.3 >"$TMP/out" 2>&1 || fail "set anchor.mix: $(cat "$TMP/out")"
grep -q "active from step" "$TMP/out" || fail "set anchor.mix says: $(cat "$TMP/out")"

pid=$(pid_of alone anchor)
kill -STOP "$pid" || fail "no anchor process: $(kedge hosts alone)"
step=$(step_of alone)
wait_for 30 step_reached alone $((step + 70)) || fail "steps stopped with the anchor, at $(step_of alone) of $((step + 70))"
is_phase alone training || fail "with a stopped anchor the run is $(phase_of alone)"
wait_for 30 has_event alone anchor-lost || fail "nobody says that the anchor is lost: $(kedge events alone)"
wait_for 30 has_event alone anchor-old || fail "nobody says that the mix fades: $(kedge events alone)"
kill -KILL "$pid"
wait_for 30 has_event alone anchor-exit || fail "nobody says that the anchor died: $(kedge events alone)"
step=$(step_of alone)
wait_for 40 used alone "$step" || fail "another anchor did not take its place: $(kedge anchor alone) $(kedge events alone | tail -n 20)"
[ "$(pid_of alone anchor)" != "$pid" ] || fail "the anchor has its old pid"
is_phase alone training || fail "the run is $(phase_of alone)"

# ---- the end ----
kill -STOP "$(pid_of alone anchor)"
kedge stop alone >"$TMP/out" 2>&1 || fail "stop: $(cat "$TMP/out")"
nothing_left alone || fail "after stop: $(cat "$TMP/out")"
exit 0
