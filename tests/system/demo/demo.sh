#!/bin/sh
# make demo: train a small model for about a minute, then say what it learned, what travelled, and what to try next. Five "hosts" are
# logged in to through an SSH server of its own on this machine: two replicas of two stages, and an anchor; all of it is gone afterwards,
# but for the record of the run, which lives where all runs live. DEMO=local: two stages, without SSH.
set -eu
: "${O:?the build folder}"
case $O in /*) ;; *) O=$PWD/$O ;; esac
shown=$O
case $O in "$PWD"/*) shown=${O#"$PWD"/} ;; esac
folder=$(mktemp -d "${TMPDIR:-/tmp}/kedge-demo.XXXXXX")
server=
clean_up() {
    status=$?
    trap - EXIT INT TERM
    [ -z "$server" ] || "$O/kedge" stop --now demo >/dev/null 2>&1 || true
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$folder"
    exit $status
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# key SECTION KEY VALUE : in demo.ini, in its place or at the end of its section
key() {
    awk -v section="[$1]" -v key="$2" -v value="$3" '
        function put() { if (!done) print key " = " value; done = 1 }
        /^\[/ { if (inside) put(); inside = $0 == section; found += inside }
        inside && $1 == key { put(); next }
        { print }
        END { if (!found) print "\n" section; put() }' "$folder/demo.ini" >"$folder/demo.new"
    mv "$folder/demo.new" "$folder/demo.ini"
}

# An SSH server with keys, a port and a home folder of its own, for this user, reached from this machine alone.
begin_server() {
    [ "$(id -u)" != 0 ] || mkdir -p /run/sshd # sshd of Debian insists
    ssh-keygen -q -t ed25519 -N '' -f "$folder/host_key" </dev/null
    ssh-keygen -q -t ed25519 -N '' -f "$folder/id" </dev/null
    mkdir -m 700 "$folder/home"
    cat >"$folder/sshd_config" <<END
ListenAddress 127.0.0.1
HostKey $folder/host_key
AuthorizedKeysFile $folder/id.pub
SetEnv HOME=$folder/home
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
PidFile none
MaxStartups 50
END
    # Whoever has taken a port is told by sshd's end within a moment; then another one is tried.
    for try in 1 2 3 4 5 6 7 8 9 10; do
        port=$((20000 + ($$ * 7 + try * 1789) % 12000))
        /usr/sbin/sshd -D -e -f "$folder/sshd_config" -p "$port" 2>"$folder/sshd.log" &
        server=$!
        for wait in 1 2 3 4 5 6 7 8 9 10; do
            sleep 0.2
            kill -0 "$server" 2>/dev/null || break
            if grep -q 'Server listening' "$folder/sshd.log"; then return 0; fi
        done
        kill "$server" 2>/dev/null || true
        server=
    done
    echo "the demo's SSH server does not start (DEMO=local does without): $(tail -n 1 "$folder/sshd.log")" >&2
    exit 1
}

"$O/kedge" new "$folder/demo" --from "$PWD/profiles/laptop.ini" >/dev/null
if [ "${DEMO:-ssh}" = local ]; then
    key run steps "${DEMO_STEPS:-48}" # about a minute on two slow cores
    echo "A small language model is cut in two, and each half becomes a process of its own. Between them, of the 256 values"
    echo "that describe a character only 13 travel. Both halves learn together all the same. (Ctrl-C leaves; the run goes on.)"
else
    begin_server
    key run steps "${DEMO_STEPS:-30}"
    key replicas count 2
    key sync every 10
    key anchor host anchor
    key anchor every 4
    key anchor staleness 6
    key anchor limit 20
    key anchor filter wiener
    for host in a b c d anchor; do
        key "host $host" kind ssh
        key "host $host" ssh "$(id -un)@127.0.0.1:$port"
        key "host $host" identity "$folder/id"
        key "host $host" host_key "$(ssh-keygen -lf "$folder/host_key.pub" | awk '{ print $2 }')"
        key "host $host" threads 1
    done
    echo "Five hosts, here all of them this machine, behind an SSH server of the demo's own: kedge logs in, sends its programs and the text,"
    echo "starts the processes, and leaves. A small language model is cut in two, twice: two replicas of two stages. Between the stages,"
    echo "of the 256 values that describe a character only 13 travel; the replicas meet every 10 steps, in the background; and an anchor"
    echo "follows with clean gradients and tells all of them which directions are real. (Ctrl-C ends it.)"
fi
echo
"$O/kedge" run "$folder/demo.ini" --headless
echo

"$O/kedge" status demo --json >"$folder/status"
[ -z "$server" ] || "$O/kedge" anchor demo
[ -z "$server" ] || echo
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
