/*
 * Two small hashes of the tokenizer, filled once and then only read, so that threads may share them: texts (bytes → a
 * number) and pairs (two numbers → two numbers: merges, and the nodes of a trie). Keys of texts lie in an arena of the
 * caller's.
 */
#ifndef KEDGE_MODEL_TEXTS_H
#define KEDGE_MODEL_TEXTS_H

#include <stddef.h>
#include <stdint.h>

#define TEXTS_NONE UINT32_MAX

struct texts_row {
    uint32_t hash, at, bytes, value; /* value TEXTS_NONE: free */
};

struct texts {
    const uint8_t *arena;
    struct texts_row *rows;
    size_t mask;
};

/* Room for `count` texts; the arena may be filled later but does not move. */
void texts_init(struct texts *texts, const uint8_t *arena, size_t count);
void texts_clear(struct texts *texts);
/* A text that is there keeps its value: what is known for it afterwards. */
uint32_t texts_put(struct texts *texts, uint32_t at, uint32_t bytes, uint32_t value);
uint32_t texts_get(const struct texts *texts, const void *bytes, size_t count); /* TEXTS_NONE: not there */

struct pairs_row {
    uint32_t left, right, first, second; /* left UINT32_MAX: free */
};

struct pairs {
    struct pairs_row *rows;
    size_t mask, count;
};

void pairs_init(struct pairs *pairs, size_t count);
void pairs_clear(struct pairs *pairs);
void pairs_put(struct pairs *pairs, uint32_t left, uint32_t right, uint32_t first, uint32_t second); /* the newest counts */
const struct pairs_row *pairs_get(const struct pairs *pairs, uint32_t left, uint32_t right);          /* NULL: not there */

#endif
