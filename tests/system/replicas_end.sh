#!/bin/sh
# What a run of replicas ends with is the mean of all of them, not what they had in common last: another run of the same seed writes a set of all
# replicas after the same step and trains on. What is written by order is the lowest replica's own weights, and help says so.
# seconds: 60
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read weights; it would have compared those of replicas"

# The first round is sent after step 6 at the earliest, and keeps replicas together from then on.
set -- replicas.count=2 sync.every=10 train.schedule=constant boundary.codec=dense
profile goes run.steps=1000000 checkpoint.every=5 checkpoint.keep=1000 "$@"
kedge run "$TMP/goes.ini" --detach >"$TMP/out" 2>&1 || fail "the run that goes on: $(cat "$TMP/out")"
wait_for 60 test -e "$(run_folder goes)/checkpoint/5/manifest.json" || fail "no set: $(kedge status goes)"
kedge stop goes --now >/dev/null 2>&1 || fail "it does not stop"
profile ends run.steps=5 "$@"
kedge run "$TMP/ends.ini" --headless >"$TMP/out" 2>&1 || fail "the run: $(cat "$TMP/out")"
nothing_left ends || fail "after the run"
sets=$(run_folder ends)/checkpoint
[ "$(ls "$sets/5" | tr '\n' ' ')" = 'manifest.json r0s0.safetensors r0s1.safetensors ' ] || fail "the last set is $(ls "$sets/5")"
python3 - "$(run_folder goes)/checkpoint/5" "$sets/5" <<'PYTHON' || fail "the last set is not the mean"
import array, json, struct, sys
def weights(path):
    data = open(path, 'rb').read()
    begin = 8 + struct.unpack('<Q', data[:8])[0]
    rows = {name: row['data_offsets'] for name, row in json.loads(data[8:begin]).items() if name.startswith(('model.', 'lm_head.'))}
    return array.array('f', b''.join(data[begin + a:begin + b] for _, (a, b) in sorted(rows.items())))
for stage in 's0', 's1':
    one, other = (weights(f'{sys.argv[1]}/{replica}{stage}.safetensors') for replica in ('r0', 'r1'))
    end = weights(f'{sys.argv[2]}/r0{stage}.safetensors')
    apart = sum((a - b) ** 2 for a, b in zip(one, other)) ** 0.5
    gap = sum((e - (a + b) / 2) ** 2 for e, a, b in zip(end, one, other)) ** 0.5
    assert len(one) == len(end) > 1000 and apart > 0, (len(one), len(end), apart)
    assert gap < 0.01 * apart, (stage, gap, apart) # they come in bf16, as what each has learned
PYTHON
set_key "$TMP/ends.ini" run.steps 12
kedge run "$TMP/ends.ini" --resume=5 --headless >"$TMP/out" 2>&1 && fail "it went on from the weights of one replica"
grep -q 'the set of step 5 has nothing of r1s0' "$TMP/out" || fail "says $(cat "$TMP/out")"
kedge help checkpoint | tr -s ' \n' ' ' | grep -q 'With replicas it is the lowest one.s weights' || fail "help does not say whose weights it writes"
exit 0
