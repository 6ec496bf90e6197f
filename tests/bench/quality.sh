#!/bin/sh
# Quality of what crosses the cuts, on the method's standard configuration: base-mild adapted to grade-school maths, 4 stage processes over real
# roads, 72 steps of 8,192 tokens, judged by the un-masked loss of 768 test windows. One line of CSV a run:
#
#   row, seed, steps, loss before, loss after, bytes a token on the wire (all cuts, both ways, statistics and headers included), share of dense bf16,
#   seconds, range that is expected after 72 steps
#
#   quality.sh [--steps N] [--until N] [--windows N] [--seed N] [--threads N] [ROW…]     without rows: all of them
#
# --until ends each run at a step before its last: the schedule of the learning rate stays that of --steps.
set -eu
O=${O:-build}
case $O in /*) ;; *) O=$PWD/$O ;; esac
data=$PWD/../shared/data
steps=72 until=0 windows=768 seed=1 threads=1
while [ $# -gt 0 ]; do
    case $1 in
    --steps) steps=$2 ;; --until) until=$2 ;; --windows) windows=$2 ;; --seed) seed=$2 ;; --threads) threads=$2 ;;
    *) break ;;
    esac
    shift 2
done
[ -e "$data/base-mild/model.safetensors" ] || { echo "no $data/base-mild: nothing to adapt"; exit 77; }
folder=$(mktemp -d "${TMPDIR:-/tmp}/kedge-quality.XXXXXX")
export XDG_STATE_HOME="$folder/state"
end() {
    for run in "$folder"/state/kedge/*/; do
        [ ! -d "$run" ] || "$O/kedge" stop "$(basename "$run")" >/dev/null 2>&1 || :
    done
    rm -rf "$folder"
}
trap end EXIT
trap 'exit 130' INT TERM

# a.txt is what is trained on, b.txt what judges: the cut between both falls on the end of the file.
python3 - "$data" "$folder" <<'PYTHON'
import json, sys
data, folder = sys.argv[1:]
def text(name):
    rows = map(json.loads, open(f'{data}/{name}', encoding='utf-8'))
    return b''.join((r['question'] + '\n' + r['answer'] + '\n\n').encode() for r in rows)
open(folder + '/a.txt', 'wb').write(text('gsm8k_train.jsonl')[1766626:])
open(folder + '/b.txt', 'wb').write(text('gsm8k_test.jsonl'))
PYTHON

# settings of a row, then the range that is expected
row() {
    anchor='anchor.host=e anchor.every=10 anchor.staleness=20 anchor.rank=192 anchor.mix=0.7 anchor.evaluate=no anchor.lifeboat=no'
    live='boundary.reference=tokens boundary.context=4 boundary.rank=0 boundary.refresh=10'
    case $1 in
    dense) echo 'boundary.codec=dense train.learning_rate=0.001 1.36-1.39' ;;
    subspace) echo "boundary.codec=subspace $live boundary.late=2 boundary.forward_share=0.602 mask.rate=0.9427 train.learning_rate=0.001 1.42-1.47" ;;
    subspace-late) echo "boundary.codec=subspace $live boundary.late=20 boundary.forward_share=0.5 mask.rate=0.9427 train.learning_rate=0.001 1.44-1.51" ;;
    principal) echo "boundary.codec=principal boundary.bits=2 $live boundary.forward_share=0.5 mask.rate=0.9427 train.learning_rate=0.001 -" ;;
    hybrid) echo "boundary.codec=hybrid $live boundary.forward_share=0.5 mask.rate=0.9427 train.learning_rate=0.001 -" ;;
    topk) echo "boundary.codec=topk $live mask.rate=0.9427 train.learning_rate=0.001 -" ;;
    mask-tokens) echo "boundary.codec=mask $live boundary.late=20 mask.rate=0.95 train.learning_rate=0.001 1.57-1.68" ;;
    mask-live) echo "boundary.codec=mask $live boundary.late=2 mask.rate=0.95 train.learning_rate=0.001 -" ;;
    mask-tokens-slow) echo "boundary.codec=mask $live boundary.late=20 mask.rate=0.95 train.learning_rate=0.0003 -" ;;
    mask-tikhonov) echo "boundary.codec=mask $live boundary.late=20 mask.rate=0.95 train.learning_rate=0.0003 $anchor anchor.filter=tikhonov -" ;;
    mask-wiener) echo "boundary.codec=mask $live boundary.late=20 mask.rate=0.95 train.learning_rate=0.0003 $anchor anchor.filter=wiener -" ;;
    mask-shrink) echo "boundary.codec=mask $live boundary.late=20 mask.rate=0.95 train.learning_rate=0.0003 anchor.filter=shrink anchor.rank=192 -" ;;
    subspace-wiener) echo "boundary.codec=subspace $live boundary.late=2 boundary.forward_share=0.602 mask.rate=0.9427 train.learning_rate=0.001 $anchor anchor.filter=wiener -" ;;
    mask-mean) echo 'boundary.codec=mask boundary.reference=mean mask.rate=0.95 train.learning_rate=0.0003 above-1.70' ;;
    *) return 1 ;;
    esac
}
rows='dense subspace subspace-late principal hybrid topk mask-tokens mask-live mask-tokens-slow mask-tikhonov mask-wiener mask-shrink
    subspace-wiener mask-mean'
[ $# -gt 0 ] || set -- $rows

# Is the model of this step evaluated?
evaluated() {
    python3 - "$folder/state/kedge/$1/run.db" "$2" <<'PYTHON'
import sqlite3, sys
db = sqlite3.connect(f'file:{sys.argv[1]}?mode=ro', uri=True, timeout=30)
sys.exit(db.execute('select count(*) from samples where kind = 1 and step >= ?', (int(sys.argv[2]),)).fetchone()[0] == 0)
PYTHON
}

# write_profile NAME SETTING… : each SECTION.KEY=VALUE
write_profile() {
    name=$1
    shift
    python3 - "$folder/$name.ini" "run.name=$name" "run.seed=$seed" "run.steps=$steps" "model.path=$data/base-mild" "data.path=$folder/*.txt" \
        data.validation=0.2467 "data.validation_windows=$windows" train.sequence=128 train.micro_batch=16 train.micro_batches=4 train.warmup=8 \
        train.weight_decay=0.01 train.clip=1 pipeline.stages=4 pipeline.layers=2,1,1,2 "$@" <<'PYTHON'
import sys
sections = {}
for word in sys.argv[2:]:
    name, value = word.split('=', 1)
    section, key = name.split('.', 1)
    sections.setdefault(section, []).append(f'{key} = {value}')
with open(sys.argv[1], 'w') as out:
    for section, lines in sections.items():
        print(f'[{section}]', *lines, sep='\n', file=out)
PYTHON
    hosts='a b c d'
    case " $* " in *" anchor.host=e "*) hosts="$hosts e" ;; esac
    for host in $hosts; do printf '[host %s]\nkind = local\nthreads = %s\n' $host "$threads"; done >>"$folder/$name.ini"
}

echo 'row,seed,steps,loss_before,loss_after,bytes_per_token,share_of_dense,seconds,expected_after_72_steps'
for row in "$@"; do
    settings=$(row "$row") || { echo "no row $row; there are: $rows"; exit 2; }
    expected=${settings##* } settings=${settings% *}
    [ "$until" = 0 ] || settings="$settings train.evaluate_every=$until"
    write_profile "$row" $settings
    began=$(date +%s)
    if [ "$until" = 0 ]; then
        "$O/kedge" run "$folder/$row.ini" --headless >"$folder/out" 2>&1 || { cat "$folder/out"; exit 1; }
    else
        "$O/kedge" run "$folder/$row.ini" --detach >"$folder/out" 2>&1 || { cat "$folder/out"; exit 1; }
        until evaluated "$row" "$until"; do sleep 1; done
    fi
    "$O/kedge" stop "$row" >/dev/null 2>&1 || :
    python3 - "$folder/state/kedge/$row/run.db" "$row" "$seed" "$until" "$steps" $(($(date +%s) - began)) "$expected" <<'PYTHON'
import sqlite3, sys
path, row, seed, until, steps, seconds, expected = sys.argv[1:]
db = sqlite3.connect(path)
losses = db.execute('select loss from samples where kind = 1 order by step').fetchall()
trained = db.execute('select max(step) from samples where kind = 0').fetchone()[0]
roads = db.execute("select max(sent_bytes), max(evaluation_bytes), max(dense_bytes) from road_samples where lane = 1 group by process, peer").fetchall()
sent = sum(a - b for a, b, _ in roads)
print(f'{row},{seed},{trained},{losses[0][0]:.4f},{losses[-1][0]:.4f},{sent / trained / 8192:.1f},{sent / sum(c for _, _, c in roads):.4f},'
      f'{seconds},{expected}', flush=True)
PYTHON
done
