#!/bin/sh
# Weights out of a run: a set is written when all steps are trained, and by order while a run trains or is paused; kedge export makes a
# Hugging Face folder of the newest whole one, from which a run can begin again; a damaged set is passed over, a full disk spoils none.
. tests/system/lib/common.sh
have_json || skip "python3 is not here; weights would have been taken out of a run"

sets=$(run_folder tiny)/checkpoint
same() { [ "$(cksum <"$1")" = "$(cksum <"$2")" ]; }

profile tiny run.steps=4 model.head=tied
kedge run "$TMP/tiny.ini" >"$TMP/out" 2>&1 || fail "the run: $(cat "$TMP/out")"
nothing_left tiny || fail "something is left"
[ -s "$sets/4/manifest.json" ] && [ -s "$sets/4/r0s0.safetensors" ] && [ -s "$sets/4/r0s1.safetensors" ] || fail "no set: $(ls -R "$sets")"
kedge export tiny "$TMP/one" >"$TMP/out" 2>&1 || fail "export: $(cat "$TMP/out")"
grep -q 'after step 4' "$TMP/out" || fail "says $(cat "$TMP/out")"
kedge export tiny "$TMP/one" >"$TMP/out" 2>&1 && fail "overwrote a folder"
grep -q 'not empty' "$TMP/out" || fail "says $(cat "$TMP/out")"
[ "$(json 'j["model_type"], j["tie_word_embeddings"]' <"$TMP/one/config.json")" = "llama True" ] || fail "$(cat "$TMP/one/config.json")"
kedge export tiny "$TMP/half" --dtype bf16 >/dev/null || fail "bf16"
[ "$(wc -c <"$TMP/half/model.safetensors")" -lt "$(wc -c <"$TMP/one/model.safetensors")" ] || fail "bf16 is not smaller"

# It begins where the other ended: the loss before training is the one after it.
after=$(kedge status tiny --json | json 'j["validation_loss"]')
profile next run.steps=2 model.path="$TMP/one"
kedge run "$TMP/next.ini" >"$TMP/out" 2>&1 || fail "the next run: $(cat "$TMP/out")"
before=$(kedge status next --json | json 'j["first_validation_loss"]')
[ "$after" = "$before" ] || fail "ended with a loss of $after, began with $before"
kedge export next "$TMP/two" >"$TMP/out" 2>&1 || fail "export of the next run: $(cat "$TMP/out")"
same "$TMP/one/model.safetensors" "$TMP/two/model.safetensors" && fail "two steps changed nothing"

# An explicit untied head of a tied checkpoint.
profile apart run.steps=2 model.path="$TMP/one" model.head=untied
kedge run "$TMP/apart.ini" >"$TMP/out" 2>&1 || fail "untied: $(cat "$TMP/out")"
[ "$(kedge status apart --json | json 'j["first_validation_loss"]')" = "$after" ] || fail "the untied head does not begin as the table"
kedge export apart "$TMP/three" >/dev/null || fail "export of an untied head"
[ "$(json 'j["tie_word_embeddings"]' <"$TMP/three/config.json")" = False ] || fail "$(cat "$TMP/three/config.json")"

# By order: while it trains, and while it is paused; training is none the worse.
profile tiny run.steps=100000
kedge run "$TMP/tiny.ini" --detach >"$TMP/out" 2>&1 || fail "start: $(cat "$TMP/out")"
[ -s "$sets.1/4/manifest.json" ] || fail "the sets of the run before are gone"
kedge export tiny "$TMP/none" >"$TMP/out" 2>&1 && fail "exported another run's weights"
wait_for 30 step_reached tiny 3 || fail "does not train"
kedge checkpoint tiny >"$TMP/out" 2>&1 || fail "checkpoint: $(cat "$TMP/out")"
kedge export tiny "$TMP/four" >"$TMP/out" 2>&1 || fail "export while it trains: $(cat "$TMP/out")"
kedge pause tiny >/dev/null || fail "pause"
kedge checkpoint tiny >"$TMP/out" 2>&1 || fail "checkpoint of a paused run: $(cat "$TMP/out")"
kedge checkpoint tiny >"$TMP/out" 2>&1 || fail "and again: $(cat "$TMP/out")"
grep -q already "$TMP/out" || fail "says $(cat "$TMP/out")"
kedge resume tiny >/dev/null || fail "resume"
step=$(step_of tiny)
wait_for 30 step_reached tiny $((step + 2)) || fail "does not go on"
kedge checkpoint tiny >"$TMP/out" 2>&1 || fail "a third: $(cat "$TMP/out")"
[ "$(ls "$sets" | wc -l)" = 2 ] || fail "not two sets: $(ls "$sets")"
kedge stop tiny >/dev/null || fail "stop"

# The newest is damaged: the one before it is taken, and that is said.
newest=$(ls "$sets" | sort -n | tail -1) older=$(ls "$sets" | sort -n | head -1)
printf changed | dd of="$sets/$newest/r0s1.safetensors" bs=1 seek=2000 conv=notrunc 2>/dev/null
kedge export tiny "$TMP/five" >"$TMP/out" 2>&1 || fail "export past a damaged set: $(cat "$TMP/out")"
grep -q "passed over: .*$newest/r0s1" "$TMP/out" && grep -q "after step $older" "$TMP/out" || fail "says $(cat "$TMP/out")"
rm "$sets/$older/manifest.json"
kedge export tiny "$TMP/six" >"$TMP/out" 2>&1 && fail "exported without a whole set"
[ ! -e "$TMP/six" ] || fail "left a folder"
