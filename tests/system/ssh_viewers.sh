#!/bin/sh
# Ten consoles at once on one run whose scheduler is on a host, over real SSH: lines, JSON and screens. One is stopped as a laptop that
# sleeps is: the others and the run go on, and the scheduler's memory stays what it was; they leave in any order. And when the host falls
# silent, leaving does not wait for it.
# seconds: 240
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh
have_json || skip "python3 is not here to read JSON; ten consoles would have watched a run"
command -v tmux >/dev/null || skip "tmux is not here; it would have been the terminal of two of ten consoles"

screens=$TMP/screens
tui() { tmux -S "$screens" -f /dev/null "$@"; }
viewers=
clean_up_viewers() {
    status=$?
    tui kill-server 2>/dev/null
    for pid in $viewers; do kill -9 "$pid" 2>/dev/null; done
    (exit $status)
    clean_up_hosts
}
trap clean_up_viewers EXIT

host one 127.0.0.2
host two 127.0.0.3
profile far run.steps=1000000 run.timeout=10s run.head=a run.listen=127.0.0.2:0
use_host "$TMP/far.ini" a one
use_host "$TMP/far.ini" b two
kedge run "$TMP/far.ini" --detach >"$TMP/out" 2>&1 || fail "run --detach: $(cat "$TMP/out")"
wait_for 60 step_reached far 2 || fail "no step was trained: $(kedge status far)"
scheduler=$(cut -d' ' -f1 "$(host_folder one far)/kedged.lock")
memory() { awk '/^VmRSS/ { print $2 }' "/proc/$scheduler/status"; }

# lines NUMBER : a console of lines; its pid is in $TMP/NUMBER.pid
lines() {
    "$O/kedge" attach far --headless >"$TMP/$1.out" 2>&1 &
    echo $! >"$TMP/$1.pid"
    viewers="$viewers $!"
}
# screen NUMBER : the shell that becomes the console writes its pid, so that nothing is found by name; how it ends is in $TMP/NUMBER.end
screen() {
    command="sh -c 'echo \$\$ >$TMP/$1.pid; exec $O/kedge attach far'; date +%s%N >$TMP/$1.end"
    if [ "$1" = 8 ]; then tui new-session -d -x 100 -y 30 -s "$1" "$command"; else tui new-session -d -x 80 -y 24 -s "$1" "$command"; fi
    wait_for 10 test -s "$TMP/$1.pid" || fail "screen $1 did not begin"
    viewers="$viewers $(cat "$TMP/$1.pid")"
}
pid_in() { cat "$TMP/$1.pid"; }
picture() { tui capture-pane -p -t "$1"; }
is_watching() { picture "$1" | grep -q training; }
# said NUMBER COUNT : so many lines of steps
said() { [ "$(grep -c '^step ' "$TMP/$1.out")" -ge "$2" ]; }
count_of() { grep -c '^step ' "$TMP/$1.out"; }
# goes_on NUMBER... : each says something new
goes_on() {
    for one; do
        had=$(count_of "$one")
        wait_for 60 said "$one" $((had + 2)) || fail "console $one stands still: $(tail -n 3 "$TMP/$one.out")"
    done
    at=$(step_of far)
    wait_for 60 step_reached far $((at + 2)) || fail "the run stands still: $(kedge status far)"
}

for number in 0 1 2 3 4 5 6 7; do lines $number; done
screen 8
screen 9
for number in 0 1 2 3 4 5 6 7; do wait_for 60 said $number 1 || fail "console $number sees nothing: $(cat "$TMP/$number.out")"; done
for number in 8 9; do wait_for 60 is_watching $number || fail "screen $number sees nothing: $(picture $number)"; done

before=$(memory)
kill -STOP "$(pid_in 3)"
kill -STOP "$(pid_in 9)"
goes_on 0 1 2 4 5 6 7
is_watching 8 || fail "screen 8 with others stopped: $(picture 8)"
has=$(memory)
[ "$has" -le $((before + 16384)) ] || fail "the scheduler grew from $before to $has KiB while two consoles slept"
kill -CONT "$(pid_in 3)"
kill -CONT "$(pid_in 9)"
goes_on 3

# The first, one in the middle, and one by force.
kill -INT "$(pid_in 0)"
kill -TERM "$(pid_in 4)"
kill -9 "$(pid_in 3)"
for number in 0 3 4; do wait_for 20 gone "$(pid_in $number)" || fail "console $number does not end"; done
goes_on 1 7
is_watching 9 || fail "screen 9 after the others left: $(picture 9)"

# The host says nothing more to those who are there: its sessions are stopped, and nobody resets anything.
sessions=$(pgrep -P "$(cat "$TMP/ssh/one/pid")")
kill -STOP $sessions
for number in 8 9; do
    tui send-keys -t $number q
    wait_for 10 test -s "$TMP/$number.end" || fail "screen $number waits for a host that is silent: $(picture $number)"
done
for number in 1 2 5 6 7; do kill -INT "$(pid_in $number)"; done
for number in 1 2 5 6 7; do
    wait_for 10 gone "$(pid_in $number)" || fail "console $number waits for a host that is silent"
    grep -q '^left: far goes on' "$TMP/$number.out" || fail "console $number does not say what goes on: $(tail -n 3 "$TMP/$number.out")"
done
kill -CONT $sessions
at=$(step_of far)
wait_for 60 step_reached far $((at + 1)) || fail "the run does not go on: $(kedge status far)"
kedge stop far >"$TMP/stop" 2>&1 || fail "stop: $(cat "$TMP/stop")"
nothing_left far && nothing_on "one two" far || fail "after stop"
exit 0
