#!/bin/sh
# Training tokens/s of kedge-worker: one stage, one process, all cores, no boundary. The model is profiles/laptop.ini's.
set -eu
O=${O:-build}
folder=$(mktemp -d "${TMPDIR:-/tmp}/kedge-bench.XXXXXX")
trap 'rm -rf "$folder"' EXIT
export XDG_STATE_HOME="$folder/state"
sed -e 's/^stages *=.*/stages = 1/' -e 's/^name *=.*/name = bench/' -e 's/^steps *=.*/steps = 20/' \
    -e 's/^codec *=.*/codec = dense/' -e '/^\[mask\]/,/^$/d' -e '/^\[host b\]/,$d' profiles/laptop.ini >"$folder/bench.ini"
"$O/kedge" run "$folder/bench.ini" --headless >"$folder/out" 2>&1 || { cat "$folder/out"; exit 1; }
"$O/kedge" status bench --json >"$folder/status"
sed -n 's/.*"tokens_per_second": *\([0-9.]*\).*/train.tokens_per_second \1 tokens\/s (one process, fp32)/p' "$folder/status"
