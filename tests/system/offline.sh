#!/bin/sh
# What works without any run: profiles, help, completion, the empty list; and standard output that cannot be written.
. tests/system/lib/common.sh

kedge >"$TMP/out" || fail "bare kedge"
grep -q 'no runs yet' "$TMP/out" && grep -q 'kedge new NAME' "$TMP/out" || fail "bare kedge says $(cat "$TMP/out")"
kedge ls --json | grep -q '"runs": \[\]' || fail "ls --json: $(kedge ls --json)"
kedge version | grep -Eq '^kedge [0-9.]+ ' || fail "version"
[ "$(kedge --version)" = "$(kedge version)" ] || fail "--version"
kedge help set | grep -q '^usage: kedge set RUN KEY=VALUE... \[--no-wait\]$' || fail "help set: $(kedge help set)"
[ "$(kedge set --help)" = "$(kedge help set)" ] || fail "set --help"
kedge help --ascii | LC_ALL=C grep -q '[^ -~]' && fail "help --ascii is not ASCII"
kedge help --color=always >"$TMP/out" && LC_ALL=C grep -q "$(printf '\033')" "$TMP/out" && fail "help needs no colour"

cd "$TMP" || exit 1
kedge new sea --from "$root/profiles/laptop.ini" >/dev/null || fail "new"
grep -q '^name = sea$' sea.ini || fail "new did not set the name: $(cat sea.ini)"
sed 's/^name = sea$/name = laptop/' sea.ini | cmp -s - "$root/profiles/laptop.ini" || fail "new changed more than the name"
kedge new sea.ini --from "$root/profiles/laptop.ini" 2>err && fail "new overwrites"
grep -q 'sea.ini is there already' err || fail "new says $(cat err)"
kedge check sea.ini >out || fail "check: $(cat out)"
kedge plan sea.ini | grep -q '^Run sea: 2 stages' || fail "plan"
kedge plan sea.ini --json | grep -q '"stages"' || fail "plan --json"

for full in help "help run" "completion bash" ls; do
    # shellcheck disable=SC2086 # words
    kedge $full >/dev/full 2>err && fail "$full: a full standard output is no failure"
    [ "$(wc -l <err)" = 1 ] || fail "$full on a full standard output says $(cat err)"
done

command -v bash >/dev/null || exit 0
complete() { # WORDS… : what bash offers for the last one
    bash -c 'source <("$0" completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _kedge; echo "${COMPREPLY[*]}"' "$O/kedge" kedge "$@"
}
[ "$(complete stat)" = status ] || fail "completion of stat: $(complete stat)"
[ "$(complete status --js)" = --json ] || fail "completion of --js: $(complete status --js)"
[ "$(complete check se)" = sea.ini ] || fail "completion of a profile: $(complete check se)"
[ "$(complete help comp)" = completion ] || fail "completion of a command behind help: $(complete help comp)"
mkdir -p "$XDG_STATE_HOME/kedge/river"
[ "$(complete stop ri)" = river ] || fail "completion of a run: $(complete stop ri)"
