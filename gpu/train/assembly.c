/* See assembly.h. */
#include "gpu/train/assembly.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "gpu/train/delta.h"
#include "ssh/base/hash.h"
#include "ssh/base/mem.h"

#define STAGES_MOST 64

struct part { /* of one stage */
    int first_layer, layers;
    uint64_t first, words, chunks; /* of the image; words 0: it has not said what it is */
    uint64_t next, next_base;      /* version that is coming; 0 = none */
    uint64_t here;                 /* chunks of it */
    uint64_t bytes, held_bytes;    /* as they travelled */
    uint64_t held_hash;
    uint64_t *hashes; /* [chunks] of next */
    uint8_t *has;     /* [chunks] */
};

struct assembly {
    struct stage_shape whole;
    uint64_t words;
    int stages;
    uint16_t *held, *next;
    uint64_t held_version, versions, repeated;
    pthread_mutex_t reading; /* of `held` */
    struct part parts[STAGES_MOST];
    uint8_t *scratch;
};

uint64_t assembly_memory(const struct stage_shape *whole)
{
    return 4 * (uint64_t)stage_word_count(whole) + 2 * WIRE_CHUNK_WORDS;
}

int assembly_new(const struct stage_shape *whole, int stages, struct assembly **assembly, struct why *why)
{
    struct assembly *made = mem_new(sizeof *made);
    BUG_IF(stages < 1 || stages > STAGES_MOST);
    made->whole = *whole;
    made->stages = stages;
    made->words = (uint64_t)stage_word_count(whole);
    made->held = mem_large(2 * made->words);
    made->next = mem_large(2 * made->words);
    made->scratch = mem_large(2 * WIRE_CHUNK_WORDS);
    if (pthread_mutex_init(&made->reading, NULL) != 0)
        BUG("no mutex");
    if (made->held && made->next && made->scratch) {
        *assembly = made;
        return 0;
    }
    why_set(why, ERR_MEMORY, "no memory for two snapshots of %" PRIu64 " weights", made->words);
    assembly_free(made);
    return why->err;
}

void assembly_free(struct assembly *assembly)
{
    if (!assembly)
        return;
    for (int i = 0; i < STAGES_MOST; i++) {
        mem_free(assembly->parts[i].hashes);
        mem_free(assembly->parts[i].has);
    }
    mem_large_free(assembly->held);
    mem_large_free(assembly->next);
    mem_large_free(assembly->scratch);
    pthread_mutex_destroy(&assembly->reading);
    mem_free(assembly);
}

/* ---- what a stage is ---- */

/* Words of the layers [0, layer), with the embedding: where a stage that begins with that layer lies in the image. */
static uint64_t words_before(const struct assembly *assembly, int64_t layer)
{
    struct stage_shape before = assembly->whole;
    before.layers = layer;
    before.last = false;
    return layer ? (uint64_t)stage_word_count(&before) : 0;
}

static int place(const struct assembly *assembly, const struct wire_snapshot *snapshot, struct part *part, struct why *why)
{
    struct stage_shape shape = assembly->whole;
    int64_t end = (int64_t)snapshot->first_layer + snapshot->layers;
    if (snapshot->layers == 0 || end > assembly->whole.model.layers)
        return why_set(why, ERR_INVALID, "a snapshot of layers %u to %" PRId64 " of a model of %" PRId64,
                       snapshot->first_layer, end - 1, assembly->whole.model.layers);
    shape.first_layer = snapshot->first_layer;
    shape.layers = snapshot->layers;
    shape.first = snapshot->first_layer == 0;
    shape.last = end == assembly->whole.model.layers;
    uint64_t words = (uint64_t)stage_word_count(&shape);
    if (snapshot->words != words || snapshot->chunks != delta_chunks(words) || snapshot->version == 0)
        return why_set(why, ERR_INVALID,
                       "a snapshot of layers %u to %" PRId64 " has %" PRIu64 " weights in %u chunks; they have %" PRIu64,
                       snapshot->first_layer, end - 1, snapshot->words, snapshot->chunks, words);
    part->first = words_before(assembly, snapshot->first_layer);
    part->first_layer = snapshot->first_layer;
    part->layers = snapshot->layers;
    part->words = words;
    part->chunks = snapshot->chunks;
    return 0;
}

int assembly_begin(struct assembly *assembly, int stage, const struct wire_snapshot *snapshot, struct why *why)
{
    struct part new = {0}, *part = &assembly->parts[stage];
    int err = place(assembly, snapshot, &new, why);
    if (err)
        return err;
    if (part->words && (part->first != new.first || part->words != new.words))
        return why_set(why, ERR_INVALID, "stage %d has other layers than before", stage);
    if (!part->words) {
        *part = new;
        part->hashes = mem_array(part->chunks, sizeof *part->hashes);
        part->has = mem_array(part->chunks, 1);
    }
    if (part->next != snapshot->version) {
        memset(part->has, 0, part->chunks);
        part->here = part->bytes = 0;
    }
    part->next = snapshot->version;
    part->next_base = snapshot->base;
    return 0;
}

/* ---- chunks ---- */

static bool is_whole(const struct assembly *assembly, uint64_t version)
{
    uint64_t words = 0;
    for (int i = 0; i < assembly->stages; i++) {
        const struct part *part = &assembly->parts[i];
        if (part->next != version || part->here != part->chunks)
            return false;
        words += part->words;
    }
    return words == assembly->words;
}

static void flip(struct assembly *assembly, uint64_t version)
{
    pthread_mutex_lock(&assembly->reading);
    uint16_t *old = assembly->held;
    assembly->held = assembly->next;
    assembly->next = old;
    assembly->held_version = version;
    pthread_mutex_unlock(&assembly->reading);
    assembly->versions++;
    for (int i = 0; i < assembly->stages; i++) {
        struct part *part = &assembly->parts[i];
        part->held_hash = hash_bytes(part->hashes, 8 * part->chunks);
        part->held_bytes = part->bytes;
        part->next = part->here = part->bytes = 0;
        memset(part->has, 0, part->chunks);
    }
}

int assembly_chunk(struct assembly *assembly, int stage, const struct wire_chunk *chunk, struct why *why)
{
    struct part *part = &assembly->parts[stage];
    struct why reason = {0};
    if (!part->words || chunk->version != part->next)
        return 0;
    if (chunk->chunk >= part->chunks)
        return why_set(why, ERR_INVALID, "chunk %u of %" PRIu64, chunk->chunk, part->chunks);
    part->bytes += chunk->body.bytes;
    if (part->has[chunk->chunk])
        return 0;
    uint64_t first = part->first + (uint64_t)chunk->chunk * WIRE_CHUNK_WORDS, count = delta_count(part->words, chunk->chunk);
    bool whole = chunk->coding == CHUNK_WHOLE;
    bool possible = whole || (part->next_base && part->next_base == assembly->held_version);
    if (!possible || delta_decode(chunk->body.data, chunk->body.bytes, whole ? NULL : assembly->held + first, count,
                                  chunk->hash, assembly->scratch, assembly->next + first, &reason) < 0) {
        assembly->repeated++;
        return ERR_AGAIN;
    }
    part->has[chunk->chunk] = 1;
    part->hashes[chunk->chunk] = chunk->hash;
    part->here++;
    if (part->here < part->chunks || !is_whole(assembly, chunk->version))
        return 0;
    flip(assembly, chunk->version);
    return 1;
}

uint16_t *assembly_words(struct assembly *assembly, int stage)
{
    return assembly->next + assembly->parts[stage].first;
}

int assembly_filled(struct assembly *assembly, int stage, uint64_t version, uint64_t bytes)
{
    struct part *part = &assembly->parts[stage];
    BUG_IF(part->next != version);
    part->here = part->chunks;
    part->bytes = bytes;
    if (!is_whole(assembly, version))
        return 0;
    flip(assembly, version);
    return 1;
}

void assembly_held(const struct assembly *assembly, int stage, struct wire_held *held)
{
    const struct part *part = &assembly->parts[stage];
    uint64_t chunks = 0;
    while (part->next && chunks < part->chunks && part->has[chunks])
        chunks++;
    *held = (struct wire_held){
        .version = assembly->held_version, .hash = part->held_hash, .next = part->next, .chunks = (uint32_t)chunks};
}

void assembly_bytes(const struct assembly *assembly, uint64_t *travelled, uint64_t *full, uint64_t *versions)
{
    *travelled = 0;
    for (int i = 0; i < assembly->stages; i++)
        *travelled += assembly->parts[i].held_bytes;
    *full = 2 * assembly->words;
    *versions = assembly->versions;
}

uint64_t assembly_repeated(const struct assembly *assembly)
{
    return assembly->repeated;
}

/* ---- compute thread ---- */

void assembly_layers(const struct assembly *assembly, int stage, int *first_layer, int *layers)
{
    *first_layer = assembly->parts[stage].first_layer;
    *layers = assembly->parts[stage].layers;
}

const uint16_t *assembly_lock(struct assembly *assembly, uint64_t *version)
{
    pthread_mutex_lock(&assembly->reading);
    *version = assembly->held_version;
    return assembly->held;
}

void assembly_unlock(struct assembly *assembly)
{
    pthread_mutex_unlock(&assembly->reading);
}
