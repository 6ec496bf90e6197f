#!/bin/sh
# kill -9 of the console in every phase of a start over SSH: either nothing of the run lives, or the next kedge finds it, says how to
# watch or end it, and stop leaves nothing anywhere.
# seconds: 900
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh

# Host two is slow to hash while $hold is there: what is sent to it stays in the phase "verifying".
hold=$TMP/ssh/hold
mkdir "$TMP/ssh/slow-hash"
printf '#!/bin/sh\nexit 1\n' >"$TMP/ssh/slow-hash/openssl"
cat >"$TMP/ssh/slow-hash/sha256sum" <<EOF
#!/bin/sh
sum=\$(/usr/bin/sha256sum)
i=0
while [ -e $hold ] && [ \$i -lt 500 ]; do sleep 0.1; i=\$((i+1)); done
echo "\$sum"
EOF
chmod 755 "$TMP/ssh/slow-hash"/*
host one 127.0.0.2
host_environment=PATH=$TMP/ssh/slow-hash:/usr/local/bin:/usr/bin:/bin
host two 127.0.0.3

# killed NAME PHASE : and then?
killed() {
    : >"$TMP/out" # what the one before said is not what this one says
    "$O/kedge" run "$TMP/$1.ini" --detach >"$TMP/out" 2>&1 </dev/null &
    console=$!
    wait_for 60 grep -q "$2\|^agent@b is ready" "$TMP/out" || fail "$1 was never $2: $(cat "$TMP/out")"
    kill -9 $console
    wait $console 2>/dev/null
    kedge ls >"$TMP/ls" 2>&1 || fail "ls after $2: $(cat "$TMP/ls")"
    grep -q "^$1 " "$TMP/ls" || fail "ls does not know the run after $2: $(cat "$TMP/ls")"
    kedge run "$TMP/$1.ini" --detach >"$TMP/again" 2>&1
    status=$?
    case $status in
    0) wait_for 60 step_reached "$1" 2 || fail "$1 after $2: $(kedge status "$1")" ;;
    4) grep -Eq "'kedge (attach|stop) $1'" "$TMP/again" || fail "$1 after $2 does not say what to do: $(cat "$TMP/again")" ;;
    *) fail "$1 after $2: $status: $(cat "$TMP/again")" ;;
    esac
    kedge stop "$1" >"$TMP/stop" 2>&1 || fail "stop after $2: $(cat "$TMP/stop")"
    nothing_left "$1" && nothing_on "one two" "$1" || fail "after $2: $(cat "$TMP/stop")"
    echo "$1 $2: $status" >>"$TMP/phases"
}
profile here run.steps=100000 run.timeout=15s
use_host "$TMP/here.ini" a one
use_host "$TMP/here.ini" b two
profile there run.steps=100000 run.timeout=15s run.head=a run.listen=127.0.0.2:0
use_host "$TMP/there.ini" a one
use_host "$TMP/there.ini" b two
for phase in '^b: \(connecting\|greeting\|logging in\)' '^b: looking' '^b: sending programs' '^b: delivering' '^b: prepared' '^agent@. is ready'; do
    rm -rf "$TMP/ssh/two/home/.local/share"
    killed here "$phase"
done
# In the phase "verifying" the host goes on alone and moves what it has verified into its place, maybe under the hands of the next console.
rm -rf "$TMP/ssh/two/home/.local/share"
: >"$hold"
"$O/kedge" run "$TMP/here.ini" --detach >"$TMP/out" 2>&1 </dev/null &
console=$!
wait_for 60 grep -q '^b: verifying' "$TMP/out" || fail "it never was verifying: $(cat "$TMP/out")"
kill -9 $console
wait $console 2>/dev/null
[ -z "$(pids_of here)" ] || fail "something lives though nothing was started: $(pids_of here)"
"$O/kedge" run "$TMP/here.ini" --detach >"$TMP/again" 2>&1 </dev/null &
console=$!
wait_for 60 grep -q '^b: verifying' "$TMP/again" || fail "it is not verified again: $(cat "$TMP/again")"
rm "$hold"
wait $console || fail "after verifying: $(cat "$TMP/again")"
wait_for 60 step_reached here 2 || fail "after verifying: $(kedge status here)"
kedge stop here >"$TMP/stop" 2>&1 || fail "stop after verifying: $(cat "$TMP/stop")"
nothing_left here && nothing_on "one two" here || fail "after verifying: $(cat "$TMP/stop")"
for phase in '^b: delivering' '^kedged is ready' '^agent@. is ready'; do killed there "$phase"; done
grep -q ': 4$' "$TMP/phases" || fail "never was anything found: $(cat "$TMP/phases")"
exit 0
