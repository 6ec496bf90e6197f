#!/bin/sh
# What travels at a mask rate of 95 % is K/H (within 1 %) of what a dense bf16 run sends, plus at most 2 % for frame headers, token ids
# and stamps: by the counters of the links, and by the kernel's counters of the interface in a network namespace of its own,
# where nothing but this run is on the road.
# seconds: 300
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have counted the bytes of two runs"

inside=
if in_network; then inside=1; fi

H=512 K=26 # K = (1 - 0.95) H + 1/2, rounded down

act_bytes() { kedge links "$1" --json | json 'sum(l["sent_bytes"] for l in j["links"] if l["lane"] == "act")'; }
interface_bytes() { awk '{ sub(/^ */, "") } /^lo:/ { sub(/^lo: */, ""); print $9 }' /proc/net/dev; }
now_ms() { echo $(($(date +%s%N) / 1000000)); }
# Heartbeats and counters for the screen go by the clock, not by the step: on a slow machine a step has many of them. What a paused
# run sends in a second is taken off for the time that the steps took.
idle_bytes_a_second() {
    before=$(interface_bytes) since=$(now_ms)
    sleep 5
    echo $((($(interface_bytes) - before) * 1000 / ($(now_ms) - since)))
}

# Paused at a step boundary nothing is under way, so that what is counted is of whole steps. The step that was under way goes to its
# end first, and counters come once a second: quiet is what has not changed for twice as long as a step takes.
settle() {
    kedge pause "$1" >/dev/null || fail "pause"
    last= quiet_since=$(now_ms)
    until [ $(($(now_ms) - quiet_since)) -gt $((2 * step_ms + 3000)) ]; do
        now=$(act_bytes "$1")
        [ "$last" = "$now" ] || last=$now quiet_since=$(now_ms)
        sleep 1
    done
}

# count NAME CODEC : bytes a step, by link counters and by the interface's
count() {
    # A long base time: heartbeats, which have nothing to do with what is trained, are few then.
    profile "$1" run.timeout=60s run.steps=100000 model.hidden=$H model.layers=2 model.heads=4 model.kv_heads=2 model.ffn=256 boundary.codec="$2" \
        train.sequence=128 train.micro_batch=8 train.micro_batches=4
    kedge run "$TMP/$1.ini" --detach >"$TMP/out" 2>&1 || fail "run: $(cat "$TMP/out")"
    began=$(now_ms)
    wait_for 60 step_reached "$1" 3 || fail "no step was trained: $(kedge status "$1")"
    step_ms=$((($(now_ms) - began) / 3))
    settle "$1"
    idle=$(idle_bytes_a_second)
    step=$(step_of "$1") link=$(act_bytes "$1") interface=$(interface_bytes) since=$(now_ms)
    kedge resume "$1" >/dev/null || fail "resume"
    wait_for 90 step_reached "$1" $((step + 10)) || fail "no ten steps: $(kedge status "$1")"
    settle "$1"
    steps=$(($(step_of "$1") - step)) link=$(($(act_bytes "$1") - link)) interface=$(($(interface_bytes) - interface))
    interface=$((interface - idle * ($(now_ms) - since) / 1000))
    echo "$steps $((link / steps)) $((interface / steps))" >"$TMP/$1.bytes"
    kedge stop "$1" >/dev/null || fail "stop"
}

count dense dense
count mask mask
read -r dense_steps dense_link dense_interface <"$TMP/dense.bytes"
read -r mask_steps mask_link mask_interface <"$TMP/mask.bytes"
within() { # of WHAT MASKED DENSE
    awk -v m="$2" -v d="$3" -v k=$K -v h=$H 'BEGIN { r = m / d * h / k; printf "%.4f of K/H\n", r; exit !(r >= 0.99 && r <= 1.03) }' >"$TMP/ratio" ||
        fail "$1: $2 bytes a step masked, $3 dense: $(cat "$TMP/ratio") (steps: $mask_steps, $dense_steps)"
}
within "link counters" "$mask_link" "$dense_link"
[ -n "$inside" ] || skip "no network namespace is permitted here; the kernel's counters would have been compared too (the links' are right)"
within "interface counters" "$mask_interface" "$dense_interface"
cat "$TMP/ratio"
