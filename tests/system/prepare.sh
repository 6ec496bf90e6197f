#!/bin/sh
# kedge-worker data prepare as people use it: the same files for any number of threads, bad lines by number, refusals that leave nothing,
# and a run that learns from the folder.
# seconds: 240
. tests/system/lib/common.sh

worker() { "$O/kedge-worker" "$@"; }
mkdir -p "$TMP/in" "$TMP/model"
cp tests/unit/fixtures/tokenizers/qwen2.json "$TMP/model/tokenizer.json"
echo '{"eos_token":"<|endoftext|>"}' >"$TMP/model/tokenizer_config.json"
i=0
while [ $i -lt 400 ]; do
    i=$((i + 1))
    printf '{"question":"What is %d and %d?","answer":"#### %d"}\n' $i $i $((2 * i))
done >"$TMP/in/a.jsonl"
cat ssh/base/*.[ch] >"$TMP/in/b.txt"

worker data prepare --out "$TMP/one" --tokenizer "$TMP/model" --template chatml --threads 1 "$TMP/in/a.jsonl" "$TMP/in/b.txt" \
    >"$TMP/said" 2>&1 || fail "prepare: $(cat "$TMP/said")"
grep -q '401 documents' "$TMP/said" || fail "not 401 documents: $(cat "$TMP/said")"
worker data prepare --out "$TMP/four" --tokenizer "$TMP/model" --template chatml --threads 4 "$TMP/in"/* >"$TMP/said" 2>&1 ||
    fail "prepare on four threads: $(cat "$TMP/said")"
diff -r "$TMP/one" "$TMP/four" >"$TMP/said" || fail "the number of threads changes the result: $(cat "$TMP/said")"
worker data prepare --out "$TMP/one" "$TMP/in/b.txt" 2>"$TMP/said" && fail "a folder that has data was taken"
grep -q 'has prepared data' "$TMP/said" || fail "refused without a reason: $(cat "$TMP/said")"

# Bad lines: the number, and nothing written; or left out.
printf '{"text":"good"}\n{"text":\n{"text":"good"}\n' >"$TMP/in/c.jsonl"
worker data prepare --out "$TMP/bad" "$TMP/in/c.jsonl" 2>"$TMP/said" && fail "a bad line was taken"
grep -q 'c.jsonl:2: ' "$TMP/said" || fail "the bad line is not named: $(cat "$TMP/said")"
[ -z "$(ls "$TMP/bad")" ] || fail "something was left: $(ls "$TMP/bad")"
worker data prepare --out "$TMP/bad" --skip-bad-lines "$TMP/in/c.jsonl" >"$TMP/said" 2>&1 || fail "skipping: $(cat "$TMP/said")"
grep -q 'c.jsonl:2: skipped' "$TMP/said" && grep -q '8 tokens of 2 documents' "$TMP/said" || fail "skipping: $(cat "$TMP/said")"

# What cannot be asked for.
for words in "" "--out $TMP/x" "--out $TMP/x --template none $TMP/in/b.txt" "--out $TMP/x --threads 0 $TMP/in/b.txt" \
    "--out $TMP/x --what $TMP/in/b.txt" "--out $TMP/x --template llama3 --tokenizer $TMP/model $TMP/in/a.jsonl"; do
    worker data prepare $words >"$TMP/said" 2>&1
    [ $? = 2 ] || fail "data prepare $words: $(cat "$TMP/said")"
    [ "$(wc -l <"$TMP/said")" = 1 ] || fail "more than one line: $(cat "$TMP/said")"
    [ ! -e "$TMP/x/tokens.json" ] || fail "data prepare $words made something"
done

# A run learns from prepared bytes; and from answers only, on two stages as on one: which tokens are learned travels with them.
worker data prepare --out "$TMP/bytes" "$TMP/in/b.txt" >"$TMP/said" 2>&1 || fail "bytes: $(cat "$TMP/said")"
profile ready run.steps=6 data.path="$TMP/bytes"
kedge run "$TMP/ready.ini" --headless >"$TMP/said" 2>&1 || fail "run on prepared bytes: $(cat "$TMP/said")"
exact="run.steps=6 data.path=$TMP/in/a.jsonl boundary.codec=dense boundary.values=fp32"
profile one $exact pipeline.stages=1
sed -i '/^\[host b\]/,$d' "$TMP/one.ini"
profile two $exact
for name in one two; do
    kedge run "$TMP/$name.ini" --headless >"$TMP/said" 2>&1 || fail "run $name on answers: $(cat "$TMP/said")"
    kedge status $name --json >"$TMP/$name.json" || fail "status $name"
    json '"%.5f %.5f" % (j["loss"], j["validation_loss"])' <"$TMP/$name.json" >"$TMP/$name.loss" || fail "$(cat "$TMP/json.err")"
done
cmp -s "$TMP/one.loss" "$TMP/two.loss" || fail "one stage: $(cat "$TMP/one.loss"), two: $(cat "$TMP/two.loss")"
cp "$TMP/in/a.jsonl" "$TMP/in/a.txt"
profile all run.steps=6 data.path="$TMP/in/a.txt" boundary.codec=dense boundary.values=fp32
kedge run "$TMP/all.ini" --headless >"$TMP/said" 2>&1 || fail "run on all of it: $(cat "$TMP/said")"
[ "$(kedge status all --json | json '"%.5f %.5f" % (j["loss"], j["validation_loss"])')" != "$(cat "$TMP/two.loss")" ] || fail "all is learned"

# Documents apart: over two stages as over one, and not as joined.
exact="$exact data.documents=apart"
profile one $exact pipeline.stages=1
sed -i '/^\[host b\]/,$d' "$TMP/one.ini"
profile two $exact
for name in one two; do
    kedge run "$TMP/$name.ini" --headless >"$TMP/said" 2>&1 || fail "run $name on documents apart: $(cat "$TMP/said")"
    kedge status $name --json | json '"%.5f %.5f" % (j["loss"], j["validation_loss"])' >"$TMP/$name.apart" || fail "$(cat "$TMP/json.err")"
done
cmp -s "$TMP/one.apart" "$TMP/two.apart" || fail "apart, one stage: $(cat "$TMP/one.apart"), two: $(cat "$TMP/two.apart")"
cmp -s "$TMP/one.apart" "$TMP/one.loss" && fail "documents apart are like joined ones"

# The tokenizer of a model: a run makes one, it leaves, gets a tokenizer beside it, and another run goes on with it, in epochs.
profile made run.steps=2 model.vocabulary=1210
kedge run "$TMP/made.ini" --headless >"$TMP/said" 2>&1 || fail "run of a model: $(cat "$TMP/said")"
kedge export made "$TMP/taken" >"$TMP/said" 2>&1 || fail "export: $(cat "$TMP/said")"
cp "$TMP/model"/* "$TMP/taken"
profile goes-on run.steps=6 model.path="$TMP/taken" data.tokenizer=model data.order=epochs data.path="$TMP/in/b.txt"
kedge run "$TMP/goes-on.ini" --headless >"$TMP/said" 2>&1 || fail "run with the model's tokenizer: $(cat "$TMP/said")"
profile skips run.steps=6 model.path="$TMP/taken" data.tokenizer=model data.template=chatml data.bad_lines=skip \
    data.path="$TMP/in/a.jsonl $TMP/in/c.jsonl"
kedge run "$TMP/skips.ini" --headless >"$TMP/said" 2>&1 || fail "run that skips a bad line: $(cat "$TMP/said")"
kedge events skips >"$TMP/said" 2>&1
grep -q 'c.jsonl:2: skipped' "$TMP/said" || fail "the skipped line is not told: $(cat "$TMP/said")"
exit 0
