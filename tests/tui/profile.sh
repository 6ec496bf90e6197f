#!/bin/sh
# A run from nothing to its end by keys alone: a profile made from the template, one value wrong and then right, an anchor, the diff, written,
# checked, planned, launched inside the screen, watched, mask rate and mixing strength changed, left, come back to, stopped.
# seconds: 240
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
# to_row NAME : down to that setting of the form
to_row() {
    for _ in $(seq 200); do
        coloured | sed -n '3,$p' | grep -F "$1" | grep -q "$(printf '\033\[[0-9;]*7m')" && return
        press j
        sleep 0.05
    done
    fail "the form has no row $1: $(picture)"
}
# change NAME VALUE
change() {
    to_row "$1"
    press Enter C-u
    type_text "$2"
    press Enter
    wait_shows 10 "$1 *"
}
change model.layers 2
change anchor.host b
change anchor.every 8
change anchor.staleness 8
press W
wait_shows 10 "+ run.steps = 100000"
press y
wait_shows 10 "is written"
grep -q "^steps = 100000" "$TMP/tiny.ini" || fail "the file says $(grep steps "$TMP/tiny.ini")"
grep -q "^# Two hosts" "$TMP/tiny.ini" || fail "comments are lost"
press c
wait_shows 10 "is valid"
press Escape p
wait_shows 20 "A checkpoint set takes"
press Escape L
wait_shows 10 "Launch this run?"
press y
wait_shows 60 "r0s0"
wait_for 60 is_phase tiny training || fail "it does not train: $(picture)"

press 2 # watch
wait_shows 20 "of dense"
press 3
wait_shows 20 "on host b:"
press 5
wait_shows 10 "anchor.mix"
knob() { [ "$(kedge get tiny "$1")" = "$2" ]; }
press g
to_row mask.rate
press -
wait_shows 10 "0.94 drafted"
press Enter
wait_for 30 knob mask.rate 0.94 || fail "mask.rate: $(picture)"
to_row anchor.mix
press - -
wait_shows 10 "0.68 drafted"
press Enter
wait_for 30 knob anchor.mix 0.68 || fail "anchor.mix: $(picture)"
wait_shows 10 "active from step"

at=$(step_of tiny)
press q
wait_shows 10 "left: tiny goes on"
wait_shows 10 "code 0"
close_terminal
wait_for 30 step_reached tiny $((at + 2)) || fail "the run did not go on without its console"

open_terminal 100 30 "env LANG=C.UTF-8 TERM=screen-256color $O/kedge; echo code \$?; sleep 100"
wait_shows 20 "going"
press Enter 5
wait_shows 20 "0.68"
press S
wait_shows 10 "Stop this run?"
press y
wait_shows 60 "stopped"
press q
wait_shows 10 "code 0"
gone_now() { nothing_left tiny >/dev/null; }
wait_for 30 gone_now || fail "$(nothing_left tiny)"
