#!/bin/sh
# Run tests side by side: run.sh JOBS TEST… — silent when good, the whole log when bad, exit status 77 is a skip with
# its last line as the reason. Each test gets a private folder ($TMP, removed), a clean environment and a deadline
# (TEST_SECONDS; a script may ask for more with a line "# seconds: N"). What a test leaves running is ended, and the test fails: its
# processes are those that have its folder in their environment or among their words. Last line: N passed, N failed, N skipped.
set -u
jobs=$1
shift
O=${O:-build} SAN=${SAN:-}
case $O in /*) ;; *) O=$PWD/$O ;; esac
base=$(mktemp -d "${TMPDIR:-/tmp}/kedge-check.XXXXXX")
# Reads a folder; writes the numbers of the processes that its test has started. Its own words must not name the folder.
cat >"$base/left" <<'LEFT'
grep -lsF -f - /proc/[0-9]*/environ /proc/[0-9]*/cmdline | sed 's|^/proc/\([0-9]*\)/.*|\1|' | sort -u
LEFT
trap 'kill -KILL $(echo "$base/tests/" | sh "$base/left") 2>/dev/null; rm -rf "$base"' EXIT
trap 'exit 130' INT TERM
mkdir "$base/tests"
export base O SAN

cat >"$base/one" <<'ONE'
#!/bin/sh
test=$1
name=$(printf %s "$test" | tr / -)
unset TMP
TMP=$base/tests/$name.d
mkdir -p "$TMP"
seconds=${TEST_SECONDS:-120}
case $test in
*.sh) asked=$(sed -n 's/^# seconds: *//p' "$test" | head -n 1) command="sh $test" ;;
*) asked= command=$test ;;
esac
[ -n "$asked" ] && seconds=$asked
[ -n "$SAN" ] && seconds=$((seconds * 5))
# A too large allocation is NULL, as it is without sanitizers; the leak checker's watch over thread-local storage crashes on that of
# a dlopen'ed oneDNN in OpenMP threads.
asan=allocator_may_return_null=1:intercept_tls_get_addr=0
env -i PATH="$PATH" HOME="$TMP" TMPDIR="$TMP" TMP="$TMP" O="$O" SAN="$SAN" CC="${CC:-cc}" LANG=C.UTF-8 TERM=xterm \
    XDG_STATE_HOME="$TMP/state" XDG_CONFIG_HOME="$TMP/config" ${CI:+CI="$CI"} \
    ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:$asan" UBSAN_OPTIONS="print_stacktrace=1" TSAN_OPTIONS="halt_on_error=1 allocator_may_return_null=1 suppressions=$PWD/tests/tsan.txt" \
    timeout -k 5 "$seconds" $command >"$base/$name.log" 2>&1 </dev/null
status=$?
for moment in 1 2 3 4 5 6 7 8 9 10; do # what has been told to end may need a while
    left=$(echo "$TMP" | sh "$base/left")
    [ -n "$left" ] || break
    sleep 0.3
done
if [ -n "$left" ]; then
    { echo "left running:"; ps -o pid,etimes,args -p "$(echo $left | tr ' ' ,)"; } >>"$base/$name.log"
    kill -KILL $left 2>/dev/null
    [ "$status" != 0 ] || status=1
fi
case $status in
0) echo pass >"$base/$name.result" ;;
77) echo skip >"$base/$name.result"; printf 'skip %s: %s\n' "$test" "$(tail -n 1 "$base/$name.log")" ;;
*)
    echo fail >"$base/$name.result"
    if [ "$status" = 124 ]; then echo "deadline of $seconds s passed" >>"$base/$name.log"; fi
    # What it says first is why; where the logs behind that are long, they are cut.
    sentence=$([ "$(wc -l <"$base/$name.log")" -le 200 ] || sed -n '/^FAILED/,/^---- logs/p' "$base/$name.log" | head -n 60)
    printf -- '---- FAILED %s (status %s)\n%s\n%s\n----\n' "$test" "$status" "$sentence" "$(tail -n 200 "$base/$name.log")" ;;
esac
rm -rf "$TMP"
ONE
printf '%s\n' "$@" | xargs -P "$jobs" -n 1 sh "$base/one"
count() { cat "$base"/*.result 2>/dev/null | grep -c "^$1\$"; }
passed=$(count pass) failed=$(count fail) skipped=$(count skip)
lost=$(($# - passed - failed - skipped))
echo "$passed passed, $((failed + lost)) failed, $skipped skipped"
[ "$((failed + lost))" = 0 ]
