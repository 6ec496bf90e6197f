#!/bin/sh
# Install the Debian packages that kedge is built from. Says what it does before it does it.
set -eu
missing=
for package in "$@"; do
    dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing="$missing $package"
done
if [ -z "$missing" ]; then
    echo "deps: all packages are installed"
    exit 0
fi
command -v apt-get >/dev/null || { echo "deps: this is not Debian or Ubuntu; install the equivalents of:$missing" >&2; exit 1; }
root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "deps: become root, or install sudo, then: apt-get install$missing" >&2; exit 1; }
    root=sudo
fi
echo "deps: ${root:+$root }apt-get install$missing"
$root apt-get update -qq
# shellcheck disable=SC2086 # a list of names
$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
