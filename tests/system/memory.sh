#!/bin/sh
# The memory that `kedge plan` prints is what processes take: the most that a worker ever had (VmHWM) after some steps of a real run is
# within 5 % of it, for every way to train that keeps other things. Models are so large that what differs from machine to machine weighs
# little.
# seconds: 900
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have compared a plan with processes"
[ -z "${SAN:-}" ] || skip "sanitizers take memory of their own; without them plans would have been compared with processes"
awk '/MemAvailable/ { exit $2 < 5000000 }' /proc/meminfo || skip "less than 5 GB of memory is free; a run would have taken 3 of them"

# large NAME SETTINGS... : 13 million parameters a layer
large() {
    name=$1
    shift
    profile "$name" run.timeout=60s run.steps=1000000 model.hidden=1024 model.heads=16 model.kv_heads=4 model.ffn=2816 \
        train.micro_batch=1 train.sequence=128 data.validation_windows=1 "$@"
}
most_of() { awk '/VmHWM/ { print $2 * 1024 }' "/proc/$1/status"; }

# check NAME PROCESSES SETTINGS...
check() {
    case=$1 processes=$2
    shift 2
    large "$case" "$@"
    kedge plan "$TMP/$case.ini" --json >"$TMP/plan" || fail "$case: the plan: $(cat "$TMP/plan")"
    kedge run "$TMP/$case.ini" --detach >"$TMP/out" 2>&1 || fail "$case: $(cat "$TMP/out")"
    wait_for 240 step_reached "$case" 4 || fail "$case: $(kedge status "$case")"
    for process in $processes; do
        real=$(most_of "$(pid_of "$case" "$process")")
        kinds=$(json '[s["memory_bytes"] for s in j["stages"] if s["process"] == "'"$process"'"][0]' <"$TMP/plan")
        echo "$kinds" | awk -v real="$real" '{ sub(/.*total.: /, ""); exit !(real > 0.95 * $0 && real < 1.05 * $0) }' ||
            fail "$case: $process had $real bytes, planned are $kinds"
    done
    kedge stop "$case" --now >/dev/null 2>&1 || fail "$case does not stop"
}

large base run.steps=1 model.layers=8 train.moments=fp8 pipeline.recompute=yes
kedge run "$TMP/base.ini" --headless >"$TMP/out" 2>&1 || fail "the base: $(cat "$TMP/out")"
kedge export base "$TMP/model" --dtype=bf16 >"$TMP/out" 2>&1 || fail "export: $(cat "$TMP/out")"
rm -r "$(run_folder base)"

stages='r0s0 r0s1'
check plain "$stages"
check bf16 "$stages" train.precision=bf16
check moments16 "$stages" train.moments=bf16
check moments8 "$stages" train.moments=fp8 pipeline.recompute=yes
check frozen "$stages" train.precision=bf16 train.frozen=3 pipeline.layers=3,1
check lora "$stages" model.path="$TMP/model" lora.rank=8 train.precision=bf16
check sets "$stages" checkpoint.every=1
check statistics "$stages" train.moments=fp8 boundary.codec=subspace boundary.rank=128 mask.rate=0.9
check replicas 'r0s0 r1s0' pipeline.stages=1 model.layers=2 boundary.codec=dense replicas.count=2 replicas.rejoin=no sync.every=2 \
    sync.fragments=1 sync.overlap=0 sync.payload=int4
exit 0
