#!/bin/sh
# A run over SSH trains to its end, its weights stand whole on its hosts, and kedge export brings them together: the scheduler here, and on
# a host.
# seconds: 300
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh

host one 127.0.0.2
host two 127.0.0.3
profile here run.steps=12 run.timeout=10s
use_host "$TMP/here.ini" a one
use_host "$TMP/here.ini" b two
profile there run.steps=12 run.timeout=10s run.head=a run.listen=127.0.0.2:0
use_host "$TMP/there.ini" a one
use_host "$TMP/there.ini" b two
for name in here there; do
    kedge run "$TMP/$name.ini" --headless >"$TMP/out" 2>&1 || fail "$name: $(cat "$TMP/out")"
    grep -q "^$name finished: 12 steps" "$TMP/out" || fail "$name says $(cat "$TMP/out")"
    ! grep -q 'are no set' "$TMP/out" || fail "$name: $(cat "$TMP/out")"
    kedge stop "$name" >"$TMP/stop" 2>&1 || fail "stop: $(cat "$TMP/stop")"
    nothing_left "$name" && nothing_on "one two" "$name" || fail "after $name"
    kedge export "$name" "$TMP/out-$name" >"$TMP/export" 2>&1 || fail "export $name: $(cat "$TMP/export")"
    grep -q 'holds the weights after step 12' "$TMP/export" || fail "export says $(cat "$TMP/export")"
    [ -s "$TMP/out-$name/model.safetensors" ] && [ -s "$TMP/out-$name/config.json" ] || fail "no model: $(ls "$TMP/out-$name")"
done
# What is here is not sent again, and needs no host.
end_sshd one
end_sshd two
kedge export here "$TMP/again" >"$TMP/export" 2>&1 || fail "export again: $(cat "$TMP/export")"
cmp "$TMP/again/model.safetensors" "$TMP/out-here/model.safetensors" || fail "another model"
exit 0
