#!/bin/sh
# From a key to its change on the terminal when the road is SSH: the real console, a real sshd and `kedged bridge`, over a road of 200 ms there
# and back; then nothing comes through any more, though the road stands. 1,000 processes report once a second. Lines as of keys.c.
: "${O:=build}" "${TMP:=}"
own=$(mktemp -d "${TMP:-/tmp}/keys.XXXXXX") || exit 1
TMP=$own HOME=$own/user XDG_STATE_HOME=$own/here XDG_CONFIG_HOME=$own/config
export O TMP HOME XDG_STATE_HOME XDG_CONFIG_HOME
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh
trap 'status=$?; (clean_up_hosts); rm -rf "$own"; exit $status' EXIT
host far 127.0.0.1
slow_road far 1000000000 200
state=$TMP/ssh/far/home/.local/state
mkdir -p "$HOME/.ssh" "$state/kedge/sea/bin"
chmod 700 "$state/kedge" "$state/kedge/sea"
ln -s "$O/kedged" "$state/kedge/sea/bin/kedged"
echo "[127.0.0.1]:${slow##*:} $(cut -d' ' -f1,2 "$TMP/ssh/far/key.pub")" >"$TMP/known"
printf 'Host gpu\n HostName 127.0.0.1\n Port %s\n User %s\n IdentityFile %s\n UserKnownHostsFile %s\n' "${slow##*:}" "$me" "$TMP/ssh/id" \
    "$TMP/known" >"$HOME/.ssh/config"
"$O/tests/bench/keys" "$state" gpu:sea "kill -STOP ${sshds##* }"
