#!/bin/sh
# The disk is full at the journal: a run that begins is refused with one line that says so; a run that goes on says it in its events.
. tests/system/lib/common.sh

if [ -z "${KEDGE_TEST_INSIDE:-}" ]; then
    for how in "unshare -m" "unshare -rm"; do
        # shellcheck disable=SC2086 # words
        if $how mount -t tmpfs -o size=64k tmpfs /mnt 2>/dev/null; then
            trap - EXIT
            KEDGE_TEST_INSIDE=1 exec $how sh "$0"
        fi
    done
    skip "a small file system cannot be mounted here; a run would have met a full disk"
fi

mkdir -p "$XDG_STATE_HOME" && mount -t tmpfs -o size=160k tmpfs "$XDG_STATE_HOME" || fail "mount"
profile tiny
mkdir -p "$(run_folder tiny)" && head -c 1000000 /dev/zero >"$(run_folder tiny)/filler" 2>/dev/null
kedge run "$TMP/tiny.ini" --detach >"$TMP/out" 2>"$TMP/err"
code=$?
[ $code = 1 ] || [ $code = 3 ] || fail "exit $code on a full disk: $(cat "$TMP/err")"
[ "$(wc -l <"$TMP/err")" = 1 ] || fail "not one line: $(cat "$TMP/err")"
grep -q 'No space left on device\|is full' "$TMP/err" || fail "says $(cat "$TMP/err")"
[ -z "$(pids_of tiny)" ] || fail "something is left"
