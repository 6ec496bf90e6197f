#!/bin/sh
# The mouse is the terminal's own until m is pressed, and again whatever ends the screen; a click opens a tab, the wheel moves the selection.
# And y copies what is selected into the terminal's clipboard.
# seconds: 60
. tests/system/lib/common.sh
. tests/tui/lib/tui.sh
mkdir -p "$TMP/work" "$XDG_CONFIG_HOME/kedge"
for i in 1 2 3 4 5 6; do cp profiles/laptop.ini "$TMP/work/p$i.ini"; done

wants() { [ "$(tui display-message -p '#{mouse_any_flag}')" = "$1" ]; }
# report BUTTON COLUMN ROW : as a terminal reports it (from 1); a click is a press and a release
click() { report 0 "$1" "$2" && report 3 "$1" "$2"; }
report() { type_text "$(printf '\033[M')$(printf "\\$(printf %03o $((32 + $1)))\\$(printf %03o $((32 + $2)))\\$(printf %03o $((32 + $3)))")"; }
selected() { coloured | sed -n '3,$p' | grep -F "$1" | grep -q "$(printf '\033\[[0-9;]*7m')"; }
begin() {
    open_terminal 80 24 "cd $TMP/work && env LANG=C.UTF-8 TERM=screen-256color sh -c 'echo \$\$ >$TMP/pid; exec $O/kedge'; echo code \$?; sleep 100"
    tui set-option -s set-clipboard on >/dev/null
    wait_shows 20 "0 Runs"
}

begin
wants 0 || fail "the mouse is taken, and nobody asked"
press m
wait_for 10 wants 1 || fail "m did not take the mouse"
click 13 2 # the tab of the profiles
wait_shows 10 "p4.ini"
wait_for 5 selected p1.ini || fail "the first row is not selected: $(picture)"
click 10 8
wait_for 10 selected p4.ini || fail "a click did not select: $(picture)"
report 65 10 7
wait_for 10 selected p5.ini || fail "the wheel did not move: $(picture)"
report 64 10 7
wait_for 10 selected p4.ini || fail "the wheel did not move back: $(picture)"
press y
copied() { tui show-buffer 2>/dev/null | grep -q "p4.ini"; }
wait_for 10 copied || fail "the clipboard has: $(tui show-buffer)"
press m
wait_for 10 wants 0 || fail "m did not give the mouse back"
press m q
wait_shows 10 "code 0"
wants 0 || fail "q did not give the mouse back"

printf '[screen]\nmouse = yes\n' >"$XDG_CONFIG_HOME/kedge/screen.ini"
begin
wait_for 10 wants 1 || fail "screen.ini says mouse = yes"
kill -KILL "$(cat "$TMP/pid")"
wait_for 10 wants 0 || fail "kill -9 left the mouse taken"
close_terminal
