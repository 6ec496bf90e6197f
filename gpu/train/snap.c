/* See snap.h. One mutex guards all but the images: these belong to whom the flags name (`copying`: the compute thread,
 * `busy`: our own). */
#include "gpu/train/snap.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "gpu/train/delta.h"
#include "ssh/base/hash.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"

#define WANTS_MOST 64
#define FIXED_BYTES 64 /* of a chunk's message beside its body */

struct image {
    uint16_t *words;
    uint64_t version, hash; /* 0: nothing; hash: of the chunks' hashes, when all were made */
};

struct snap {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    struct loop_wake *wake;
    uint64_t words, chunks;
    uint16_t first_layer, layers;
    struct image base, now;
    bool base_agreed; /* the anchor said on this road that it holds base */
    uint64_t *hashes; /* of the chunks of now */
    uint64_t next;    /* chunk to make; `chunks`: all are made */
    uint64_t round;   /* grows with every road and capture: what was made for an older one is dropped */
    bool told, stands, greeted, copying, busy, stopping; /* told: SNAPSHOT has gone ahead */
    uint32_t wants[WANTS_MOST];
    int want_count;
    struct snap_piece ready[SNAP_READY];
    int ready_count;
    uint8_t *scratch, *coded; /* of our own thread */
};

uint64_t snap_memory(const struct stage_shape *shape)
{
    uint64_t words = (uint64_t)stage_word_count(shape);
    return 4 * words + 8 * delta_chunks(words) + 2 * WIRE_CHUNK_WORDS + (1 + SNAP_READY) * delta_bound();
}

uint64_t snap_full_bytes(const struct snap *snap)
{
    return 2 * snap->words;
}

/* ---- our own thread ---- */

static void drop_ready(struct snap *snap)
{
    for (int i = 0; i < snap->ready_count; i++)
        mem_free(snap->ready[i].payload);
    snap->ready_count = 0;
}

static struct snap_piece encode(const struct snap *snap, enum wire_type type, const void *message, uint64_t version,
                                size_t room)
{
    struct buf buf;
    struct why why = {0};
    buf_init(&buf, room);
    if (!buf_reserve(&buf, room) || wire_encode((uint16_t)type, message, &buf, &why) < 0)
        BUG("%s", why.text);
    return (struct snap_piece){
        .type = type, .version = version, .payload = buf.data, .bytes = buf_used(&buf), .of = (uint32_t)snap->chunks};
}

static struct snap_piece make_header(const struct snap *snap)
{
    struct wire_snapshot message = {
        .version = snap->now.version,
        .base = snap->base_agreed ? snap->base.version : 0,
        .first_layer = snap->first_layer,
        .layers = snap->layers,
        .chunks = (uint32_t)snap->chunks,
        .words = snap->words,
    };
    return encode(snap, WIRE_SNAPSHOT, &message, snap->now.version, FIXED_BYTES);
}

/* Without the lock: `now` and `base` stay as they are while `busy`. */
static struct snap_piece make_chunk(struct snap *snap, uint64_t index, bool whole)
{
    uint64_t count = delta_count(snap->words, index), first = index * WIRE_CHUNK_WORDS;
    const uint16_t *words = snap->now.words + first, *base = whole ? NULL : snap->base.words + first;
    size_t bytes = delta_encode(words, base, count, snap->scratch, snap->coded);
    snap->hashes[index] = hash_block(words, 2 * count);
    struct wire_chunk message = {
        .version = snap->now.version,
        .chunk = (uint32_t)index,
        .coding = whole ? CHUNK_WHOLE : CHUNK_DELTA,
        .hash = snap->hashes[index],
        .body = {snap->coded, (uint32_t)bytes},
    };
    return encode(snap, WIRE_CHUNK, &message, snap->now.version, FIXED_BYTES + bytes);
}

static bool has_work(const struct snap *snap)
{
    return snap->stands && snap->greeted && !snap->copying && snap->now.version && snap->ready_count < SNAP_READY &&
           (!snap->told || snap->want_count || snap->next < snap->chunks);
}

/* One piece; called and returns with the lock. */
static void work(struct snap *snap)
{
    uint64_t round = snap->round, index = 0;
    struct snap_piece piece;
    if (!snap->told) {
        piece = make_header(snap);
        snap->told = true;
    } else {
        bool wanted = snap->want_count > 0, whole = wanted || !snap->base_agreed;
        index = wanted ? snap->wants[--snap->want_count] : snap->next;
        snap->next += !wanted;
        snap->busy = true;
        pthread_mutex_unlock(&snap->lock);
        piece = make_chunk(snap, index, whole);
        pthread_mutex_lock(&snap->lock);
        snap->busy = false;
        piece.chunks = (uint32_t)snap->next;
        if (snap->round == round && snap->next == snap->chunks)
            snap->now.hash = hash_bytes(snap->hashes, 8 * snap->chunks);
        pthread_cond_broadcast(&snap->changed);
    }
    if (snap->round == round)
        snap->ready[snap->ready_count++] = piece;
    else
        mem_free(piece.payload);
}

static void *snap_main(void *arg)
{
    struct snap *snap = arg;
    pthread_mutex_lock(&snap->lock);
    while (!snap->stopping) {
        if (has_work(snap)) {
            work(snap);
            loop_wake(snap->wake);
        } else {
            pthread_cond_wait(&snap->changed, &snap->lock);
        }
    }
    pthread_mutex_unlock(&snap->lock);
    return NULL;
}

/* ---- compute thread ---- */

uint16_t *snap_begin(struct snap *snap)
{
    pthread_mutex_lock(&snap->lock);
    snap->copying = true;
    snap->round++;
    while (snap->busy)
        pthread_cond_wait(&snap->changed, &snap->lock);
    pthread_mutex_unlock(&snap->lock);
    return snap->now.words; /* ours until the commit */
}

void snap_commit(struct snap *snap, uint64_t version)
{
    pthread_mutex_lock(&snap->lock);
    drop_ready(snap);
    snap->now.version = version;
    snap->now.hash = 0;
    snap->next = 0;
    snap->told = snap->copying = false;
    snap->want_count = 0;
    pthread_cond_broadcast(&snap->changed);
    pthread_mutex_unlock(&snap->lock);
}

/* ---- loop thread ---- */

void snap_road(struct snap *snap, bool stands)
{
    pthread_mutex_lock(&snap->lock);
    snap->stands = stands;
    snap->round++;
    snap->greeted = snap->base_agreed = snap->told = false;
    snap->want_count = 0;
    drop_ready(snap);
    pthread_cond_broadcast(&snap->changed);
    pthread_mutex_unlock(&snap->lock);
}

/* The first word on a road says where the anchor stands; later ones that it has got further. */
void snap_held(struct snap *snap, const struct wire_held *held)
{
    pthread_mutex_lock(&snap->lock);
    while (snap->busy)
        pthread_cond_wait(&snap->changed, &snap->lock);
    bool through = held->version && held->version == snap->now.version && snap->now.hash && held->hash == snap->now.hash;
    if (through) {
        struct image old = snap->base;
        snap->base = snap->now;
        snap->now = (struct image){.words = old.words};
        drop_ready(snap);
    }
    snap->base_agreed = held->version && held->version == snap->base.version && held->hash == snap->base.hash;
    if (!snap->greeted && !through && held->next == snap->now.version && held->chunks <= snap->chunks)
        snap->next = held->chunks;
    else if (!snap->greeted)
        snap->next = 0;
    snap->greeted = true;
    pthread_cond_broadcast(&snap->changed);
    pthread_mutex_unlock(&snap->lock);
}

int snap_want(struct snap *snap, const struct wire_want *want, struct why *why)
{
    int err = 0;
    pthread_mutex_lock(&snap->lock);
    if (want->chunk >= snap->chunks)
        err = why_set(why, ERR_INVALID, "the anchor wants chunk %u of %" PRIu64, want->chunk, snap->chunks);
    else if (want->version == snap->now.version && snap->want_count < WANTS_MOST)
        snap->wants[snap->want_count++] = want->chunk;
    pthread_cond_broadcast(&snap->changed);
    pthread_mutex_unlock(&snap->lock);
    return err;
}

bool snap_next(struct snap *snap, struct snap_piece *piece)
{
    pthread_mutex_lock(&snap->lock);
    bool found = snap->ready_count > 0;
    if (found) {
        *piece = snap->ready[0];
        memmove(snap->ready, snap->ready + 1, (size_t)--snap->ready_count * sizeof *snap->ready);
        pthread_cond_broadcast(&snap->changed);
    }
    pthread_mutex_unlock(&snap->lock);
    return found;
}

uint64_t snap_version(struct snap *snap)
{
    pthread_mutex_lock(&snap->lock);
    uint64_t version = snap->now.version;
    pthread_mutex_unlock(&snap->lock);
    return version;
}

/* ---- life ---- */

int snap_new(struct loop *loop, const struct stage_shape *shape, loop_cb *ready, void *arg, struct snap **snap,
             struct why *why)
{
    struct snap *made = mem_new(sizeof *made);
    made->words = (uint64_t)stage_word_count(shape);
    made->chunks = delta_chunks(made->words);
    made->first_layer = (uint16_t)shape->first_layer;
    made->layers = (uint16_t)shape->layers;
    made->base.words = mem_large(2 * made->words);
    made->now.words = mem_large(2 * made->words);
    made->hashes = mem_array(made->chunks, sizeof *made->hashes);
    made->scratch = mem_large(2 * WIRE_CHUNK_WORDS);
    made->coded = mem_large(delta_bound());
    if (pthread_mutex_init(&made->lock, NULL) != 0 || pthread_cond_init(&made->changed, NULL) != 0)
        BUG("no mutex or condition variable");
    made->wake = loop_wake_new(loop, ready, arg);
    bool taken = made->base.words && made->now.words && made->scratch && made->coded;
    int err = taken ? 0 : why_set(why, ERR_MEMORY, "no memory for two snapshots of %" PRIu64 " weights", made->words);
    if (!err && pthread_create(&made->thread, NULL, snap_main, made) != 0)
        err = why_set(why, ERR_SYSTEM, "cannot start the thread that packs snapshots");
    if (err) {
        made->words = 0; /* there is no thread */
        snap_free(made);
        return err;
    }
    *snap = made;
    return 0;
}

void snap_free(struct snap *snap)
{
    if (!snap)
        return;
    if (snap->words) {
        pthread_mutex_lock(&snap->lock);
        snap->stopping = true;
        pthread_cond_broadcast(&snap->changed);
        pthread_mutex_unlock(&snap->lock);
        pthread_join(snap->thread, NULL);
    }
    drop_ready(snap);
    loop_wake_free(snap->wake);
    mem_large_free(snap->base.words);
    mem_large_free(snap->now.words);
    mem_large_free(snap->scratch);
    mem_large_free(snap->coded);
    mem_free(snap->hashes);
    pthread_mutex_destroy(&snap->lock);
    pthread_cond_destroy(&snap->changed);
    mem_free(snap);
}
