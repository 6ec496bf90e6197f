/* See replay.h. */
#include "gpu/train/replay.h"

#include <inttypes.h>
#include <string.h>

#include "gpu/math/half.h"
#include "gpu/math/payload.h"
#include "gpu/model/carve.h"
#include "gpu/train/delta.h"
#include "gpu/train/siblings.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"

struct heard { /* of a fragment */
    bool held, told; /* told: the stage knows that it is not */
    uint64_t round;
    int exchange; /* that comes next */
};

struct listener { /* to one stage */
    struct stage_shape shape;
    struct siblings_list list;
    int copy; /* tensor that is the first stage's, too, and no part of a version; −1: none */
    struct sync *sync; /* NULL: nothing has been heard yet */
    struct heard *fragments;
    int replica;            /* who tells */
    bool open;
    struct wire_follow is;  /* of the entry that is coming, */
    struct sync_part parts[PROFILE_MAX_REPLICAS];
    int whole;              /* its parts that are here, */
    uint64_t have, used;    /* bytes of the next one, and of those */
    uint8_t *bytes;
    uint64_t room;
    uint64_t travelled;     /* since the last version */
};

struct replay {
    const struct profile *profile;
    struct stage_shape whole;
    uint64_t repeated;
    int stages;
    struct listener listeners[PROFILE_MAX_STAGES];
};

/* ---- what is kept of a stage ---- */

static int find_copy(const struct listener *listener)
{
    struct carve_block block;
    struct carve_tensor *tensors = carve_trained(&listener->shape, &block);
    int found = -1;
    for (int i = 0; i < listener->list.count && listener->shape.last && !listener->shape.first; i++)
        if (strcmp(tensors[listener->list.index[i]].name, CARVE_EMBEDDING) == 0)
            found = i;
    mem_free(tensors);
    return found;
}

static uint64_t room_of(const struct replay *replay, const struct listener *listener)
{
    uint64_t room = (uint64_t)replay->profile->replicas *
                    sync_bound_bytes(&listener->list.settings, listener->list.tensors, listener->list.count);
    for (int f = 0; f < listener->list.settings.fragments; f++)
        room = sync_state_bytes(listener->sync, f) > room ? sync_state_bytes(listener->sync, f) : room;
    return room > 8 * (uint64_t)listener->list.settings.fragments ? room : 8 * (uint64_t)listener->list.settings.fragments;
}

static int open_listener(struct replay *replay, struct listener *listener, const struct wire_follow *piece, struct why *why)
{
    int64_t end = (int64_t)piece->first_layer + piece->layers;
    if (piece->layers == 0 || end > replay->whole.model.layers)
        return why_set(why, ERR_INVALID, "rounds of layers %u to %" PRId64 " of a model of %" PRId64, piece->first_layer, end - 1,
                       replay->whole.model.layers);
    listener->shape = replay->whole;
    listener->shape.first_layer = piece->first_layer;
    listener->shape.layers = piece->layers;
    listener->shape.first = piece->first_layer == 0;
    listener->shape.last = end == replay->whole.model.layers;
    siblings_list(replay->profile, &listener->shape, &listener->list);
    listener->copy = find_copy(listener);
    int err = sync_new(&listener->list.settings, listener->list.tensors, listener->list.count, &listener->sync, why);
    if (!err) {
        listener->room = room_of(replay, listener);
        listener->bytes = mem_large(listener->room);
        err = listener->bytes ? 0 : why_set(why, ERR_MEMORY, "no memory for rounds of %" PRIu64 " bytes", listener->room);
    }
    if (err) {
        siblings_list_clear(&listener->list);
        sync_free(listener->sync);
        listener->sync = NULL;
    }
    return err;
}

/* ---- fragments ---- */

static void lose(struct replay *replay, struct listener *listener, int fragment, const char *reason)
{
    struct heard *heard = &listener->fragments[fragment];
    sync_drop(listener->sync, fragment);
    heard->exchange = 0;
    if (!heard->held)
        return;
    heard->held = heard->told = false;
    replay->repeated++;
    log_at(LOG_WARN, "anchor", "fragment %d of layers %" PRId64 " and after, round %" PRIu64 ": %s; it is asked for whole",
           fragment, listener->shape.first_layer, heard->round, reason);
}

static void take_round(struct replay *replay, struct listener *listener)
{
    const struct wire_follow *is = &listener->is;
    struct heard *heard = &listener->fragments[is->fragment];
    struct sync_outer outer = {.rate = is->rate, .momentum = is->momentum, .alpha = 1};
    struct why why = {0};
    if (!heard->held)
        return;
    if (is->before != heard->round || is->exchange != heard->exchange || is->rank < 1) {
        lose(replay, listener, is->fragment, "what comes next is not what follows it");
        return;
    }
    if (is->exchange == 0) {
        sync_set_rank(listener->sync, is->rank);
        sync_listen(listener->sync, is->fragment);
    }
    if (sync_receive(listener->sync, is->fragment, is->exchange, listener->parts, is->parts, -1, &outer, &why) < 0) {
        lose(replay, listener, is->fragment, why.text);
        return;
    }
    if (++heard->exchange < sync_exchanges(listener->sync, is->fragment))
        return;
    heard->exchange = 0;
    heard->round = is->number;
}

static int take_state(struct listener *listener, struct why *why)
{
    const struct wire_follow *is = &listener->is;
    struct heard *heard = &listener->fragments[is->fragment];
    const struct sync_part *part = &listener->parts[0];
    if (!payload_finite((const float *)(const void *)part->bytes, (int64_t)(part->count / sizeof(float))))
        return why_set(why, ERR_INVALID, "the common copy of fragment %u is not finite", is->fragment);
    int err = sync_state_put(listener->sync, is->fragment, part->bytes, part->count, why);
    if (err)
        return err;
    *heard = (struct heard){.held = sync_hash(listener->sync, is->fragment) == is->hash, .round = is->number};
    return 0;
}

/* ---- versions ---- */

static void put_words(const struct listener *listener, uint16_t *words)
{
    for (int i = 0; i < listener->list.count; i++) {
        const struct sync_tensor *tensor = &listener->list.tensors[i];
        const float *values = sync_common(listener->sync, i);
        for (int64_t k = 0; k < tensor->rows * tensor->columns && i != listener->copy; k++)
            *words++ = half_from_float(values[k]);
    }
}

static bool is_right(struct replay *replay, struct listener *listener)
{
    bool right = true;
    for (int f = 0; f < listener->list.settings.fragments; f++) {
        uint64_t hash;
        memcpy(&hash, listener->parts[0].bytes + 8 * (size_t)f, sizeof hash);
        if (listener->fragments[f].held && sync_hash(listener->sync, f) != hash)
            lose(replay, listener, f, "it is not what its hash says");
        right &= listener->fragments[f].held; /* a round may be half way: it changes nothing before its end */
    }
    return right;
}

static int take_version(struct replay *replay, struct assembly *assembly, int stage, struct why *why)
{
    struct listener *listener = &replay->listeners[stage];
    uint64_t words = (uint64_t)stage_word_count(&listener->shape);
    struct wire_snapshot snapshot = {.version = listener->is.number, .first_layer = listener->is.first_layer,
                                     .layers = listener->is.layers, .words = words, .chunks = (uint32_t)delta_chunks(words)};
    if (listener->parts[0].count != 8 * (size_t)listener->list.settings.fragments)
        return why_set(why, ERR_INVALID, "a version of %d fragments with %zu bytes of hashes", listener->list.settings.fragments,
                       listener->parts[0].count);
    int err = assembly_begin(assembly, stage, &snapshot, why);
    if (err)
        return err;
    if (!is_right(replay, listener))
        return 2;
    put_words(listener, assembly_words(assembly, stage));
    uint64_t travelled = listener->travelled;
    listener->travelled = 0;
    return assembly_filled(assembly, stage, snapshot.version, travelled);
}

/* ---- pieces ---- */

static int take_entry(struct replay *replay, struct assembly *assembly, int stage, struct why *why)
{
    struct listener *listener = &replay->listeners[stage];
    listener->open = false;
    switch (listener->is.kind) {
    case FOLLOW_ROUND:
        take_round(replay, listener);
        return 0;
    case FOLLOW_STATE:
        return take_state(listener, why);
    default:
        return take_version(replay, assembly, stage, why);
    }
}

static bool has_place(const struct listener *listener, const struct wire_follow *piece)
{
    const struct wire_follow *is = &listener->is;
    return listener->open && piece->kind == is->kind && piece->number == is->number && piece->fragment == is->fragment &&
           piece->exchange == is->exchange && piece->parts == is->parts && piece->part == listener->whole &&
           piece->offset == listener->have && (piece->offset == 0 || piece->total == is->total);
}

static bool is_possible(const struct listener *listener, const struct wire_follow *piece)
{
    return piece->fragment < listener->list.settings.fragments && piece->first_layer == listener->shape.first_layer &&
           piece->layers == listener->shape.layers && piece->parts >= 1 && piece->parts <= PROFILE_MAX_REPLICAS &&
           (piece->kind == FOLLOW_ROUND || piece->parts == 1) && piece->offset <= piece->total &&
           piece->total - piece->offset <= listener->room - listener->used && piece->body.bytes <= piece->total - piece->offset &&
           (piece->body.bytes > 0 || piece->total == 0);
}

int replay_take(struct replay *replay, struct assembly *assembly, int stage, int replica, const struct wire_follow *piece,
                struct why *why)
{
    struct listener *listener = &replay->listeners[stage];
    bool begins = piece->part == 0 && piece->offset == 0;
    int err = listener->sync ? 0 : open_listener(replay, listener, piece, why);
    if (err || (!begins && listener->replica != replica))
        return err; /* another replica tells by now */
    if (begins) {
        listener->open = true;
        listener->replica = replica;
        listener->whole = 0;
        listener->have = listener->used = 0;
        listener->is = *piece;
    }
    if (!is_possible(listener, piece) || !has_place(listener, piece)) {
        listener->open = false;
        return why_set(why, ERR_INVALID, "part %u of %u, byte %" PRIu64 " of %" PRIu64 " of round %" PRIu64 ", fragment %u, has no place",
                       piece->part, piece->parts, piece->offset, piece->total, piece->number, piece->fragment);
    }
    listener->is.total = piece->total;
    if (piece->body.bytes)
        memcpy(listener->bytes + listener->used, piece->body.data, piece->body.bytes);
    listener->used += piece->body.bytes;
    listener->have += piece->body.bytes;
    listener->travelled += piece->body.bytes;
    if (listener->have < piece->total)
        return 0;
    listener->parts[listener->whole++] = (struct sync_part){.replica = piece->replica, .share = piece->share, .count = piece->total,
                                                            .bytes = listener->bytes + listener->used - piece->total};
    listener->have = 0;
    return listener->whole == piece->parts ? take_entry(replay, assembly, stage, why) : 0;
}

/* ---- life ---- */

struct replay *replay_new(const struct profile *profile, const struct stage_shape *whole, int stages)
{
    struct replay *made = mem_new(sizeof *made);
    BUG_IF(stages < 1 || stages > PROFILE_MAX_STAGES);
    made->profile = profile;
    made->whole = *whole;
    made->stages = stages;
    for (int i = 0; i < stages; i++)
        made->listeners[i].fragments = mem_array((size_t)profile->sync_fragments, sizeof *made->listeners[i].fragments);
    return made;
}

void replay_free(struct replay *replay)
{
    if (!replay)
        return;
    for (int i = 0; i < replay->stages; i++) {
        struct listener *listener = &replay->listeners[i];
        if (listener->sync)
            siblings_list_clear(&listener->list);
        sync_free(listener->sync);
        mem_free(listener->fragments);
        mem_large_free(listener->bytes);
    }
    mem_free(replay);
}

uint64_t replay_memory(const struct profile *profile, const struct stage_shape *whole)
{
    struct siblings_list list;
    siblings_list(profile, whole, &list);
    uint64_t bytes = sync_memory(&list.settings, list.tensors, list.count);
    siblings_list_clear(&list);
    return bytes;
}

uint64_t replay_held(struct replay *replay, int stage, int fragment)
{
    struct heard *heard = &replay->listeners[stage].fragments[fragment];
    heard->told = true;
    return heard->held && heard->exchange == 0 ? heard->round + 1 : 0;
}

int replay_lost(struct replay *replay, int stage)
{
    struct listener *listener = &replay->listeners[stage];
    for (int f = 0; f < (int)replay->profile->sync_fragments; f++)
        if (listener->sync && !listener->fragments[f].held && !listener->fragments[f].told) {
            listener->fragments[f].told = true;
            return f;
        }
    return -1;
}

uint64_t replay_repeated(const struct replay *replay)
{
    return replay->repeated;
}
