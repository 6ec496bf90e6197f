#!/bin/sh
# Replicas as real processes. With gradients averaged in every step (fp32) two replicas are one with twice the batch: losses within 1e-5 for
# 20 steps. With Streaming DiLoCo all rounds end with the same weights on all replicas whatever the payload, the loss falls, siblings use
# lane sync alone, and the run ends whole.
# seconds: 240
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have compared losses"

# losses NAME : "STEP MEAN-LOSS" over the last stages of all replicas, training samples only
losses() {
    kedge decode "$(run_folder "$1")/run.db" | sed -n \
        's/^samples .*step=\([0-9]*\) kind=0 loss=\([^ ]*\) .*process="r[0-9]*s'"$2"'".*/\1 \2/p' |
        awk '{ sum[$1] += $2; count[$1]++ } END { for (s in sum) printf "%d %.9f\n", s, sum[s] / count[s] }' | sort -n
}
run() {
    kedge run "$TMP/$1.ini" --headless >"$TMP/out" 2>&1 || fail "run $1: $(cat "$TMP/out")"
    kedge events "$1" --json >"$TMP/$1.events"
    ! grep -Eq '"(drift|round-skipped)"' "$TMP/$1.events" || fail "$1: $(cat "$TMP/$1.events")"
    nothing_left "$1" || fail "after $1"
}
# agreed NAME : how many rounds kedged has compared and found equal
agreed() { sed -n 's/.*[^0-9]\([0-9][0-9]*\) rounds of [0-9]* stages ended with the same weights.*/\1/p' "$TMP/$1.events"; }

for stages in 1 2; do
    common="run.steps=20 pipeline.stages=$stages boundary.codec=dense boundary.values=fp32"
    profile double $common train.micro_batches=4
    profile pair $common train.micro_batches=2 replicas.count=2 sync.every=1 sync.fragments=1 sync.overlap=0 sync.outer=none sync.payload=fp32
    if [ $stages = 1 ]; then sed -i '/^\[host b\]/,$d' "$TMP/double.ini"; fi
    run double
    run pair
    losses double $((stages - 1)) >"$TMP/double.loss"
    losses pair $((stages - 1)) >"$TMP/pair.loss"
    [ "$(wc -l <"$TMP/pair.loss")" = 20 ] || fail "not 20 losses: $(cat "$TMP/pair.loss")"
    paste "$TMP/double.loss" "$TMP/pair.loss" | awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || d > 1e-5) bad = bad " " $0; if (d > most) most = d }
        END { print "largest difference " most; if (bad) { print bad; exit 1 } }' >"$TMP/compared" || fail "$stages stages: $(cat "$TMP/compared")"
    [ "$(agreed pair)" = "$stages" ] || fail "weights after the last step were not compared: $(cat "$TMP/pair.events")"
done

# check NAME REPLICAS ROUNDS : they agreed so often, learnt, and used lane sync both ways
check() {
    [ "$(agreed "$1")" = "$3" ] || fail "$1: $(agreed "$1") rounds agreed, not $3: $(cat "$TMP/$1.events")"
    kedge status "$1" --json | json 'j["validation_loss"] < j["first_validation_loss"] - 0.5' | grep -qx True || fail "$1 did not learn: $(kedge status "$1")"
    kedge links "$1" --json | json 'len([r for r in j["links"] if r["lane"] == "sync" and r["sent_bytes"] > 0])' >"$TMP/roads"
    [ "$(cat "$TMP/roads")" = $((2 * $2 * ($2 - 1))) ] || fail "$1: $(cat "$TMP/roads") directions of lane sync: $(kedge links "$1")"
}
# Offsets 0, 3 and 6 of 10 steps, from step 5 on, applied 2 steps later, of 40 steps: 6, 10, 13, 16, 20, … 36 = 10 rounds (40 could not be
# applied any more) and the end, on each of 2 stages.
profile mixed run.steps=40 replicas.count=2 sync.every=10 sync.payload=powersgd sync.power=alternating sync.rank=4 sync.table=rows
run mixed
check mixed 2 22
profile classic run.steps=40 replicas.count=2 sync.every=10 sync.payload=powersgd sync.power=two-sided sync.table=powersgd sync.table_rank=8
run classic
check classic 2 22
profile three run.steps=40 replicas.count=3 sync.every=10 sync.overlap=7 sync.payload=e3m0 sync.pattern=sequential
run three
check three 3 20
exit 0
