#!/bin/sh
# What a terminal shows of a recorded run is what --once prints of it: every view at four sizes, UTF-8 and ASCII, with colour and without.
# seconds: 300
. tests/system/lib/common.sh
. tests/tui/lib/tui.sh
have_json || skip "python3 is not here to read JSON; it would have waited for a run to end"

profile sea run.steps=60 train.evaluate_every=10 train.micro_batches=4 anchor.host=c anchor.every=8 anchor.staleness=8 anchor.limit=30 anchor.rank=16
printf '[host c]\nkind = local\nthreads = 1\n' >>"$TMP/sea.ini"
kedge run "$TMP/sea.ini" --headless >"$TMP/out" 2>&1 || fail "the run: $(cat "$TMP/out")"

once() { env LANG="$language" COLUMNS="$columns" LINES="$rows" "$O/kedge" attach sea "$view" --once >"$TMP/once" 2>"$TMP/err" || fail "--once of $what: $(cat "$TMP/err")"; }
is_same() { picture >"$TMP/shown" && cmp -s "$TMP/once" "$TMP/shown" && return; [ "$view" != runs ] || once; cmp -s "$TMP/once" "$TMP/shown"; } # runs have ages
colours() { coloured | grep -q "$(printf '\033\[[0-9;]*[34][0-8]\(;[0-9;]*\)\{0,1\}m')"; }

# shown COLUMNS ROWS LANG ENVIRONMENT : each view by its key, in one terminal of that size, beside what --once prints
shown() {
    columns=$1 rows=$2 language=$3 number=0
    open_terminal "$1" "$2" "env LANG=$3 $4 $O/kedge attach sea"
    for view in runs run links anchor hosts knobs events profiles; do
        what="$view at $1 x $2, LANG=$3 $4"
        once
        [ "$(wc -l <"$TMP/once")" = "$2" ] || fail "--once of $what has $(wc -l <"$TMP/once") lines"
        press $number
        number=$((number + 1))
        wait_for 10 is_same || fail "the terminal shows another picture of $what:
$(diff "$TMP/once" "$TMP/shown")"
        ! { [ "$3" = C ] && LC_ALL=C grep -n '[^ -~]' "$TMP/shown"; } || fail "$what is not ASCII"
        case $4 in
        *NO_COLOR*) ! colours || fail "NO_COLOR is not obeyed: $what" ;;
        *256color*) colours || fail "there is no colour: $what" ;;
        esac
    done
}

for size in "80 24" "120 40" "200 50" "60 16"; do
    for language in C.UTF-8 C; do
        shown $size $language TERM=screen-256color
        shown $size $language "TERM=screen NO_COLOR=1"
    done
done
shown 80 24 C.UTF-8 TERM=vt100
close_terminal

# A terminal that can show no screen gets lines, and is told why.
open_terminal 80 24 "env TERM=nonsense LANG=C.UTF-8 $O/kedge attach sea; sleep 30"
wait_shows 10 "the terminal 'nonsense' is not known here"
close_terminal

# 59 x 15 says what it needs; the run's phase is there all the same.
open_terminal 59 15 "env LANG=C.UTF-8 TERM=screen $O/kedge attach sea; sleep 30"
wait_shows 10 "59 x 15 here, 60 x 16 needed"
wait_shows 10 "finished step 60/60"
press q
wait_shows 10 "sea: finished at step 60 of 60"
