#!/bin/sh
# kedge eval as people use it: the loss is the one that the run measured on the same windows, a model that learned to answer answers, and
# a reference model has its reference loss where its folder is here.
. tests/system/lib/common.sh
have_json || skip "python3 is not here; a model would have been judged"

# The validation side of a run is the second file: the cut goes to the nearest end of a file.
mkdir "$TMP/in"
cat ssh/base/*.h >"$TMP/in/1.txt"
head -c 4000 ssh/wire/wire.h >"$TMP/in/2.txt"
share=$(python3 -c "import os; a, b = (os.path.getsize('$TMP/in/%d.txt' % i) for i in (1, 2)); print(b / (a + b))")
profile tiny run.steps=20 data.path="$TMP/in/*.txt" data.validation="$share" data.validation_windows=6 model.head=tied
kedge run "$TMP/tiny.ini" --headless >"$TMP/out" 2>&1 || fail "the run: $(cat "$TMP/out")"
kedge export tiny "$TMP/model" >/dev/null || fail "export"
kedge eval "$TMP/model" "$TMP/in/2.txt" --sequence 32 --windows 6 --json >"$TMP/out" 2>&1 || fail "eval: $(cat "$TMP/out")"
ours=$(json 'j["loss"]' <"$TMP/out") theirs=$(kedge status tiny --json | json 'j["validation_loss"]')
python3 -c "exit(not abs($ours - $theirs) < 2e-6 * $theirs)" || fail "the loss is $ours, the run says $theirs"
json 'j["version"], j["targets"], j["windows"], j["sequence"], j["answers"]' <"$TMP/out" | grep -qx '1 192 6 32 None' || fail "$(cat "$TMP/out")"
# All of the file: every token but the first is a target once, the last window is short.
kedge eval "$TMP/model" "$TMP/in/2.txt" --sequence 300 >"$TMP/out" 2>&1 || fail "eval of all: $(cat "$TMP/out")"
grep -q '^loss [0-9.]*, perplexity [0-9.]*: 3999 tokens in 14 windows of 300$' "$TMP/out" || fail "says $(cat "$TMP/out")"

# Answers. Two questions are learned; the third is not, and asks for another number.
printf '{"question":"one","answer":"so\\n#### 1\\n"}\n{"question":"two","answer":"so\\n#### 22\\n"}\n' >"$TMP/two.jsonl"
i=0
while [ $i -lt 60 ]; do i=$((i + 1)); cat "$TMP/two.jsonl"; done >"$TMP/many.jsonl"
profile asked run.steps=80 train.learning_rate=0.01 pipeline.stages=1 data.path="$TMP/many.jsonl"
sed -i '/^\[host b\]/,$d' "$TMP/asked.ini"
kedge run "$TMP/asked.ini" --headless >"$TMP/out" 2>&1 || fail "the run on answers: $(cat "$TMP/out")"
kedge export asked "$TMP/answers" >/dev/null || fail "export"
printf '{"question":"two","answer":"#### 7"}\n\n{"question":"what?","answer":"no final answer"}\n' >>"$TMP/two.jsonl"
kedge eval "$TMP/answers" "$TMP/two.jsonl" --answers 10 --tokens 20 --json >"$TMP/out" 2>&1 || fail "answers: $(cat "$TMP/out")"
json '[j["answers"][k] for k in ("questions", "right", "silent")]' <"$TMP/out" | grep -qxF '[3, 2, 0]' || fail "$(cat "$TMP/out")"
kedge eval "$TMP/answers" "$TMP/two.jsonl" --answers 2 --tokens 3 >"$TMP/out" 2>&1 || fail "short answers: $(cat "$TMP/out")"
grep -qx 'answers 0.0 %: 0 of 2 are right, 2 questions got none' "$TMP/out" || fail "says $(cat "$TMP/out")"

refused() { # STATUS WORDS OPTIONS...
    status=$1 words=$2
    shift 2
    kedge eval "$@" >"$TMP/out" 2>&1
    got=$?
    [ "$got" = "$status" ] && [ "$(wc -l <"$TMP/out")" = 1 ] && grep -q -- "$words" "$TMP/out" || fail "eval $*: status $got, $(cat "$TMP/out")"
}
refused 2 'a window needs' "$TMP/model" "$TMP/two.jsonl" --windows 2 --sequence 4000
refused 2 'no line of a .jsonl' "$TMP/model" "$TMP/in/2.txt" --answers 3
refused 1 'nothing: No such file or directory; a model is a folder' "$TMP/nothing" "$TMP/in/2.txt"
refused 2 'model.safetensors is not a folder; a model is a folder' "$TMP/model/model.safetensors" "$TMP/in/2.txt"
: >"$TMP/empty.txt"
refused 2 'empty' "$TMP/model" "$TMP/empty.txt"
refused 2 'sequence 0' "$TMP/model" "$TMP/in/2.txt" --sequence 0
refused 2 'template no' "$TMP/model" "$TMP/in/2.txt" --template no
printf '{"question":\n' >>"$TMP/two.jsonl"
refused 2 'two.jsonl:6: ' "$TMP/answers" "$TMP/two.jsonl"
kedge eval "$TMP/answers" "$TMP/two.jsonl" --skip-bad-lines >"$TMP/out" 2>"$TMP/err" || fail "skipping: $(cat "$TMP/err")"
grep -q 'two.jsonl:6: skipped' "$TMP/err" || fail "the skipped line is not told: $(cat "$TMP/err")"

# kedge data prepare is the same door.
kedge data prepare "$TMP/in/2.txt" --out "$TMP/tokens" >"$TMP/out" 2>&1 || fail "data prepare: $(cat "$TMP/out")"
kedge eval "$TMP/model" "$TMP/tokens" --sequence 300 2>&1 | grep -q '3999 tokens in 14 windows' || fail "prepared data are others"

# The reference losses of method prototypes, where they are here.
shared=../shared/data
[ -d "$shared/base-mild" ] || exit 0
python3 - "$shared/gsm8k_test.jsonl" >"$TMP/test.txt" <<'END'
import json, sys
text = "".join(json.loads(line)["question"] + "\n" + json.loads(line)["answer"] + "\n\n" for line in open(sys.argv[1]))
sys.stdout.buffer.write(text.encode()[: 32 * 128 + 1])
END
for pair in base-mild:1.645840 base-tiny:2.393784; do
    kedge eval "$shared/${pair%:*}" "$TMP/test.txt" --sequence 128 --json >"$TMP/out" 2>&1 || fail "$pair: $(cat "$TMP/out")"
    loss=$(json 'j["loss"]' <"$TMP/out")
    python3 -c "exit(not abs($loss - ${pair#*:}) < 1e-5 * $loss)" || fail "$pair: the loss is $loss"
done
exit 0
