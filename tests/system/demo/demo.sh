#!/bin/sh
# make demo: train the small model of profiles/laptop.ini for about a minute, then say what it learned, what travelled, and what to try
# next. The run is called demo and lives where all runs live, so that it can be looked at afterwards.
set -eu
: "${O:?the build folder}"
case $O in /*) ;; *) O=$PWD/$O ;; esac
shown=$O
case $O in "$PWD"/*) shown=${O#"$PWD"/} ;; esac
folder=$(mktemp -d "${TMPDIR:-/tmp}/kedge-demo.XXXXXX")
trap 'rm -rf "$folder"' EXIT

"$O/kedge" new "$folder/demo" --from "$PWD/profiles/laptop.ini" >/dev/null
echo "A small language model is cut in two, and each half becomes a process of its own. Between them, of the 256 values"
echo "that describe a character only 13 travel. Both halves learn together all the same. (Ctrl-C leaves; the run goes on.)"
echo
"$O/kedge" run "$folder/demo.ini" --headless
echo

"$O/kedge" status demo --json >"$folder/status"
value() { sed -n "s/^  \"$1\": \([^,]*\),*\$/\1/p" "$folder/status"; }
awk -v before="$(value first_validation_loss)" -v after="$(value validation_loss)" -v tokens="$(value tokens)" 'BEGIN {
    print "What was learned, judged un-masked on text that was never trained on:"
    printf "  before   loss %.3f, as good as guessing among %.0f characters\n", before, exp(before)
    printf "  after    loss %.3f, as good as guessing among %.1f, after %d characters\n", after, exp(after), tokens }'
echo
"$O/kedge" links demo --json | awk '
    function value(line) { sub(/^[^:]*: /, "", line); gsub(/[",]/, "", line); return line }
    function size(bytes) { return sprintf("%.1f MB", bytes / 1e6) }
    /"from"/ { from = value($0) }
    /"to"/ { to = value($0) }
    /"lane"/ { lane = value($0) }
    /"sent_bytes"/ { sent = value($0) }
    /"dense_bytes"/ { dense = value($0) }
    /"capacity_bits_per_second"/ && lane == "act" && dense != "null" {
        if (!head++) print "What travelled, and what whole activations (bf16) would have been:"
        printf "  %s to %s   %s instead of %s, %.1f %%\n", from, to, size(sent), size(dense), 100 * sent / dense
        all += sent; whole += dense
    }
    END {
        if (whole) printf "  Over a line of 20 Mbit/s: %d s of sending instead of %d s.\n", all / 2.5e6 + 0.5, whole / 2.5e6 + 0.5
    }'
cat <<END

What to try next:
  $shown/kedge status demo                    the record of this run
  $shown/kedge plan profiles/laptop.ini       what would run where
  $shown/kedge new mine                       a profile of your own, mine.ini: your text, your sizes, another mask rate
  $shown/kedge run mine.ini                   and, from another terminal while it trains:
  $shown/kedge set mine mask.rate=0.98        fewer values, from the next step on
  $shown/kedge stop mine
  With slow_rate = 20Mbit and slow_delay = 20ms under [link] the road is rehearsed as it would be between two houses.
END
