#!/bin/sh
# kedge check and the roads of the plan: each pair of hosts that it joins is measured once, both ways, and compared with what a step needs; a
# slow road and an uplink that is less than its profile says are named, and so are two hosts that no road can join. A C library that is too old is
# refused with both versions, by check and by run; a host that boots is waited for; interface, GPU and open files are those of the host.
# seconds: 600
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh
command -v perl >/dev/null || skip "no perl here; roads would have been measured"

host one 127.0.0.2
host two 127.0.0.3
host three 127.0.0.4
profile far run.timeout=10s pipeline.stages=3
printf '[host c]\nkind = ssh\nthreads = 1\n' >>"$TMP/far.ini"
use_host "$TMP/far.ini" a one
use_host "$TMP/far.ini" b two
use_host "$TMP/far.ini" c three
for name in a:2 b:3 c:4; do set_key "$TMP/far.ini" "host.${name%:*}.listen" "127.0.0.${name#*:}:0"; done
kedge check "$TMP/far.ini" >"$TMP/out" 2>&1 || fail "check: $(cat "$TMP/out")"
for pair in 'a - b' 'b - c'; do [ "$(grep -c "^$pair: measured" "$TMP/out")" = 1 ] || fail "$pair: $(cat "$TMP/out")"; done
! grep -q '^a - c' "$TMP/out" || fail "a and c are not joined: $(cat "$TMP/out")"
grep -q '^a - b *r0s0-r0s1 .*[GMk]B/s' "$TMP/out" && grep -q '^The slowest road is ' "$TMP/out" || fail "the table: $(cat "$TMP/out")"
kedge check "$TMP/far.ini" --json >"$TMP/json" 2>&1 || fail "check --json: $(cat "$TMP/json")"
kedge plan "$TMP/far.ini" --json >"$TMP/plan" || fail "plan"
json '[(r["from"], r["to"], r["rtt_seconds"] > 0, r["forward_bytes_per_second"] > 1e5, r["backward_bytes_per_second"] > 1e5, r["seconds_per_step"] > 0) for r in j["roads"]]' <"$TMP/json" | grep -qx "\[('a', 'b', True, True, True, True), ('b', 'c', True, True, True, True)\]" || fail "roads: $(cat "$TMP/json")"
json '[(r["forward_bytes_per_step"], r["backward_bytes_per_step"]) for r in j["roads"]]' <"$TMP/json" | sed 's/\.0//g' >"$TMP/needs"
json '[(r["bytes_per_step"]["forward"], r["bytes_per_step"]["backward"]) for r in j["roads"]]' <"$TMP/plan" | cmp -s - "$TMP/needs" || fail "needs: $(cat "$TMP/needs" "$TMP/plan")"
! command -v ip >/dev/null || json '[h["interface"] for h in j["hosts"]]' <"$TMP/json" | grep -qx "\['lo 127.*', 'lo 127.*', 'lo 127.*'\]" || fail "interfaces: $(cat "$TMP/json")"

# c is reached through a mapped port whose road is slow; b promises more than it has there.
port=$(free_port 127.0.0.4)
python3 "$TMP/ssh/slow.py" 127.0.0.4 "$port" 8000000 100 >"$TMP/slow" 2>"$TMP/slow.err" &
sshds="$sshds $!"
wait_for 10 test -s "$TMP/slow" || fail "no slow road: $(cat "$TMP/slow.err")"
set_key "$TMP/far.ini" host.c.listen "127.0.0.4:$port"
set_key "$TMP/far.ini" host.c.announce "127.0.0.4:$(cat "$TMP/slow")"
set_key "$TMP/far.ini" host.b.uplink 200Mbit
kedge check "$TMP/far.ini" --json >"$TMP/json" 2>&1 || fail "a slow road: $(cat "$TMP/json")"
json '[(r["rtt_seconds"] >= 0.1, 2e5 < r["forward_bytes_per_second"] < 1.5e6, 2e5 < r["backward_bytes_per_second"] < 1.5e6) for r in j["roads"] if r["to"] == "c"]' <"$TMP/json" | grep -qx '\[(True, True, True)\]' || fail "a slow road: $(json 'j["roads"]' <"$TMP/json")"
kedge check "$TMP/far.ini" >"$TMP/out" 2>&1 || fail "a slow road: $(cat "$TMP/out")"
grep -q '^b - c: b sends [0-9.]* Mbit/s, its uplink = says 200.0' "$TMP/out" && grep -q '^The slowest road is b - c: what a step needs is on it for ' "$TMP/out" || fail "a slow road: $(cat "$TMP/out")"

# Neither a nor b is reached by others: no road can be.
set_key "$TMP/far.ini" host.a.announce "127.0.0.2:$(free_port 127.0.0.2)"
set_key "$TMP/far.ini" host.b.announce "127.0.0.3:$(free_port 127.0.0.3)"
kedge check "$TMP/far.ini" >"$TMP/out" 2>&1
[ $? = 1 ] && grep -q '^a - b: there is no road, since neither a nor b is reached by others: open the port of one of them, or map it' "$TMP/out" || fail "no road: $(cat "$TMP/out")"
grep -q '^b - c: measured' "$TMP/out" || fail "c is still reached: $(cat "$TMP/out")"
sed -i '/^listen\|^announce\|^uplink/d' "$TMP/far.ini"

# Another machine: an old C library, a GPU of another time that others use, few open files.
mkdir "$TMP/ssh/old"
printf '#!/bin/sh\n[ "$1" = GNU_LIBC_VERSION ] && echo "glibc 2.17" || exec /usr/bin/getconf "$@"\n' >"$TMP/ssh/old/getconf"
printf '#!/bin/sh\ncase "$1" in --query-gpu*) echo "Tesla T4, 15360, 15000, 535.104.05, 7.5";; *) echo 4711;; esac\n' >"$TMP/ssh/old/nvidia-smi"
chmod 755 "$TMP/ssh/old/getconf" "$TMP/ssh/old/nvidia-smi"
host_environment=PATH=$TMP/ssh/old:/usr/local/bin:/usr/bin:/bin
files=$(ulimit -Hn)
begin_old() { (ulimit -n 512 && exec /usr/sbin/sshd -D -e -f "$TMP/ssh/old/config") 2>>"$TMP/ssh/old/log" & sshds="$sshds $!"; echo $! >"$TMP/ssh/old/pid"; }
host old 127.0.0.5
end_sshd old
begin_old
wait_for 10 answers 127.0.0.5 "$(cat "$TMP/ssh/old/port")" || fail "sshd old: $(cat "$TMP/ssh/old/log")"
use_host "$TMP/far.ini" b old
set_key "$TMP/far.ini" train.precision bf16
kedge check "$TMP/far.ini" >"$TMP/out" 2>&1
[ $? = 1 ] && grep -Eq '^b: its glibc 2.17 is older than the glibc 2\.[0-9]+ that the programs here need: build kedge on a system as old' "$TMP/out" || fail "an old C library: $(cat "$TMP/out")"
grep -q '^b: its GPU Tesla T4 has compute capability 7.5, and bf16 wants 8.0' "$TMP/out" && grep -q '^b: 1 other programs use its GPU' "$TMP/out" || fail "a GPU: $(cat "$TMP/out")"
grep -q '^b: only 512 open files are allowed (ulimit -Hn): raise nofile' "$TMP/out" || [ "$files" -lt 512 ] || fail "open files: $(cat "$TMP/out")"
kedge run "$TMP/far.ini" --detach >"$TMP/out" 2>&1
[ $? != 0 ] && grep -Eq 'host b cannot run the programs: its glibc 2.17 is older than the glibc 2\.[0-9]+ ' "$TMP/out" || fail "run with an old C library: $(cat "$TMP/out")"
[ ! -d "$TMP/ssh/old/home/.local/share/kedge/programs" ] || fail "programs were sent to a host that cannot run them"
nothing_left far && nothing_on "one old three" far || fail "after a refused start"

# A host that boots: nobody listens yet, then somebody does. A key that is not accepted is not waited for (ssh_faults).
end_sshd one
use_host "$TMP/far.ini" b two
"$O/kedge" check "$TMP/far.ini" >"$TMP/out" 2>&1 &
check=$!
wait_for 20 grep -q '^a: not yet (a cannot be reached: Connection refused): again in [0-9]' "$TMP/out" || fail "no countdown: $(cat "$TMP/out")"
begin_sshd one
wait $check || fail "a host that boots: $(cat "$TMP/out")"
exit 0
