/* See follow.h. One mutex guards all of it; what is large is copied outside. */
#include "gpu/train/follow.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "profiles/profile.h"
#include "ssh/base/mem.h"

#define FIXED_BYTES 96 /* of a message beside its body */
#define VERSIONS (-1) /* in place of a fragment */

struct entry {
    struct wire_follow is; /* of the part that is being sent */
    struct {
        int replica;
        float share;
        uint64_t bytes;
    } parts[PROFILE_MAX_REPLICAS];
    uint64_t sent, total; /* bytes of all parts */
    uint8_t *bytes;
    struct entry *next;
};

struct follow {
    pthread_mutex_t lock;
    struct loop_wake *wake;
    int fragments;
    uint16_t first_layer, layers;
    uint64_t full_bytes;
    uint64_t bound, waiting; /* bytes of entries */
    struct entry *first;
    struct {
        bool lost, greeted; /* greeted: the anchor has said on this road what it holds */
        uint64_t newest;    /* round that the anchor will have when all entries are through */
    } *each;                /* [fragments] */
    uint64_t version, whole; /* captured last; bytes that waited for it then */
    uint64_t left;           /* of those: not sent yet */
    bool stands, through;    /* through: the version has been sent to its end */
};

/* ---- entries ---- */

static void entry_free(struct entry *entry)
{
    mem_large_free(entry->bytes);
    mem_free(entry);
}

static struct entry **end_of(struct follow *follow)
{
    struct entry **at = &follow->first;
    while (*at)
        at = &(*at)->next;
    return at;
}

/* NULL: there is no room. */
static struct entry *entry_new(const struct follow *follow, const struct wire_follow *is, const struct sync_part *parts, int count)
{
    struct entry *made = mem_new(sizeof *made);
    BUG_IF(count < 1 || count > PROFILE_MAX_REPLICAS);
    made->is = *is;
    made->is.first_layer = follow->first_layer;
    made->is.layers = follow->layers;
    made->is.parts = (uint16_t)count;
    for (int p = 0; p < count; p++) {
        made->parts[p].replica = parts[p].replica;
        made->parts[p].share = parts[p].share;
        made->parts[p].bytes = parts[p].count;
        made->total += parts[p].count;
    }
    made->bytes = mem_large(made->total ? made->total : 1);
    if (!made->bytes) {
        mem_free(made);
        return NULL;
    }
    uint8_t *at = made->bytes;
    for (int p = 0; p < count; at += parts[p++].count)
        if (parts[p].bytes && parts[p].count)
            memcpy(at, parts[p].bytes, parts[p].count);
    return made;
}

static bool is_of(const struct entry *entry, int fragment)
{
    bool version = entry->is.kind == FOLLOW_VERSION;
    return fragment == VERSIONS ? version : !version && entry->is.fragment == fragment;
}

/* With the lock. */
static void drop(struct follow *follow, int fragment)
{
    struct entry **at = &follow->first;
    while (*at) {
        struct entry *entry = *at;
        if (!is_of(entry, fragment)) {
            at = &entry->next;
            continue;
        }
        *at = entry->next;
        follow->waiting -= entry->total;
        entry_free(entry);
    }
}

static void lose(struct follow *follow, int fragment)
{
    drop(follow, fragment);
    follow->each[fragment].lost = true;
}

static void lose_all(struct follow *follow)
{
    for (int f = 0; f < follow->fragments; f++)
        lose(follow, f);
}

/* With the lock; takes `entry` (NULL: it found no memory) over. Without room all is lost: else what is lost could find none,
 * either. */
static void put(struct follow *follow, struct entry *entry)
{
    if (entry && follow->waiting + entry->total <= follow->bound) {
        *end_of(follow) = entry;
        follow->waiting += entry->total;
        return;
    }
    if (entry)
        entry_free(entry);
    lose_all(follow);
}

/* ---- compute thread ---- */

uint64_t follow_bound(const struct sync *sync, int fragments, int replicas)
{
    uint64_t states = 0, rounds = 0;
    for (int f = 0; f < fragments; f++) {
        states += sync_state_bytes(sync, f);
        for (int e = 0; e < sync_exchanges(sync, f); e++)
            rounds += sync_most_bytes(sync, f, e);
    }
    return states + 2 * (uint64_t)replicas * rounds;
}

void follow_set_bound(struct follow *follow, uint64_t bytes)
{
    pthread_mutex_lock(&follow->lock);
    follow->bound = bytes;
    pthread_mutex_unlock(&follow->lock);
}

static bool is_lost(struct follow *follow, int fragment)
{
    pthread_mutex_lock(&follow->lock);
    bool lost = follow->each[fragment].lost;
    pthread_mutex_unlock(&follow->lock);
    return lost;
}

void follow_round(struct follow *follow, const struct wire_follow *is, bool last, const struct sync_part *parts, int count)
{
    if (is_lost(follow, is->fragment))
        return;
    struct entry *entry = entry_new(follow, is, parts, count);
    pthread_mutex_lock(&follow->lock);
    if (entry) {
        entry->is.kind = FOLLOW_ROUND;
        entry->is.before = follow->each[is->fragment].newest;
    }
    if (!follow->each[is->fragment].lost)
        put(follow, entry);
    else if (entry)
        entry_free(entry); /* the anchor said so a moment ago */
    if (last)
        follow->each[is->fragment].newest = is->number;
    pthread_mutex_unlock(&follow->lock);
}

void follow_lose(struct follow *follow, int fragment)
{
    pthread_mutex_lock(&follow->lock);
    lose(follow, fragment);
    pthread_mutex_unlock(&follow->lock);
}

/* The common copy as it is now, with what it is the end of. */
static void tell_state(struct follow *follow, const struct sync *sync, int fragment, uint64_t round, uint64_t hash)
{
    struct wire_follow is = {.kind = FOLLOW_STATE, .number = round, .fragment = (uint16_t)fragment, .hash = hash};
    struct sync_part part = {.count = sync_state_bytes(sync, fragment)}; /* copied once: into the entry */
    struct entry *entry = entry_new(follow, &is, &part, 1);
    if (entry)
        sync_state_get(sync, fragment, 0, part.count, entry->bytes);
    pthread_mutex_lock(&follow->lock);
    follow->each[fragment].lost = false;
    follow->each[fragment].newest = round;
    put(follow, entry);
    pthread_mutex_unlock(&follow->lock);
}

static bool is_greeted(const struct follow *follow)
{
    bool greeted = follow->stands;
    for (int f = 0; f < follow->fragments && greeted; f++)
        greeted = follow->each[f].greeted;
    return greeted;
}

bool follow_is_greeted(struct follow *follow)
{
    pthread_mutex_lock(&follow->lock);
    bool greeted = is_greeted(follow);
    pthread_mutex_unlock(&follow->lock);
    return greeted;
}

/* Versions that are not through are given up; what is lost has room from now on. While nobody has said what is held, another
 * anchor may be about to say that it is nothing, and this version could not be mended any more. */
static void make_room(struct follow *follow, const struct sync *sync)
{
    uint64_t needed = 0;
    pthread_mutex_lock(&follow->lock);
    drop(follow, VERSIONS);
    for (int f = 0; f < follow->fragments; f++)
        needed += follow->each[f].lost ? sync_state_bytes(sync, f) : 0;
    if (!is_greeted(follow) || follow->waiting + needed > follow->bound)
        lose_all(follow);
    pthread_mutex_unlock(&follow->lock);
}

uint64_t follow_version(struct follow *follow, const struct sync *sync, uint64_t version, const uint64_t *rounds)
{
    make_room(follow, sync);
    uint64_t *hashes = mem_array((size_t)follow->fragments, sizeof *hashes);
    for (int f = 0; f < follow->fragments; f++) {
        hashes[f] = sync_hash(sync, f);
        if (is_lost(follow, f))
            tell_state(follow, sync, f, rounds[f], hashes[f]);
    }
    struct wire_follow is = {.kind = FOLLOW_VERSION, .number = version};
    struct sync_part part = {.bytes = (const uint8_t *)hashes, .count = (size_t)follow->fragments * sizeof *hashes};
    struct entry *entry = entry_new(follow, &is, &part, 1);
    mem_free(hashes);
    pthread_mutex_lock(&follow->lock);
    if (entry) { /* always has room */
        *end_of(follow) = entry;
        follow->waiting += entry->total;
    }
    follow->version = version;
    follow->through = false;
    follow->whole = follow->left = follow->waiting;
    uint64_t bytes = follow->whole;
    pthread_mutex_unlock(&follow->lock);
    loop_wake(follow->wake);
    return bytes;
}

/* ---- loop thread ---- */

void follow_road(struct follow *follow, bool stands)
{
    pthread_mutex_lock(&follow->lock);
    follow->stands = stands;
    for (int f = 0; f < follow->fragments; f++)
        follow->each[f].greeted = false;
    if (follow->first) { /* the rest has not begun */
        follow->left += follow->first->sent;
        follow->first->sent = follow->first->is.offset = 0;
        follow->first->is.part = 0;
    }
    pthread_mutex_unlock(&follow->lock);
}

/* Does what waits of the fragment go on from what is held? */
static bool goes_on(const struct follow *follow, int fragment, uint64_t held)
{
    const struct entry *entry = follow->first;
    while (entry && !is_of(entry, fragment))
        entry = entry->next;
    if (follow->each[fragment].lost || (entry && entry->is.kind == FOLLOW_STATE))
        return true;
    if (entry)
        return held && entry->is.exchange == 0 && entry->is.before == held - 1;
    return held && follow->each[fragment].newest == held - 1;
}

int follow_want(struct follow *follow, const struct wire_want *want, struct why *why)
{
    if (want->chunk >= (uint32_t)follow->fragments)
        return why_set(why, ERR_INVALID, "the anchor speaks of fragment %u of %d", want->chunk, follow->fragments);
    pthread_mutex_lock(&follow->lock);
    follow->each[want->chunk].greeted = true;
    if (!goes_on(follow, (int)want->chunk, want->version))
        lose(follow, (int)want->chunk);
    pthread_mutex_unlock(&follow->lock);
    loop_wake(follow->wake);
    return 0;
}

static void drop_first(struct follow *follow)
{
    struct entry *entry = follow->first;
    follow->first = entry->next;
    follow->waiting -= entry->total;
    entry_free(entry);
}

static bool is_open(struct follow *follow)
{
    return follow->version && !follow->through && follow->first && is_greeted(follow);
}

/* With the lock; the next piece of the first entry. */
static void take_piece(struct follow *follow, struct snap_piece *piece)
{
    struct entry *entry = follow->first;
    struct wire_follow *is = &entry->is;
    struct buf buf;
    struct why why = {0};
    is->total = entry->parts[is->part].bytes;
    is->replica = (uint16_t)entry->parts[is->part].replica;
    is->share = entry->parts[is->part].share;
    uint64_t left = is->total - is->offset, bytes = left < WIRE_SYNC_BYTES ? left : WIRE_SYNC_BYTES;
    is->body = (struct wire_bytes){.data = entry->bytes + entry->sent, .bytes = (uint32_t)bytes};
    size_t room = FIXED_BYTES + is->body.bytes;
    buf_init(&buf, room);
    if (!buf_reserve(&buf, room) || wire_encode(WIRE_FOLLOW, is, &buf, &why) < 0)
        BUG("%s", why.text);
    entry->sent += is->body.bytes;
    is->offset += is->body.bytes;
    follow->left -= is->body.bytes < follow->left ? is->body.bytes : follow->left;
    *piece = (struct snap_piece){.type = WIRE_FOLLOW, .version = follow->version, .payload = buf.data, .bytes = buf_used(&buf),
                                 .of = (uint32_t)(follow->whole >> 10) + 1};
    if (is->offset == is->total) {
        is->part++;
        is->offset = 0;
    }
    if (is->part == is->parts) {
        follow->through = is->kind == FOLLOW_VERSION;
        drop_first(follow);
    }
    piece->chunks = follow->through ? piece->of : (uint32_t)((follow->whole - follow->left) >> 10);
}

bool follow_next(struct follow *follow, struct snap_piece *piece)
{
    pthread_mutex_lock(&follow->lock);
    bool found = is_open(follow);
    if (found)
        take_piece(follow, piece);
    pthread_mutex_unlock(&follow->lock);
    return found;
}

uint64_t follow_newest(struct follow *follow)
{
    pthread_mutex_lock(&follow->lock);
    uint64_t version = follow->version;
    pthread_mutex_unlock(&follow->lock);
    return version;
}

uint64_t follow_full_bytes(const struct follow *follow)
{
    return follow->full_bytes;
}

/* ---- life ---- */

struct follow *follow_new(struct loop *loop, const struct stage_shape *shape, int fragments, loop_cb *ready, void *arg)
{
    struct follow *made = mem_new(sizeof *made);
    made->fragments = fragments;
    made->first_layer = (uint16_t)shape->first_layer;
    made->layers = (uint16_t)shape->layers;
    made->full_bytes = 2 * (uint64_t)stage_word_count(shape);
    made->each = mem_array((size_t)fragments, sizeof *made->each);
    for (int f = 0; f < fragments; f++)
        made->each[f].lost = true;
    if (pthread_mutex_init(&made->lock, NULL) != 0)
        BUG("no mutex");
    made->wake = loop_wake_new(loop, ready, arg);
    return made;
}

void follow_free(struct follow *follow)
{
    if (!follow)
        return;
    while (follow->first)
        drop_first(follow);
    loop_wake_free(follow->wake);
    mem_free(follow->each);
    pthread_mutex_destroy(&follow->lock);
    mem_free(follow);
}
