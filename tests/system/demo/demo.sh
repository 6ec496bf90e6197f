#!/bin/sh
# make demo: train the small model of profiles/laptop.ini for about a minute, then say what it learned, what travelled, and what to try
# next. The run is called demo and lives where all runs live, so that it can be looked at afterwards.
set -eu
: "${O:?the build folder}"
case $O in /*) ;; *) O=$PWD/$O ;; esac
shown=$O
case $O in "$PWD"/*) shown=${O#"$PWD"/} ;; esac
steps=${DEMO_STEPS:-48} # about a minute on two slow cores
folder=$(mktemp -d "${TMPDIR:-/tmp}/kedge-demo.XXXXXX")
trap 'rm -rf "$folder"' EXIT

"$O/kedge" new "$folder/demo" --from "$PWD/profiles/laptop.ini" >/dev/null
sed -i "s/^steps = .*/steps = $steps/" "$folder/demo.ini"
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
# One line of `kedge links --json` a member; validations travel whole, to be exact, and are counted apart.
"$O/kedge" links demo --json | awk '
    function size(bytes) { return sprintf("%.1f MB", bytes / 1e6) }
    function number() { gsub(/[^0-9]/, ""); return $0 + 0 }
    /"from"/ { split($0, word, "\""); from = word[4] }
    /"to"/ { split($0, word, "\""); to = word[4] }
    /"lane"/ { act = /"act"/ }
    act && /"sent_bytes"/ { sent = number() }
    act && /"evaluation_bytes"/ { aside = number(); evaluation += aside }
    act && /"dense_bytes"/ {
        trained += sent - aside; whole += number()
        lines = lines sprintf("  %s to %s   %s of %s\n", from, to, size(sent - aside), from < to ? "activations" : "gradients")
    }
    END {
        if (!whole) exit
        printf "What travelled while it trained, as the links counted it:\n%s", lines
        printf "  together       %s instead of %s of whole ones (bf16): %.1f %%\n", size(trained), size(whole), 100 * trained / whole
        printf "  over a line of 20 Mbit/s that is %.0f s of sending instead of %.0f s\n", trained / 2.5e6, whole / 2.5e6
        printf "  (the two validations: another %s, whole activations in fp32)\n", size(evaluation)
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
