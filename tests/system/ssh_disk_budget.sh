#!/bin/sh
# A host's disk_budget: what would go beyond it is refused by kedge check and by a start, before the first byte is sent; what the run has
# there is seen against it; what grows above it is an event, and weights are not written until there is room again.
# seconds: 200
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh

MIB=1048576
host one 127.0.0.2
host two 127.0.0.3
profile far run.timeout=10s run.steps=1000000
use_host "$TMP/far.ini" a one
use_host "$TMP/far.ini" b two
of_b() { json '[h["'"$1"'"] for h in j["hosts"] if h["host"] == "b"][0]' <"$TMP/json"; }
sent_to_two() { find "$TMP/ssh/two/home/.local/share" -type f 2>/dev/null; }

# Too little for the programs: nothing of them is sent, and the sentence has the remedy.
set_key "$TMP/far.ini" host.b.disk_budget 2MiB
kedge check "$TMP/far.ini" >"$TMP/out" 2>&1
[ $? = 1 ] && grep -q '^b: kedge has 0 B there, .* would be sent, and the run would write up to .*: more than its disk_budget of 2.0 MiB; raise that, or' "$TMP/out" ||
    fail "check with a small budget: $(cat "$TMP/out")"
kedge run "$TMP/far.ini" --detach >"$TMP/out" 2>&1 && fail "it starts beyond its budget"
grep -q '^kedge: host b: kedge has .* there, .* would be sent: more than its disk_budget of 2.0 MiB; raise that' "$TMP/out" || fail "run with a small budget: $(cat "$TMP/out")"
[ -z "$(sent_to_two)" ] && ! grep -q '^b: sending' "$TMP/out" || fail "something was sent: $(sent_to_two)"

# More than is free.
set_key "$TMP/far.ini" host.b.disk_budget 1000TiB
kedge check "$TMP/far.ini" >"$TMP/out" 2>&1
[ $? = 1 ] && grep -q '^b: kedge may have 1000.0 TiB of its disk (disk_budget) and has .*, but only .* are free: lower the budget' "$TMP/out" || fail "a budget above the disk: $(cat "$TMP/out")"

# As much as the check says, and 8 MiB more for what time brings.
set_key "$TMP/far.ini" host.b.disk_budget 2GiB
kedge check "$TMP/far.ini" --json >"$TMP/json" 2>&1 || fail "check: $(cat "$TMP/json")"
[ "$(of_b disk_used_bytes)" -lt $MIB ] && [ "$(of_b disk_budget_bytes)" = $((2048 * MIB)) ] || fail "JSON says $(cat "$TMP/json")"
budget=$(($(of_b disk_needed_bytes) + 8 * MIB))
set_key "$TMP/far.ini" host.b.disk_budget "$budget"
kedge plan "$TMP/far.ini" | grep -q '^Host b: up to .* for logs and weights, of the .* that kedge$' || fail "the plan does not say what the run writes"
kedge run "$TMP/far.ini" --detach >"$TMP/out" 2>&1 || fail "run within its budget: $(cat "$TMP/out")"
[ -n "$(sent_to_two)" ] || fail "nothing was sent"
wait_for 60 step_reached far 2 || fail "does not train: $(kedge status far)"
shown() { kedge hosts far --json >"$TMP/json" && [ "$(of_b disk_bytes)" = "$budget" ] && [ "$(of_b disk_free_bytes)" -lt "$budget" ]; }
wait_for 30 shown || fail "hosts does not show the budget: $(cat "$TMP/json")"
kedge checkpoint far >"$TMP/out" 2>&1 || fail "weights within the budget: $(cat "$TMP/out")"

# Something of kedge's grows above it: that is said, the weights are refused with the reason, the older set stays, and training goes on.
sets() { ls "$(run_folder far)/checkpoint"/*/manifest.json | wc -l; }
before=$(sets)
head -c "$budget" /dev/urandom >"$TMP/ssh/two/home/.local/share/kedge/filler" || fail "no room for the test"
events_of() { kedge events far --json | json '"\n".join(e["level"] + " " + e["code"] + " " + e["source"] + ": " + e["text"] for e in j["events"])'; }
happened() { events_of | grep -q "$1"; }
wait_for 60 happened '^warn disk-budget agent@b: kedge has .* on host b, above its disk_budget of .*: no weights are written there until it has less' || fail "no event: $(events_of)"
kedge checkpoint far >"$TMP/out" 2>&1 && fail "weights were written beyond the budget"
happened '^alert checkpoint kedged: the weights after step .* are not saved, older sets stay: r0s1 on host b: kedge has .* above its disk_budget' || fail "no reason: $(events_of)"
[ "$(sets)" = "$before" ] || fail "another set, or one less: $(sets)"
at=$(step_of far)
wait_for 60 step_reached far $((at + 2)) || fail "does not go on: $(kedge status far)"
rm "$TMP/ssh/two/home/.local/share/kedge/filler"
wait_for 60 happened '^info disk-budget agent@b: kedge has .* within its disk_budget of .* again' || fail "no second event: $(events_of)"
kedge checkpoint far >"$TMP/out" 2>&1 || fail "no weights when there is room again: $(cat "$TMP/out")"

# What is there already is not sent again, and so counts once.
kedge stop far >"$TMP/out" 2>&1 || fail "stop: $(cat "$TMP/out")"
kedge check "$TMP/far.ini" --json >"$TMP/json" 2>&1 || fail "check again: $(cat "$TMP/json")"
[ "$(of_b disk_used_bytes)" -gt 0 ] && [ "$(of_b disk_needed_bytes)" -lt "$budget" ] || fail "counts what is there: $(cat "$TMP/json")"
nothing_left far && nothing_on "one two" far || fail "something is left"
exit 0
