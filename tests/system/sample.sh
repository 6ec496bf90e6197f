#!/bin/sh
# kedge sample as people use it: greedy text is the same each time and goes on like the text that the model learned; the dice follow the
# seed; a model of chats answers a question as its template asks; refusals are one line.
. tests/system/lib/common.sh

# A model that knows one sentence.
profile tiny run.steps=60 train.learning_rate=0.01 pipeline.stages=1 model.head=tied boundary.codec=dense data.path="$TMP/said.txt"
sed -i '/^\[host b\]/,$d' "$TMP/tiny.ini"
i=0
while [ $i -lt 400 ]; do
    i=$((i + 1))
    printf 'the anchör holds. '
done >"$TMP/said.txt"
kedge run "$TMP/tiny.ini" --headless >"$TMP/out" 2>&1 || fail "the run: $(cat "$TMP/out")"
kedge export tiny "$TMP/model" >"$TMP/out" 2>&1 || fail "export: $(cat "$TMP/out")"

kedge sample "$TMP/model" "the anch" --tokens=14 >"$TMP/one" 2>"$TMP/err" || fail "sample: $(cat "$TMP/err")"
[ "$(cat "$TMP/one")" = "the anchör holds. the" ] || fail "it learned nothing: $(cat "$TMP/one")"
grep -q '8 tokens read .* 14 written' "$TMP/err" || fail "says $(cat "$TMP/err")"
kedge sample --tokens 14 "$TMP/model" -- "the anch" 2>/dev/null | cmp -s - "$TMP/one" || fail "not the same twice"
# Ten tokens end within the ö: no half of a character is shown.
kedge sample "$TMP/model" "the anch" --tokens 1 2>/dev/null | od -An -c >"$TMP/half"
grep -q '357 277 275' "$TMP/half" || fail "half a character: $(cat "$TMP/half")"
kedge sample "$TMP/model" "the anch" --tokens 0 >"$TMP/none" 2>&1 || fail "no tokens: $(cat "$TMP/none")"
[ "$(cat "$TMP/none")" = "the anch" ] || fail "no tokens: $(cat "$TMP/none")"

sampled() { kedge sample "$TMP/model" "zq" --tokens 40 --temperature 8 "$@" 2>/dev/null | cksum; }
[ "$(sampled --seed 3)" = "$(sampled --seed 3)" ] || fail "the same seed gives another text"
[ "$(sampled --seed 3)" != "$(sampled --seed 4)" ] || fail "another seed gives the same text"
[ "$(sampled --top-p 0)" = "$(kedge sample "$TMP/model" "zq" --tokens 40 2>/dev/null | cksum)" ] || fail "top-p 0 is not greedy"

# A model that was trained on chats answers, and ends where its template ends an answer.
profile chat run.steps=120 train.sequence=96 train.learning_rate=0.01 pipeline.stages=1 model.head=tied boundary.codec=dense data.template=chatml data.path="$TMP/said.jsonl"
sed -i '/^\[host b\]/,$d' "$TMP/chat.ini"
i=0
while [ $i -lt 200 ]; do
    i=$((i + 1))
    echo '{"messages": [{"role": "user", "content": "ahoy"}, {"role": "assistant", "content": "aye aye"}]}'
done >"$TMP/said.jsonl"
kedge run "$TMP/chat.ini" --headless >"$TMP/out" 2>&1 || fail "the run of chats: $(cat "$TMP/out")"
kedge export chat "$TMP/chatty" >"$TMP/out" 2>&1 || fail "export: $(cat "$TMP/out")"
kedge sample "$TMP/chatty" "ahoy" --template=chatml --tokens=60 >"$TMP/answer" 2>"$TMP/err" || fail "sample: $(cat "$TMP/err")"
[ "$(cat "$TMP/answer")" = "aye aye<|im_end|>" ] || fail "the answer is $(cat "$TMP/answer")"
grep -q ' 17 written' "$TMP/err" || fail "it did not end with the template: $(cat "$TMP/err")"
[ "$(kedge sample "$TMP/chatty" "ahoy" --tokens=30 2>/dev/null)" != "aye aye<|im_end|>" ] || fail "the same without a template"

# What cannot be.
refused() { # STATUS WORDS OPTIONS...
    status=$1 words=$2
    shift 2
    kedge sample "$@" >"$TMP/out" 2>&1
    got=$?
    [ "$got" = "$status" ] && [ "$(wc -l <"$TMP/out")" = 1 ] && grep -q -- "$words" "$TMP/out" || fail "sample $*: status $got, $(cat "$TMP/out")"
}
refused 2 'prompt is empty' "$TMP/model" ""
refused 2 'temperature -1' "$TMP/model" x --temperature=-1
refused 2 'top-p 2' "$TMP/model" x --top-p 2
refused 2 'template other: not known; plain, chatml' "$TMP/model" x --template other
refused 2 'needs MODEL_DIR PROMPT' "$TMP/model"
refused 1 'nothing: No such file or directory; a model is a folder with config.json' "$TMP/nothing" x
mkdir "$TMP/bare"
refused 1 'bare has no config.json; a model is a folder' "$TMP/bare" x
printf 'GGUF\003\000\000\000' >"$TMP/model.gguf"
refused 2 'model.gguf is a GGUF file, which kedge does not read; a model is a folder' "$TMP/model.gguf" x
refused 2 'model.safetensors is not a folder; a model is a folder' "$TMP/model/model.safetensors" x
refused 2 'tokens 99999999999: a number from 0' "$TMP/model" x --tokens=99999999999
cp -r "$TMP/model" "$TMP/cut"
head -c 3000 "$TMP/model/model.safetensors" >"$TMP/cut/model.safetensors"
refused 2 'model.safetensors' "$TMP/cut" x

# A model whose tokenizer.json was left behind.
profile wide run.steps=1 pipeline.stages=1 model.vocabulary=1024 boundary.codec=dense data.path="$TMP/said.txt"
sed -i '/^\[host b\]/,$d' "$TMP/wide.ini"
kedge run "$TMP/wide.ini" --headless >"$TMP/out" 2>&1 || fail "the run of many tokens: $(cat "$TMP/out")"
kedge export wide "$TMP/many" >"$TMP/out" 2>&1 || fail "export: $(cat "$TMP/out")"
kedge sample "$TMP/many" x --temperature=8 >"$TMP/out" 2>"$TMP/err" && fail "1,024 tokens are no bytes: $(cat "$TMP/out")"
grep -q 'which is no byte, and there is no tokenizer.json beside its weights' "$TMP/err" || fail "says $(cat "$TMP/err")"
