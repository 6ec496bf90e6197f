#!/bin/sh
# A run of which everything is killed -9 goes on from its newest set as if nothing had been: losses and norms of every step behind it, and
# the validations, are to the last bit those of a run that was left alone and wrote no sets on its way. One stage and two, dense and coded,
# with statistics that wait for their step; moments in bf16; a tied head. A set that is torn, changed or of another profile is refused.
# seconds: 300
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; runs would have been killed and gone on"

# curve NAME FROM : PROCESS STEP KIND LOSS NORM of every sample from step FROM on, sorted
curve() {
    kedge decode "$(run_folder "$1")/run.db" >"$TMP/journal" || fail "decode"
    sed -n 's/^samples .*step=\([0-9]*\) kind=\([0-9]*\) loss=\([^ ]*\) gradient_norm=\([^ ]*\) .*process="\([^"]*\)".*/\5 \1 \2 \3 \4/p' "$TMP/journal" |
        awk -v from="$2" '$2 >= from' | sort
}
sets_of() { for set in "$(run_folder "$1")"/checkpoint/*/manifest.json; do basename "$(dirname "$set")"; done | sort -n; }
has_set() { [ "$(sets_of "$1" | tail -n 1)" -ge "$2" ] 2>/dev/null; }
kill_all() {
    victims=$(pids_of "$1")
    for pid in $victims; do kill -9 "$pid" 2>/dev/null; done
    for pid in $victims; do wait_for 20 gone "$pid" || fail "$pid does not go"; done
}

# check NAME SETTINGS...
check() {
    name=$1
    shift
    profile "$name" run.steps=300 run.timeout=60s train.evaluate_every=70 "$@"
    case " $* " in *" pipeline.stages=1 "*) sed -i '/^\[host b\]/,/^threads/d' "$TMP/$name.ini" ;; esac
    kedge run "$TMP/$name.ini" --headless >"$TMP/out" 2>&1 || fail "$name: $(cat "$TMP/out")"
    curve "$name" 1 >"$TMP/$name.whole"
    [ "$(grep -c '^r0s0 [0-9]* 0 ' "$TMP/$name.whole")" = 300 ] || fail "$name: not 300 samples: $(cat "$TMP/$name.whole")"

    set_key "$TMP/$name.ini" checkpoint.every 20
    kedge run "$TMP/$name.ini" --detach >"$TMP/out" 2>&1 || fail "$name with sets: $(cat "$TMP/out")"
    wait_for 120 has_set "$name" 20 || fail "$name writes no set: $(kedge status "$name")"
    kill_all "$name"
    at=$(sets_of "$name" | tail -n 1)
    [ "$at" -lt 300 ] || fail "$name was through before it was killed"
    kedge run "$TMP/$name.ini" --resume --headless >"$TMP/out" 2>&1 || fail "$name does not go on: $(cat "$TMP/out")"
    grep -q "goes on from checkpoint/$at, with step $((at + 1)) of 300" "$TMP/out" || fail "$name: $(cat "$TMP/out")"
    curve "$name" $((at + 1)) >"$TMP/$name.rest"
    awk -v from=$((at + 1)) '$2 >= from' "$TMP/$name.whole" | cmp -s - "$TMP/$name.rest" ||
        fail "$name is another run from step $at on: $(awk -v from=$((at + 1)) '$2 >= from' "$TMP/$name.whole" | diff - "$TMP/$name.rest" | head -n 6)"
    [ "$(sets_of "$name" | wc -l)" = 2 ] || fail "$name: not two sets: $(sets_of "$name")"
    kedge plan "$TMP/$name.ini" --json | json 'sum(s["set_bytes"] for s in j["stages"])' >"$TMP/planned"
    cat "$(run_folder "$name")/checkpoint/280"/*.safetensors | wc -c >"$TMP/real"
    paste "$TMP/planned" "$TMP/real" | awk '{ exit !($1 > 0.97 * $2 && $1 < 1.25 * $2) }' || fail "$name: a set of $(cat "$TMP/planned") bytes was planned, it has $(cat "$TMP/real")"
    kedge export "$name" "$TMP/$name.out" >"$TMP/out" 2>&1 || fail "$name: export: $(cat "$TMP/out")"
    nothing_left "$name" || fail "after $name"
}

check one pipeline.stages=1 boundary.codec=dense
check mask model.head=tied mask.rate=0.9
check coded boundary.codec=subspace boundary.reference=tokens boundary.refresh=3 boundary.late=7 mask.rate=0.8 train.moments=bf16 \
    data.order=epochs

# ---- what is refused, and what is said ----
sets=$(run_folder coded)/checkpoint
refuses() {
    kedge run "$TMP/coded.ini" --detach "$2" >"$TMP/out" 2>&1 && { kedge stop coded >/dev/null; fail "$1: it went on"; }
    grep -q "$3" "$TMP/out" || fail "$1: says $(cat "$TMP/out")"
    [ "$(wc -l <"$TMP/out")" = 1 ] || fail "$1: not one line: $(cat "$TMP/out")"
}
refuses "all steps are trained" --resume 'run.steps = 300: all of them are trained'
set_key "$TMP/coded.ini" run.steps 100000
set_key "$TMP/coded.ini" train.beta2 0.9
refuses "another profile" --resume "train.beta2 is '0.95' in the set and '0.9' in the profile"
set_key "$TMP/coded.ini" train.beta2 0.95
set_key "$TMP/coded.ini" model.ffn 192
refuses "another shape" --resume "model.ffn is '128' in the set and '192'"
set_key "$TMP/coded.ini" model.ffn 128
refuses "no such step" --resume=7 'step 300: --resume=300 goes on'
refuses "no step" --resume=x 'say the step of a set'
cp "$TMP/text/a.txt" "$TMP/a.txt"
echo more >>"$TMP/text/a.txt"
kedge run "$TMP/coded.ini" --resume --detach >"$TMP/out" 2>&1
wait_for 60 nothing_left coded >/dev/null || { kedge stop coded >/dev/null; fail "other text: it went on"; }
grep -q 'data.path has [0-9]* tokens now' "$(run_folder coded)/log/r0s0.log" || fail "other text: $(tail -n 5 "$(run_folder coded)"/log/*.log)"
cp "$TMP/a.txt" "$TMP/text/a.txt"
[ -e "$sets/300/manifest.json" ] && [ -e "$sets/280/manifest.json" ] || fail "sets went: $(ls -R "$sets")"

printf changed | dd of="$sets/300/r0s1.safetensors" bs=1 seek=60000 conv=notrunc 2>/dev/null
refuses "a changed set" --resume '300/r0s1.safetensors has .* the newest whole set is that of step 280: --resume=280'
truncate -s 5000 "$sets/300/r0s0.safetensors"
refuses "a torn set" --resume=300 '300/r0s0.safetensors has 5000 bytes.*--resume=280'

# From an older one: what is newer is put aside, and what was set while it ran holds on.
kedge run "$TMP/coded.ini" --resume=280 --detach >"$TMP/out" 2>&1 || fail "from the older set: $(cat "$TMP/out")"
[ ! -e "$sets/300" ] && [ -e "$sets.1/300" ] || fail "the newer set was not put aside: $(ls -R "$sets" "$sets.1")"
wait_for 60 step_reached coded 282 || fail "does not train: $(kedge status coded)"
kedge set coded mask.rate=0.7 >"$TMP/out" 2>&1 || fail "set: $(cat "$TMP/out")"
kedge checkpoint coded >"$TMP/out" 2>&1 || fail "checkpoint: $(cat "$TMP/out")"
kill_all coded
kedge run "$TMP/coded.ini" --resume --detach >"$TMP/out" 2>&1 || fail "goes on once more: $(cat "$TMP/out")"
grep -q '^mask.rate = 0.7, as it was set' "$TMP/out" || fail "says $(cat "$TMP/out")"
[ "$(kedge get coded mask.rate)" = 0.7 ] || fail "mask.rate is $(kedge get coded mask.rate)"
kedge stop coded >/dev/null || fail "stop"
nothing_left coded || fail "at the end"

# Without --resume it is another run, and the sets are out of its way.
kedge run "$TMP/coded.ini" --detach >"$TMP/out" 2>&1 || fail "a new run: $(cat "$TMP/out")"
kedge stop coded >/dev/null
refuses "a run without sets" --resume 'has no set'
