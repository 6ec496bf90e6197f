#!/bin/sh
# Layers as pipeline.layers deals them, and a first stage that train.frozen leaves as it is: its weights are the same bytes after thirty steps
# as after one, the rest learns, and over the cut travel activations and nothing back; with a codec that has statistics, too.
# seconds: 60
. tests/system/lib/common.sh
have_json || skip "python3 is not here to read JSON; it would have looked at links and weights"

act_bytes() { kedge links "$1" --json | json 'sum(l["sent_bytes"] for l in j["links"] if l["lane"] == "act" and l["from"] == "'"$2"'")'; }
# weights RUN STAGE : a hash of the model's tensors in the newest set; what else is there goes on from step to step
weights() {
    python3 - "$(ls "$(run_folder "$1")"/checkpoint/*/*"$2"*.safetensors | tail -n 1)" <<'PYTHON'
import hashlib, json, struct, sys
data = open(sys.argv[1], 'rb').read()
begin = 8 + struct.unpack('<Q', data[:8])[0]
tensors = {name: t['data_offsets'] for name, t in json.loads(data[8:begin]).items() if name.startswith(('model.', 'lm_head.'))}
assert tensors
print(hashlib.sha256(b''.join(data[begin + a:begin + b] for _, (a, b) in sorted(tensors.items()))).hexdigest())
PYTHON
}
run() {
    name=$1
    shift
    profile "$name" pipeline.layers=1,3 train.frozen=1 "$@"
    kedge run "$TMP/$name.ini" --headless >"$TMP/out" 2>&1 || fail "$name: $(cat "$TMP/out")"
    nothing_left "$name" || fail "after $name"
}

for codec in mask subspace; do
    run "one-$codec" run.steps=1 boundary.codec=$codec
    run "$codec" boundary.codec=$codec
    kedge status "$codec" --json | json 'j["validation_loss"] < j["first_validation_loss"] - 0.1' | grep -qx True || fail "$codec did not learn: $(kedge status "$codec")"
    back=$(act_bytes "$codec" r0s1)
    [ "$back" -lt 6000 ] || fail "$codec: $back bytes came back"
    [ "$back" -lt $(($(act_bytes "$codec" r0s0) / 2)) ] || fail "$codec: $back bytes came back of $(act_bytes "$codec" r0s0)"
    [ "$(weights "$codec" s0)" = "$(weights "one-$codec" s0)" ] || fail "$codec: the frozen stage moved"
    [ "$(weights "$codec" s1)" != "$(weights "one-$codec" s1)" ] || fail "$codec: the other stage did not move"
done
exit 0
