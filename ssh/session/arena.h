/*
 * The memory of one session inside the SSH library. The library (1.10) forgets some of it when a session ends in the
 * middle of a
 * greeting or an opening; and a hostile peer could make it take much. So each block is on a list, the list is cleared
 * with the session, and
 * there is a maximum, behind which the library sees "no memory" and the session fails.
 */
#ifndef KEDGE_SESSION_ARENA_H
#define KEDGE_SESSION_ARENA_H

#include <stddef.h>
#include <sys/queue.h>

struct arena_block;
LIST_HEAD(arena_blocks, arena_block);

struct arena {
    struct arena_blocks blocks;
    size_t bytes, most;
};

void arena_init(struct arena *arena, size_t most_bytes);
void arena_clear(struct arena *arena); /* frees all that was not given back */
void *arena_get(struct arena *arena, size_t bytes); /* NULL beyond the maximum; not zeroed */
void *arena_change(struct arena *arena, void *old, size_t bytes);
void arena_put(struct arena *arena, void *memory); /* NULL is fine */

#endif
