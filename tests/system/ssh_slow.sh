#!/bin/sh
# Hosts behind slow roads: at 1 Mbit/s and 300 ms everything works, it only takes longer; a disk that fills up while programs are on
# their way is a sentence and leaves nothing half; the room made, the next start goes on where that one was.
# seconds: 400
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh

host one 127.0.0.2
host two 127.0.0.3
profile far run.steps=100000 run.timeout=10s
use_host "$TMP/far.ini" a one
use_host "$TMP/far.ini" b two

# ---- the disk fills up in the middle ----
share=$TMP/ssh/two/home/.local/share
if small_disk "$share" 300m; then
    slow_road two 30000000 40
    set_key "$TMP/far.ini" host.b.ssh "$me@$slow"
    timeout 200 "$O/kedge" run "$TMP/far.ini" --detach >"$TMP/out" 2>&1 </dev/null &
    run=$!
    part() { ls "$share"/kedge/programs/*/*.part "$share"/kedge/programs/*/.*.part 2>/dev/null | head -n 1; }
    begun() { [ -s "$(part)" ] && [ "$(wc -l <"$(part).list")" -gt 1 ]; } 2>/dev/null
    wait_for 100 begun || fail "nothing arrives: $(cat "$TMP/out")"
    dd if=/dev/zero of="$share/other" bs=1M 2>/dev/null
    wait $run
    status=$?
    [ $status = 1 ] && tail -n 1 "$TMP/out" | grep -q '^kedge: host b: the disk is full: b stopped taking the file .*No space left on device' ||
        fail "a disk that fills up: $status: $(cat "$TMP/out")"
    nothing_left far && nothing_on "one two" far || fail "after a full disk"
    [ -z "$(ls "$share"/kedge/programs/*/.whole 2>/dev/null)" ] || fail "half a parcel is marked whole"
    arrived=$(awk 'NR > 1 { sum += $2 } END { printf "%.0f", sum }' "$(part).list")
    rm "$share/other"
    "$O/kedge" run "$TMP/far.ini" --detach >"$TMP/out" 2>&1 </dev/null || fail "with room again: $(cat "$TMP/out")"
    wait_for 60 step_reached far 1 || fail "no step was trained: $(kedge status far)"
    kedge stop far >"$TMP/out" 2>&1 || fail "stop: $(cat "$TMP/out")"
    [ "$arrived" -gt 0 ] || fail "nothing was kept of what had arrived"
else
    echo "no small disk could be mounted: a disk that fills up was not tried"
    "$O/kedge" run "$TMP/far.ini" --detach >"$TMP/out" 2>&1 </dev/null || fail "run: $(cat "$TMP/out")"
    kedge stop far >"$TMP/out" 2>&1 || fail "stop: $(cat "$TMP/out")"
fi

# ---- 1 Mbit/s, 300 ms; the programs are there ----
slow_road two 1000000 300
set_key "$TMP/far.ini" host.b.ssh "$me@$slow"
kedge check "$TMP/far.ini" --json >"$TMP/json" 2>"$TMP/err" || fail "check over a slow road: $(cat "$TMP/err" "$TMP/json")"
json '[h["rtt_seconds"] >= 0.3 and h["login_seconds"] > 0.9 and h["second_login_seconds"] > 0.9 for h in j["hosts"] if h["host"] == "b"]' <"$TMP/json" | grep -qx '\[True\]' || fail "check says $(cat "$TMP/json")"
timeout 120 "$O/kedge" run "$TMP/far.ini" --detach >"$TMP/out" 2>&1 </dev/null || fail "run over a slow road: $(cat "$TMP/out")"
wait_for 60 step_reached far 1 || fail "no step was trained: $(kedge status far)"
kedge logs far r0s1 >"$TMP/logs" 2>&1 && grep -q 'stage 1 of 2' "$TMP/logs" || fail "logs over a slow road: $(cat "$TMP/logs")"
kedge stop far >"$TMP/out" 2>&1 || fail "stop over a slow road: $(cat "$TMP/out")"
nothing_left far && nothing_on "one two" far || fail "after stop"
exit 0
