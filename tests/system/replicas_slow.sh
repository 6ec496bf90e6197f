#!/bin/sh
# A road between siblings that is too slow for the overlap: who waits for whom is said in words, the rounds go on and agree.
# seconds: 120
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have read who waits"

# A fragment of some 26 kB takes 0.2 s.
profile slow run.steps=30 pipeline.stages=1 boundary.codec=dense replicas.count=2 sync.every=12 sync.overlap=0 link.slow_rate=1Mbit
kedge run "$TMP/slow.ini" --headless >"$TMP/out" 2>&1 || fail "$(cat "$TMP/out")"
kedge events slow --json >"$TMP/events"
json '"\n".join(e["source"] + ": " + e["text"] for e in j["events"] if e["code"] == "sync-wait")' <"$TMP/events" >"$TMP/waits"
grep -Eq '^r([01])s0: stage 0 of replica \1 waited for replica [01], round [0-9]+, [0-9]+\.[0-9] s' "$TMP/waits" || fail "nobody says that it waited: $(cat "$TMP/events")"
grep -q '"drift"' "$TMP/events" && fail "$(cat "$TMP/events")"
grep -q 'rounds of 1 stages ended with the same weights' "$TMP/events" || fail "rounds were not compared: $(cat "$TMP/events")"
nothing_left slow || fail "after slow"
exit 0
