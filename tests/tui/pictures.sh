#!/bin/sh
# What a terminal shows of a recorded run is what --once prints of it: every view, four sizes, UTF-8 and ASCII, colour and none.
# seconds: 240
. tests/system/lib/common.sh
. tests/tui/lib/tui.sh
have_json || skip "python3 is not here to read JSON; it would have waited for a run to end"

profile sea run.steps=40 train.evaluate_every=10
kedge run "$TMP/sea.ini" --headless >"$TMP/out" 2>&1 || fail "the run: $(cat "$TMP/out")"

# same COLUMNS ROWS VIEW LANG ENVIRONMENT
same() {
    what="$3 at $1 x $2, LANG=$4 $5"
    env LANG="$4" COLUMNS="$1" LINES="$2" "$O/kedge" attach sea "$3" --once >"$TMP/once" 2>"$TMP/err" || fail "--once of $what: $(cat "$TMP/err")"
    open_terminal "$1" "$2" "env LANG=$4 $5 $O/kedge attach sea $3"
    tries=0
    until picture >"$TMP/shown" && diff -q "$TMP/once" "$TMP/shown" >/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt $((60 * patience)) ] || fail "the terminal shows another picture of $what:
$(diff "$TMP/once" "$TMP/shown")"
        sleep 0.1
    done
}

for view in run links hosts knobs events; do
    same 80 24 $view C.UTF-8 TERM=screen-256color
done
for size in "60 16" "120 40" "200 50"; do
    same ${size} run C.UTF-8 TERM=screen-256color
    same ${size} links C.UTF-8 TERM=screen
done
coloured | grep -q "$(printf '\033\[3[1-7]m')" || fail "there is no colour"
for view in run knobs events; do
    same 80 24 $view C "TERM=screen NO_COLOR=1"
done
LC_ALL=C grep -q '[^ -~]' "$TMP/shown" && fail "not ASCII: $(cat "$TMP/shown")"
coloured | grep -q "$(printf '\033\[[0-9;]*[34][0-8]m')" && fail "NO_COLOR is not obeyed"
same 80 24 run C.UTF-8 TERM=vt100
close_terminal

# A terminal that can show no screen gets lines, and is told why.
open_terminal 80 24 "env TERM=nonsense LANG=C.UTF-8 $O/kedge attach sea; sleep 30"
wait_shows 10 "the terminal 'nonsense' is not known here"
close_terminal

# 59 x 15 says what it needs; the run's phase is there all the same.
open_terminal 59 15 "env LANG=C.UTF-8 TERM=screen $O/kedge attach sea; sleep 30"
wait_shows 10 "59 x 15 here, 60 x 16 needed"
wait_shows 10 "finished step 40/40"
press q
wait_shows 10 "sea: finished at step 40 of 40"
