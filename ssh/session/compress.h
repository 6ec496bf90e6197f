/*
 * Bytes made smaller for a road, in frames that a program of the host undoes. Frames behind one another are as good as one.
 * compress_pays is pure.
 */
#ifndef KEDGE_SESSION_COMPRESS_H
#define KEDGE_SESSION_COMPRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of a shell on the host: U becomes the program that undoes the best of our frames that it has, as compress_new is told it, or stays empty.
 * K: the folder of our programs, if they are there; k runs kedge-worker, which takes whole orders, while the others undo with -dc. */
#define COMPRESS_CHOOSE                                                                                                             \
    "k() { LD_LIBRARY_PATH=\"$K/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\" \"$K/kedge-worker\" \"$@\"; }; "                            \
    "U=kedge-worker; [ \"$K\" ] && k receive / </dev/null >/dev/null 2>&1 || U=; "                                                  \
    "[ \"$U\" ] || for p in zstd gzip; do command -v $p >/dev/null 2>&1 && { U=$p; break; }; done; "

struct compress;

struct compress *compress_new(const char *program); /* NULL when it is none of ours; compress_free it */
void compress_free(struct compress *compress);      /* NULL is fine */
const char *compress_program(const struct compress *compress); /* as compress_new was told */
/* The most bytes that a frame of so many comes to. */
size_t compress_bound(struct compress *compress, size_t bytes);
/* A frame: bytes of it. `out` has room for compress_bound. */
size_t compress_frame(struct compress *compress, const uint8_t *in, size_t bytes, uint8_t *out);

/* Is it quicker to make `plain` bytes into `packed` ones in `took_ns`, and to send those, than to send them as they are? wire_rate: bytes
 * a second that the road takes, 0 = unknown. */
bool compress_pays(size_t plain, size_t packed, uint64_t took_ns, double wire_rate);

#endif
