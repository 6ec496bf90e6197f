#!/bin/sh
# An address that was given away: another machine answers there, with the same host key (images are copied with theirs) and a run of the
# same name. It cannot pose as the one that the run was started on: stop, start, attach, logs and export leave it alone and say so.
# seconds: 300
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh

# lives_at NAME HOME : the machine behind the address of host NAME is now the one with that home
lives_at() {
    end_sshd "$1"
    sed -i "s|^SetEnv .*|SetEnv HOME=$2|" "$TMP/ssh/$1/config"
    begin_sshd "$1"
}
host one 127.0.0.2
host two 127.0.0.3
profile far run.steps=100000 run.timeout=5s
use_host "$TMP/far.ini" a one
use_host "$TMP/far.ini" b two

# The other machine: somebody's run of that name lives there.
other=$TMP/ssh/other
mkdir -p "$other/.local/state/kedge/far/log" && chmod 700 "$other" "$other/.local/state/kedge/far"
theirs=$other/.local/state/kedge/far
KEDGE_RUN=00112233445566aa sleep 900 &
stranger=$!
echo 00112233445566aa >"$theirs/run.id"
echo "$stranger $(awk '{ print $22 }' /proc/$stranger/stat) 00112233445566aa" >"$theirs/agent@b.lock"
echo 'theirs' >"$theirs/log/r0s1.log"
untouched() { lives $stranger && [ -e "$theirs/agent@b.lock" ] && [ "$(cat "$theirs/run.id")" = 00112233445566aa ] && [ ! -e "$theirs/nonce@b" ]; }

kedge run "$TMP/far.ini" --detach >"$TMP/out" 2>&1 || fail "run: $(cat "$TMP/out")"
wait_for 60 step_reached far 2 || fail "no step was trained: $(kedge status far)"
nonce=$(cat "$(run_folder far)/nonce@b")
[ "$(cut -c 1-16 "$(host_folder two far)/nonce@b")" = "${nonce% left}" ] && [ "$nonce" != "${nonce% left}" ] || fail "the nonce of b: $nonce"
[ "$(cut -c 1-16 "$(run_folder far)/nonce@a")" != "${nonce% left}" ] || fail "both hosts have the same nonce"

# b is gone with all that lived there, and so is the scheduler; its address is another machine's.
agent=$(pid_of far agent@b) stage=$(pid_of far r0s1)
kill -9 "$agent" "$stage" "$(cut -d' ' -f1 "$(run_folder far)/kedged.lock")"
lives_at two "$other"
kedge logs far >"$TMP/logs" 2>&1
grep -q 'no logs of host b: .*another machine than the one that the run was started on' "$TMP/logs" && ! grep -q theirs "$TMP/logs" || fail "logs: $(cat "$TMP/logs")"
kedge stop far >"$TMP/stop" 2>&1
[ $? = 4 ] && grep -q 'host b is another machine than the one that the run was started on.*--forget' "$TMP/stop" || fail "stop: $(cat "$TMP/stop")"
untouched || fail "stop touched the other machine: $(cat "$TMP/stop")"
nothing_left far && nothing_on one far || fail "a was not cleared: $(cat "$TMP/stop")"
kedge stop far --forget >"$TMP/stop" 2>&1 || fail "stop --forget: $(cat "$TMP/stop")"
tail -n 1 "$TMP/stop" | grep -q 'nothing of it is left, here or on 1 host; 1 host is forgotten$' || fail "stop --forget: $(cat "$TMP/stop")"
untouched || fail "stop --forget touched the other machine: $(cat "$TMP/stop")"
# What was forgotten is not asked for again; what lives there is not ours.
kedge stop far >"$TMP/stop" 2>&1 || fail "stop after it: $(cat "$TMP/stop")"
untouched || fail "the stop after it touched the other machine: $(cat "$TMP/stop")"
kedge run "$TMP/far.ini" --detach >"$TMP/out" 2>&1
[ $? = 4 ] && tail -n 1 "$TMP/out" | grep -q "host b has 1 processes of a run 'far' that was not started from here (pid $stranger): take another run.name" || fail "run: $(cat "$TMP/out")"
untouched && nothing_left far && nothing_on one far || fail "run touched the other machine: $(cat "$TMP/out")"

# With the machine back, a run goes on where it was begun. Its head's address is given away: nobody looks at another's run.
lives_at two "$TMP/ssh/two/home"
set_key "$TMP/far.ini" run.head b
set_key "$TMP/far.ini" run.listen 127.0.0.3:0
kedge run "$TMP/far.ini" --detach >"$TMP/out" 2>&1 || fail "run with the machine back: $(cat "$TMP/out")"
wait_for 60 step_reached far 2 || fail "no step was trained: $(kedge status far)"
mkdir -p "$theirs/bin" && printf '#!/bin/sh\ntouch "%s/posed"\nexec sleep 60\n' "$TMP" >"$theirs/bin/kedged" && chmod 755 "$theirs/bin/kedged"
lives_at two "$other"
for words in "status far" "attach far --headless" "export far $TMP/model"; do
    kedge $words >"$TMP/out" 2>&1 && fail "$words: $(cat "$TMP/out")"
    grep -q 'another machine than the one that the run was started on' "$TMP/out" || fail "$words: $(cat "$TMP/out")"
done
[ ! -e "$TMP/posed" ] || fail "a program of the other machine was run as ours"
# A new scheduler is not begun there, either.
kill -9 "$(cut -d' ' -f1 "$(host_folder two far)/kedged.lock")"
kedge attach far --headless >"$TMP/out" 2>&1
[ $? != 0 ] && grep -q 'another machine than the one that' "$TMP/out" || fail "attach without a scheduler: $(cat "$TMP/out")"
untouched || fail "attach touched the other machine"
lives_at two "$TMP/ssh/two/home"
kedge stop far >"$TMP/stop" 2>&1 || fail "stop with the machine back: $(cat "$TMP/stop")"
nothing_left far && nothing_on "one two" far || fail "after stop: $(cat "$TMP/stop")"
lives $stranger || fail "a stranger was killed"
kill $stranger
exit 0
