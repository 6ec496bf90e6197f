#!/bin/sh
# Run every fuzzer that was built under $O for $FUZZ_SECONDS, each with a corpus that begins empty and is thrown away. One line
# each; for a finding also the fuzzer's report, and the input that did it is kept under $O. Exit 1 when there was a finding.
set -u
O=${O:?} seconds=${FUZZ_SECONDS:-60}
base=$(mktemp -d "${TMPDIR:-/tmp}/kedge-fuzz.XXXXXX")
trap 'rm -rf "$base"' EXIT
trap 'exit 130' INT TERM
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1
run=0 found=0
for source in tests/fuzz/*.c; do
    name=$(basename "$source" .c)
    fuzzer=$O/tests/fuzz/$name
    [ -x "$fuzzer" ] || { echo "$name: was not built"; found=$((found + 1)); continue; }
    run=$((run + 1))
    mkdir "$base/$name"
    "$fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -use_value_profile=1 -print_final_stats=1 \
        -artifact_prefix="$base/$name-" "$base/$name" >"$base/$name.log" 2>&1
    status=$?
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$base/$name.log")
    reached=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$base/$name.log" | tail -n 1)
    if [ $status = 0 ] && [ "${reached:-0}" -gt 0 ]; then
        kept=$(find "$base/$name" -type f | wc -l)
        echo "$name: nothing found; $executions inputs, $reached edges reached, $kept inputs kept as interesting"
        continue
    fi
    found=$((found + 1))
    echo "$name: FOUND (status $status)"
    tail -n 60 "$base/$name.log"
    for input in "$base/$name"-*; do
        [ -f "$input" ] || continue
        mv "$input" "$O/" && echo "$name: the input is $O/$(basename "$input")"
    done
done
echo "$run fuzzers of $seconds s each, $found with findings"
[ "$run" -gt 0 ] && [ "$found" = 0 ]
