#!/bin/sh
# Does anybody wait for an anchor that stands still, is slow or dead, and what does its traffic cost the fast loop? One run over a road of
# 16 Mbit/s, shaped by the kernel and shared by activations, gradients and snapshots; in turns of some 80 steps its anchor goes, is stopped
# (SIGSTOP), recovers, goes, is slowed a hundred times (2 ms out of 200), recovers; then it is killed twice, with nobody to start another until
# the turn is over. All turns lie in one run, so that whatever else the machine does hits all kinds alike. Each stage has a processor and the
# anchor what both leave idle, since the question is who waits for whom, not who takes whose processor; where it is permitted, idle processors
# stay awake, or they would be the slower to wake the less there is to do. Steps are small (RATE, the learning rate), so that a difference is
# as large as in fine-tuning. Prints CSV: medians and means of a step, and their ratios to the turns in which the anchor goes; the control is
# one half of these against the other and says below what ratios mean nothing.
#
#   ROUNDS=N (6) of six turns each, TURN=SECONDS (2.5) of one, RATE=X (0.00002); on a machine that others use too: chrt -f 5 sh tests/bench/bench.sh anchor
# seconds: 300
. tests/system/lib/common.sh
have_json && command -v taskset >/dev/null && command -v chrt >/dev/null || skip "python3, taskset or chrt is not here"
if { exec 9>/dev/cpu_dma_latency; } 2>/dev/null; then printf '\0\0\0\0' >&9; else echo "idle processors sleep: no right to keep them awake"; fi
in_network 16mbit || skip "no network namespace with a shaped interface is permitted here"
profile waits run.steps=1000000 run.timeout=20s train.micro_batches=4 train.learning_rate="${RATE:-0.00002}" train.schedule=constant \
    link.slow_delay=10ms model.hidden=128 model.ffn=256 anchor.host=c anchor.every=20 anchor.staleness=20 anchor.limit=200 anchor.rank=8 \
    anchor.evaluate=no anchor.lifeboat=no anchor.mix=0
printf '\n[host c]\nkind = local\nthreads = 1\n' >>"$TMP/waits.ini"
used() { [ "$(kedge anchor waits --json | json 'j["anchor"]["used"] is not None')" = True ]; }
first=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//') last=$(taskset -cp $$ | sed 's/.*[-, ]//')
[ "$first" != "$last" ] || echo "one processor for all of it: stages take time away from each other"
kedge run "$TMP/waits.ini" --detach >"$TMP/out" 2>&1 || fail "$(cat "$TMP/out")"
wait_for 60 used || fail "nothing is used: $(kedge anchor waits) $(kedge events waits)"
taskset -apc "$first" "$(pid_of waits r0s0)" >/dev/null
taskset -apc "$last" "$(pid_of waits r0s1)" >/dev/null
chrt -a -i -p 0 "$(pid_of waits anchor)"

# turns FILE PID SECONDS KIND… : one kind after the other; FILE gets kind, begin and end of each, by the wall clock in ns
turns() {
    python3 - "$@" <<'PYTHON'
import os, signal, sys, time
path, pid, seconds, kinds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]
with open(path, 'a') as out:
    for kind in kinds:
        os.kill(pid, signal.SIGCONT if kind in ('goes', 'recovers') else signal.SIGSTOP)
        begin, end = time.time_ns(), time.monotonic() + seconds
        while kind == 'slowed' and time.monotonic() < end - 0.2:
            time.sleep(0.198)
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.002)
            os.kill(pid, signal.SIGSTOP)
        time.sleep(max(0, end - time.monotonic()))
        print(kind, begin, time.time_ns(), file=out)
    os.kill(pid, signal.SIGCONT)
PYTHON
}
kinds=
for round in $(seq "${ROUNDS:-6}"); do kinds="$kinds goes stopped recovers goes slowed recovers"; done
turn=${TURN:-2.5}
turns "$TMP/turns" "$(pid_of waits anchor)" "$turn" $kinds
agent=$(pid_of waits agent@c)
for round in 1 2; do
    kill -STOP "$agent" # nobody starts another
    kill -KILL "$(pid_of waits anchor)"
    begin=$(date +%s%N)
    sleep "$(awk "BEGIN { print 2 * $turn }")"
    echo "killed $begin $(date +%s%N)" >>"$TMP/turns"
    kill -CONT "$agent"
    again() { new=$(pid_of waits anchor) && [ "$new" -gt 0 ] 2>/dev/null && lives "$new"; }
    wait_for 60 again || fail "no anchor took the place of the dead one: $(kedge events waits)"
    chrt -a -i -p 0 "$new"
    turns "$TMP/turns" "$new" "$turn" recovers goes goes
done
sleep 2
kedge anchor waits --json | json '"snapshots %d, newest used after %.0f steps" % (j["anchor"]["snapshots"], j["anchor"]["staleness_steps"])' >"$TMP/said"
kedge stop waits >/dev/null
python3 - "$(run_folder waits)/run.db" "$TMP/turns" "$(cat "$TMP/said")" <<'PYTHON'
import sqlite3, statistics, sys
path, turns, said = sys.argv[1:]
db = sqlite3.connect(f'file:{path}?mode=ro', uri=True)
steps = db.execute("select began_wall_ns, step_ns from samples where kind = 0 and process = 'r0s1' order by step").fetchall()
kinds, going = {}, 0
for line in open(turns):
    kind, begin, end = line.split()
    times = [ns / 1e6 for began, ns in steps if began > int(begin) + 200_000_000 and began + ns < int(end)]
    kinds.setdefault(kind, []).extend(times)
    if kind == 'goes': # two halves that lie among each other
        kinds.setdefault('goes, one half' if going % 2 else 'goes, other half', []).extend(times)
        going += 1
print('anchor,steps,median_ms,mean_ms,median_ratio,mean_ratio')
def row(name, of, beside):
    a, b = kinds.get(of), kinds.get(beside)
    if a and b:
        median, mean = statistics.median(a), statistics.fmean(a)
        print(f'{name},{len(a)},{median:.3f},{mean:.3f},{median / statistics.median(b):.4f},{mean / statistics.fmean(b):.4f}')
row('goes', 'goes', 'goes')
row('goes (control: its halves)', 'goes, one half', 'goes, other half')
for kind in ('stopped', 'slowed', 'killed', 'recovers'):
    row(kind, kind, 'goes')
row('goes beside no snapshots (stopped)', 'goes', 'stopped')
print(said)
PYTHON
