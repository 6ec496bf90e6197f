#!/bin/sh
# Does anybody wait for an anchor that stands still or is dead? Two runs train side by side, so that whatever else this machine does hits both
# alike: one without an anchor, one whose anchor is stopped (SIGSTOP), then killed with nobody to start another. Medians of STEPS steps each,
# and their ratio; beside them two runs without an anchor, which say how far ratios mean nothing. Then what a snapshot costs to send at a
# small learning rate. Prints CSV.
# seconds: 600
. tests/system/lib/common.sh
steps=${STEPS:-200}
common="run.steps=100000 train.micro_batches=4 train.sequence=64 train.learning_rate=0.00002 train.schedule=constant"
# median NAME FROM TO : of step_ns of the last stage, in ms
median() {
    kedge decode "$(run_folder "$1")/run.db" | sed -n 's/^samples .*step=\([0-9]*\) kind=0 .*step_ns=\([0-9]*\) .*process="r0s1".*/\1 \2/p' |
        awk -v from="$2" -v to="$3" '$1 >= from && $1 < to { print $2 / 1e6 }' | sort -n | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)]; else print "none" }'
}
# measure LABEL ONE OTHER : the next steps of both
measure() {
    one=$(($(step_of "$2") + 5)) other=$(($(step_of "$3") + 5))
    wait_for 400 step_reached "$2" $((one + steps)) || fail "no steps: $(kedge status "$2")"
    wait_for 400 step_reached "$3" $((other + steps)) || fail "no steps: $(kedge status "$3")"
    sleep 2
    a=$(median "$2" "$one" $((one + steps))) b=$(median "$3" "$other" $((other + steps)))
    echo "$1,$a,$b,$(awk "BEGIN { printf \"%.4f\", $b / $a }")"
}
begin() {
    kedge run "$TMP/$1.ini" --detach >"$TMP/out" 2>&1 || fail "$(cat "$TMP/out")"
    wait_for 60 step_reached "$1" 30 || fail "$(kedge status "$1")"
}
for name in none control; do profile $name $common; done
profile with $common anchor.host=c anchor.rank=16 anchor.mix=0
printf '[host c]\nkind = local\nthreads = 1\n' >>"$TMP/with.ini"
begin none
begin control
echo "what,median_step_ms_without,median_step_ms_with,ratio"
measure "no anchor in either" none control
kedge stop control >/dev/null
begin with
wait_for 60 step_reached with 60
kedge anchor with --json | json '"delta share of full bf16 at lr 2e-5 every 20 steps,,,%.4f" % j["anchor"]["delta_share"]'
kill -STOP "$(pid_of with anchor)"
measure "anchor stopped" none with
agent=$(pid_of with agent@c)
kill -STOP "$agent" # nobody starts another
kill -KILL "$(pid_of with anchor)"
measure "anchor killed" none with
kill -CONT "$agent"
kedge stop with >/dev/null
kedge stop none >/dev/null
