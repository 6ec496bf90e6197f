#include "ssh/session/arena.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

struct arena_block {
    LIST_ENTRY(arena_block) entry;
    size_t bytes;
    alignas(max_align_t) unsigned char memory[];
};

void arena_init(struct arena *arena, size_t most_bytes, bool plain)
{
    arena->plain = plain;
    LIST_INIT(&arena->blocks);
    arena->bytes = 0;
    arena->most = most_bytes;
}

static struct arena_block *block_of(void *memory)
{
    return (struct arena_block *)(void *)((unsigned char *)memory - offsetof(struct arena_block, memory));
}

void *arena_get(struct arena *arena, size_t bytes)
{
    if (bytes > arena->most || arena->bytes > arena->most - bytes)
        return NULL;
    if (arena->plain)
        return malloc(bytes ? bytes : 1);
    struct arena_block *block = malloc(sizeof *block + bytes);
    if (!block)
        return NULL;
    block->bytes = bytes;
    arena->bytes += bytes;
    LIST_INSERT_HEAD(&arena->blocks, block, entry);
    return block->memory;
}

void arena_put(struct arena *arena, void *memory)
{
    if (!memory || arena->plain) {
        free(memory);
        return;
    }
    struct arena_block *block = block_of(memory);
    LIST_REMOVE(block, entry);
    arena->bytes -= block->bytes;
    free(block);
}

void *arena_change(struct arena *arena, void *old, size_t bytes)
{
    if (arena->plain)
        return bytes > arena->most ? NULL : realloc(old, bytes ? bytes : 1);
    void *new = arena_get(arena, bytes);
    if (!old || !new)
        return new;
    size_t before = block_of(old)->bytes;
    memcpy(new, old, before < bytes ? before : bytes);
    arena_put(arena, old);
    return new;
}

void arena_clear(struct arena *arena)
{
    struct arena_block *block;
    while ((block = LIST_FIRST(&arena->blocks)))
        arena_put(arena, block->memory);
}
