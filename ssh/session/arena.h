/*
 * The memory of one session inside the SSH library. The library (1.10) forgets some of it when a session ends in the
 * middle of a
 * greeting or an opening; and a hostile peer could make it take much. So each block is on a list, the list is cleared
 * with the session, and
 * there is a maximum, behind which the library sees "no memory" and the session fails.
 *
 * The library from 1.11.1 on gives some of what it got here to free() and OPENSSL_free() (its ECDSA keys and signatures). With such a
 * one blocks are malloc's own: only a single block has a maximum, and what the library forgets is lost.
 */
#ifndef KEDGE_SESSION_ARENA_H
#define KEDGE_SESSION_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

struct arena_block;
LIST_HEAD(arena_blocks, arena_block);

struct arena {
    struct arena_blocks blocks;
    size_t bytes, most;
    bool plain; /* malloc's own blocks, on no list */
};

void arena_init(struct arena *arena, size_t most_bytes, bool plain);
void arena_clear(struct arena *arena); /* frees all that was not given back */
void *arena_get(struct arena *arena, size_t bytes); /* NULL beyond the maximum; not zeroed */
void *arena_change(struct arena *arena, void *old, size_t bytes);
void arena_put(struct arena *arena, void *memory); /* NULL is fine */

#endif
