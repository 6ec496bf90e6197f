#!/bin/sh
# A run on real sshds is launched inside the screen: what each host is doing is a row, the question about an unknown host key is answered
# there, Esc takes back what had begun and so does the death of the console, a refusal stays to be read, and the run opens when its programs stand.
# seconds: 240
. tests/system/lib/common.sh
. tests/tui/lib/tui.sh
. tests/system/lib/ssh.sh
have_json || skip "python3 is not here to read JSON; it would have watched a run that is launched on hosts"
trap 'status=$?; tui kill-server 2>/dev/null; (exit $status); clean_up_hosts' EXIT

host one 127.0.0.2
host two 127.0.0.3
profile far run.steps=100000 run.timeout=10s
use_host "$TMP/far.ini" a one
use_host "$TMP/far.ini" b two
sed -i '/^host_key/d' "$TMP/far.ini" # nobody knows these hosts yet
cp "$TMP/far.ini" "$TMP/wrong.ini"
set_key "$TMP/wrong.ini" run.name wrong
set_key "$TMP/wrong.ini" host.b.identity "$TMP/none"

cd "$TMP" || exit 1
begin() {
    open_terminal 100 30 "env LANG=C.UTF-8 TERM=screen-256color sh -c 'echo \$\$ >$TMP/pid; exec $O/kedge'; echo code \$?; sleep 100"
    wait_shows 20 "0 Runs"
    press 7
    wait_shows 10 "far.ini"
}
begin
choose() { press g; for i in 1 2 3 4 5 6; do chosen | grep -q "$1" && return; press j; sleep 0.2; done; fail "$1 is not in the list: $(picture)"; }
chosen() { coloured | grep "$(printf '\033\[[0-9;]*7m')"; }

# ---- refused: nothing is left, and the reason can be read ----
choose far.ini
press L y
wait_shows 15 "Is it that host?"
press Escape # interrupts
wait_shows 30 "interrupted"
wait_hides 10 "at work"
press Escape
wait_hides 10 "kedge run far.ini"
gone_now() { nothing_left far >/dev/null && nothing_on "one two" far >/dev/null; }
wait_for 20 gone_now || fail "$(nothing_left far; nothing_on "one two" far)"

# ---- the console dies while the launch asks: what had begun is taken back by the launch itself ----
press L y
wait_shows 30 "Is it that host?"
kill -KILL "$(cat "$TMP/pid")"
wait_shows 10 "code 137"
wait_for 30 gone_now || fail "after kill -9: $(nothing_left far; nothing_on "one two" far)"
begin
choose far.ini

# ---- saved, twice; then both hosts at once, a row for each ----
press L y
tries=0
until shows r0s0; do
    tries=$((tries + 1))
    [ $tries -lt $((300 * patience)) ] || fail "it does not stand: $(picture)"
    if picture | grep -q '^│ > '; then
        shows "Is it that host?" || fail "it asks something else: $(picture)"
        type_text s
        press Enter
    fi
    sleep 0.4
done
wait_for 60 is_phase far training || fail "it does not train: $(picture)"
grep -q ssh-ed25519 "$XDG_STATE_HOME/kedge/known_hosts" || fail "no key was noted"

# ---- a host that refuses: its sentence stays; then the run that goes on is stopped ----
press 7
choose wrong.ini
press L y
wait_shows 60 "host.identity: the key file"
wait_hides 30 "at work"
wait_for 20 nothing_left wrong || fail "after a launch that was refused: $(nothing_left wrong)"
press Escape
wait_hides 10 "kedge run wrong.ini"
press 1
press S y
wait_shows 60 "stopped"
press q
wait_shows 10 "code 0"
cd "$root" || exit 1
wait_for 30 gone_now || fail "$(nothing_left far; nothing_on "one two" far)"
