#!/bin/sh
# A change that the run does not bear goes back by itself, with nobody looking: kedged does it, writes it down, and does it all the same when it
# was killed in between; a change that is borne stays.
# seconds: 180
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have read the ledger"

holder() { cut -d ' ' -f 1 "$(run_folder sea)/$1.lock"; }
profile sea run.steps=1000000 train.micro_batches=2 link.slow_delay=5ms
kedge run "$TMP/sea.ini" --detach >"$TMP/out" 2>&1 || fail "the run: $(cat "$TMP/out")"
value() { kedge get sea "$1"; }
is() { [ "$(value "$1")" = "$2" ]; }
# ledger EXPRESSION : over the rows r
ledger() { kedge get sea --json | json '[r for r in j["ledger"] if '"$1"']'; }
has() { [ "$(ledger "$1")" != "[]" ] && [ -n "$(ledger "$1")" ]; }
said() { kedge events sea | grep -q "$1"; }

# ---- off by default ----
wait_for 60 step_reached sea 20 || fail "no steps: $(kedge status sea)"
kedge set sea mask.rate=0.94 >"$TMP/set" 2>&1 || fail "$(cat "$TMP/set")"
has 'r["watched_until"]' && fail "watched, and nobody asked: $(kedge get sea)"

# ---- what is borne stays ----
kedge set sea revert.steps=30 revert.loss=5 revert.norm=1000 >"$TMP/set" 2>&1 || fail "$(cat "$TMP/set")"
grep -q "active" "$TMP/set" || fail "revert.steps: $(cat "$TMP/set")"
kedge set sea mask.rate=0.9 >"$TMP/set" 2>&1 || fail "$(cat "$TMP/set")"
wait_for 60 said "mask.rate stays 0.9" || fail "no word that it stays: $(kedge events sea | tail)"
is mask.rate 0.9 || fail "mask.rate is $(value mask.rate)"
! has 'r["who"] == "auto-revert"' || fail "$(kedge get sea)"

# ---- a learning rate that breaks the model does not stay; kedged dies while it watches ----
before=$(value train.learning_rate)
kedge set sea revert.steps=1000000 revert.loss=0.6 >"$TMP/set" 2>&1 || fail "$(cat "$TMP/set")"
kedge set sea mask.rate=0.91 >"$TMP/set" 2>&1 || fail "$(cat "$TMP/set")" # watched, too: it goes back with it
wait_for 20 has 'r["new"] == "0.91" and r["watched_until"]' || fail "not watched: $(kedge get sea)"
kill -KILL "$(holder kedged)"
at=$(step_of sea)
kedge attach sea --plain >"$TMP/watch" 2>&1 & # starts a kedged that takes the run back
console=$!
wait_for 60 step_reached sea $((at + 5)) || fail "no kedged: $(cat "$TMP/watch")"
kill $console
has 'r["new"] == "0.91" and r["watched_until"]' || fail "the new kedged does not watch: $(kedge get sea)"
kedge set sea train.learning_rate=0.9 >"$TMP/set" 2>&1 || fail "$(cat "$TMP/set")"
wait_for 60 has 'r["who"] == "auto-revert" and r["name"] == "train.learning_rate" and r["state"] == "active"' || fail "it stays: $(kedge get sea) $(kedge events sea | tail -n 20)"
is train.learning_rate "$before" || fail "the learning rate is $(value train.learning_rate), not $before"
wait_for 30 is mask.rate 0.9 || fail "mask.rate is $(value mask.rate): it was being watched, too"
said "above the" || fail "nobody says why: $(kedge events sea | tail -n 20)"
kedge stop sea >"$TMP/out" 2>&1 || fail "$(cat "$TMP/out")"
nothing_left sea || fail "after stop"
exit 0
