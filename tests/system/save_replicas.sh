#!/bin/sh
# A set after every step, of replicas that exchange what they learned after every second one: a stage that still waits for its sibling when it
# is to write has the next step's activations from the stage before it already, whose sibling was quicker, and keeps them.
# seconds: 300
. tests/system/lib/common.sh

profile sets run.steps=200 run.timeout=60s replicas.count=2 sync.every=2 sync.fragments=1 sync.overlap=0 checkpoint.every=1 checkpoint.keep=1
timeout 200 "$O/kedge" run "$TMP/sets.ini" --headless >"$TMP/out" 2>&1 || fail "the run: $(cat "$TMP/out") $(kedge status sets)"
nothing_left sets || fail "something is left"
exit 0
