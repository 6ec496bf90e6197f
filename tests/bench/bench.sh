#!/bin/sh
# Every benchmark in one run, one after the other: `make bench`; or those that are named: bench.sh [NAME]… A line is: name value unit (what it
# is compared with).
# Timings are never tests: this script only fails when a program does.
set -u
O=${O:-build}
grep -m 1 'model name' /proc/cpuinfo | sed 's/.*: /cpu: /'
echo "cores: $(nproc), load before: $(cut -d ' ' -f 1-3 /proc/loadavg)"
TMP=$(mktemp -d "${TMPDIR:-/tmp}/kedge-bench.XXXXXX") status=0
trap 'rm -rf "$TMP"' EXIT
trap 'exit 130' INT TERM
export TMP
# chosen NAME, among the words given
chosen() { [ -z "$wanted" ] || case " $wanted " in *" $1 "*) ;; *) return 1 ;; esac; }
wanted=$*
for program in "$O"/tests/bench/*; do
    case $program in *.o | *.d) continue ;; esac
    [ -x "$program" ] && chosen "${program##*/}" || continue
    echo "== ${program##*/}"
    "$program" || [ $? = 77 ] || status=1
done
for script in tests/bench/*.sh; do
    case $script in */bench.sh | */quality*) continue ;; esac # quality takes long and is judged apart
    chosen "$(basename "$script" .sh)" || continue
    echo "== ${script##*/}"
    O=$O sh "$script" || [ $? = 77 ] || status=1 # 77: what it compares with is not here, and it said so
done
exit $status
