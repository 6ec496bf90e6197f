#!/bin/sh
# Roads that stand say nothing about a login: while a console watches, hosts are logged in to anew. Keys that are taken away, a listener that is
# gone and a table of sessions that is full are noticed, said once and shown, while the run trains on; and so is their end.
# seconds: 700
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh

host one 127.0.0.2
host two 127.0.0.3
profile far run.steps=100000 run.timeout=3s
use_host "$TMP/far.ini" a one
use_host "$TMP/far.ini" b two
# Each has keys of its own, so that one of them can lose them.
cp "$TMP/ssh/authorized_keys" "$TMP/ssh/two/keys"
sed -i "s|^AuthorizedKeysFile .*|AuthorizedKeysFile $TMP/ssh/two/keys|" "$TMP/ssh/two/config"
end_sshd two
begin_sshd two

login_is() { kedge hosts far --json | json '[h["login"] for h in j["hosts"] if h["host"] == "'"$1"'"][0]' | grep -qx "$2"; }
says() { grep -q "$1" "$TMP/watch"; }

kedge run "$TMP/far.ini" --detach >"$TMP/out" 2>&1 || fail "run: $(cat "$TMP/out")"
login_is a None && login_is b None || fail "nobody has asked yet: $(kedge hosts far --json)"
"$O/kedge" attach far --headless >"$TMP/watch" 2>&1 &
watch=$!
both_open() { login_is a open && login_is b open; }
wait_for 60 both_open || fail "not open: $(kedge hosts far); $(cat "$TMP/watch")"

# The keys of b are rewritten: what stands lives on, a new login does not come about.
mv "$TMP/ssh/two/keys" "$TMP/ssh/two/keys.away"
wait_for 90 login_is b shut || fail "revoked keys are not noticed: $(kedge hosts far)"
wait_for 10 says 'warn.*host b takes no new session, though its roads stand: b accepts none of our keys for .*id (ssh-ed25519 sha256:' || fail "no event: $(cat "$TMP/watch")"
login_is a open || fail "a suffers from it: $(kedge hosts far)"
kedge hosts far --ascii | grep '^b ' | grep -q 'SHUT' || fail "not in the table: $(kedge hosts far)"
COLUMNS=160 kedge attach far hosts --once --ascii | grep ' b ' | grep -q 'SHUT' || fail "not in the view: $(kedge attach far hosts --once)"
at=$(step_of far)
wait_for 60 step_reached far $((at + 3)) || fail "the run does not train on: $(kedge status far)"
# It is said once, not at every attempt.
tries=$(grep -c 'Failed publickey\|Connection closed by authenticating user' "$TMP/ssh/two/log")
more_tries() { [ "$(grep -c 'Failed publickey\|Connection closed by authenticating user' "$TMP/ssh/two/log")" -gt "$tries" ]; }
wait_for 90 more_tries || fail "it is not asked again"
[ "$(grep -c 'host b takes no new session' "$TMP/watch")" = 1 ] || fail "said again: $(cat "$TMP/watch")"
mv "$TMP/ssh/two/keys.away" "$TMP/ssh/two/keys"
wait_for 120 login_is b open || fail "it is not noticed that b is open again: $(kedge hosts far)"
wait_for 10 says 'info.*host b takes new sessions again' || fail "no event: $(cat "$TMP/watch")"

# The listener of a is gone: one attempt may fail, two do not.
end_sshd one
wait_for 120 login_is a shut || fail "a listener that is gone: $(kedge hosts far)"
wait_for 10 says 'host a takes no new session, .*Connection refused' || fail "no event: $(cat "$TMP/watch")"
begin_sshd one
wait_for 200 login_is a open || fail "it is not noticed that a is open again: $(kedge hosts far)"

# No more sessions than there are: who comes anew is dropped.
cat >"$TMP/full.py" <<'PYTHON'
import socket, sys, time
kept = []
for _ in range(3):
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5); kept.append(s)
print("full", flush=True); time.sleep(300)
PYTHON
end_sshd two
sed -i 's/^MaxStartups .*/MaxStartups 2/; s/^UseDNS no/UseDNS no\nLoginGraceTime 300/' "$TMP/ssh/two/config"
begin_sshd two
python3 "$TMP/full.py" 127.0.0.3 "$(cat "$TMP/ssh/two/port")" >"$TMP/full" &
full=$!
wait_for 10 test -s "$TMP/full"
wait_for 120 login_is b shut || fail "a full table of sessions: $(kedge hosts far); $(tail -n 5 "$TMP/ssh/two/log")"
kill $full
wait_for 200 login_is b open || fail "it is not noticed that b has room again: $(kedge hosts far)"

kill -INT $watch
wait $watch
[ $? = 130 ] || fail "the console: $(tail -n 5 "$TMP/watch")"
kedge events far --json | json 'len([e for e in j["events"] if e["code"] == "login-shut"])' | grep -qx 3 || fail "events: $(kedge events far)"
kedge stop far >"$TMP/stop" 2>&1 || fail "stop: $(cat "$TMP/stop")"
nothing_left far && nothing_on "one two" far || fail "after stop"
exit 0
