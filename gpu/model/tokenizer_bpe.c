/*
 * Byte-pair encoding of one piece: its characters (or bytes) become tokens, then the two neighbours whose merge comes first
 * in the file's list are merged, the leftmost of equals, until nothing can be merged.
 *
 * Short words look for the best pair again after each merge; long ones keep the candidates in a heap over a linked list, so
 * that a megabyte without a space takes n·log n. Words that were seen lately are remembered: most of a text is the same few
 * thousand words.
 */
#include <inttypes.h>

#include "gpu/model/tokenizer_inside.h"
#include "gpu/model/utf8.h"
#include "ssh/base/hash.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define SHORT_WORD 40         /* symbols; about where the heap becomes faster */
#define CACHE_SLOTS ((size_t)1 << 15)
#define CACHE_WORDS ((size_t)1 << 20) /* 32-bit words of keys and ids, at most */
#define CACHE_BYTES 96        /* longest word that is remembered */
#define NONE TOKENIZER_NONE

struct symbol {
    uint32_t id;
    int32_t previous, next; /* −1: none; next −2: merged into the one before it */
};

struct candidate {
    uint32_t rank, at, id; /* id: of both together */
};

struct slot {
    uint32_t hash, at; /* of the entry in words: its bytes, then its ids; at 0: free */
    uint16_t bytes, count;
};

struct bpe_scratch {
    struct symbol *symbols;
    size_t symbols_room;
    struct candidate *heap;
    size_t heap_count, heap_room;
    struct slot *slots;
    uint32_t *words;
    size_t slots_used, words_used, words_room;
    uint32_t *ids; /* of the word at hand */
    size_t count, ids_room, lost;
};

struct bpe_scratch *bpe_scratch_new(void)
{
    struct bpe_scratch *s = mem_new(sizeof *s);
    s->slots = mem_array(CACHE_SLOTS, sizeof *s->slots);
    s->words_room = 4096;
    s->words = mem_array(s->words_room, sizeof *s->words);
    s->words_used = 1;
    return s;
}

void bpe_scratch_free(struct bpe_scratch *scratch)
{
    if (!scratch)
        return;
    mem_free(scratch->symbols);
    mem_free(scratch->heap);
    mem_free(scratch->slots);
    mem_free(scratch->words);
    mem_free(scratch->ids);
    mem_free(scratch);
}

/* ---- characters → tokens ---- */

static void add_id(struct bpe_scratch *s, uint32_t id)
{
    if (s->count == s->ids_room) {
        s->ids_room = s->ids_room ? 2 * s->ids_room : 256;
        s->ids = mem_grow(s->ids, s->ids_room, sizeof *s->ids);
    }
    s->ids[s->count++] = id;
}

/* The ids that the bytes of a character fall back to; false when one of them has none. */
static bool fall_back(const struct bpe *bpe, struct bpe_scratch *s, const uint8_t *at, size_t bytes)
{
    if (!bpe->byte_fallback)
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (bpe->byte_ids[at[i]] == NONE)
            return false;
    for (size_t i = 0; i < bytes; i++)
        add_id(s, bpe->byte_ids[at[i]]);
    return true;
}

static void begin_word(const struct bpe *bpe, struct bpe_scratch *s, const uint8_t *word, size_t bytes)
{
    bool unknown = false; /* one is waiting to be added; as in the reference, bytes that fall back go before it */
    s->count = 0;
    for (size_t at = 0, length; at < bytes; at += length) {
        length = bpe->byte_level ? 1 : utf8_length(word + at, bytes - at);
        bool character = length > 0;
        length += !character;
        uint32_t id = bpe->byte_level ? bpe->byte_ids[word[at]]
                      : character     ? texts_get(bpe->vocabulary, word + at, length)
                                      : NONE;
        if (id != NONE) {
            if (unknown)
                add_id(s, bpe->unknown);
            unknown = false;
            add_id(s, id);
        } else if (bpe->byte_level || !fall_back(bpe, s, word + at, length)) {
            s->lost += length;
            if (bpe->unknown == NONE)
                continue;
            if (unknown && !bpe->fuse_unknown)
                add_id(s, bpe->unknown);
            unknown = true;
        }
    }
    if (unknown)
        add_id(s, bpe->unknown);
}

/* ---- merges ---- */

static void merge_short(const struct bpe *bpe, struct bpe_scratch *s)
{
    uint32_t rank[SHORT_WORD], both[SHORT_WORD]; /* of symbols i and i + 1 */
    uint32_t *ids = s->ids;
    size_t count = s->count;
    for (size_t i = 0; i + 1 < count; i++) {
        const struct pairs_row *row = pairs_get(&bpe->merges, ids[i], ids[i + 1]);
        rank[i] = row ? row->first : UINT32_MAX;
        both[i] = row ? row->second : 0;
    }
    for (;;) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            best = rank[i] < rank[best] ? i : best;
        if (count < 2 || rank[best] == UINT32_MAX)
            break;
        ids[best] = both[best];
        count--;
        for (size_t i = best + 1; i < count; i++) {
            ids[i] = ids[i + 1];
            rank[i - 1] = rank[i];
            both[i - 1] = both[i];
        }
        for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < count; i++) {
            const struct pairs_row *row = pairs_get(&bpe->merges, ids[i], ids[i + 1]);
            rank[i] = row ? row->first : UINT32_MAX;
            both[i] = row ? row->second : 0;
        }
    }
    s->count = count;
}

static bool goes_first(struct candidate a, struct candidate b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static void heap_push(struct bpe_scratch *s, const struct bpe *bpe, int32_t left, int32_t right)
{
    if (left < 0 || right < 0)
        return;
    const struct pairs_row *row = pairs_get(&bpe->merges, s->symbols[left].id, s->symbols[right].id);
    if (!row)
        return;
    if (s->heap_count == s->heap_room) {
        s->heap_room = s->heap_room ? 2 * s->heap_room : 256;
        s->heap = mem_grow(s->heap, s->heap_room, sizeof *s->heap);
    }
    struct candidate new = {row->first, (uint32_t)left, row->second};
    size_t i = s->heap_count++;
    for (; i > 0 && goes_first(new, s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = new;
}

static struct candidate heap_pop(struct bpe_scratch *s)
{
    struct candidate top = s->heap[0], last = s->heap[--s->heap_count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < s->heap_count; i = child) {
        child += child + 1 < s->heap_count && goes_first(s->heap[child + 1], s->heap[child]);
        if (!goes_first(s->heap[child], last))
            break;
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = last;
    return top;
}

static void merge_long(const struct bpe *bpe, struct bpe_scratch *s)
{
    if (s->symbols_room < s->count) {
        s->symbols_room = 2 * s->count;
        s->symbols = mem_grow(s->symbols, s->symbols_room, sizeof *s->symbols);
    }
    struct symbol *symbols = s->symbols;
    int32_t count = (int32_t)s->count;
    for (int32_t i = 0; i < count; i++)
        symbols[i] = (struct symbol){s->ids[i], i - 1, i + 1 < count ? i + 1 : -1};
    s->heap_count = 0;
    for (int32_t i = 0; i + 1 < count; i++)
        heap_push(s, bpe, i, i + 1);
    while (s->heap_count) {
        struct candidate top = heap_pop(s);
        struct symbol *left = &symbols[top.at];
        if (left->next < 0)
            continue;
        const struct symbol *right = &symbols[left->next];
        const struct pairs_row *row = pairs_get(&bpe->merges, left->id, right->id);
        if (!row || row->second != top.id) /* its symbols were merged with others since */
            continue;
        int32_t gone = left->next;
        left->id = top.id;
        left->next = right->next;
        symbols[gone].next = -2;
        if (left->next >= 0)
            symbols[left->next].previous = (int32_t)top.at;
        heap_push(s, bpe, left->previous, (int32_t)top.at);
        heap_push(s, bpe, (int32_t)top.at, left->next);
    }
    s->count = 0;
    for (int32_t i = 0; i >= 0; i = symbols[i].next)
        s->ids[s->count++] = symbols[i].id;
}

/* ---- words ---- */

static struct slot *cache_find(struct bpe_scratch *s, const uint8_t *word, size_t bytes, uint32_t hash)
{
    for (size_t i = hash % CACHE_SLOTS;; i = (i + 1) % CACHE_SLOTS) {
        struct slot *slot = &s->slots[i];
        if (slot->at == 0 || (slot->hash == hash && slot->bytes == bytes && memcmp(s->words + slot->at, word, bytes) == 0))
            return slot;
    }
}

static void cache_put(struct bpe_scratch *s, struct slot *slot, const uint8_t *word, size_t bytes, uint32_t hash)
{
    size_t key = (bytes + 3) / 4;
    if (s->slots_used >= CACHE_SLOTS / 4 * 3 || s->words_used + key + s->count > CACHE_WORDS) { /* full: begin anew */
        memset(s->slots, 0, CACHE_SLOTS * sizeof *s->slots);
        s->slots_used = 0;
        s->words_used = 1;
        slot = cache_find(s, word, bytes, hash);
    }
    if (s->words_used + key + s->count > s->words_room) {
        s->words_room *= 2;
        s->words = mem_grow(s->words, s->words_room, sizeof *s->words);
    }
    *slot = (struct slot){hash, (uint32_t)s->words_used, (uint16_t)bytes, (uint16_t)s->count};
    memcpy(s->words + s->words_used, word, bytes);
    memcpy(s->words + s->words_used + key, s->ids, s->count * sizeof *s->ids);
    s->words_used += key + s->count;
    s->slots_used++;
}

static void add_ids(struct token_list *list, const uint32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++)
        token_list_add(list, ids[i]);
}

static void encode_word(const struct bpe *bpe, struct bpe_scratch *s, const uint8_t *word, size_t bytes,
                        struct token_list *ids)
{
    uint32_t hash = 0, whole;
    struct slot *slot = NULL;
    if (bytes <= CACHE_BYTES) {
        hash = (uint32_t)hash_bytes(word, bytes);
        slot = cache_find(s, word, bytes, hash);
        if (slot->at) {
            add_ids(ids, s->words + slot->at + (slot->bytes + 3u) / 4, slot->count);
            return;
        }
    }
    size_t lost = s->lost;
    if (bpe->ignore_merges && (whole = texts_get(bpe->byte_level ? &bpe->by_raw : bpe->vocabulary, word, bytes)) != NONE) {
        s->count = 0;
        add_id(s, whole);
    } else {
        begin_word(bpe, s, word, bytes);
        if (s->count <= SHORT_WORD)
            merge_short(bpe, s);
        else
            merge_long(bpe, s);
    }
    add_ids(ids, s->ids, s->count);
    if (slot && s->lost == lost) /* what is lost must be counted each time */
        cache_put(s, slot, word, bytes, hash);
}

/* The end of the word that begins a text of the SentencePiece kind: marks, then what is no mark. */
static size_t word_end(const uint8_t *text, size_t bytes)
{
    static const uint8_t mark[3] = {0xe2, 0x96, 0x81};
    size_t at = 0;
    while (at + 3 <= bytes && memcmp(text + at, mark, 3) == 0)
        at += 3;
    const uint8_t *next = utf8_find(text + at, bytes - at, mark, 3);
    return next ? (size_t)(next - text) : bytes;
}

size_t bpe_piece(const struct bpe *bpe, struct bpe_scratch *scratch, const uint8_t *piece, size_t bytes,
                 struct token_list *ids)
{
    size_t lost = scratch->lost;
    while (bytes) {
        size_t word = bpe->cuts_at_mark ? word_end(piece, bytes) : bytes;
        encode_word(bpe, scratch, piece, word, ids);
        piece += word;
        bytes -= word;
    }
    return scratch->lost - lost;
}
