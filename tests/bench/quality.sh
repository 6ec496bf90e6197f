#!/bin/sh
# What a way of training costs in quality, at bytes that are counted on the wire: base-mild adapted to grade-school maths, 4 stage processes
# (layers 2,1,1,2, three cuts) and an anchor where a row has one, over real roads; 72 steps of 8,192 tokens; judged by the un-masked loss of
# 768 test windows. One line of CSV a run, then the mean over seeds where there are several:
#
#   row, cuts, seed, steps, loss_before, loss_after, cut_bytes: of a token over all cuts, both ways, statistics of the stages and headers
#   included, anchor_bytes: of a token, snapshots out, directions and statistics back, share_of_dense: both together of a dense bf16 exchange,
#   seconds, expected_after_72_steps
#
#   quality.sh [OPTION VALUE]… [ROW…]
#
# Without rows it is the whole table with three seeds, in less than 40 minutes on two quiet processors: the two headlines, the paper's own
# (mask+anchor+tikhonov) and ours (entropy-lean), between dense and last, in whole runs; ours and last through five cuts; all the others in
# runs of 20 steps with an anchor that is as much quicker.
#
#   --steps N     length of the run (72)             --until N    stop there; the schedule of the learning rate stays (0: at the end)
#   --seeds LIST  one run each, as in 1,2,3 (1)      --windows N  of the test text (768)
#   --rate R      learning rate (0.001)              --batches N  micro-batches of 2,048 tokens in a step (4)
#   --every N     steps between snapshots (10)       --staleness N  to the first use of what comes of them (20)
#   --threads N   compute threads of a process (1)   --cuts N     1, 3 or 5 of the model's six layers (3)
#   --judge TEXT  test, or validation: as many windows of the text between those of the test, for whoever chooses settings
#   --set SECTION.KEY=VALUE   one more setting, over what the rows say; may be given again
#
# A row is BASE[+anchor][+FILTER]: what crosses the cuts; statistics of the cuts by the anchor instead of live; gradients corrected by tikhonov,
# wiener, shrink, align, or with the anchor's own gradient (gradient). Bases: dense, int8, int4, last (dense, and only the last stage is
# trained), mask, mask-unbiased and mask-rms (the other gains), mask-mmse (with MMSE decoding), mask-int4 and mask-int4-mmse (more channels in
# as many bytes), mask-late, mask-mean, topk, principal, hybrid, subspace, subspace-late, entropy, entropy-lean (all that it sends is 1/17 of
# dense). anchor-gradient-only trains with whole gradients of the anchor and nothing else once there are any. Two more tables: `accept`, the rows
# that the prototype has ranges for; `robust`, the paper's with one thing different: stale-N, every-N, rate-N (per cent), death (the anchor
# ends half way, for good), live (mask.rate 0.9 from half way on, then 0.98).
set -eu
O=${O:-build}
case $O in /*) ;; *) O=$PWD/$O ;; esac
data=$PWD/../shared/data
steps=72 until=0 windows=768 seeds=1 rate=0.001 batches=4 every=10 staleness=20 threads=1 cuts=3 judge=test more= given=
while [ $# -gt 0 ]; do
    case $1 in
    --steps | --until | --windows | --seeds | --rate | --batches | --every | --staleness | --threads | --cuts | --judge) eval "${1#--}=\$2" ;;
    --set) more="$more $2" ;;
    *) break ;;
    esac
    given="$given $1 $2"
    shift 2
done
headlines='dense last entropy-lean mask+anchor+tikhonov'
others='dense int8 int4 last mask mask-unbiased mask-rms mask-mmse mask-int4 mask-int4-mmse topk principal hybrid subspace entropy
    mask+anchor topk+anchor principal+anchor hybrid+anchor subspace+anchor entropy+anchor
    mask+shrink mask+anchor+tikhonov mask+anchor+wiener mask+anchor+align
    entropy+shrink entropy+anchor+tikhonov entropy+anchor+wiener anchor-gradient-only'
accept='dense last subspace subspace-late mask-late mask-mean'
[ -n "${HEADED:-}" ] || echo 'row,cuts,seed,steps,loss_before,loss_after,cut_bytes,anchor_bytes,share_of_dense,seconds,expected_after_72_steps'
export HEADED=yes
if [ $# = 0 ]; then # what is given overrides what the table says
    sh "$0" --seeds 1,2,3 $given $headlines
    sh "$0" --seeds 1,2,3 --cuts 5 $given last entropy-lean
    exec sh "$0" --seeds 1,2,3 --steps 20 --every 4 --staleness 8 --windows 384 $given $others
fi
case $cuts in
1) layers=3,3 frozen=3 letters='a b' ;;
3) layers=2,1,1,2 frozen=4 letters='a b c d' ;;
5) layers=1,1,1,1,1,1 frozen=5 letters='a b c d e f' ;;
*) echo "--cuts $cuts: 1, 3 or 5"; exit 2 ;;
esac
case $judge in test | validation) ;; *) echo "--judge $judge: test or validation"; exit 2 ;; esac
[ -e "$data/base-mild/model.safetensors" ] || { echo "no $data/base-mild: nothing to adapt"; exit 77; }
folder=$(mktemp -d "${TMPDIR:-/tmp}/kedge-quality.XXXXXX")
export XDG_STATE_HOME="$folder/state"
stopped= # an agent that is kept from starting another anchor
end() {
    [ -z "$stopped" ] || kill -CONT "$stopped" 2>/dev/null || :
    for run in "$folder"/state/kedge/*/; do
        [ ! -d "$run" ] || "$O/kedge" stop --now "$(basename "$run")" >/dev/null 2>&1 || :
    done
    rm -rf "$folder"
}
trap end EXIT
trap 'exit 130' INT TERM

# a.txt is what is trained on, b.txt what judges: the cut between both falls on the end of the file. Windows begin at the same places of it
# whatever the text; turned by half the way from one to the next, all that is between them comes under them.
python3 - "$data" "$folder" "$judge" "$windows" <<'PYTHON'
import json, sys
data, folder, judge, windows = sys.argv[1:]
def text(name):
    rows = map(json.loads, open(f'{data}/{name}', encoding='utf-8'))
    return b''.join((r['question'] + '\n' + r['answer'] + '\n\n').encode() for r in rows)
open(folder + '/a.txt', 'wb').write(text('gsm8k_train.jsonl')[1766626:])
judged = text('gsm8k_test.jsonl')
turned = len(judged) // int(windows) // 2 if judge == 'validation' else 0
open(folder + '/b.txt', 'wb').write(judged[turned:] + judged[:turned])
PYTHON

robust='stale-5 stale-25 stale-50 stale-100 every-10 every-25 every-50 rate-90 rate-95 rate-98 live death'

# expected ROW : after 72 steps of the standard configuration, by the prototype
expected() {
    case $cuts-$1 in
    3-dense) echo 1.36-1.39 ;; 3-last) echo 1.44-1.47 ;; 3-subspace) echo 1.42-1.47 ;; 3-subspace-late) echo 1.44-1.51 ;;
    3-mask-late) echo 1.57-1.68 ;; 3-mask-mean) echo above-1.70 ;; *) echo - ;;
    esac
}

# settings ROW : of its words
settings() {
    tokens='boundary.reference=tokens boundary.context=4 boundary.rank=0' coded='mask.rate=0.9427' early='boundary.refresh=10 boundary.late=2'
    late='boundary.refresh=10 boundary.late=20' lr=$rate filter=none anchored=
    case $1 in *+anchor*) early= late= anchored="boundary.statistics=anchor" ;; esac
    case $1 in *+shrink | *+tikhonov | *+wiener | *+align | *+gradient) filter=${1##*+} ;; esac
    case $filter in align) anchored="$anchored anchor.tau=0.55" ;; gradient) anchored="$anchored anchor.mix=0.15" ;; esac
    case ${1%%+*} in
    dense) echo boundary.codec=dense ;;
    int8 | int4) echo "boundary.codec=dense boundary.values=${1%%+*}" ;;
    last) echo boundary.codec=dense train.frozen=$frozen ;;
    mask) echo "boundary.codec=mask $tokens $early mask.rate=0.95" ;;
    anchor-gradient-only)
        filter=gradient anchored='anchor.returns=gradient anchor.mix=1 anchor.second_moment=corrected'
        echo "boundary.codec=mask $tokens $early mask.rate=0.95" ;;
    mask-unbiased | mask-rms) echo "boundary.codec=mask boundary.gain=${1#mask-} $tokens $early mask.rate=0.95" ;;
    mask-mmse) echo "boundary.codec=mask boundary.decoding=mmse $tokens $early mask.rate=0.95" ;;
    mask-int4) echo "boundary.codec=mask boundary.values=int4 $tokens $early mask.rate=0.8125" ;; # 36 channels and a scale: the bytes of 10 in bf16
    mask-int4-mmse) echo "boundary.codec=mask boundary.values=int4 boundary.decoding=mmse $tokens $early mask.rate=0.8125" ;;
    mask-late) echo "boundary.codec=mask $tokens $late mask.rate=0.95" ;;
    mask-mean) lr=0.0003 && echo 'boundary.codec=mask boundary.reference=mean mask.rate=0.95' ;;
    topk | hybrid) echo "boundary.codec=${1%%+*} $tokens $early $coded" ;;
    principal) echo "boundary.codec=principal boundary.bits=2 boundary.forward_share=0.5 $tokens $early $coded" ;;
    entropy) echo "boundary.codec=entropy boundary.forward_share=0.602 $tokens $early $coded" ;;
    entropy-lean) # small statistics, and what they cost taken off the codes: 1/17 of dense in all, in 72 steps
        echo "boundary.codec=entropy boundary.forward_share=0.65 boundary.reference=tokens boundary.context=3 boundary.rank=92" \
            "boundary.calibrate=1 $early mask.rate=0.9463" ;;
    subspace) echo "boundary.codec=subspace boundary.forward_share=0.602 $tokens $early $coded" ;;
    subspace-late) echo "boundary.codec=subspace boundary.forward_share=0.5 $tokens $late $coded" ;;
    *) return 1 ;;
    esac
    case $filter in tikhonov | wiener) anchored="$anchored ." ;; esac
    [ -z "$anchored" ] || echo "anchor.host=anchor anchor.every=$every anchor.staleness=$staleness anchor.limit=$((2 * (staleness + every)))" \
        "anchor.evaluate=no anchor.lifeboat=no ${anchored% .}"
    echo "anchor.filter=$filter anchor.rank=64 train.learning_rate=$lr"
}

# of_row ROW : a robust row is the paper's with one thing different
of_row() {
    paper=mask+anchor+tikhonov
    case $1 in
    stale-*) (staleness=${1#*-} && settings $paper) ;;
    every-*) (every=${1#*-} && settings $paper) ;;
    rate-*) settings $paper | sed "s/mask.rate=0.95/mask.rate=0.${1#*-}/" ;;
    live | death) settings $paper ;;
    *) settings "$1" ;;
    esac
}

# write_profile NAME SETTING… : each SECTION.KEY=VALUE
write_profile() {
    name=$1
    shift
    python3 - "$folder/$name.ini" "run.name=$name" "run.seed=$seed" "run.steps=$steps" "model.path=$data/base-mild" "data.path=$folder/*.txt" \
        data.validation=0.2467 "data.validation_windows=$windows" train.sequence=128 train.micro_batch=16 "train.micro_batches=$batches" \
        train.warmup=8 train.weight_decay=0.01 train.clip=1 "train.evaluate_every=$until" pipeline.stages=$((cuts + 1)) pipeline.layers=$layers "$@" <<'PYTHON'
import sys
sections = {}
for word in sys.argv[2:]:
    name, value = word.split('=', 1)
    section, key = name.split('.', 1)
    sections.setdefault(section, {})[key] = value
with open(sys.argv[1], 'w') as out:
    for section, lines in sections.items():
        print(f'[{section}]', *(f'{key} = {value}' for key, value in lines.items()), sep='\n', file=out)
PYTHON
    hosts=$letters
    case " $* " in *" anchor.host=anchor "*) hosts="$hosts anchor" ;; esac
    for host in $hosts; do printf '[host %s]\nkind = local\nthreads = %s\n' $host "$threads"; done >>"$folder/$name.ini"
}

# reached NAME KIND STEP : is this step trained (0), its model evaluated (1)?
reached() {
    python3 - "$folder/state/kedge/$1/run.db" "$2" "$3" <<'PYTHON'
import sqlite3, sys
db = sqlite3.connect(f'file:{sys.argv[1]}?mode=ro', uri=True, timeout=30)
sys.exit(db.execute('select count(*) from samples where kind = ? and step >= ?', (int(sys.argv[2]), int(sys.argv[3]))).fetchone()[0] == 0)
PYTHON
}
await() {
    silent=0
    until reached "$@"; do
        sleep 1
        case $("$O/kedge" status "$1" --json 2>/dev/null | python3 -c 'import json,sys; print(json.loads(sys.stdin.read() or "{}").get("phase"))') in
        holding | stopped) "$O/kedge" status "$1" >&2; exit 1 ;; # nothing will come any more
        None) silent=$((silent + 1)) && [ "$silent" -lt 30 ] || { echo "run $1 has no scheduler any more" >&2; exit 1; } ;;
        esac
    done
}
pid_of() { "$O/kedge" hosts "$1" --json | python3 -c 'import json,sys; print([p["pid"] for p in json.load(sys.stdin)["processes"] if p["process"] == sys.argv[1]][0])' "$2"; }

# half_way ROW NAME LAST : what is done to the run meanwhile
half_way() {
    case $1 in
    live)
        await "$2" 0 $(($3 / 2)) && "$O/kedge" set "$2" mask.rate=0.9 >/dev/null
        await "$2" 0 $(($3 * 3 / 4)) && "$O/kedge" set "$2" mask.rate=0.98 >/dev/null ;;
    death)
        await "$2" 0 $(($3 / 2))
        stopped=$(pid_of "$2" agent@anchor)
        kill -STOP "$stopped" && kill -KILL "$(pid_of "$2" anchor)" ;;
    esac
}

# result NAME ROW SECONDS EXPECTED : the line
result() {
    python3 - "$folder/state/kedge/$1/run.db" "$2" "$cuts" "$seed" "$((batches * 2048))" "$3" "$4" <<'PYTHON'
import sqlite3, sys
path, row, cuts, seed, tokens, seconds, expected = sys.argv[1:]
db = sqlite3.connect(path)
losses = db.execute('select loss from samples where kind = 1 order by step').fetchall()
trained = db.execute('select max(step) from samples where kind = 0').fetchone()[0]
roads = db.execute('select lane, max(sent_bytes), max(evaluation_bytes), max(dense_bytes) from road_samples group by process, peer, lane').fetchall()
cut = sum(sent - evaluation for lane, sent, evaluation, _ in roads if lane == 1)
anchor = sum(sent for lane, sent, _, _ in roads if lane == 3)
dense = sum(d for lane, _, _, d in roads if lane == 1)
print(f'{row},{cuts},{seed},{trained},{losses[0][0]:.4f},{losses[-1][0]:.4f},{cut / trained / int(tokens):.1f},{anchor / trained / int(tokens):.1f},'
      f'{(cut + anchor) / dense:.5f},{seconds},{expected}', flush=True)
PYTHON
}

run_row() {
    name=$(echo "$1" | tr + -)-$seed
    words=$(of_row "$1") || { echo "no row $1; there are: $others mask-late mask-mean subspace-late entropy-lean $robust"; exit 2; }
    write_profile "$name" $words $more
    began=$(date +%s) last=$until
    [ "$until" != 0 ] || last=$steps
    "$O/kedge" run "$folder/$name.ini" --detach >"$folder/out" 2>&1 || { cat "$folder/out"; exit 1; }
    half_way "$1" "$name" "$last"
    await "$name" 1 "$last"
    sleep 2 # the newest counters of the roads
    [ -z "$stopped" ] || kill -CONT "$stopped"
    stopped=
    "$O/kedge" stop "$name" >/dev/null 2>&1 || :
    result "$name" "$1" $(($(date +%s) - began)) "$(expected "$1")" | tee -a "$folder/results"
    rm -rf "$folder/state/kedge/$name"
}

[ "$*" != accept ] || set -- $accept
[ "$*" != robust ] || set -- $robust
for row in "$@"; do
    for seed in $(echo "$seeds" | tr , ' '); do run_row "$row"; done
    case $seeds in *,*)
        awk -F, -v row="$row" '$1 == row { n++; sum += $6; low = n == 1 || $6 < low ? $6 : low; high = n == 1 || $6 > high ? $6 : high }
            END { printf "%s,%d,mean of %d,%d,,%.4f,,,,,between %.4f and %.4f\n", row, $2, n, $4, sum / n, low, high }' "$folder/results" ;;
    esac
done
