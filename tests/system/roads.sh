#!/bin/sh
# What a profile says about roads is so in a real run: plain instead of TLS, captures that kedge decode reads, mask checksums,
# a slow road that is rehearsed, three stages on one host.
# seconds: 180
. tests/system/lib/common.sh

profile tiny run.steps=6 link.security=plain link.record=yes boundary.checksum=yes
kedge run "$TMP/tiny.ini" --headless >"$TMP/out" 2>&1 || fail "plain: $(cat "$TMP/out")"
grep -q '^tiny finished: 6 steps' "$TMP/out" || fail "plain says $(cat "$TMP/out")"
set -- "$(run_folder tiny)"/capture/*
[ -e "$1" ] || fail "no capture was written: $(ls -R "$(run_folder tiny)")"
for capture in "$@"; do
    kedge decode "$capture" >"$TMP/lines" || fail "decode $capture"
    grep -q ' HELLO ' "$TMP/lines" && grep -q ' ACT ' "$TMP/lines" && grep -q ' GRAD ' "$TMP/lines" || fail "$capture holds $(head -n 20 "$TMP/lines")"
    grep ' ACT ' "$TMP/lines" | grep -vq 'mask_checksum=0 ' || fail "no mask checksum travels in $capture: $(grep -m 3 ' ACT ' "$TMP/lines")"
done
printf 'no capture' >"$TMP/lines"
kedge decode "$TMP/lines" 2>"$TMP/err" && fail "anything is decoded"
[ "$(wc -l <"$TMP/err")" = 1 ] || fail "decode says $(cat "$TMP/err")"

profile slow run.steps=3 pipeline.stages=3 link.slow_delay=20ms link.slow_rate=20Mbit
kedge run "$TMP/slow.ini" --headless >"$TMP/out" 2>&1 || fail "slow: $(cat "$TMP/out")"
grep -q '^slow finished: 3 steps' "$TMP/out" || fail "slow says $(cat "$TMP/out")"
[ ! -e "$(run_folder slow)/capture" ] || [ -z "$(ls "$(run_folder slow)/capture")" ] || fail "a capture that nobody asked for"
nothing_left tiny && nothing_left slow || fail "after the runs"
