#!/bin/sh
# Colours are foreground only, so that light and dark terminals keep their own background, and never the only sign: 8 and 256 of them, the
# themes of the user's INI, none. What is not understood there is said. What is copied is in the terminal's clipboard; --plain moves no
# cursor and paints nothing.
# seconds: 300
. tests/system/lib/common.sh
. tests/tui/lib/tui.sh
have_json || skip "python3 is not here to read JSON; it would have watched a run in colours"

profile sea run.steps=1000000
kedge run "$TMP/sea.ini" --detach >"$TMP/out" 2>&1 || fail "the run: $(cat "$TMP/out")"
wait_for 60 step_reached sea 2 || fail "no step was trained"
mkdir -p "$XDG_CONFIG_HOME/kedge"

# paints TERM [THEME] : what the screen of view Links is painted with, one code a line, in $TMP/codes; the picture in $TMP/shown
paints() {
    rm -f "$XDG_CONFIG_HOME/kedge/screen.ini"
    [ $# = 1 ] || printf '[screen]\ntheme = %s\n' "$2" >"$XDG_CONFIG_HOME/kedge/screen.ini"
    open_terminal 100 30 "env LANG=C.UTF-8 TERM=$1 $O/kedge attach sea links"
    wait_shows 20 "of dense"
    wait_shows 20 "B/s" # the roads: before their first meters the screen has no rate to paint
    coloured >"$TMP/raw"
    grep -o "$(printf '\033')\[[0-9;]*m" "$TMP/raw" | tr -d '\033[m' | sort -u >"$TMP/codes"
    picture >"$TMP/shown"
    ! grep -Eq '(^|;)(4[0-7]|48;5|10[0-7])(;|$)' "$TMP/codes" || fail "$*: a background is set: $(tr '\n' ' ' <"$TMP/codes")"
    press q
}
many() { grep -Eq '38;5;([1-9][6-9]|[2-9][0-9]|1[0-9][0-9]|2[0-9][0-9])' "$TMP/codes"; }
some() { grep -Eq '(^|;)(3[1-7]|9[0-7]|38;5;)' "$TMP/codes"; }
# paints_with CODE OTHER : of 256, those of the frame's keys and of rates
paints_with() { grep -Eq "38;5;$1(;|$)" "$TMP/codes" && grep -Eq "38;5;$2(;|$)" "$TMP/codes"; }
focus() { grep -Eq '(^|;)7(;|$)' "$TMP/codes"; }

paints screen
some && ! many || fail "8 colours: $(tr '\n' ' ' <"$TMP/codes")"
focus || fail "8 colours: the selected row is not reverse"
paints screen-256color
many || fail "256 colours: $(tr '\n' ' ' <"$TMP/codes")"
cp "$TMP/codes" "$TMP/usual"
paints screen-256color safe
some && focus && ! cmp -s "$TMP/codes" "$TMP/usual" || fail "theme safe: $(tr '\n' ' ' <"$TMP/codes")"
paints screen-256color light
paints_with 25 30 && ! paints_with 33 37 && focus || fail "theme light: $(tr '\n' ' ' <"$TMP/codes")"
paints "screen-256color 'COLORFGBG=0;15'"
paints_with 25 30 && ! paints_with 33 37 || fail "a light background: $(tr '\n' ' ' <"$TMP/codes")"
paints screen-256color lite
paints_with 33 37 || fail "theme lite: $(tr '\n' ' ' <"$TMP/codes")"
grep -q "screen.ini:2: theme is auto, mono, safe or light, not 'lite'" "$TMP/shown" || fail "nothing is said of theme lite: $(cat "$TMP/shown")"
paints screen-256color mono
! some && focus || fail "theme mono: $(tr '\n' ' ' <"$TMP/codes")"
if command -v infocmp >/dev/null && infocmp xterm-16color >/dev/null 2>&1; then
    paints xterm-16color
    some && ! many && focus || fail "16 colours: $(tr '\n' ' ' <"$TMP/codes")"
fi

# OSC 52: what y copies is in the clipboard of the terminal.
rm -f "$XDG_CONFIG_HOME/kedge/screen.ini"
open_terminal 100 30 "env LANG=C.UTF-8 TERM=screen-256color $O/kedge attach sea links"
tui set-option -s set-clipboard on >/dev/null
wait_shows 20 "B/s"
press y
copied() { tui show-buffer 2>/dev/null | grep -q 'r0s'; }
wait_for 10 copied || fail "nothing was copied: $(picture)"
press q

# Lines for a screen reader: no control character at all, words for everything.
open_terminal 100 30 "env LANG=C.UTF-8 TERM=screen-256color sh -c 'sleep 2; exec $O/kedge attach sea --plain'"
tui pipe-pane "cat >$TMP/plain"
said() { [ "$(grep -c '^step [0-9]*/1000000' "$TMP/plain" 2>/dev/null)" -ge 2 ]; }
wait_for 30 said || fail "--plain says $(cat -v "$TMP/plain" 2>/dev/null; picture)"
press C-c
! LC_ALL=C tr -d '\r\n\t' <"$TMP/plain" | LC_ALL=C grep -q '[[:cntrl:]]' || fail "--plain controls the terminal: $(cat -v "$TMP/plain" | head)"
close_terminal
kedge stop sea >"$TMP/stop" || fail "stop: $(cat "$TMP/stop")"
nothing_left sea || fail "something is left"
exit 0
