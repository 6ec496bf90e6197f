#!/bin/sh
# 64 hosts, all of them one sshd: looked at and launched in parallel, with bounded memory; one that hangs delays nobody, and when it has
# failed the others are cleared away; the console is left in less than two seconds while all peers are silent.
# seconds: 500
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh

host one 127.0.0.2
cat >"$TMP/hole.py" <<'EOF'
import socket, time
s = socket.socket(); s.bind(("127.0.0.3", 0)); s.listen(0)
kept = [socket.socket() for _ in range(3)]
for one in kept: one.setblocking(False); one.connect_ex(s.getsockname())
print(s.getsockname()[1], flush=True); time.sleep(600)
EOF
python3 "$TMP/hole.py" >"$TMP/hole" &
hole=$!
wait_for 10 test -s "$TMP/hole"

# many NAME LOGIN... : a profile of 64 hosts; those that are given come first
many() {
    name=$1
    shift
    profile "$name" run.timeout=10s pipeline.stages=64 model.layers=64
    sed -i '/^\[host a\]/,$d' "$TMP/$name.ini"
    for number in $(seq 64); do
        login=$(login_of one)
        [ $# = 0 ] || { login=$1; shift; }
        printf '[host n%s]\nssh = %s\nidentity = %s\nhost_key = %s\n' "$number" "$login" "$TMP/ssh/id" "$(print_of one)" >>"$TMP/$name.ini"
    done
}
many all "$me@127.0.0.3:$(cat "$TMP/hole")"
kedge check "$TMP/all.ini" --json >"$TMP/json" 2>"$TMP/err" &
check=$!
sleep 3
grep VmHWM /proc/$check/status >"$TMP/memory" 2>/dev/null
wait $check
[ $? = 3 ] || fail "check: $(cat "$TMP/err")"
json 'len(j["hosts"]), len([h for h in j["hosts"] if h["problems"]]), [h["problems"] for h in j["hosts"] if h["host"] == "n1"][0][0][:40]' <"$TMP/json" >"$TMP/words"
grep -qx '64 1 n1 does not answer: nothing for 10.0 s w' "$TMP/words" || fail "check says $(cat "$TMP/words" "$TMP/json.err"): $(json '[h["problems"] for h in j["hosts"] if h["problems"]]' <"$TMP/json")"
kib=$(awk '{ print $2 }' "$TMP/memory")
[ -n "$kib" ] && [ "$kib" -lt 800000 ] || fail "memory for 64 hosts: $(cat "$TMP/memory")"

# A launch: 63 agents are ready while the first host still hangs; then all of it is taken back.
many launched "$me@127.0.0.3:$(cat "$TMP/hole")"
set_key "$TMP/launched.ini" run.timeout 90s
"$O/kedge" run "$TMP/launched.ini" --detach >"$TMP/out" 2>&1 </dev/null &
run=$!
all_ready() { [ "$(grep -c '^agent@n[0-9]* is ready' "$TMP/out")" = 63 ]; }
wait_for 89 all_ready || fail "$(grep -c '^agent@n[0-9]* is ready' "$TMP/out") of 63 agents are ready: $(tail -n 5 "$TMP/out")"
kib=$(awk '/VmHWM/ { print $2 }' /proc/$run/status)
[ -n "$kib" ] && [ "$kib" -lt 800000 ] || fail "memory for launching 64 hosts: $kib KiB; $(tail -n 5 "$TMP/out")"
wait $run
[ $? = 3 ] && tail -n 1 "$TMP/out" | grep -q 'host n1 does not answer: nothing for 1 m 30 s while connecting' || fail "launch: $(tail -n 5 "$TMP/out")"
nothing_left launched && nothing_on one launched || fail "after a launch that failed: $(tail -n 5 "$TMP/out")"

# All are silent: leaving takes a moment.
holes=
for number in $(seq 64); do holes="$holes $me@127.0.0.3:$(cat "$TMP/hole")"; done
many silent $holes
"$O/kedge" run "$TMP/silent.ini" --detach >"$TMP/out" 2>&1 </dev/null &
run=$!
wait_for 30 grep -q '^n64: connecting' "$TMP/out" || fail "not dialling: $(cat "$TMP/out")"
began=$(date +%s%N)
kill -INT $run || fail "it had ended: $(cat "$TMP/out")"
wait $run
took=$((($(date +%s%N) - began) / 1000000))
nothing_left silent || fail "after leaving"
[ $took -lt $((2000 * patience)) ] || fail "leaving took $took ms"
kill $hole
exit 0
