# Helpers for the system tests: . tests/system/lib/common.sh — the programs of $O as a user drives them, with all state below $TMP.
# Nothing is found or ended by name: a run's processes are those of `kedge hosts --json` and of its lock files.
set -u
: "${O:?the build folder}" "${TMP:?a private folder}"
case $O in /*) ;; *) O=$PWD/$O ;; esac
export O TMP XDG_STATE_HOME="${XDG_STATE_HOME:-$TMP/state}" XDG_CONFIG_HOME="${XDG_CONFIG_HOME:-$TMP/config}"
root=$PWD
patience=1
[ -z "${SAN:-}" ] || patience=5

fail() {
    echo "FAILED: $*"
    for folder in "$XDG_STATE_HOME"/kedge/*/; do
        [ -d "$folder/log" ] || continue
        echo "---- logs of $folder"
        tail -n 15 "$folder"/log/*.log
    done
    exit 1
}
skip() { echo "$*"; exit 77; }
kedge() { "$O/kedge" "$@"; }
run_folder() { echo "$XDG_STATE_HOME/kedge/$1"; }

for program in kedge kedged kedge-worker kedge-cpu.so; do
    [ -e "$O/$program" ] || skip "$program is not built here; it would have driven a real run"
done

# wait_for SECONDS WORDS... : until the command succeeds
wait_for() {
    left=$(($1 * 10 * patience))
    shift
    until "$@"; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || return 1
        sleep 0.1
    done
}

# profile NAME [SECTION.KEY=VALUE...] : $TMP/NAME.ini, a tiny two-stage run on this machine that takes seconds
profile() {
    name=$1
    shift
    [ -s "$TMP/text/a.txt" ] || { mkdir -p "$TMP/text" && cat "$root"/ssh/*/*.[ch] >"$TMP/text/a.txt"; }
    cat >"$TMP/$name.ini" <<EOF
[run]
name = $name
seed = 7
steps = 30
timeout = 5s
[model]
hidden = 64
layers = 4
heads = 4
kv_heads = 2
ffn = 128
vocabulary = 256
[data]
path = $TMP/text/a.txt
validation_windows = 4
[train]
sequence = 32
micro_batch = 2
micro_batches = 2
learning_rate = 0.002
warmup = 2
[pipeline]
stages = 2
[boundary]
codec = mask
values = bf16
[mask]
rate = 0.95
[host a]
kind = local
threads = 1
[host b]
kind = local
threads = 1
EOF
    case " $* " in *" boundary.codec=dense "*) sed -i '/^\[mask\]/,/^rate/d' "$TMP/$name.ini" ;; esac
    for change in "$@"; do
        set_key "$TMP/$name.ini" "${change%%=*}" "${change#*=}"
    done
}

# set_key FILE SECTION.KEY VALUE : as an editor would; `host.a.listen` is key listen of section [host a]
set_key() {
    section=${2%.*} key=${2##*.}
    case $section in host.*) section="host ${section#host.}" ;; esac
    awk -v section="[$section]" -v key="$key" -v value="$3" '
        /^\[/ { if (inside && !done) { print key " = " value; done = 1 } inside = ($0 == section) }
        inside && $1 == key { if (!done) print key " = " value; done = 1; next }
        { print }
        END { if (!done) { if (!inside) print section; print key " = " value } }' "$1" >"$1.new" && mv "$1.new" "$1"
}

# json FILTER < JSON : jq is not everywhere, python3 nearly; FILTER is a Python expression over `j`
json() { python3 -c 'import json,sys; j = json.load(sys.stdin); print('"$1"')' 2>"$TMP/json.err"; }
have_json() { command -v python3 >/dev/null; }

phase_of() { kedge status "$1" --json 2>/dev/null | json 'j["phase"]'; }
step_of() { kedge status "$1" --json 2>/dev/null | json 'j["step"]'; }
is_phase() { [ "$(phase_of "$1")" = "$2" ]; }
step_reached() { [ "$(step_of "$1")" -ge "$2" ] 2>/dev/null; }
# pid_of RUN PROCESS
pid_of() { kedge hosts "$1" --json | json '[p["pid"] for p in j["processes"] if p["process"] == "'"$2"'"][0]'; }
lives() { [ -d "/proc/$1" ] && ! grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null; }
gone() { ! lives "$1"; }

# pids_of RUN : every process that carries the run's mark or holds one of its locks
pids_of() {
    folder=$(run_folder "$1")
    [ -e "$folder/run.id" ] || return 0
    id=$(cat "$folder/run.id")
    for environment in $(grep -lsxz "KEDGE_RUN=$id" /proc/[0-9]*/environ); do # one program for all: they train meanwhile
        pid=${environment#/proc/}
        pid=${pid%/environ}
        [ "$pid" != $$ ] || continue
        lives "$pid" && echo "$pid"
    done 2>/dev/null
    return 0
}

# nothing_left RUN : no process, no socket, no lock
nothing_left() {
    folder=$(run_folder "$1")
    [ -z "$(pids_of "$1")" ] || { echo "processes are left: $(pids_of "$1")"; return 1; }
    for file in "$folder/kedged.sock" "$folder"/*.lock; do
        [ ! -e "$file" ] || { echo "$file is left"; return 1; }
    done
}

# Whatever happens, nothing of a test outlives it; and what a sanitizer or a bug said in the log of a process is a failure, too.
end_runs() {
    for folder in "$XDG_STATE_HOME"/kedge/*/; do
        [ -d "$folder" ] || continue
        "$O/kedge" stop --now "$(basename "$folder")" >/dev/null 2>&1
        if grep -E 'Sanitizer|runtime error:|BUG in kedge at ' "$folder"/log/*.log; then status=1; fi
    done
}
clean_up() {
    status=$?
    trap - EXIT
    end_runs
    exit $status
}
trap clean_up EXIT
trap 'exit 1' INT TERM

# in_network [RATE] : goes on in a network namespace of its own, whose lo is up and, with a RATE, shaped by the kernel; false when that is not
# permitted here. The script begins again inside: this comes first in it.
in_network() {
    try='ip link set lo up'
    [ $# = 0 ] || try="$try mtu 1500 && tc qdisc add dev lo root tbf rate $1 burst 16k latency 50ms"
    if [ -n "${KEDGE_TEST_INSIDE:-}" ]; then
        sh -c "$try" || fail "lo cannot be set up"
        return 0
    fi
    for how in "unshare -n" "unshare -rn"; do
        # shellcheck disable=SC2086 # words
        if $how sh -c "$try" 2>/dev/null; then
            trap - EXIT
            KEDGE_TEST_INSIDE=1 exec $how sh "$0"
        fi
    done
    return 1
}
