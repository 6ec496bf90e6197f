#!/bin/sh
# A run whose hosts are real sshds: programs, text and credentials travel, stages train, knobs turn, stop leaves nothing on any host.
# seconds: 300
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh

host one 127.0.0.2
host two 127.0.0.3
profile far run.steps=100000 run.timeout=10s
use_host "$TMP/far.ini" a one
use_host "$TMP/far.ini" b two

kedge run "$TMP/far.ini" --detach >"$TMP/out" 2>&1 || fail "run --detach: $(cat "$TMP/out")"
grep -q '^a: looking' "$TMP/out" && grep -q '^b: delivering credentials' "$TMP/out" || fail "run says $(cat "$TMP/out")"
wait_for 60 step_reached far 3 || fail "no step was trained: $(kedge status far)"
for one in one two; do
    folder=$(host_folder $one far)
    [ "$(stat -c %a "$folder")" = 700 ] || fail "mode of $folder: $(stat -c %a "$folder")"
    for file in "$folder"/creds/*; do [ "$(stat -c %a "$file")" = 600 ] || fail "mode of $file"; done
    ls "$folder"/creds | grep -q 'ca.key\|kedged' && fail "host $one has credentials that are not its own: $(ls "$folder/creds")"
    [ -s "$TMP/ssh/$one/home/.local/share/kedge/programs/"*/kedge-worker ] || fail "no programs on host $one"
done
kedge set far mask.rate=0.9 --ascii | grep -Eq '^mask.rate 0.95 -> 0.9 active from step [0-9]+$' || fail "set"
kedge logs far >"$TMP/logs" 2>&1 || fail "logs: $(cat "$TMP/logs")"
for process in kedged agent@a agent@b r0s0 r0s1; do grep -q "^$process " "$TMP/logs" || fail "no line of $process in the logs: $(cat "$TMP/logs")"; done
kedge logs far r0s1 | grep -q '^20.*stage 1 of 2' || fail "logs of r0s1: $(kedge logs far r0s1)"
timeout 8 "$O/kedge" logs far r0s0 -f >"$TMP/follow" 2>&1 &
sleep 2
kedge pause far >/dev/null && kedge resume far >/dev/null || fail "pause and resume"
wait $!
[ "$(sort "$TMP/follow" | uniq -d | wc -l)" = 0 ] || fail "logs -f says things twice: $(cat "$TMP/follow")"
kedge stop far >"$TMP/stop" 2>&1 || fail "stop: $(cat "$TMP/stop")"
nothing_left far && nothing_on "one two" far || fail "after stop: $(cat "$TMP/stop")"
exit 0
