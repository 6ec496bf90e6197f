#!/bin/sh
# The scheduler on a host: the run does not need the machine that started it. Seen, steered and stopped from there over SSH, and from a
# machine that knows nothing but HOST:RUN; a scheduler that dies is begun anew.
# seconds: 300
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh

host one 127.0.0.2
host two 127.0.0.3
profile far run.steps=100000 run.timeout=10s run.head=a run.listen=127.0.0.2:0
use_host "$TMP/far.ini" a one
use_host "$TMP/far.ini" b two
kedge run "$TMP/far.ini" --detach >"$TMP/out" 2>&1 || fail "run --detach: $(cat "$TMP/out")"
[ -e "$(host_folder one far)/kedged.sock" ] || fail "kedged is not on host one"
[ ! -e "$(run_folder far)/kedged.sock" ] || fail "kedged is here"
wait_for 60 step_reached far 3 || fail "no step was trained: $(kedge status far)"
kedge set far mask.rate=0.9 --ascii | grep -Eq '^mask.rate 0.95 -> 0.9 active from step [0-9]+$' || fail "set"

# Anywhere else, with an alias of ~/.ssh/config and nothing known of the run.
mkdir -p "$HOME/.ssh"
cat >"$HOME/.ssh/config" <<EOF
Host gpu
    HostName $(cat "$TMP/ssh/one/address")
    Port $(cat "$TMP/ssh/one/port")
    User $me
    IdentityFile $TMP/ssh/id
    UserKnownHostsFile $TMP/known
EOF
elsewhere() { XDG_STATE_HOME="$TMP/elsewhere" kedge "$@"; }
elsewhere attach gpu:far >"$TMP/out" 2>&1
[ $? = 4 ] && grep -q 'is not known: it shows ssh-ed25519 sha256:' "$TMP/out" || fail "attach of an unknown host says $(cat "$TMP/out")"
echo "[127.0.0.2]:$(cat "$TMP/ssh/one/port") $(cut -d' ' -f1,2 "$TMP/ssh/one/key.pub")" >"$TMP/known"
elsewhere status gpu:far --json | json 'j["run"], j["phase"]' | grep -qx 'far training' || fail "status gpu:far: $(elsewhere status gpu:far)"
elsewhere status gpu:nothing >"$TMP/out" 2>&1
[ $? = 2 ] && grep -q "there is no run 'nothing' on gpu; there is far" "$TMP/out" || fail "status gpu:nothing says $(cat "$TMP/out")"
timeout -s INT 6 "$O/kedge" attach far --headless >"$TMP/here" 2>&1 &
here=$!
XDG_STATE_HOME="$TMP/elsewhere" timeout -s INT 6 "$O/kedge" attach gpu:far --headless >"$TMP/there" 2>&1
wait $here
for file in here there; do grep -q '^step [0-9]*/100000' "$TMP/$file" || fail "attach ($file) says $(cat "$TMP/$file")"; done

elsewhere logs gpu:far kedged >"$TMP/out" 2>&1 && grep -q '^20.* kedged ' "$TMP/out" || fail "logs gpu:far says $(cat "$TMP/out")"

# kedged is killed: the record says so, its processes live, and attach begins a new one there.
kill -9 "$(cut -d' ' -f1 "$(host_folder one far)/kedged.lock")"
kedge status far | grep -q 'kedged is not running' || fail "status without kedged: $(kedge status far)"
at=$(step_of far)
timeout -s INT 20 "$O/kedge" attach far --headless >"$TMP/out" 2>&1
grep -q '^kedged is ready' "$TMP/out" || fail "attach without kedged says $(cat "$TMP/out")"
wait_for 30 step_reached far $((at + 3)) || fail "it does not train on: $(kedge status far)"

elsewhere stop gpu:far >"$TMP/stop" 2>&1 || fail "stop gpu:far: $(cat "$TMP/stop")"
tail -n 1 "$TMP/stop" | grep -Eq '^gpu:far stopped at step [0-9]+: no process, socket or lock is left on gpu$' || fail "stop says $(cat "$TMP/stop")"
kedge stop far >"$TMP/stop" 2>&1 || fail "stop far: $(cat "$TMP/stop")"
grep -q '^far was not running; nothing of it is left, here or on 2 hosts$' "$TMP/stop" || fail "stop of what is stopped says $(cat "$TMP/stop")"
nothing_left far && nothing_on "one two" far || fail "after stop"
is_phase far stopped || fail "the record says $(phase_of far)"
exit 0
