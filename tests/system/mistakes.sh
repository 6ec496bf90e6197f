#!/bin/sh
# A newcomer's mistakes: each gets one clear line, on standard error, and the right exit code.
# seconds: 120
. tests/system/lib/common.sh

# mistake CODE PATTERN WORDS... : the command fails with CODE and one line that matches PATTERN
mistake() {
    code=$1 pattern=$2
    shift 2
    "$@" >"$TMP/out" 2>"$TMP/err"
    got=$?
    [ $got = "$code" ] || fail "$*: exit $got instead of $code: $(cat "$TMP/err")"
    [ "$(wc -l <"$TMP/err")" = 1 ] || fail "$*: not one line: $(cat "$TMP/err")"
    grep -Eq "$pattern" "$TMP/err" || fail "$*: says $(cat "$TMP/err")"
}

# In the profile: with file and line, before anything is started.
for command in check run; do
    profile tiny && sed -i 's/^rate = 0.95/rat = 0.95/' "$TMP/tiny.ini"
    mistake 2 "tiny.ini:[0-9]+: mask.rat is not a setting; did you mean mask.rate\?" "$O/kedge" $command "$TMP/tiny.ini"
    profile tiny mask.rate=1.5
    mistake 2 "tiny.ini:[0-9]+: mask.rate.*1.5" "$O/kedge" $command "$TMP/tiny.ini"
    profile tiny model.path=/nonexistent/model
    mistake 2 "tiny.ini:[0-9]+: .*/nonexistent/model" "$O/kedge" $command "$TMP/tiny.ini"
    profile tiny "data.path=/nonexistent/*.txt"
    mistake 2 "tiny.ini:[0-9]+: .*/nonexistent/\*.txt" "$O/kedge" $command "$TMP/tiny.ini"
done
profile tiny mask.rate=1.5 train.sequence=0 pipeline.stages=99
kedge check "$TMP/tiny.ini" 2>"$TMP/err" && fail "three mistakes pass the check"
[ "$(grep -c 'tiny.ini:[0-9]' "$TMP/err")" -ge 3 ] || fail "not all at once: $(cat "$TMP/err")"
mistake 2 "nothere" "$O/kedge" check "$TMP/nothere.ini"
[ ! -e "$(run_folder tiny)" ] || fail "a run folder was made for a profile that is not valid"

# On the command line.
profile tiny
mistake 2 "no command 'statsu'; did you mean 'status'" "$O/kedge" statsu
mistake 2 "no option --jsno here; did you mean --json" "$O/kedge" ls --jsno
mistake 2 "'kedge stop' needs RUN" "$O/kedge" stop
mistake 2 "no run 'tiny', and none at all yet: 'kedge run PROFILE'" "$O/kedge" status tiny
mistake 2 "cannot be the name of a run" "$O/kedge" status ../tiny

# With the programs.
mkdir "$TMP/bin" && cp "$O/kedge" "$TMP/bin"
mistake 1 "kedge-worker is missing.*'make' builds" "$TMP/bin/kedge" run "$TMP/tiny.ini"
cp "$O/kedge-worker" "$TMP/bin"
mistake 1 "kedge-cpu.so is missing" "$TMP/bin/kedge" run "$TMP/tiny.ini"
rm -r "$TMP/bin"

# With a run that goes.
profile tiny run.steps=100000
kedge run "$TMP/tiny.ini" --detach >"$TMP/out" 2>&1 || fail "run: $(cat "$TMP/out")"
address=$(sed -n 's/^kedged is ready at //p' "$TMP/out")
[ -n "$address" ] || fail "run does not say where kedged is: $(cat "$TMP/out")"
mistake 4 "tiny' is going already.*kedge attach tiny.*kedge stop tiny" "$O/kedge" run "$TMP/tiny.ini"
mistake 2 "no run 'tinny'; did you mean 'tiny'\? \(there are: tiny\)" "$O/kedge" status tinny
mistake 2 "no setting 'mask.rat'; did you mean 'mask.rate'" "$O/kedge" set tiny mask.rat=0.9
mistake 2 "no setting 'mask.rat'; did you mean 'mask.rate'" "$O/kedge" get tiny mask.rat
mistake 2 "mask.rate.*1.5" "$O/kedge" set tiny mask.rate=1.5
mistake 2 "write KEY=VALUE" "$O/kedge" set tiny mask.rate
mistake 2 "model.hidden cannot be changed while a run goes on" "$O/kedge" set tiny model.hidden=32
mistake 2 "no log of 'r0s9'.*there are:.*kedged" "$O/kedge" logs tiny r0s9

# A port that is taken: by whom.
profile other run.listen="$address"
mistake 3 "$address is taken by pid [0-9]+ \(kedged\)" "$O/kedge" run "$TMP/other.ini"
[ -z "$(pids_of other)" ] || fail "something of a run that did not start is left"

# The certificate of another run: an agent of one run is sent to the scheduler of another.
profile other
kedge run "$TMP/other.ini" --detach >"$TMP/out" 2>&1 || fail "run: $(cat "$TMP/out")"
kedge stop other >/dev/null || fail "stop other"
timeout 60 "$O/kedge-worker" agent --folder "$(run_folder other)" --host a --head "$address" >"$TMP/out" 2>"$TMP/err" &&
    fail "an agent of another run was let in"
grep -Eq "^error .*another run" "$TMP/out" || fail "the foreign agent says: $(cat "$TMP/out" "$TMP/err")"
kedge stop tiny >/dev/null || fail "stop"
nothing_left tiny || fail "after stop"
mistake 2 "tiny' is not going" "$O/kedge" set tiny mask.rate=0.9
mistake 2 "tiny' is not going" "$O/kedge" attach tiny
