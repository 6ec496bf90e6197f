#!/bin/sh
# A profile by keys alone: made from the template, one value wrong and then right, the diff, written, checked, planned, launched, stopped.
# seconds: 180
. tests/system/lib/common.sh
. tests/tui/lib/tui.sh
have_json || skip "python3 is not here to read JSON; it would have watched a run that is launched by keys"

open_terminal 100 30 "env LANG=C.UTF-8 TERM=screen-256color $O/kedge; echo code \$?; sleep 100"
wait_shows 20 "no runs yet"
press 7
wait_shows 10 "laptop"
press n
type_text "$TMP/tiny"
press Enter
wait_shows 10 "run.name"
press j j Enter C-u
type_text "many"
wait_shows 10 "run.steps = many"
wait_shows 10 "1000000000" # the range, beside the field
press C-u
type_text "100000"
press Enter
wait_shows 10 "run.steps *"
press W
wait_shows 10 "+ run.steps = 100000"
press y
wait_shows 10 "is written"
grep -q "^steps = 100000" "$TMP/tiny.ini" || fail "the file says $(grep steps "$TMP/tiny.ini")"
grep -q "^# Two hosts" "$TMP/tiny.ini" || fail "comments are lost"
press c
wait_shows 10 "is valid"
press Escape p
wait_shows 20 "Run tiny"
press Escape L
wait_shows 10 "Launch this run?"
press y
wait_shows 60 "r0s0"
wait_for 60 is_phase tiny training || fail "it does not train: $(picture)"
press K
wait_shows 10 "type tiny to do it"
type_text tiny
press Enter
wait_shows 60 "stopped"
press q
wait_shows 10 "code 0"
gone_now() { nothing_left tiny >/dev/null; }
wait_for 30 gone_now || fail "$(nothing_left tiny)"
