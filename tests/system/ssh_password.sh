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
begin_sshd two "$TMP/shadow" /etc/shadow

profile far run.steps=100000 run.timeout=5s
use_host "$TMP/far.ini" a one
use_host "$TMP/far.ini" b two

# checked CODE ANSWER... : kedge check where these are typed when it asks
checked() {
    code=$1
    shift
    typed "$code" "$*" 'def reply(new, answers): return answers.pop(0) if b"password of " in new and answers else None' check "$TMP/far.ini"
}

kedge check "$TMP/far.ini" >"$TMP/out" 2>&1 </dev/null
[ $? = 4 ] && grep -q 'b lets root in only by password, not by key' "$TMP/out" || fail "nobody here: $(cat "$TMP/out")"
checked 4 wrong-one wrong-two wrong-three
grep -q 'that was not it; password of root@127.0.0.3' "$TMP/out" || fail "three wrong ones: $(cat "$TMP/out")"
grep -q 'b lets root in only by password.*the password was not accepted' "$TMP/out" || fail "three wrong ones: $(cat "$TMP/out")"
grep -q 'wrong-' "$TMP/out" && fail "what is typed is seen"
checked 0 "$secret" "$secret" "$secret" # the second look logs in once more
grep -q "$secret" "$TMP/out" && fail "what is typed is seen: $(cat "$TMP/out")"
grep -q 'Accepted password for root' "$TMP/ssh/two/log" || fail "no password came: $(cat "$TMP/ssh/two/log")"
! grep -rqs "$secret" "$XDG_STATE_HOME" "$XDG_CONFIG_HOME" "$TMP/far.ini" "$TMP/ssh" || fail "the password is stored: $(grep -rl "$secret" "$TMP")"
exit 0
