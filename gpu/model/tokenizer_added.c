/*
 * Added tokens ("<|im_end|>") are found before anything else happens to a text: leftmost first, of those the longest, in a
 * trie.
 */
#include "gpu/model/tokenizer_inside.h"
#include "gpu/model/utf8.h"
#include "ssh/base/mem.h"

/* Nodes with their rows: a pair (node, ANY) says which token ends at a node. */
#define ENDS_HERE 256u

/* The map of nodes is filled once, but how many there will be is known only then. */
static void put_node(struct added_set *set, uint32_t left, uint32_t right, uint32_t value)
{
    if (!set->nodes.rows)
        pairs_init(&set->nodes, 64);
    if (2 * (set->nodes.count + 1) > set->nodes.mask) {
        struct pairs old = set->nodes;
        pairs_init(&set->nodes, 2 * (old.mask + 1));
        for (size_t i = 0; i <= old.mask; i++)
            if (old.rows[i].left != UINT32_MAX)
                pairs_put(&set->nodes, old.rows[i].left, old.rows[i].right, old.rows[i].first, 0);
        pairs_clear(&old);
    }
    pairs_put(&set->nodes, left, right, value, 0);
}

void added_put(struct added_set *set, const void *content, size_t bytes, struct added row)
{
    const uint8_t *byte = content;
    uint32_t node = 0;
    BUG_IF(bytes == 0);
    set->begins[byte[0]] = true;
    for (size_t i = 0; i < bytes; i++) {
        const struct pairs_row *next = pairs_get(&set->nodes, node, byte[i]);
        if (!next)
            put_node(set, node, byte[i], ++set->last_node);
        node = next ? next->first : set->last_node;
    }
    if (pairs_get(&set->nodes, node, ENDS_HERE)) /* the same text again: the first one counts */
        return;
    put_node(set, node, ENDS_HERE, (uint32_t)set->count);
    set->rows = mem_grow(set->rows, set->count + 1, sizeof *set->rows);
    set->rows[set->count++] = row;
}

void added_clear(struct added_set *set)
{
    pairs_clear(&set->nodes);
    mem_free(set->rows);
    *set = (struct added_set){0};
}

/* The row of the longest token that begins here, or NULL. */
static const struct added *longest(const struct added_set *set, const uint8_t *text, size_t bytes, size_t *length)
{
    const struct added *found = NULL;
    uint32_t node = 0;
    for (size_t i = 0; i < bytes; i++) {
        const struct pairs_row *next = pairs_get(&set->nodes, node, text[i]);
        if (!next)
            break;
        node = next->first;
        const struct pairs_row *end = pairs_get(&set->nodes, node, ENDS_HERE);
        if (end) {
            found = &set->rows[end->first];
            *length = i + 1;
        }
    }
    return found;
}

static bool is_word_at(const uint8_t *text, size_t bytes, size_t at)
{
    uint32_t code;
    return utf8_read(text + at, bytes - at, &code) && utf8_is_word(code);
}

static bool is_space_at(const uint8_t *text, size_t bytes, size_t at, size_t *length)
{
    uint32_t code;
    *length = utf8_read(text + at, bytes - at, &code);
    return *length && utf8_is_space(code);
}

static void strip(const struct added *row, const uint8_t *text, size_t bytes, size_t from, struct added_match *match)
{
    size_t length;
    while (row->left_strip && match->start > from) {
        size_t before = utf8_before(text, match->start);
        if (before < from || !is_space_at(text, match->start, before, &length) || before + length != match->start)
            break;
        match->start = before;
    }
    while (row->right_strip && is_space_at(text, bytes, match->end, &length))
        match->end += length;
}

bool added_find(const struct added_set *set, const uint8_t *text, size_t bytes, size_t *position, size_t from,
                struct added_match *match)
{
    for (size_t at = *position; set->count && at < bytes; at++) {
        size_t length;
        if (!set->begins[text[at]])
            continue;
        const struct added *row = longest(set, text + at, bytes - at, &length);
        if (!row)
            continue;
        if (row->single_word &&
            ((at > 0 && is_word_at(text, bytes, utf8_before(text, at))) || is_word_at(text, bytes, at + length))) {
            at += length - 1;
            continue;
        }
        *position = at + length;
        *match = (struct added_match){at, at + length, row->id};
        strip(row, text, bytes, from, match);
        return true;
    }
    return false;
}
