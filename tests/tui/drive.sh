#!/bin/sh
# A run driven by keys alone: launch, watch, change the mask rate, undo, pause, resume, leave, come back, stop.
# seconds: 240
. tests/system/lib/common.sh
. tests/tui/lib/tui.sh
have_json || skip "python3 is not here to read JSON; it would have watched a run that is driven by keys"

profile sea run.steps=100000
printf '#!/bin/sh\ncp "$1" "%s/paged"\necho the pager shows it\nread -r line\n' "$TMP" >"$TMP/pager"
chmod +x "$TMP/pager"
open_terminal 100 30 "env PAGER=$TMP/pager LANG=C.UTF-8 TERM=screen-256color $O/kedge run $TMP/sea.ini; echo code \$?; sleep 100"
wait_shows 60 "training"
wait_shows 60 "r0s0"
wait_for 30 step_reached sea 5 || fail "no step was trained: $(picture)"

press 2
wait_shows 10 "of dense"
press 5
wait_shows 10 "mask.rate"
press g j - # the second row, one step down
wait_shows 10 "0.94 drafted"
press Enter
wait_shows 20 "active from step"
[ "$(kedge get sea mask.rate)" = 0.94 ] || fail "mask.rate is $(kedge get sea mask.rate)"
press u
wait_shows 10 "0.95 drafted"
press Enter
undone() { [ "$(kedge get sea mask.rate)" = 0.95 ]; }
wait_for 20 undone || fail "u did not bring 0.95 back: $(picture)"

press : # the same from the command line
type_text "set mask.rate=0.9"
press Enter
changed() { [ "$(kedge get sea mask.rate)" = 0.9 ]; }
wait_for 20 changed || fail "set from the command line: $(picture)"

press 1 P
wait_shows 10 "kedge pause sea"
press Enter # Cancel has the focus
wait_hides 10 "kedge pause sea"
is_phase sea training || fail "Cancel paused the run"
press P y
wait_for 20 is_phase sea holding || fail "P y did not pause: $(picture)"
wait_shows 20 "holding: paused by"
press P y
wait_for 20 is_phase sea training || fail "P y did not resume: $(picture)"

press Space
wait_shows 10 "frozen at step"
press Left Left
wait_shows 20 "computes"
press Escape
wait_hides 10 "frozen at step"
press 6 '?'
wait_shows 10 "Keys of Events"
press Escape
press / # what is shown is what is saved
type_text "mask.rate"
press Enter s C-u
type_text "$TMP/saved.txt"
press Enter
wait_shows 10 "saved into"
grep -q "sets mask.rate from 0.95 to 0.94" "$TMP/saved.txt" && ! grep -q "forming" "$TMP/saved.txt" || fail "saved: $(cat "$TMP/saved.txt")"
press s C-u
type_text "$TMP/saved.txt"
press Enter
wait_shows 10 "is there already"
press o # the same in the pager; a key of its own ends it
wait_shows 10 "the pager shows it"
diff "$TMP/saved.txt" "$TMP/paged" || fail "the pager has: $(cat "$TMP/paged")"
press Enter
wait_shows 10 "Tab view"
press ! # the others
wait_shows 10 "forming"
press ! Escape
press 4
wait_shows 20 "log of"

press : # a host that answers nothing of the kind is a sentence, and the screen goes on
type_text "open 127.0.0.1:nowhere"
press Enter
wait_shows 30 "127.0.0.1 "
press 2
wait_shows 10 "of dense"

at=$(step_of sea)
press q
wait_shows 10 "left: sea goes on"
wait_shows 10 "code 0"
close_terminal
wait_for 20 step_reached sea $((at + 3)) || fail "the run did not go on without its console"

open_terminal 80 24 "env LANG=C.UTF-8 TERM=screen-256color $O/kedge; echo code \$?; sleep 100"
wait_shows 20 "going"
press Enter # the list's first run
wait_shows 20 "step"
press K
wait_shows 10 "type sea to do it"
press x Enter
wait_shows 10 "nothing was done"
press S
wait_shows 10 "Stop this run?"
press Right Enter
wait_shows 60 "stopped"
press q
wait_shows 10 "code 0"
close_terminal
gone_now() { nothing_left sea >/dev/null; }
wait_for 30 gone_now || fail "$(nothing_left sea)"
