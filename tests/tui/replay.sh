#!/bin/sh
# A finished run is looked back at: the numbers above the topology, the hosts and the anchor are those of the frozen step, as its journal has
# them, and no longer those of the end.
# seconds: 300
. tests/system/lib/common.sh
. tests/tui/lib/tui.sh
have_json || skip "python3 is not here to read JSON; it would have looked back at a run"

profile sea run.steps=120 train.micro_batches=4 anchor.host=c anchor.every=8 anchor.staleness=8 anchor.limit=60 anchor.rank=16
printf '[host c]\nkind = local\nthreads = 1\n' >>"$TMP/sea.ini"
kedge run "$TMP/sea.ini" --headless >"$TMP/out" 2>&1 || fail "the run: $(cat "$TMP/out")"
"$O/kedged" history --folder "$(run_folder sea)" >"$TMP/history" || fail "kedged history"
for kind in 'row [0-9]* 132 ' 'row [0-9]* 130 '; do grep -q "^$kind" "$TMP/history" || fail "the journal keeps nothing of hosts or the anchor"; done
# loss_at STEP : of the last stage, as the screen writes it
loss_at() { awk -v step="$1" '$1 == "step" && $3 == "r0s1" && $4 == step && $5 == 0 { printf "%.4f\n", $6 }' "$TMP/history"; }

open_terminal 100 40 "env LANG=C.UTF-8 TERM=screen $O/kedge attach sea"
wait_shows 20 "finished"
picture | grep -q "step 120 of 120" || fail "not at its end: $(picture)"
press Space
wait_shows 20 "frozen at step 120"
for i in 1 2 3 4 5 6; do press PgUp; done # ten steps each
wait_shows 20 "frozen at step 60"
wait_shows 10 "step 60 of 120"
[ -n "$(loss_at 60)" ] || fail "no loss at step 60 in the journal"
[ "$(loss_at 60)" != "$(loss_at 120)" ] || fail "the same loss at two steps"
wait_shows 10 " loss $(loss_at 60) "
press Left
wait_shows 10 "step 59 of 120"
wait_shows 10 " loss $(loss_at 59) "
press 4
wait_shows 10 "[frozen]"
rows() { picture | grep -E "^ r0s[01] .* ready .* 59 "; }
[ "$(rows | wc -l)" = 2 ] || fail "the processes are not at step 59: $(picture)"
press 3
wait_shows 10 "[frozen]"
# A version that came of a later step is not known yet.
later() { picture | sed -n 's/^ in use  *step \([0-9]*\),.*/\1/p' | awk '$1 > 60 { bad = 1 } END { exit !bad }'; }
! later || fail "the anchor is of a later step: $(picture)"
press Escape
wait_hides 10 "[frozen]"
press 1
wait_shows 10 "step 120 of 120"
press q
exit 0
