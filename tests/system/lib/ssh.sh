# Hosts for the system tests: . tests/system/lib/ssh.sh — real sshds on 127.0.0.x, each with a host key, a port and a home of its own,
# and one user key. They end with the test, whatever happens.
[ -x /usr/sbin/sshd ] && command -v ssh-keygen >/dev/null || skip "sshd is not installed here; it would have been logged in to"
have_json || skip "python3 is not here to find free ports; hosts would have been logged in to"
[ "$(id -u)" != 0 ] || mkdir -p /run/sshd
me=$(id -un)
sshds= mounts=
mkdir -p "$TMP/ssh" && chmod 700 "$TMP/ssh"
ssh-keygen -q -t ed25519 -N '' -C test -f "$TMP/ssh/id" </dev/null || fail "ssh-keygen"
cp "$TMP/ssh/id.pub" "$TMP/ssh/authorized_keys"

free_port() { python3 -c 'import socket,sys; s = socket.socket(); s.bind((sys.argv[1], 0)); print(s.getsockname()[1])' "$1"; }

# answers ADDRESS PORT
answers() { python3 -c 'import socket,sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2).close()' "$1" "$2" 2>/dev/null; }

# host NAME ADDRESS [LINE...] : an sshd with these extra lines, and $host_environment (NAME=VALUE) for what it starts; its files are in $TMP/ssh/NAME, its home is $TMP/ssh/NAME/home
host() {
    folder=$TMP/ssh/$1
    mkdir -p "$folder/home"
    chmod 700 "$folder/home"
    [ -e "$folder/key" ] || ssh-keygen -q -t ed25519 -N '' -f "$folder/key" </dev/null || fail "ssh-keygen"
    name=$1 address=$2
    shift 2
    echo "$address" >"$folder/address"
    [ -e "$folder/port" ] || free_port "$address" >"$folder/port"
    {
        printf 'ListenAddress %s\nPort %s\nHostKey %s/key\nPidFile none\nUsePAM no\nStrictModes no\n' "$address" "$(cat "$folder/port")" "$folder"
        printf 'AuthorizedKeysFile %s/authorized_keys\nUseDNS no\nMaxStartups 500\nMaxSessions 64\nPermitRootLogin yes\n' "$TMP/ssh"
        printf 'PasswordAuthentication no\nKbdInteractiveAuthentication no\nPrintMotd no\nLogLevel VERBOSE\nSetEnv HOME=%s/home %s\n' "$folder" "${host_environment:-}"
        for line in "$@"; do echo "$line"; done
    } >"$folder/config"
    begin_sshd "$name"
}
# begin_sshd NAME [FILE OVER] : an sshd that sees FILE in the place of OVER, if given (a mount namespace: as root only)
begin_sshd() {
    folder=$TMP/ssh/$1
    if [ $# = 1 ]; then
        /usr/sbin/sshd -D -e -f "$folder/config" 2>>"$folder/log" &
    else
        unshare -m sh -c 'mount --bind "$1" "$2" && exec /usr/sbin/sshd -D -e -f "$3"' sh "$2" "$3" "$folder/config" 2>>"$folder/log" &
    fi
    echo $! >"$folder/pid"
    sshds="$sshds $!"
    wait_for 10 answers "$(cat "$folder/address")" "$(cat "$folder/port")" || fail "sshd $1: $(cat "$folder/log")"
}
# end_sshd NAME : the listener only; sessions live on
end_sshd() { kill "$(cat "$TMP/ssh/$1/pid")"; wait "$(cat "$TMP/ssh/$1/pid")" 2>/dev/null; }
# end_sessions NAME : KILL what the listener has forked, in whatever phase; parents first: a shell that dies before its sshd would be reported by it
end_sessions() { for pid in $(pgrep -P "$(cat "$TMP/ssh/$1/pid")"); do kill -9 "$pid" $(pgrep -P "$pid") 2>/dev/null; done; }
print_of() { ssh-keygen -lf "$TMP/ssh/$1/key.pub" | awk '{ print $2 }'; }
login_of() { echo "$me@$(cat "$TMP/ssh/$1/address"):$(cat "$TMP/ssh/$1/port")"; }
host_folder() { echo "$TMP/ssh/$1/home/.local/state/kedge/$2"; }

# use_host PROFILE-FILE SECTION HOST : section [host SECTION] becomes the sshd HOST, its key pinned
use_host() {
    set_key "$1" "host.$2.kind" ssh
    set_key "$1" "host.$2.ssh" "$(login_of "$3")"
    set_key "$1" "host.$2.identity" "$TMP/ssh/id"
    set_key "$1" "host.$2.host_key" "$(print_of "$3")"
}

# typed CODE ANSWERS REPLY WORD... : kedge on a terminal where somebody types (lib/typed.py); what it showed is in $TMP/out
typed() {
    code=$1 reply=$3
    export ANSWERS="$2"
    shift 3
    python3 tests/system/lib/typed.py "$reply" "$O/kedge" "$@" >"$TMP/out" 2>&1
    status=$?
    [ $status = "$code" ] || fail "$* with $ANSWERS: exit code $status, not $code: $(cat "$TMP/out"); sshd: $(tail -n 5 "$TMP"/ssh/*/log)"
}

# slow_road HOST BITS-A-SECOND MS : a road to the sshd HOST of that rate and round trip; it is $slow, ADDRESS:PORT. It ends with the test.
cat >"$TMP/ssh/slow.py" <<'PYTHON'
import asyncio, sys
host, port, rate, delay = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / 8, float(sys.argv[4]) / 2000
async def way(reader, writer):
    now, line, free = asyncio.get_running_loop().time, asyncio.Queue(64), 0.0
    async def deliver():
        while True:
            due, data = await line.get()
            await asyncio.sleep(due - now())
            if not data:
                return writer.close()
            writer.write(data)
            await writer.drain()
    task = asyncio.create_task(deliver())
    try:
        while True:
            data = await reader.read(4096)
            free = max(free, now()) + len(data) / rate
            await line.put((free + delay, data))
            if not data:
                return await task
            await asyncio.sleep(free - now())
    except OSError:
        writer.close()
async def accept(reader, writer):
    far_reader, far_writer = await asyncio.open_connection(host, port)
    await asyncio.gather(way(reader, far_writer), way(far_reader, writer), return_exceptions=True)
async def main():
    server = await asyncio.start_server(accept, host, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
PYTHON
slow_road() {
    rm -f "$TMP/ssh/$1/slow"
    python3 "$TMP/ssh/slow.py" "$(cat "$TMP/ssh/$1/address")" "$(cat "$TMP/ssh/$1/port")" "$2" "$3" >"$TMP/ssh/$1/slow" 2>"$TMP/ssh/$1/slow.err" &
    sshds="$sshds $!"
    wait_for 10 test -s "$TMP/ssh/$1/slow" || fail "no slow road: $(cat "$TMP/ssh/$1/slow.err")"
    slow=$(cat "$TMP/ssh/$1/address"):$(cat "$TMP/ssh/$1/slow")
}

# clean_on NAMES RUN : nothing of the run on these hosts
nothing_on() {
    for one in $1; do
        for file in "$(host_folder "$one" "$2")"/kedged.sock "$(host_folder "$one" "$2")"/*.lock; do
            [ ! -e "$file" ] || { echo "$file is left on host $one"; return 1; }
        done
    done
}

# small_disk FOLDER SIZE : of its own, until the test ends; false where that is not permitted
small_disk() { mkdir -p "$1" && mount -t tmpfs -o "size=$2" none "$1" 2>/dev/null && mounts="$mounts $1"; }

end_sshds() {
    for pid in $sshds; do
        for child in $(pgrep -P "$pid" 2>/dev/null); do kill -9 $(pgrep -P "$child") "$child" 2>/dev/null; done
        kill -9 "$pid" 2>/dev/null
    done
}
clean_up_hosts() {
    status=$?
    trap - EXIT
    end_runs
    end_sshds
    for folder in $mounts; do umount -l "$folder"; done
    exit $status
}
trap clean_up_hosts EXIT
