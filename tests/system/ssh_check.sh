#!/bin/sh
# kedge check with hosts: side by side, the same as JSON, and what is wrong is named with the remedy: a port that nobody reaches, a host that is
# away, a clock that is five minutes off; and no file or folder stays there.
# seconds: 200
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh

host one 127.0.0.2
host two 127.0.0.3
profile far run.timeout=10s
use_host "$TMP/far.ini" a one
use_host "$TMP/far.ini" b two
kedge check "$TMP/far.ini" >"$TMP/out" 2>&1 || fail "check: $(cat "$TMP/out")"
grep -q '^a: logging in once more$' "$TMP/out" && grep -q 'far.ini is valid' "$TMP/out" || fail "check says $(cat "$TMP/out")"
kedge check "$TMP/far.ini" --json >"$TMP/json" 2>&1 || fail "check --json: $(cat "$TMP/json")"
json 'j["format"], [h["host"] for h in j["hosts"]], all(h["login_seconds"] > 0 and h["second_login_seconds"] > 0 and h["rtt_seconds"] > 0 and abs(h["clock_offset_seconds"]) < 1 and h["cpus"] > 0 and h["disk_free_bytes"] > 0 and h["c_library"].startswith("glibc") for h in j["hosts"])' <"$TMP/json" >"$TMP/words"
grep -qx "1 \['a', 'b'\] True" "$TMP/words" || fail "JSON says $(cat "$TMP/words" "$TMP/json.err" "$TMP/json")"
if command -v perl >/dev/null; then
    json 'sorted((h["host"], h["port_reached"], h["port_tried_from"]) for h in j["hosts"])' <"$TMP/json" | grep -qx "\[('a', True, 'b'), ('b', True, 'a')\]" || fail "ports: $(cat "$TMP/json")"
    # A port that is somebody else's, and one that leads elsewhere.
    python3 -c 'import socket, time; s = socket.socket(); s.bind(("127.0.0.3", 0)); s.listen(5); print(s.getsockname()[1], flush=True); time.sleep(300)' >"$TMP/taken" &
    taken=$!
    wait_for 10 test -s "$TMP/taken"
    set_key "$TMP/far.ini" host.b.listen "127.0.0.3:$(cat "$TMP/taken")"
    set_key "$TMP/far.ini" host.a.announce "127.0.0.2:$(free_port 127.0.0.2)"
    kedge check "$TMP/far.ini" >"$TMP/out" 2>&1
    [ $? = 1 ] && grep -q '^b: cannot listen on 127.0.0.3:[0-9]*: Address already in use' "$TMP/out" || fail "a taken port: $(cat "$TMP/out")"
    grep -q '^a: nobody reaches 127.0.0.2:[0-9]* (tried from host b: .*Connection refused.*announce = HOST:PORT$' "$TMP/out" || fail "a port that leads elsewhere: $(cat "$TMP/out")"
    kill $taken
fi
# One host is away, one does not know us: each says so, and the other is looked at all the same.
end_sshd two
kedge check "$TMP/far.ini" --json >"$TMP/json" 2>&1
[ $? = 3 ] || fail "a host that is away: $(cat "$TMP/json")"
json '[h["problems"] for h in j["hosts"] if h["host"] == "b"][0]' <"$TMP/json" | grep -q 'cannot be reached: Connection refused' || fail "b: $(cat "$TMP/json")"
json '[h["c_library"] for h in j["hosts"] if h["host"] == "a"][0]' <"$TMP/json" | grep -q glibc || fail "a: $(cat "$TMP/json")"
for one in one two; do [ -z "$(find "$TMP/ssh/$one/home" -mindepth 1)" ] || fail "something stayed on host $one: $(find "$TMP/ssh/$one/home" -mindepth 1)"; done

# A clock that is five minutes ahead: its `date` says so. It is named with the remedy, and is no reason to refuse.
mkdir "$TMP/ssh/late"
printf '#!/bin/sh\nexec /bin/date -d "5 minutes" "$@"\n' >"$TMP/ssh/late/date"
chmod 755 "$TMP/ssh/late/date"
host_environment=PATH=$TMP/ssh/late:/usr/local/bin:/usr/bin:/bin
host late 127.0.0.4
use_host "$TMP/far.ini" b late
sed -i '/^listen\|^announce/d' "$TMP/far.ini"
kedge check "$TMP/far.ini" --json >"$TMP/json" 2>&1 || fail "a clock that is off: $(cat "$TMP/json")"
json '[(round(h["clock_offset_seconds"] / 10), len(h["problems"]), h["notes"]) for h in j["hosts"] if h["host"] == "b"][0]' <"$TMP/json" >"$TMP/words"
grep -q "^(30, 0, \[.its clock is [0-9.]* s ahead of ours: .*timedatectl set-ntp true' there.\])$" "$TMP/words" || fail "a clock that is off: $(cat "$TMP/words" "$TMP/json")"
exit 0
