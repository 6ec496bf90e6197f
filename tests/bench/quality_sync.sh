#!/bin/sh
# What synchronisation costs in quality and what it saves in bytes: real replicas of one stage each on the configuration of our research
# prototype (a byte-level Llama of 2.3 M parameters, pre-trained elsewhere, adapted to grade-school maths; two replicas, 192 steps of
# 1024 tokens each, H 24, 3 fragments, overlap 2, merge .5, outer .7/.9), and with the defaults of [sync]. Each line is one run:
#
#   name, un-masked loss of the test windows before / at a quarter / half / three quarters / after the last full exchange (mean of the replicas),
#   bytes a step and sibling without that exchange, most bytes in a second, how many times fewer bits than averaging fp32 gradients
# Then bytes alone, by the counters of two runs of 100 and of 300 tiny steps with H = 100: their difference is two periods of all fragments.
#
# usage: quality_sync.sh [NAME...]: only these rows. `make bench` leaves this one out: it takes ten minutes on two cores.
# STEPS, WINDOWS, REPLICAS: another number of steps, of test windows, of replicas.
set -eu
O=${O:-build}
data=${DATA:-../shared/data}
steps=${STEPS:-192} windows=${WINDOWS:-768} replicas=${REPLICAS:-2}
for file in gsm8k_train.jsonl gsm8k_test.jsonl base-mild/model.safetensors; do
    [ -r "$data/$file" ] || { echo "$data/$file is not here: nothing to adapt, nothing measured"; exit 77; }
done
command -v python3 >/dev/null || { echo "python3 is not here to read JSON"; exit 77; }
case $O in /*) ;; *) O=$PWD/$O ;; esac
folder=$(mktemp -d "${TMPDIR:-/tmp}/kedge-quality.XXXXXX")
trap '"$O/kedge" stop --now quality >/dev/null 2>&1; rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
export XDG_STATE_HOME="$folder/state" XDG_CONFIG_HOME="$folder/config"

# Training text, then test text; the share of the latter, exactly.
share=$(python3 - "$data" "$folder/text.txt" <<'PYTHON'
import json, sys
def text(name):
    rows = (json.loads(line) for line in open(sys.argv[1] + '/' + name, encoding='utf-8'))
    return b''.join((row['question'] + '\n' + row['answer'] + '\n\n').encode() for row in rows)
train, test = text('gsm8k_train.jsonl')[1766626:], text('gsm8k_test.jsonl')
open(sys.argv[2], 'wb').write(train + test)
print(repr(len(test) / len(train + test)))
PYTHON
)

# profile [SECTION.KEY=VALUE...] : of a run called quality; without a VALUE the key is what it is by default
profile() {
    cat >"$folder/quality.ini" <<END
[run]
name = quality
seed = 1
steps = $steps
[model]
path = $(cd "$data" && pwd)/base-mild
[data]
path = $folder/text.txt
validation = $share
validation_windows = $windows
[train]
sequence = 128
micro_batch = 8
micro_batches = 1
learning_rate = 0.001
warmup = 20
evaluate_every = $((steps / 4))
[pipeline]
stages = 1
[boundary]
codec = dense
[replicas]
count = $replicas
[sync]
every = 24
fragments = 3
overlap = 2
merge = 0.5
outer_rate = 0.7
outer_momentum = 0.9
END
    for host in $(seq "$replicas"); do printf '[host h%s]\nthreads = 1\n' "$host" >>"$folder/quality.ini"; done
    for change in "$@"; do
        section=${change%%.*} key=${change%%=*} value=${change#*=}
        key=${key#*.}
        sed -i "/^\[$section\]/,/^\[/{/^$key *=/d}" "$folder/quality.ini"
        [ -z "$value" ] || sed -i "s/^\[$section\]/&\n$key = $value/" "$folder/quality.ini"
    done
}
run() {
    "$O/kedge" run "$folder/quality.ini" --headless >"$folder/out" 2>&1 || { cat "$folder/out" >&2; exit 1; }
    "$O/kedge" decode "$XDG_STATE_HOME/kedge/quality/run.db" >"$folder/journal"
}
# Without the exchange at the end: a full one, in bf16. Lane sync of one direction.
report() {
    python3 - "$folder/journal" "$1" "$2" <<'PYTHON'
import re, sys
name, full = sys.argv[2], sys.argv[3] == 'full'
losses, sent, parameters, steps = {}, {}, 0, 0
for line in open(sys.argv[1]):
    if line.startswith('samples '):
        row = dict(re.findall(r'(\w+)=("[^"]*"|\S+)', line))
        if row['kind'] == '1' and row['process'] == '"r0s0"':
            losses[int(row['step'])] = float(row['loss'])
        steps = max(steps, int(row['step']))
    elif line.startswith('road_samples '):
        row = dict(re.findall(r'(\w+)=("[^"]*"|\S+)', line))
        if row['lane'] == '2' and row['process'] == '"r0s0"' and row['peer'] == '"r1s0"':
            sent[int(row['wall_ms'])] = int(row['sent_bytes'])
    elif line.startswith('events '):
        found = re.search(r'r0s0 on host \S+ holds .*: (\d+) parameters', line)
        parameters = int(found.group(1)) if found else parameters
        if 'drift' in line or 'round-skipped' in line:
            sys.exit(name + ': ' + line)
times = sorted(sent)
total = sent[times[-1]] - (0 if full else 2 * parameters)
most = max([sent[b] - sent[a] for a, b in zip(times, times[1:]) if full or sent[b] <= total] + [0])
print('%s,%s,%d,%d,%.1f' % (name, ','.join('%.4f' % losses[s] for s in sorted(losses)), total / steps, most, 4 * parameters * steps / total))
PYTHON
}
row() { # NAME full|rest SETTINGS...
    [ -z "$wanted" ] || case " $wanted " in *" $1 "*) ;; *) return 0 ;; esac
    name=$1 kind=$2
    shift 2
    profile "$@"
    run
    report "$name" "$kind"
}

wanted="$*"
echo "name,loss_0,loss_1_4,loss_2_4,loss_3_4,loss_end,bytes_step,most_bytes_second,times_fewer_bits_than_fp32_gradients"
row ddp_fp32 full sync.every=1 sync.fragments=1 sync.overlap=0 sync.outer=none sync.payload=fp32
row diloco_fp32 rest sync.payload=fp32 sync.table=payload
row diloco_int4 rest sync.payload=int4 sync.table=payload
row diloco_e3m0 rest sync.payload=e3m0 sync.table=payload
row powersgd_8 rest sync.payload=powersgd sync.rank=8 sync.table=bf16
row powersgd_16 rest sync.payload=powersgd sync.rank=16 sync.table=bf16
row powersgd_8_alternating rest sync.payload=powersgd sync.rank=8 sync.table=bf16 sync.power=alternating
row powersgd_16_alternating rest sync.payload=powersgd sync.rank=16 sync.table=bf16 sync.power=alternating
row defaults rest sync.every= sync.fragments= sync.overlap= sync.merge= sync.outer_rate= sync.outer_momentum=

sent() { # SETTINGS... : bytes of lane sync in one direction, in all
    profile train.micro_batch=1 train.sequence=16 train.evaluate_every=0 data.validation_windows=1 sync.every=100 "$@"
    run
    "$O/kedge" links quality --json | python3 -c 'import json, sys
print([l["sent_bytes"] for l in json.load(sys.stdin)["links"] if l["lane"] == "sync" and l["from"] == "r0s0"][0])'
}
bytes_row() { # NAME SETTINGS...
    [ -z "$wanted" ] || case " $wanted " in *" $1 "*) ;; *) return 0 ;; esac
    name=$1
    shift
    steps=100
    short=$(sent "$@")
    steps=300
    long=$(sent "$@")
    parameters=$(sed -n 's/.*r0s0 on host .*: \([0-9]*\) parameters in.*/\1/p' "$folder/journal" | head -n 1)
    python3 -c "print('%s,%d,%.1f' % ('$name', ($long - $short) / 200, 4 * $parameters * 200 / ($long - $short)))"
}
echo "name,bytes_step,times_fewer_bits_than_fp32_gradients"
bytes_row h100_int4 sync.payload=int4 sync.table=payload
bytes_row h100_e3m0 sync.payload=e3m0 sync.table=payload
bytes_row h100_defaults
for rank in 4 8 16 64; do
    bytes_row h100_powersgd_$rank sync.payload=powersgd sync.rank=$rank sync.table=payload
    bytes_row h100_powersgd_${rank}_alternating sync.payload=powersgd sync.rank=$rank sync.table=payload sync.power=alternating
done
