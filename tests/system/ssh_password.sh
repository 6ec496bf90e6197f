#!/bin/sh
# A host that wants a password: asked for when somebody is here, without an echo; three wrong ones are a refusal; the right one lets us
# in; nobody here is a refusal at once; and it is nowhere afterwards. The user's password is one of the test's own, which sshd alone sees
# (a mount namespace): as root only.
# seconds: 200
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh

[ "$me" = root ] && unshare -m true 2>/dev/null || skip "no mount namespace here; an sshd that takes a password would have been logged in to"
secret=open-sesame-$$
awk -F: -v OFS=: -v hash="$(openssl passwd -6 "$secret")" '$1 == "root" { $2 = hash } { print }' /etc/shadow >"$TMP/shadow"
chmod 600 "$TMP/shadow"

host one 127.0.0.2
host two 127.0.0.3 "PubkeyAuthentication no"
end_sshd two
sed -i '/^PasswordAuthentication/d' "$TMP/ssh/two/config"
echo 'PasswordAuthentication yes' >>"$TMP/ssh/two/config"
unshare -m sh -c 'mount --bind "$1" /etc/shadow && exec /usr/sbin/sshd -D -e -f "$2"' sh "$TMP/shadow" "$TMP/ssh/two/config" 2>>"$TMP/ssh/two/log" &
echo $! >"$TMP/ssh/two/pid"
sshds="$sshds $!"
wait_for 10 answers 127.0.0.3 "$(cat "$TMP/ssh/two/port")" || fail "sshd two: $(cat "$TMP/ssh/two/log")"

profile far run.steps=100000 run.timeout=5s
use_host "$TMP/far.ini" a one
use_host "$TMP/far.ini" b two

# typed CODE ANSWER... : kedge check on a terminal, where these are typed when it asks; what it showed is in $TMP/out
cat >"$TMP/typed.py" <<'PYTHON'
import os, pty, sys, time, select
answers, shown = sys.argv[3:], b""
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], "check", sys.argv[2]])
until, asked = time.time() + 90, 0
while time.time() < until:
    if select.select([fd], [], [], 1)[0]:
        try:
            data = os.read(fd, 4096)
        except OSError:
            break
        if not data:
            break
        shown += data
    if shown.count(b"password of ") > asked and asked < len(answers):
        time.sleep(0.3)
        os.write(fd, answers[asked].encode() + b"\n")
        asked += 1
else:
    os.kill(pid, 9)
sys.stdout.buffer.write(shown)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
PYTHON
typed() {
    code=$1
    shift
    python3 "$TMP/typed.py" "$O/kedge" "$TMP/far.ini" "$@" >"$TMP/out" 2>&1
    status=$?
    [ $status = "$code" ] || fail "$*: exit code $status, not $code: $(cat "$TMP/out")"
}

kedge check "$TMP/far.ini" >"$TMP/out" 2>&1 </dev/null
[ $? = 4 ] && grep -q 'b lets root in only by password, not by key' "$TMP/out" || fail "nobody here: $(cat "$TMP/out")"
typed 4 wrong-one wrong-two wrong-three
grep -q 'that was not it; password of root@127.0.0.3' "$TMP/out" || fail "three wrong ones: $(cat "$TMP/out")"
grep -q 'b lets root in only by password.*the password was not accepted' "$TMP/out" || fail "three wrong ones: $(cat "$TMP/out")"
grep -q 'wrong-' "$TMP/out" && fail "what is typed is seen"
typed 0 "$secret" "$secret" "$secret" # the second look logs in once more
grep -q "$secret" "$TMP/out" && fail "what is typed is seen: $(cat "$TMP/out")"
grep -q 'Accepted password for root' "$TMP/ssh/two/log" || fail "no password came: $(cat "$TMP/ssh/two/log")"
! grep -rqs "$secret" "$XDG_STATE_HOME" "$XDG_CONFIG_HOME" "$TMP/far.ini" "$TMP/ssh" || fail "the password is stored: $(grep -rl "$secret" "$TMP")"
exit 0
