#!/bin/sh
# A host that asks (keyboard-interactive): a real sshd with PAM and a module of the test's own, in two rounds: a password, hidden; then, with a word
# about it, a code that answers a number which is another one each time, and shown. Right answers let us in, also behind a key; wrong ones are three
# tries; nobody here is a refusal at once; and nothing is stored. Its service is seen by that sshd
# alone (a mount namespace): as root only.
# seconds: 600
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh

[ "$me" = root ] && unshare -m true 2>/dev/null || skip "no mount namespace here; an sshd that asks would have been logged in to"
[ -d /etc/pam.d ] || skip "no PAM here; an sshd that asks would have been logged in to"
secret=open-sesame-$$
cat >"$TMP/pam.c" <<'EOC'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct message { int style; const char *text; };
struct response { char *text; int code; };
struct conversation { int (*talk)(int, const struct message **, struct response **, void *); void *arg; };
int pam_get_item(const void *handle, int item, const void **value);
static char *ask(void *handle, int style, const char *text)
{
    const struct conversation *with;
    const struct message one = {style, text}, *list = &one;
    struct response *answer = NULL;
    if (pam_get_item(handle, 5, (const void **)&with) != 0 || with->talk(1, &list, &answer, with->arg) != 0 || !answer)
        return NULL;
    return answer->text;
}
int pam_sm_authenticate(void *handle, int flags, int count, const char **words)
{
    char text[80], wanted[20];
    FILE *random = fopen("/dev/urandom", "r");
    unsigned number = 1;
    (void)flags;
    if (!random || fread(&number, sizeof number, 1, random) != 1)
        return 7;
    fclose(random);
    char *password = ask(handle, 1, "Password: ");
    if (!password || count < 1 || strcmp(password, words[0]) != 0)
        return 7;
    ask(handle, 4, "A second thing is wanted.");
    snprintf(text, sizeof text, "Code for %u: ", number % 100000);
    snprintf(wanted, sizeof wanted, "%u", number % 100000 + 1);
    char *code = ask(handle, 2, text);
    return code && strcmp(code, wanted) == 0 ? 0 : 7;
}
int pam_sm_setcred(void *h, int f, int c, const char **w) { (void)h, (void)f, (void)c, (void)w; return 0; }
EOC
${CC:-cc} -shared -fPIC -o "$TMP/pam_ask.so" "$TMP/pam.c" 2>"$TMP/cc.err" || skip "no compiler for a PAM module here: $(head -n 1 "$TMP/cc.err")"
printf 'auth required %s/pam_ask.so %s\naccount required pam_permit.so\nsession required pam_permit.so\n' "$TMP" "$secret" >"$TMP/service"
chmod 600 "$TMP/service"

host one 127.0.0.2
host two 127.0.0.3
# asks METHODS : the sshd of host two lets in by them
asks() {
    end_sshd two
    sed -i '/^UsePAM\|^KbdInteractive\|^AuthenticationMethods\|^LoginGraceTime/d' "$TMP/ssh/two/config"
    printf 'UsePAM yes\nKbdInteractiveAuthentication yes\nAuthenticationMethods %s\nLoginGraceTime 100\n' "$1" >>"$TMP/ssh/two/config"
    begin_sshd two "$TMP/service" /etc/pam.d/sshd
}
[ -e /etc/pam.d/sshd ] || skip "no /etc/pam.d/sshd here to put a service of our own over"
profile far run.steps=100000 run.timeout=5s
use_host "$TMP/far.ini" a one
use_host "$TMP/far.ini" b two

# checked CODE PASSWORD SUMMAND : kedge check where this is typed as every password, and for every code the number plus SUMMAND
checked() {
    typed "$1" "$2 $3" '
def reply(new, answers):
    found = re.search(rb"Password:? ?: |Code for (\d+):? ?: ", new)
    return found and (str(int(found[1]) + int(answers[1])) if found[1] else answers[0])' check "$TMP/far.ini"
}

asks keyboard-interactive
kedge check "$TMP/far.ini" >"$TMP/out" 2>&1 </dev/null
[ $? = 4 ] && grep -q 'b lets root in only by keyboard-interactive, not by key' "$TMP/out" || fail "nobody here: $(cat "$TMP/out")"
checked 0 "$secret" 1
grep -q 'b asks: Password:' "$TMP/out" && grep -q 'b asks: A second thing is wanted.*Code for [0-9]*:' "$TMP/out" || fail "what is asked: $(cat "$TMP/out")"
! grep -q "$secret" "$TMP/out" || fail "the password is seen: $(cat "$TMP/out")"
grep -q 'Code for [0-9]*: *: *[0-9]' "$TMP/out" || fail "the code is not seen while it is typed: $(cat "$TMP/out")"
grep -q 'Accepted keyboard-interactive/pam for root' "$TMP/ssh/two/log" || fail "sshd: $(cat "$TMP/ssh/two/log")"
checked 4 not-it 1
[ "$(grep -c 'b asks: Password' "$TMP/out")" = 3 ] && grep -q 'that was not it; b asks: ' "$TMP/out" || fail "three tries: $(cat "$TMP/out")"
grep -q 'b lets root in only by keyboard-interactive.*the answers were not accepted' "$TMP/out" || fail "three tries: $(cat "$TMP/out")"
! grep -q 'not-it' "$TMP/out" || fail "what is typed is seen"
checked 4 "$secret" 2 # the second round is as good as the first one

# A key, and then questions: the key alone does not do, and that is said.
asks publickey,keyboard-interactive
kedge check "$TMP/far.ini" >"$TMP/out" 2>&1 </dev/null
[ $? = 4 ] && grep -q 'b takes a key of root, and then wants more: keyboard-interactive' "$TMP/out" || fail "nobody here, with a key: $(cat "$TMP/out")"
checked 0 "$secret" 1
! grep -rqs "$secret" "$XDG_STATE_HOME" "$XDG_CONFIG_HOME" "$TMP/far.ini" "$TMP/ssh" || fail "the password is stored: $(grep -rl "$secret" "$TMP")"
exit 0
