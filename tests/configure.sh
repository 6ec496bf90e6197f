#!/bin/sh
# What this machine has. `configure.sh OUT required NAME:PACKAGE… optional NAME:PACKAGE…` writes NAME_CFLAGS and NAME_LIBS
# for make and prints one line per part; `configure.sh --probe` is silent and says by its exit whether a build can begin.
# CC may be words ("ccache gcc").
set -u
PKG_CONFIG=${PKG_CONFIG:-pkg-config} CC=${CC:-cc}

have_dnnl() { # oneDNN has no .pc file in Debian: ask the compiler and the linker
    printf '#include <dnnl.h>\nint main(void) { return dnnl_version() == 0; }\n' |
        $CC -x c - -o /dev/null -ldnnl 2>/dev/null
}

have_openmp() { # clang may lack the header or the runtime
    printf '#include <omp.h>\nint main(void) { return omp_get_max_threads() == 0; }\n' |
        $CC -fopenmp -x c - -o /dev/null 2>/dev/null
}

if [ "${1-}" = --probe ]; then
    command -v "${CC%% *}" >/dev/null && command -v "$PKG_CONFIG" >/dev/null || exit 1
    for package in libevent openssl inih sqlite3 jansson libpcre2-8 libutf8proc libssh2 ncursesw libzstd zlib libxxhash; do "$PKG_CONFIG" --exists "$package" || exit 1; done
    have_dnnl
    exit
fi

out=$1 kind= missing=
shift
command -v "$PKG_CONFIG" >/dev/null || { echo "kedge: pkg-config is missing; run: make deps" >&2; exit 1; }
: >"$out.tmp"
for part in "$@"; do
    case $part in required | optional) kind=$part; continue ;; esac
    name=${part%%:*} package=${part#*:}
    if version=$("$PKG_CONFIG" --modversion "$package" 2>/dev/null); then
        printf '%-9s %s %s\n' "$name" "$package" "$version"
        printf '%s_CFLAGS := %s\n%s_LIBS := %s\n' "$name" "$("$PKG_CONFIG" --cflags "$package")" \
            "$name" "$("$PKG_CONFIG" --libs "$package")" >>"$out.tmp"
    elif [ "$kind" = required ]; then
        missing="$missing $package"
    else
        printf '%-9s %s is not here: tests that need it are not built\n' "$name" "$package"
    fi
done
if have_dnnl; then
    printf '%-9s oneDNN found: kedge-cpu.so is built\n' dnnl
    echo 'dnnl_LIBS := -ldnnl' >>"$out.tmp"
else
    printf '%-9s oneDNN (libdnnl-dev) is not here: no CPU backend, this machine can be console and head only\n' dnnl
fi
if have_openmp; then
    printf '%-9s %s has OpenMP: CPU kernels use all threads\n' openmp "$CC"
    echo 'openmp_FLAGS := -fopenmp' >>"$out.tmp"
else
    printf '%-9s %s has no OpenMP runtime (gcc has; for clang: libomp-dev): only matrix products use more than one thread\n' openmp "$CC"
    echo 'openmp_FLAGS := -fopenmp-simd' >>"$out.tmp"
fi
if [ -n "$missing" ]; then
    rm -f "$out.tmp"
    echo "kedge: missing packages:$missing; run: make deps" >&2
    exit 1
fi
mv "$out.tmp" "$out"
