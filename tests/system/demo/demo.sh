#!/bin/sh
# make demo: train the small model of profiles/laptop.ini for about a minute, then say what it learned, what travelled, and what to try
# next. The run is called demo and lives where all runs live, so that it can be looked at afterwards.
set -eu
: "${O:?the build folder}"
case $O in /*) ;; *) O=$PWD/$O ;; esac
shown=$O
case $O in "$PWD"/*) shown=${O#"$PWD"/} ;; esac
steps=${DEMO_STEPS:-}
folder=$(mktemp -d "${TMPDIR:-/tmp}/kedge-demo.XXXXXX")
trap 'rm -rf "$folder"' EXIT

"$O/kedge" new "$folder/demo" --from "$PWD/profiles/laptop.ini" >/dev/null
[ -z "$steps" ] || sed -i "s/^steps = .*/steps = $steps/" "$folder/demo.ini"
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
# A validation travels whole, to be exact, and is counted with the step that follows it. So step 1 is left out here.
"$O/kedge" plan "$folder/demo.ini" --json >"$folder/plan"
dense=$(awk '/dense_bytes_per_step/ { on = 1 } on && /"(forward|backward)"/ { gsub(/[^0-9]/, ""); sum += $0 }
    /}/ { on = 0 } END { print sum }' "$folder/plan")
"$O/kedge" links demo --json >"$folder/links"
all=$(awk '/"lane"/ { act = /"act"/ } act && /"sent_bytes"/ { gsub(/[^0-9]/, ""); sum += $0 } END { printf "%.0f", sum }' "$folder/links")
"$O/kedge" decode "${XDG_STATE_HOME:-$HOME/.local/state}/kedge/demo/run.db" | awk -v dense="$dense" -v all="$all" '
    function size(bytes) { return sprintf("%.1f MB", bytes / 1e6) }
    /^samples .* kind=0 / {
        for (i = 2; i <= NF; i++) {
            if (sub(/^sent_act_bytes=/, "", $i)) sent = $i
            if (sub(/^process=/, "", $i)) { gsub(/"/, "", $i); process = $i }
            if (sub(/^step=/, "", $i)) step = $i
        }
        if (step < 2) next
        bytes[process] += sent; trained += sent; if (process == "r0s0") steps++
    }
    END {
        whole = dense * steps
        if (!steps) exit
        printf "What travelled in the %d steps from 2 on, as the links counted it:\n", steps
        printf "  r0s0 to r0s1   %s of activations\n  r0s1 to r0s0   %s of gradients\n", size(bytes["r0s0"]), size(bytes["r0s1"])
        printf "  together       %s instead of %s of whole ones (bf16): %.1f %%\n", size(trained), size(whole), 100 * trained / whole
        printf "  over a line of 20 Mbit/s that is %.0f s of sending instead of %.0f s\n", trained / 2.5e6, whole / 2.5e6
        printf "  (the two validations and step 1: another %s, whole activations in fp32)\n", size(all - trained)
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
