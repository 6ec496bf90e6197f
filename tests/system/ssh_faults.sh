#!/bin/sh
# What goes wrong with hosts: each fault is a sentence with the host and the remedy, an exit code, within its deadline, and nothing is
# left anywhere.
# seconds: 400
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh

host one 127.0.0.2
host two 127.0.0.3
profile base run.steps=100000 run.timeout=5s
use_host "$TMP/base.ini" a one
use_host "$TMP/base.ini" b two

# refused NAME CODE SECONDS WORDS [OPTION...] : kedge run of $TMP/NAME.ini ends so
refused() {
    name=$1 code=$2 most=$(($3 * patience)) words=$4
    shift 4
    began=$(date +%s)
    timeout "$((most + 60))" "$O/kedge" run "$TMP/$name.ini" --detach "$@" >"$TMP/out" 2>&1 </dev/null
    status=$? took=$(($(date +%s) - began))
    [ $status = "$code" ] || fail "$name: exit code $status, not $code: $(cat "$TMP/out")"
    tail -n 1 "$TMP/out" | grep -q -- "$words" || fail "$name says $(cat "$TMP/out")"
    [ $took -le $most ] || fail "$name took $took s, more than $most: $(cat "$TMP/out")"
    nothing_left "$name" && nothing_on "one two" "$name" || fail "$name left something"
}
# variant NAME [SECTION.KEY=VALUE...] : the base profile as NAME
variant() {
    new=$1
    shift
    sed "s/^name = .*/name = $new/" "$TMP/base.ini" >"$TMP/$new.ini"
    for change in "$@"; do set_key "$TMP/$new.ini" "${change%%=*}" "${change#*=}"; done
}
unpin() { sed -i "/^\[host $2\]/,/^\[/{/^host_key/d}" "$TMP/$1.ini"; }

# ---- who is it ----
variant unknown
unpin unknown b
refused unknown 4 20 'host b is not trusted: the key of \[127.0.0.3\].* is not known: it shows ssh-ed25519 sha256:.*--accept-new'
grep -q "kedge/known_hosts" "$TMP/out" && fail "a file was named that is not there"
variant pin host.b.host_key="$(print_of one)"
refused pin 4 20 'host b is not trusted: .* shows the key ssh-ed25519 sha256:.*, but host_key = SHA256:.* is pinned'
variant changed
unpin changed b
mkdir -p "$XDG_STATE_HOME/kedge"
echo "[127.0.0.3]:$(cat "$TMP/ssh/two/port") $(cut -d' ' -f1,2 "$TMP/ssh/one/key.pub")" >"$XDG_STATE_HOME/kedge/known_hosts"
refused changed 4 20 'host b is not trusted: the key of .* has CHANGED: on file is .*now it shows' --accept-new
rm "$XDG_STATE_HOME/kedge/known_hosts"

# ---- who are we ----
ssh-keygen -q -t ed25519 -N '' -f "$TMP/ssh/wrong" </dev/null
variant wrong host.b.identity="$TMP/ssh/wrong"
refused wrong 4 20 'host b accepts none of our keys .*/wrong (ssh-ed25519 sha256:.*authorized_keys'
ssh-keygen -q -t rsa -b 2048 -N '' -f "$TMP/ssh/rsa" </dev/null
cat "$TMP/ssh/rsa.pub" >>"$TMP/ssh/authorized_keys"
if ! strings "$(ldconfig -p | awk '/libssh2.so.1 /{print $NF; exit}')" 2>/dev/null | grep -q rsa-sha2-512; then
    variant rsa host.b.identity="$TMP/ssh/rsa"
    refused rsa 4 20 'host b did not accept .*/rsa .*RSA key, and libssh2 .* SHA-1 .*ssh-keygen -t ed25519'
fi
if command -v ssh-agent >/dev/null; then
    eval "$(ssh-agent -a "$TMP/agent.sock")" >/dev/null
    variant empty
    sed -i '/^\[host b\]/,/^\[/{/^identity/d}' "$TMP/empty.ini"
    refused empty 4 20 'host b wants a key of .* and there is none to offer'
    kill "$SSH_AGENT_PID"
    unset SSH_AGENT_PID SSH_AUTH_SOCK
fi

# ---- nobody there ----
variant nobody host.b.ssh="$me@127.0.0.3:$(free_port 127.0.0.3)"
refused nobody 3 30 'host b cannot be reached: Connection refused'
grep -q '^b: not yet (b cannot be reached: Connection refused): again in' "$TMP/out" || fail "no word of the tries: $(cat "$TMP/out")"
# A full queue of connections takes no more: no answer, no refusal.
cat >"$TMP/hole.py" <<'EOF'
import socket, sys, time
s = socket.socket(); s.bind(("127.0.0.3", 0)); s.listen(0)
kept = [socket.socket() for _ in range(3)]
for one in kept: one.setblocking(False); one.connect_ex(s.getsockname())
print(s.getsockname()[1], flush=True); time.sleep(600)
EOF
python3 "$TMP/hole.py" >"$TMP/hole" &
hole=$!
wait_for 10 test -s "$TMP/hole"
variant hole host.b.ssh="$me@127.0.0.3:$(cat "$TMP/hole")"
refused hole 3 15 'host b does not answer: nothing for 5.0 s while connecting; is it up, and does a firewall drop port'
kill $hole
# Somebody answers who does not speak SSH.
python3 -c '
import socket, time
s = socket.socket(); s.bind(("127.0.0.3", 0)); s.listen(5); print(s.getsockname()[1], flush=True)
c = s.accept()[0]; time.sleep(600)' >"$TMP/mute" &
mute=$!
wait_for 10 test -s "$TMP/mute"
variant mute host.b.ssh="$me@127.0.0.3:$(cat "$TMP/mute")"
refused mute 3 15 'host b does not answer: nothing for 5.0 s while greeting'
kill $mute

# ---- a port that leads nowhere ----
variant mapped host.a.announce="127.0.0.2:$(free_port 127.0.0.2)" host.b.announce="127.0.0.3:$(free_port 127.0.0.3)" run.timeout=2s
timeout 200 "$O/kedge" run "$TMP/mapped.ini" --headless >"$TMP/out" 2>&1 </dev/null
[ $? = 1 ] && grep -q '^mapped: stopped: ' "$TMP/out" || fail "a port that leads nowhere: $(cat "$TMP/out")"
grep -q 'alert r0s0: lost r0s1: no road to 127.0.0.3:[0-9]* in time: 127.0.0.3:[0-9]* cannot be reached: Connection refused' "$TMP/out" || fail "a port that leads nowhere: $(cat "$TMP/out")"
nothing_left mapped && nothing_on "one two" mapped || fail "after a port that leads nowhere"

# ---- the disk ----
if mount -t tmpfs -o size=40m none "$TMP/ssh/two/home" 2>/dev/null; then
    variant full
    refused full 1 30 'host b has no room for the programs: .* free below .*, .* are needed'
    umount "$TMP/ssh/two/home"
else
    echo "no small disk could be mounted: a full one was not tried"
fi
mkdir "$TMP/ssh/two/home/.local"
chmod 500 "$TMP/ssh/two/home/.local"
if [ "$me" != root ]; then
    variant denied
    refused denied 2 20 'host b.*Permission denied'
fi
chmod 700 "$TMP/ssh/two/home/.local"
exit 0
