#!/bin/sh
# A network that drops everything, without a refusal: real SYNs that nobody answers, from 64 hosts at once, and a road that goes silent while a run is
# watched. The console is left in less than two seconds, both times; a lost road is said with the seconds since the last word, is dialled again with
# growing pauses, on the screen and without one, keys work meanwhile, and it is back by itself when the network is. In network namespaces: as root only.
# seconds: 400
. tests/system/lib/common.sh
. tests/tui/lib/tui.sh
if [ "${1:-}" != inside ]; then
    [ "$(id -u)" = 0 ] && command -v ip >/dev/null && command -v nsenter >/dev/null && unshare -n ip link add v0 type veth peer name v1 2>/dev/null ||
        skip "no network namespaces here; packets would have been dropped"
    trap - EXIT INT TERM
    exec unshare -n sh "$0" inside
fi
. tests/system/lib/ssh.sh
trap 'status=$?; tui kill-server 2>/dev/null; kill $far 2>/dev/null; (exit $status); clean_up_hosts' EXIT

# Here 10.99.0.1; the far end of the wire is another namespace, 10.99.0.2. What is sent to the others arrives there and is nobody's.
ip link set lo up
unshare -n sleep 390 &
far=$!
there() { nsenter -t $far -n "$@"; }
apart() { [ "$(readlink /proc/$far/ns/net)" != "$(readlink /proc/self/ns/net)" ]; }
wait_for 10 apart || fail "no second namespace"
ip link add v0 type veth peer name v1 && ip link set v1 netns $far || fail "no wire between the namespaces"
ip addr add 10.99.0.1/16 dev v0 && ip link set v0 up && there ip addr add 10.99.0.2/16 dev v1 && there ip link set v1 up && there ip link set lo up || fail "no addresses"
hardware=$(there ip -o link show v1 | sed -n 's/.*ether \([^ ]*\).*/\1/p')
for number in $(seq 64); do ip neigh add 10.99.1.$number lladdr "$hardware" dev v0 nud permanent || fail "no neighbour"; done
ip neigh replace 10.99.0.2 lladdr "$hardware" dev v0 nud permanent || fail "no neighbour"

begin_sshd() {
    folder=$TMP/ssh/$1
    there /usr/sbin/sshd -D -e -f "$folder/config" 2>>"$folder/log" &
    echo $! >"$folder/pid"
    sshds="$sshds $!"
    wait_for 10 answers "$(cat "$folder/address")" "$(cat "$folder/port")" || fail "sshd $1: $(cat "$folder/log")"
}
mkdir -p "$TMP/ssh/one" && echo 2222 >"$TMP/ssh/one/port"
host one 10.99.0.2

# ---- nobody answers ----
profile silent run.timeout=60s pipeline.stages=64 model.layers=64
sed -i '/^\[host a\]/,$d' "$TMP/silent.ini"
for number in $(seq 64); do
    printf '[host n%s]\nlisten = 0.0.0.0:0\nssh = %s@10.99.1.%s\nidentity = %s\nhost_key = %s\n' "$number" "$me" "$number" "$TMP/ssh/id" "$(print_of one)" >>"$TMP/silent.ini"
done
"$O/kedge" run "$TMP/silent.ini" --detach >"$TMP/out" 2>&1 </dev/null &
run=$!
wait_for 60 grep -q '^n64: connecting' "$TMP/out" || fail "not dialling: $(cat "$TMP/out")"
all_dialling() { [ "$(awk '$4 == "02"' /proc/net/tcp | wc -l)" -ge 60 ]; } # SYN_SENT
wait_for 20 all_dialling || fail "only $(awk '$4 == "02"' /proc/net/tcp | wc -l) SYNs are under way"
began=$(date +%s%N)
kill -INT $run || fail "it had ended: $(cat "$TMP/out")"
wait $run
took=$((($(date +%s%N) - began) / 1000000))
[ $took -lt $((2000 * patience)) ] || fail "leaving took $took ms"
nothing_left silent || fail "after leaving"

# ---- somebody answered, and nobody does any more ----
profile far run.steps=100000 run.timeout=4s run.head=a run.listen=10.99.0.2:0
use_host "$TMP/far.ini" a one
use_host "$TMP/far.ini" b one
for name in a b; do set_key "$TMP/far.ini" "host.$name.listen" 10.99.0.2:0; done
kedge run "$TMP/far.ini" --detach >"$TMP/out" 2>&1 || fail "run: $(cat "$TMP/out")"
wait_for 60 step_reached far 2 || fail "no step was trained: $(kedge status far)"
"$O/kedge" attach far --headless >"$TMP/watch" 2>&1 &
watch=$!
wait_for 60 grep -q '^step ' "$TMP/watch" || fail "attach: $(cat "$TMP/watch")"
open_terminal 100 30 "exec env XDG_STATE_HOME='$XDG_STATE_HOME' XDG_CONFIG_HOME='$XDG_CONFIG_HOME' HOME='$HOME' '$O/kedge' attach far"
wait_shows 60 "training"
there ip link set v1 down
wait_for 60 grep -q '^no road to a (last word [0-9.]* s ago): .*; again in ' "$TMP/watch" || fail "a lost road is not said: $(tail -n 5 "$TMP/watch")"
wait_shows 60 "no road to the scheduler for"
seconds_shown() { picture | sed -n 's/.*no road to the scheduler for \([0-9.]*\) s.*/\1/p' | head -n 1; }
first=$(seconds_shown)
grows() { now=$(seconds_shown); [ -n "$now" ] && [ "$now" != "$first" ]; }
wait_for 20 grows || fail "the seconds do not grow: $(picture)"
press 4 # the screen is not held up
wait_shows 5 "mem free"
more_pauses() { [ "$(sed -n 's/^no road to a .*; again in \(.*\)$/\1/p' "$TMP/watch" | sort -u | wc -l)" -ge 2 ]; }
wait_for 60 more_pauses || fail "pauses do not grow: $(grep '^no road' "$TMP/watch")"
# One who leaves now.
"$O/kedge" attach far --headless >"$TMP/second" 2>&1 &
second=$!
sleep 1
began=$(date +%s%N)
kill $second
wait $second
took=$((($(date +%s%N) - began) / 1000000))
[ $took -lt $((2000 * patience)) ] || fail "leaving while nobody answers took $took ms: $(cat "$TMP/second")"
# It is back.
lines=$(grep -c '^step ' "$TMP/watch")
there ip link set v1 up
more_lines() { [ "$(grep -c '^step ' "$TMP/watch")" -gt "$lines" ]; }
wait_for 90 more_lines || fail "it does not come back by itself: $(tail -n 5 "$TMP/watch")"
wait_hides 60 "no road to the scheduler for"
# Left on the screen while the road is silent: no goodbye waits for anybody.
there ip link set v1 down
sleep 1
began=$(date +%s%N)
press q
left() { tui list-panes -F '#{pane_dead}' | grep -qx 1; }
wait_for 10 left || fail "the screen is not left: $(picture)"
took=$((($(date +%s%N) - began) / 1000000))
[ $took -lt $((2000 * patience)) ] || fail "leaving the screen took $took ms"
began=$(date +%s%N)
kill -INT $watch
wait $watch
took=$((($(date +%s%N) - began) / 1000000))
[ $took -lt $((2000 * patience)) ] || fail "leaving took $took ms"
there ip link set v1 up
kedge stop far >"$TMP/stop" 2>&1 || fail "stop: $(cat "$TMP/stop")"
nothing_left far && nothing_on one far || fail "after stop"
exit 0
