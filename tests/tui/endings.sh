#!/bin/sh
# However the screen ends, the terminal is as before and the run goes on: q, SIGTERM, SIGHUP, abort, kill -9; and Ctrl-Z with fg.
# seconds: 240
. tests/system/lib/common.sh
. tests/tui/lib/tui.sh
have_json || skip "python3 is not here to read JSON; it would have watched a run while its consoles die"
command -v bash >/dev/null || skip "bash is not here; it would have been the shell in which consoles die"

profile sea run.steps=1000000
kedge run "$TMP/sea.ini" --detach >"$TMP/out" 2>&1 || fail "the run: $(cat "$TMP/out")"
wait_for 30 step_reached sea 2 || fail "no step was trained"

open_terminal 80 24 "env LANG=C.UTF-8 TERM=screen-256color PS1='ready> ' bash --norc --noprofile"
wait_shows 10 "ready>"
type_text "stty -a >$TMP/before"
press Enter
wait_for 10 test -s "$TMP/before" || fail "no stty"

# The console's pid: the shell writes it, so that nothing is found by name.
begin() {
    rm -f "$TMP/pid"
    press C-l
    type_text "sh -c 'echo \$\$ >$TMP/pid; exec $O/kedge attach sea'"
    press Enter
    wait_shows 20 "training"
    wait_for 10 test -s "$TMP/pid" || fail "no pid"
    pid=$(cat "$TMP/pid")
}

# usable WHAT : the shell is there, echoes what is typed, and the line is set as before
usable() {
    wait_for 10 gone "$pid" || fail "$1: the console did not end"
    sleep 0.5
    press Enter
    type_text "echo alive\$((40 + 2))"
    press Enter
    wait_for 10 shows alive42 || fail "$1: the shell is not usable:
$(picture)"
    shows 'echo alive$((40 + 2))' || fail "$1: typing is not seen:
$(picture)"
    rm -f "$TMP/after"
    type_text "stty -a >$TMP/after"
    press Enter
    wait_for 10 test -s "$TMP/after" || fail "$1: no stty"
    sed 's/rows.*columns[^;]*;//' "$TMP/before" >"$TMP/one"
    sed 's/rows.*columns[^;]*;//' "$TMP/after" >"$TMP/other"
    diff "$TMP/one" "$TMP/other" >"$TMP/diff" || fail "$1: the line is set differently: $(cat "$TMP/diff")"
    at=$(step_of sea)
    wait_for 20 step_reached sea $((at + 1)) || fail "$1: the run does not go on"
}

begin
press q
usable q
shows "left: sea goes on" || fail "q does not say what goes on: $(picture)"
for signal in TERM HUP ABRT KILL; do
    begin
    kill -$signal "$pid"
    usable "SIG$signal"
done

begin
press C-z
wait_shows 10 "Stopped"
type_text "echo alive\$((40 + 3))"
press Enter
wait_shows 10 alive43
type_text fg
press Enter
wait_shows 10 "ETA"
press 2
wait_shows 10 "of dense"

# A storm of sizes; what others write over the screen goes with Ctrl-L.
for size in 60 16 200 50 10 3 61 17 120 40 1 1 80 24; do :; done
for columns in 60 200 10 61 120 2 80; do
    for rows in 16 50 3 24; do tui resize-window -x $columns -y $rows 2>/dev/null; done
done
tui resize-window -x 100 -y 30
wait_shows 10 "of dense"
lives "$pid" || fail "the storm ended the console"
tty=$(tui display-message -p '#{pane_tty}')
garbage() { printf '\033[5;5HGARBAGE' >"$tty" && shows GARBAGE; } # the last of the sizes may be drawn after it
wait_for 10 garbage || fail "nothing can be written over the screen: $(picture)"
press C-l
wait_hides 10 GARBAGE
press q
usable "q after the storm"
