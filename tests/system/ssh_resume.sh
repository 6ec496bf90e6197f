#!/bin/sh
# A run on hosts of which everything is killed -9 goes on from the files that its hosts have: the scheduler here, and on a host. A file that
# was changed on its host is refused by its name, and older sets are removed on the hosts, too.
# seconds: 300
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh

kill_all() {
    victims=$(pids_of "$1")
    for pid in $victims; do kill -9 "$pid" 2>/dev/null; done
    for pid in $victims; do wait_for 20 gone "$pid" || fail "$pid does not go"; done
}
sets_in() { for set in "$1"/checkpoint/*/"$2"; do [ ! -e "$set" ] || basename "$(dirname "$set")"; done | sort -n; }
has_set() { [ "$(sets_in "$1" manifest.json | tail -n 1)" -ge "$2" ] 2>/dev/null; }
said() { kedge events "$1" --json 2>/dev/null | grep -q "$2"; }

host one 127.0.0.2
host two 127.0.0.3
for name in here there; do
    profile $name run.steps=100000 run.timeout=10s checkpoint.every=10 checkpoint.keep=1
    [ $name = here ] || { set_key "$TMP/there.ini" run.head a && set_key "$TMP/there.ini" run.listen 127.0.0.2:0; }
    use_host "$TMP/$name.ini" a one
    use_host "$TMP/$name.ini" b two
    head=$(run_folder here)
    [ $name = here ] || head=$(host_folder one there)
    kedge run "$TMP/$name.ini" --detach >"$TMP/out" 2>&1 || fail "$name: $(cat "$TMP/out")"
    wait_for 60 has_set "$head" 30 || fail "$name: no set: $(kedge status $name)"
    wait_for 60 said $name '"checkpoint"' || fail "$name says nothing of it"
    kill_all $name
    at=$(sets_in "$head" manifest.json | tail -n 1)
    [ "$(sets_in "$(host_folder two $name)" r0s1.safetensors | head -n 1)" -ge $((at - 20)) ] || fail "$name: host two keeps $(sets_in "$(host_folder two $name)" r0s1.safetensors)"

    file=$(host_folder two $name)/checkpoint/$at/r0s1.safetensors
    cp "$file" "$TMP/whole"
    printf changed | dd of="$file" bs=1 seek=60000 conv=notrunc 2>/dev/null
    kedge run "$TMP/$name.ini" --resume --detach >"$TMP/out" 2>&1 && wait_for 60 said $name "$at/r0s1.safetensors has" || fail "$name: a changed file: $(cat "$TMP/out"; kedge events $name)"
    kedge stop $name >"$TMP/out" 2>&1
    cp "$TMP/whole" "$file"
    kedge run "$TMP/$name.ini" --resume --detach >"$TMP/out" 2>&1 || fail "$name does not go on: $(cat "$TMP/out")"
    wait_for 60 step_reached $name $((at + 2)) || fail "$name does not train: $(kedge status $name)"
    said $name "goes on from checkpoint/$at, with step $((at + 1)) of" || fail "$name: $(kedge events $name)"
    kedge stop $name >"$TMP/out" 2>&1 || fail "stop: $(cat "$TMP/out")"
    nothing_left $name && nothing_on "one two" $name || fail "after $name"
done
exit 0
