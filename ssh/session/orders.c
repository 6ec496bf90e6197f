#include "ssh/session/orders.h"

#include <inttypes.h>

#include "ssh/base/buf.h"
#include "ssh/base/mem.h"
#include "ssh/session/compress.h"
#include "ssh/session/exec.h"

static char *quote(const char *text)
{
    struct buf quoted;
    buf_init(&quoted, 32768);
    exec_quote(&quoted, text);
    buf_put(&quoted, "", 1);
    char *copy = mem_text((const char *)buf_peek(&quoted));
    buf_clear(&quoted);
    return copy;
}

/* S sums its input. Our worker does it by XXH3; openssl uses the processor's instructions for SHA-256, and sha256sum of many distributions is
 * four times slower. */
char *orders_prelude(const char *remote, const char *identity, const char *programs)
{
    char *file = quote(remote), *folder = quote(programs ? programs : "");
    char *prelude = mem_format("export LC_ALL=C; umask 077; F=%s; I='%s'; K=%s; " COMPRESS_CHOOSE
                               "S='k digest'; [ \"$U\" = " ORDERS_WORKER " ] || "
                               "{ S='openssl dgst -sha256 -r'; $S </dev/null >/dev/null 2>&1 || S=sha256sum; }; "
                               "N() { rm -f \"$F.part\" \"$F.part.list\"; : >\"$F.part\" && echo \"$I\" >\"$F.part.list\"; }; ",
                               file, identity, folder);
    mem_free(file);
    mem_free(folder);
    return prelude;
}

/* dd takes exactly what was ordered from the pipe; at the end of the connection it is content with less. An unpacker that fails shows in the
 * hash; the cat takes the rest from it, so that the next line is one. */
#define TAKE                                                                                                                    \
    "if [ \"$U\" = " ORDERS_WORKER " ]; then k receive \"$F.part\" || exit 5; exit 0; fi; "                                          \
    "w() { dd of=\"$F.part\" bs=131072 iflag=fullblock,count_bytes oflag=seek_bytes seek=$o count=$n conv=notrunc status=none; }; " \
    "while read -r o n z; do "                                                                                                  \
    "if [ \"$z\" ]; then dd bs=131072 iflag=fullblock,count_bytes count=$z status=none | { $U -dc || cat >/dev/null; } | w; "   \
    "else w; fi || exit 5; "                                                                                                    \
    "read -r e && [ \"$e\" = end ] || exit 6; echo $o $n >>\"$F.part.list\" || exit 5; echo done ${z:-$n} $o $n; done"

char *orders_look(const char *prelude, uint64_t bytes)
{
    return mem_format("%s[ -d \"${F%%/*}/\" ] || mkdir -p \"$(dirname \"$F\")\" || exit 1; echo undoes $U; h= a=; "
                      "if [ -f \"$F\" ] && [ \"$(wc -c <\"$F\")\" -eq %" PRIu64 " ]; then echo \"have $($S <\"$F\")\"; h=1; fi; "
                      "if [ -f \"$F.part\" ] && [ \"$(head -n 1 \"$F.part.list\" 2>/dev/null)\" = \"$I\" ]; then "
                      "echo part; tail -n +2 \"$F.part.list\"; "
                      "elif [ -z \"$h\" ]; then N || exit 5; echo new; else a=1; fi; echo .; "
                      "if [ \"$a\" ]; then read -r a || exit 0; N || exit 5; echo anew; fi; " TAKE, prelude, bytes);
}

char *orders_take(const char *prelude)
{
    return mem_format("%s" TAKE, prelude);
}

/* It hashes what has arrived as far as there is no gap, so that little is left to do at the end. One of a console that was killed goes on by
 * itself, and may have put the same part there before us. */
char *orders_check(const char *prelude)
{
    return mem_format("%sH=$(if [ \"$U\" = " ORDERS_WORKER " ]; then k digest \"$F.part\"; else while read -r o n && [ \"$o\" != end ]; do "
                      "dd if=\"$F.part\" bs=131072 iflag=skip_bytes,count_bytes skip=$o count=$n status=none || exit 1; done | "
                      "$S | cut -d' ' -f1; fi); read -r h m || exit 6; [ \"$H\" = \"$h\" ] || { rm -f \"$F.part\" "
                      "\"$F.part.list\"; echo \"its sum is $H, ours $h\" >&2; exit %d; }; "
                      "if chmod $m \"$F.part\" && mv -f \"$F.part\" \"$F\"; then rm -f \"$F.part.list\"; "
                      "else [ \"$($S <\"$F\" | cut -d' ' -f1)\" = \"$h\" ]; fi && echo same", prelude, ORDERS_DIFFERS);
}
