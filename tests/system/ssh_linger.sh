#!/bin/sh
# Does logging out of a host kill what was started there? kedge check says so exactly where systemd-logind would do it: KillUserProcesses=yes for
# this user, who does not linger. And where it does not, agents and stages live on when the sessions that started them, and their sshd, have ended.
# seconds: 200
. tests/system/lib/common.sh
. tests/system/lib/ssh.sh

# Most machines that run tests have no logind: hosts have a loginctl that says what their files say.
for one in one two; do
    fake=$TMP/ssh/fake-$one
    mkdir -p "$fake"
    cat >"$fake/loginctl" <<EOF
#!/bin/sh
[ -e $fake/manager ] || { echo 'System has not been booted with systemd as init system' >&2; exit 1; }
case "\$*" in
"show-session -p KillUserProcesses -p KillOnlyUsers -p KillExcludeUsers") cat $fake/manager ;;
"show-user $me -p Linger") echo "Linger=\$(cat $fake/linger)" ;;
*) echo "what is '\$*'?" >&2; exit 1 ;;
esac
EOF
    chmod 755 "$fake/loginctl"
done
host_environment=PATH=$TMP/ssh/fake-one:/usr/local/bin:/usr/bin:/bin
host one 127.0.0.2
host_environment=PATH=$TMP/ssh/fake-two:/usr/local/bin:/usr/bin:/bin
host two 127.0.0.3
profile far run.timeout=10s run.steps=1000000
use_host "$TMP/far.ini" a one
use_host "$TMP/far.ini" b two

# logind HOST LINGER KILLS ONLY EXCLUDE : what its loginctl says from now on
logind() {
    echo "$2" >"$TMP/ssh/fake-$1/linger"
    printf 'KillUserProcesses=%s\nKillOnlyUsers=%s\nKillExcludeUsers=%s\n' "$3" "$4" "$5" >"$TMP/ssh/fake-$1/manager"
}
# said A B : 1 where host a (b) is said to kill, else 0
said() {
    kedge check "$TMP/far.ini" --json >"$TMP/json" 2>&1
    code=$?
    got=$(json '" ".join(str(sum("kills all that was started (KillUserProcesses=yes): say '"'loginctl enable-linger'"' there" in p for p in h["problems"])) + str(len(h["problems"])) for h in j["hosts"])' <"$TMP/json")
    [ "$got" = "$1$1 $2$2" ] && [ $code = $((($1 + $2) > 0)) ] || fail "a, b kill $1 $2, check says $got ($code): $(cat "$TMP/ssh"/fake-*/manager "$TMP/json")"
}
logind one no yes "" "nobody somebody"
logind two yes yes "" ""
said 1 0
logind one no yes "" "somebody $me"
logind two no no "" ""
said 0 0
logind one no yes "somebody" ""
logind two no yes "somebody $me" ""
said 0 1
rm "$TMP"/ssh/fake-*/manager
said 0 0

kedge run "$TMP/far.ini" --detach >"$TMP/out" 2>&1 || fail "run: $(cat "$TMP/out")"
wait_for 60 step_reached far 2 || fail "does not train: $(kedge status far)"
no_session() { ! pgrep -P "$(cat "$TMP/ssh/$1/pid")" >/dev/null; }
for one in one two; do wait_for 30 no_session $one || fail "a session stands after the start: $(ps -ef)"; done
agent_a=$(cut -d ' ' -f 1 "$(host_folder one far)/agent@a.lock") agent_b=$(cut -d ' ' -f 1 "$(host_folder two far)/agent@b.lock")
for agent in $agent_a $agent_b; do
    [ "$(ps -o tty= -p "$agent")" = "?" ] || fail "the agent has a terminal: $(ps -fp "$agent")"
    leader=$(ps -o sid= -p "$agent" | tr -d ' ')
    case $(ps -o comm= -p "$leader") in *sshd*) fail "the agent belongs to the session of sshd: $(ps -ef)" ;; esac
done
for one in one two; do end_sshd $one; done
at=$(step_of far)
wait_for 60 step_reached far $((at + 5)) || fail "does not go on without sshd: $(kedge status far)"
for agent in $agent_a $agent_b; do lives "$agent" || fail "an agent has died with the sessions"; done
for one in one two; do begin_sshd $one; done
kedge stop far >"$TMP/out" 2>&1 || fail "stop: $(cat "$TMP/out")"
nothing_left far && nothing_on "one two" far || fail "something is left"
exit 0
