#!/bin/sh
# "Stopped" is said when the memory of the GPUs is seen free, on hosts and here, with or without an agent that lives by then; a GPU that stays full
# is named. There is no GPU: nvidia-smi is one of the test's own, whose numbers stand in a file.
# seconds: 500
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh

mkdir "$TMP/smi"
cat >"$TMP/smi/nvidia-smi" <<EOF
#!/bin/sh
case "\$1" in
--query-gpu=name,util*) echo "NVIDIA Made Up, 50, \$(cat "$TMP/used"), 24000, 60, 200" ;;
--query-gpu=memory.used) cat "$TMP/used"; echo asked >>"$TMP/asked" ;;
esac
EOF
chmod 755 "$TMP/smi/nvidia-smi"
used() { echo "$1" >"$TMP/used.new" && mv "$TMP/used.new" "$TMP/used"; }
used 300
host_environment=PATH=$TMP/smi:/usr/local/bin:/usr/bin:/bin
host one 127.0.0.2
PATH=$TMP/smi:$PATH
export PATH
profile far run.steps=100000 run.timeout=5s
use_host "$TMP/far.ini" a one

# begin: a run whose agents have noted what the GPUs held before it
begin() {
    used 300
    kedge run "$TMP/far.ini" --detach >"$TMP/out" 2>&1 || fail "run: $(cat "$TMP/out")"
    noted() { [ "$(cat "$(host_folder one far)/gpu@a" "$(run_folder far)/gpu@b" 2>/dev/null | tr '\n' ' ')" = "300 300 " ]; }
    wait_for 30 noted || fail "nothing is noted: $(ls "$(host_folder one far)" "$(run_folder far)")"
    wait_for 60 step_reached far 2 || fail "no step was trained: $(kedge status far)"
    used 9000
    rm -f "$TMP/asked"
}
begin
"$O/kedge" stop far >"$TMP/stop" 2>&1 &
stop=$!
wait_for 60 test -s "$TMP/asked" || fail "nobody looks at the memory: $(cat "$TMP/stop")"
sleep 1
lives $stop || fail "stopped while the GPU is full: $(cat "$TMP/stop")"
used 400 # a driver that stays loaded
wait $stop || fail "stop: $(cat "$TMP/stop")"
tail -n 1 "$TMP/stop" | grep -q '^far stopped at step ' || fail "stop: $(cat "$TMP/stop")"
[ ! -e "$(host_folder one far)/gpu@a" ] && [ ! -e "$(run_folder far)/gpu@b" ] || fail "the notes stay"
nothing_left far && nothing_on one far || fail "after stop"

# One that stays full is no success; agents and scheduler are dead, and it is known all the same.
begin
kill -9 "$(pid_of far agent@a)" "$(cut -d' ' -f1 "$(run_folder far)/kedged.lock")"
kedge stop far >"$TMP/stop" 2>&1 && fail "stopped with a full GPU: $(cat "$TMP/stop")"
grep -q 'all processes are gone, but the GPUs here hold 8700 MiB more than before the run' "$TMP/stop" || fail "a full GPU here: $(cat "$TMP/stop")"
rm "$(run_folder far)/gpu@b"
kedge stop far >"$TMP/stop" 2>&1 && fail "stopped with a full GPU on a host: $(cat "$TMP/stop")"
grep -q 'on host a all processes are gone, but its GPUs hold 8700 MiB more than before the run' "$TMP/stop" || fail "a full GPU on a host: $(cat "$TMP/stop")"
nothing_left far && nothing_on one far || fail "processes are left"
kedge stop far --forget >"$TMP/stop" 2>&1 || fail "stop --forget: $(cat "$TMP/stop")"
used 300
kedge stop far >"$TMP/stop" 2>&1 || fail "stop when it is free: $(cat "$TMP/stop")"
exit 0
