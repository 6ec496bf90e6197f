#include "gpu/model/texts.h"

#include "ssh/base/hash.h"
#include "ssh/base/mem.h"
#include "ssh/base/why.h"

static size_t room_for(size_t count)
{
    size_t room = 16;
    while (room < count + count / 2)
        room *= 2;
    return room;
}

void texts_init(struct texts *texts, const uint8_t *arena, size_t count)
{
    size_t room = room_for(count);
    *texts = (struct texts){arena, mem_array(room, sizeof(struct texts_row)), room - 1};
    for (size_t i = 0; i < room; i++)
        texts->rows[i].value = TEXTS_NONE;
}

void texts_clear(struct texts *texts)
{
    mem_free(texts->rows);
    *texts = (struct texts){0};
}

/* The row of a text, or the free one where it belongs. */
static struct texts_row *texts_find(const struct texts *texts, const void *bytes, size_t count, uint32_t hash)
{
    for (size_t i = hash & texts->mask;; i = (i + 1) & texts->mask) {
        struct texts_row *row = &texts->rows[i];
        if (row->value == TEXTS_NONE)
            return row;
        if (row->hash == hash && row->bytes == count && memcmp(texts->arena + row->at, bytes, count) == 0)
            return row;
    }
}

uint32_t texts_put(struct texts *texts, uint32_t at, uint32_t bytes, uint32_t value)
{
    BUG_IF(value == TEXTS_NONE);
    uint32_t hash = (uint32_t)hash_bytes(texts->arena + at, bytes);
    struct texts_row *row = texts_find(texts, texts->arena + at, bytes, hash);
    if (row->value == TEXTS_NONE)
        *row = (struct texts_row){hash, at, bytes, value};
    return row->value;
}

uint32_t texts_get(const struct texts *texts, const void *bytes, size_t count)
{
    return texts->rows ? texts_find(texts, bytes, count, (uint32_t)hash_bytes(bytes, count))->value : TEXTS_NONE;
}

void pairs_init(struct pairs *pairs, size_t count)
{
    size_t room = room_for(count);
    *pairs = (struct pairs){mem_array(room, sizeof(struct pairs_row)), room - 1, 0};
    for (size_t i = 0; i < room; i++)
        pairs->rows[i].left = UINT32_MAX;
}

void pairs_clear(struct pairs *pairs)
{
    mem_free(pairs->rows);
    *pairs = (struct pairs){0};
}

static struct pairs_row *pairs_find(const struct pairs *pairs, uint32_t left, uint32_t right)
{
    uint64_t key = ((uint64_t)left << 32 | right) * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t i = (key >> 32 ^ key) & pairs->mask;; i = (i + 1) & pairs->mask) {
        struct pairs_row *row = &pairs->rows[i];
        if (row->left == UINT32_MAX || (row->left == left && row->right == right))
            return row;
    }
}

void pairs_put(struct pairs *pairs, uint32_t left, uint32_t right, uint32_t first, uint32_t second)
{
    BUG_IF(left == UINT32_MAX);
    struct pairs_row *row = pairs_find(pairs, left, right);
    pairs->count += row->left == UINT32_MAX;
    BUG_IF(pairs->count > pairs->mask);
    *row = (struct pairs_row){left, right, first, second};
}

const struct pairs_row *pairs_get(const struct pairs *pairs, uint32_t left, uint32_t right)
{
    if (!pairs->rows)
        return NULL;
    const struct pairs_row *row = pairs_find(pairs, left, right);
    return row->left == UINT32_MAX ? NULL : row;
}
