#!/bin/sh
# A deadline or a budget ends the run in good order; without scheduler and console the hosts hold it by themselves, and so they do a budget. A host that
# is told to stop without a scheduler does so after a lease.
# seconds: 240
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have watched a deadline"

no_process() { [ -z "$(pids_of "$1")" ]; }

profile soon run.steps=100000 run.timeout=1s run.deadline=6s
kedge run "$TMP/soon.ini" --headless >"$TMP/out" 2>&1
[ $? = 1 ] && grep -q "deadline or budget is used up" "$TMP/out" || fail "a deadline: $(cat "$TMP/out")"
nothing_left soon || fail "after the deadline"
is_phase soon stopped || fail "the record says $(phase_of soon)"

# 1 in an hour for both: a budget of 0.002 is 7.2 s.
profile paid run.steps=100000 run.timeout=1s run.budget=0.002 host.a.price_per_hour=0.4 host.b.price_per_hour=0.6
kedge run "$TMP/paid.ini" --detach >"$TMP/out" 2>&1 || fail "run: $(cat "$TMP/out")"
kill -9 "$(cut -d' ' -f1 "$(run_folder paid)/kedged.lock")"
[ -n "$(pids_of paid)" ] || fail "nothing lives after kedged was killed"
wait_for 30 no_process paid || fail "the hosts do not hold the budget: $(pids_of paid)"
grep -q "stops: the run's deadline or budget is used up" "$(run_folder paid)/log/agent@a.log" || fail "agent: $(cat "$(run_folder paid)/log/agent@a.log")"

# Bytes are counted, too: no host has an hourly price, and so none keeps it by itself.
profile bytes run.steps=1000000 run.timeout=1s run.budget=0.5 host.a.price_per_gb_up=1000
kedge run "$TMP/bytes.ini" --headless >"$TMP/out" 2>&1
[ $? = 1 ] && grep -q "deadline or budget is used up" "$TMP/out" || fail "a budget for bytes: $(cat "$TMP/out")"
spent=$(kedge status bytes --json | json '0.5 <= j["spent"] < 5 and j["spend_per_hour"] is None and sum(l["sent_bytes"] for l in j["links"] if l["from"] == "r0s0") / 1e6 - j["spent"] < 1e-6')
[ "$spent" = True ] || fail "what was spent: $(kedge status bytes --json | json 'j["spent"]')"
kedge status bytes | grep -q "^spent " || fail "kedge status does not say what was spent"
nothing_left bytes || fail "after the budget"

profile lost run.steps=100000 run.timeout=500ms run.without_scheduler=stop
kedge run "$TMP/lost.ini" --detach >"$TMP/out" 2>&1 || fail "run: $(cat "$TMP/out")"
kill -9 "$(cut -d' ' -f1 "$(run_folder lost)/kedged.lock")"
sleep 5
[ -n "$(pids_of lost)" ] || fail "it ended before the lease"
wait_for 60 no_process lost || fail "the lease is over, and they live: $(pids_of lost)"
grep -q 'no scheduler for a whole lease, and the profile says to stop' "$(run_folder lost)/log/agent@a.log" || fail "agent: $(cat "$(run_folder lost)/log/agent@a.log")"

profile free run.budget=1
kedge check "$TMP/free.ini" >"$TMP/out" 2>&1
[ $? = 2 ] && grep -q 'means nothing while no host has a price_per_hour or price_per_gb_up' "$TMP/out" || fail "a budget without prices: $(cat "$TMP/out")"
exit 0
