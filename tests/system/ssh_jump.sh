#!/bin/sh
# Two replicas of two stages on four hosts; one is an alias of ~/.ssh/config behind a jump host, which is an alias itself.
# seconds: 300
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh

for number in 1 2 3 4; do host h$number 127.0.0.1$number; done
host door 127.0.0.20
mkdir -p "$HOME/.ssh"
{
    for one in door h4; do
        printf 'Host %s\n    HostName %s\n    Port %s\n    User %s\n    IdentityFile %s\n    UserKnownHostsFile %s\n' \
            "$one-alias" "$(cat "$TMP/ssh/$one/address")" "$(cat "$TMP/ssh/$one/port")" "$me" "$TMP/ssh/id" "$TMP/known"
    done
    echo '    ProxyJump door-alias'
} >"$HOME/.ssh/config"
for one in door h4; do echo "[$(cat "$TMP/ssh/$one/address")]:$(cat "$TMP/ssh/$one/port") $(cut -d' ' -f1,2 "$TMP/ssh/$one/key.pub")"; done >"$TMP/known"

profile four run.steps=100000 run.timeout=10s replicas.count=2 sync.every=10
printf '[host c]\nkind = ssh\nthreads = 1\n[host h4-alias]\nkind = ssh\nthreads = 1\nlisten = 127.0.0.14:0\nannounce = 127.0.0.14\n' >>"$TMP/four.ini"
use_host "$TMP/four.ini" a h1
use_host "$TMP/four.ini" b h2
use_host "$TMP/four.ini" c h3
kedge run "$TMP/four.ini" --detach >"$TMP/out" 2>&1 || fail "run --detach: $(cat "$TMP/out")"
grep -c 'Accepted publickey' "$TMP/ssh/door/log" | grep -qx 1 || fail "nobody went through the door: $(cat "$TMP/ssh/door/log")"
wait_for 90 step_reached four 12 || fail "no step was trained: $(kedge status four)"
kedge hosts four --json | json 'sorted((p["process"], p["host"]) for p in j["processes"] if p["process"][0] == "r")' >"$TMP/hosts"
grep -q "('r0s0', 'a'), ('r0s1', 'b'), ('r1s0', 'c'), ('r1s1', 'h4-alias')" "$TMP/hosts" || fail "stages are on $(cat "$TMP/hosts")"
all_synced() { kedge links four --json | json 'len([r for r in j["links"] if r["lane"] == "sync" and r["sent_bytes"] > 0])' | grep -qx 4; }
wait_for 20 all_synced || fail "links: $(kedge links four)" # steps are quicker than the seconds of counters
kedge stop four >"$TMP/stop" 2>&1 || fail "stop: $(cat "$TMP/stop")"
tail -n 1 "$TMP/stop" | grep -Eq '^four stopped at step [0-9]+: no process, socket or lock is left, here or on 4 hosts$' || fail "stop says $(cat "$TMP/stop")"
nothing_left four && nothing_on "h1 h2 h3 h4" four || fail "after stop"

# The door is shut: which of the two is in the way.
end_sshd door
kedge run "$TMP/four.ini" --detach >"$TMP/out" 2>&1
[ $? = 3 ] && grep -q 'h4-alias is behind jump host door-alias cannot be reached: Connection refused' "$TMP/out" || fail "without the door: $(cat "$TMP/out")"
nothing_left four && nothing_on "h1 h2 h3 h4" four || fail "after a failed start"
exit 0
