#!/bin/sh
# The same profile and seed twice: the same losses and gradient norms at every step, bit for bit (17 digits read back to the same
# double). Another seed: others, so that the comparison can fail.
# seconds: 240
. tests/system/lib/common.sh

# curve NAME SEED : PROCESS STEP KIND LOSS NORM of every sample, sorted
curve() {
    profile "$1" run.seed="$2" run.steps=20 train.evaluate_every=7 boundary.reference=mean boundary.refresh=5
    kedge run "$TMP/$1.ini" --headless >"$TMP/out" 2>&1 || fail "run $1: $(cat "$TMP/out")"
    kedge decode "$(run_folder "$1")/run.db" >"$TMP/journal" || fail "decode"
    sed -n 's/^samples .*step=\([0-9]*\) kind=\([0-9]*\) loss=\([^ ]*\) gradient_norm=\([^ ]*\) .*process="\([^"]*\)".*/\5 \1 \2 \3 \4/p' \
        "$TMP/journal" | sort >"$TMP/$1.curve"
    # Twenty steps of two stages, and the validations at 0, 7, 14 and 20.
    [ "$(grep -c '^r0s1 [0-9]* 0 ' "$TMP/$1.curve")" = 20 ] || fail "not 20 training samples: $(cat "$TMP/$1.curve")"
    [ "$(grep -c '^r0s1 [0-9]* 1 [0-9]' "$TMP/$1.curve")" = 4 ] || fail "not 4 validations: $(cat "$TMP/$1.curve")"
    grep -q '^r0s0 [0-9]* 0 [0-9.]* [0-9]' "$TMP/$1.curve" || fail "no loss and norm at stage 0: $(cat "$TMP/$1.curve")"
}

curve one 7
curve two 7
cmp -s "$TMP/one.curve" "$TMP/two.curve" || fail "two runs differ: $(diff "$TMP/one.curve" "$TMP/two.curve" | head -n 6)"
curve three 8
cmp -s "$TMP/one.curve" "$TMP/three.curve" && fail "another seed gives the same curve"
exit 0
