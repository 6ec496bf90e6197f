#!/bin/sh
# Adapters from the profile to the user: trained over a masked cut and by two replicas beside an anchor that gets nothing else, taken out
# as PEFT keeps them and merged, judged alike, gone on from; what cannot be is refused before anything starts.
# seconds: 240
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have driven a whole run"

profile base run.steps=3 run.seed=3
kedge run "$TMP/base.ini" --headless >"$TMP/out" 2>&1 || fail "the base: $(cat "$TMP/out")"
kedge export base "$TMP/model" >/dev/null || fail "export of the base"

profile low model.path="$TMP/model" lora.rank=4 lora.alpha=8 lora.targets=q,v,down mask.rate=0.5 replicas.count=2 sync.every=5 \
    anchor.host=c anchor.every=5 anchor.staleness=6 anchor.limit=20 anchor.rank=4
printf '[host c]\nkind = local\nthreads = 1\n' >>"$TMP/low.ini"
kedge plan "$TMP/low.ini" --json >"$TMP/plan" || fail "plan: $(cat "$TMP/plan")"
json 'all(s["memory_bytes"]["gradients"] == 4 * s["trained"] and s["memory_bytes"]["weights"] == 4 * s["parameters"] for s in j["stages"])' \
    <"$TMP/plan" | grep -qx True || fail "the plan says $(cat "$TMP/plan")"
# 4 layers: q 4 * (64 + 64), v 4 * (64 + 32), down 4 * (128 + 64) parameters
json 'sum(s["trained"] for s in j["stages"]) // j["replicas"], j["anchor"]["snapshot_bytes"]' <"$TMP/plan" | grep -qx '6656 13312' ||
    fail "trained: $(cat "$TMP/plan")"
kedge run "$TMP/low.ini" --headless >"$TMP/out" 2>&1 || fail "the run: $(cat "$TMP/out")"
kedge export low "$TMP/adapter" >/dev/null && kedge export low "$TMP/merged" --merge >/dev/null || fail "export"
[ "$(ls "$TMP/adapter" | tr '\n' ' ')" = 'adapter_config.json adapter_model.safetensors ' ] || fail "the adapter is $(ls "$TMP/adapter")"
kedge export base "$TMP/no" --merge 2>"$TMP/why" && fail "merged what has no adapters"
grep -q 'is for runs with adapters' "$TMP/why" || fail "--merge: $(cat "$TMP/why")"

loss() { kedge eval "$@" "$TMP/text/a.txt" --windows 8 --sequence 32 --json 2>"$TMP/why" | json '"%.5f" % j["loss"]'; }
with=$(loss "$TMP/model" --adapter "$TMP/adapter") merged=$(loss "$TMP/merged") without=$(loss "$TMP/model")
[ -n "$with" ] && [ "$with" = "$merged" ] || fail "with the adapter $with, merged $merged: $(cat "$TMP/why")"
[ "$with" != "$without" ] || fail "the adapter does nothing: $with"
kedge sample "$TMP/model" abc --adapter "$TMP/adapter" --tokens 3 >/dev/null 2>&1 || fail "sample"

profile on model.path="$TMP/model" lora.path="$TMP/adapter" run.steps=2
kedge plan "$TMP/on.ini" --json | json 'sum(s["trained"] for s in j["stages"])' | grep -qx 6656 || fail "lora.path is not read"
kedge run "$TMP/on.ini" --headless >"$TMP/out" 2>&1 || fail "going on: $(cat "$TMP/out")"
[ "$(kedge get on lora.targets)" = q,v,down ] || fail "targets: $(kedge get on lora.targets)"

refused() {
    what=$1
    shift
    profile no "$@"
    kedge plan "$TMP/no.ini" >"$TMP/out" 2>&1 && fail "accepted: $*"
    grep -q "$what" "$TMP/out" || fail "$*: $(cat "$TMP/out")"
}
refused 'lora.dropout = 0.1 is not supported' model.path="$TMP/model" lora.rank=4 lora.dropout=0.1
refused 'lora.targets = q,w' model.path="$TMP/model" lora.rank=4 lora.targets=q,w
refused 'adapters of fresh weights' lora.rank=4
refused 'lora.alpha has no effect' lora.alpha=4
refused 'no adapter_config.json' model.path="$TMP/model" lora.path="$TMP/text"
sed -i 's/"use_dora": false/"use_dora": true/' "$TMP/adapter/adapter_config.json"
refused 'use_dora is not supported' model.path="$TMP/model" lora.path="$TMP/adapter"
for run in base low on; do nothing_left $run || fail "after $run"; done
