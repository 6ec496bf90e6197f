#!/bin/sh
# View Hosts by keys: drain, restart and move ask first, with the focus on Cancel and the command that does the same; a console that only
# looks changes nothing.
# seconds: 400
. tests/system/lib/common.sh
. tests/tui/lib/tui.sh
have_json || skip "python3 is not here to read JSON; it would have watched the hosts of a run"

use_of() { kedge hosts sea --json | json '[h["use"] for h in j["hosts"] if h["host"] == "'"$1"'"][0]'; }
is_used() { [ "$(use_of "$1")" = "$2" ]; }

profile sea run.steps=100000 replicas.count=2 train.micro_batches=1 sync.every=6
printf '[host c]\nkind = local\nspare = yes\nthreads = 1\n' >>"$TMP/sea.ini"
open_terminal 110 40 "env LANG=C.UTF-8 TERM=screen-256color $O/kedge run $TMP/sea.ini; echo code \$?; sleep 100"
wait_for 60 step_reached sea 5 || fail "no step was trained: $(picture)"
press 4 / # the processes of one host; the agent's row is the first
type_text "host=b"
press Enter g
wait_shows 10 "r1s0"
press D
wait_shows 10 "kedge drain sea b"
wait_shows 10 "on it: r1s0, r1s1"
press Enter # Cancel has the focus
wait_hides 10 "kedge drain sea b"
is_used b "in use" || fail "Cancel drained the host: $(picture)"
press D y
wait_for 60 is_used b drained || fail "D y did not drain: $(picture)"
wait_shows 10 "drained"
press R y
wait_for 60 is_used b "in use" || fail "R y did not bring it back: $(picture)"
wait_hides 10 "drained"
back() { kedge hosts sea --json | json '[p["state"] for p in j["processes"] if p["process"] == "r1s1"][0]' | grep -qx ready; }
wait_for 60 back || fail "R y did not bring r1s1 back: $(picture)"
moved() { kedge get sea --json | json '[c["state"] for c in j["ledger"] if c["name"] == "host.restart"][-1]' | grep -qx active; }
wait_for 60 moved || fail "the restart does not end: $(picture)"
press M
wait_shows 10 "replace b by: c"
press Enter
wait_shows 10 "kedge replace sea b c"
press y
wait_for 60 is_used b drained || fail "M did not replace: $(picture)"
press 5
wait_shows 20 "host.replace"
press :
type_text "restart b"
press Enter y
wait_shows 20 "refused: "
press q
wait_shows 10 "code 0"

open_terminal 110 40 "env LANG=C.UTF-8 TERM=screen-256color $O/kedge attach sea --read-only; echo code \$?; sleep 100"
wait_shows 20 "training"
press 4 D
wait_shows 10 "only looks"
hides "kedge drain" || fail "a console that only looks asks: $(picture)"
press :
type_text "restart a"
press Enter
wait_shows 10 "only looks"
press q
wait_shows 10 "code 0"
kedge stop sea >"$TMP/stop" || fail "stop: $(cat "$TMP/stop")"
nothing_left sea || fail "something is left"
exit 0
