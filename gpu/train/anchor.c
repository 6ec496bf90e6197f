/* See anchor.h. Here: its life, and what the loop thread does for it. */
#include "gpu/train/anchor.h"

#include <inttypes.h>
#include <string.h>

#include "gpu/train/anchor_inside.h"
#include "gpu/train/inside.h"
#include "gpu/train/shape.h"
#include "gpu/train/worker.h"
#include "ssh/base/clock.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"

#define LETTERS 64
#define IDLE_LOOK_NS (500 * CLOCK_MS)

/* ---- life ---- */

int anchor_new(const struct compute_settings *settings, struct anchor **anchor, struct why *why)
{
    const struct wire_assign *assign = &settings->assign;
    struct stage_shape shape = pass_shape(&settings->profile);
    int err = stage_check(&shape, why);
    if (!err && (assign->stages < 1 || assign->replicas < 1 || assign->stages * assign->replicas > PROFILE_MAX_STAGES))
        err = why_set(why, ERR_INVALID, "%u replicas of %u stages: no such run", assign->replicas, assign->stages);
    if (err)
        return err;
    struct anchor *made = mem_new(sizeof *made);
    made->settings = *settings;
    err = assembly_new(&shape, assign->stages, &made->assembly, why);
    if (err) {
        mem_free(made);
        return err;
    }
    if (settings->profile.anchor_follow)
        made->replay = replay_new(&made->settings.profile, &shape, assign->stages);
    *anchor = made;
    return 0;
}

/* All bases of one version for all replicas may lie in the outbox. */
void anchor_bounds(const struct anchor *anchor, size_t *letters, size_t *bytes)
{
    const struct profile *profile = &anchor->settings.profile;
    struct stage_shape shape = pass_shape(profile);
    int count = matrices_count(&shape);
    size_t sum = 0;
    struct matrix *matrices = mem_array((size_t)count, sizeof *matrices);
    matrices_list(&shape, matrices);
    for (int i = 0; i < count; i++)
        sum += matrices_basis_bytes(&matrices[i], profile_anchor_rank(profile)) + 256;
    mem_free(matrices);
    sum += cuts_letter_bytes(profile);
    *letters = ((size_t)count + 4 * anchor->settings.assign.stages) * anchor->settings.assign.replicas + LETTERS;
    *bytes = sum * anchor->settings.assign.replicas + ((size_t)1 << 20);
}

static void *anchor_thread(void *arg)
{
    struct anchor *anchor = arg;
    struct why why = {0};
    struct letter letter;
    int err = pass_load(anchor, &why);
    if (err) {
        letter = (struct letter){.type = MAIL_FAILED,
                                 .road = MAIL_CONTROL,
                                 .micro_batch = (uint32_t)-err,
                                 .payload = (uint8_t *)mem_text(why.text),
                                 .bytes = strlen(why.text)};
        mail_send(anchor->mail, &letter, NULL);
    } else {
        struct stage_shape shape = pass_shape(&anchor->settings.profile);
        struct wire_ready ready = {
            .state = READY_LOADED, .parameters = (uint64_t)model_parameters(&shape), .memory_bytes = anchor->memory_bytes};
        pass_tell(anchor, WIRE_READY, &ready, 0);
    }
    while (!err || err == ERR_AGAIN) {
        err = mail_take(anchor->mail, &letter, IDLE_LOOK_NS);
        if (!err)
            mem_free(letter.payload);
        if (!err && letter.type == MAIL_FLIPPED && letter.step > anchor->done)
            err = pass_run(anchor);
    }
    letter = (struct letter){.type = MAIL_ENDED, .road = MAIL_CONTROL};
    mail_send(anchor->mail, &letter, NULL);
    return NULL;
}

int anchor_start(struct anchor *anchor, struct mail *mail, struct why *why)
{
    anchor->mail = mail;
    int code = pthread_create(&anchor->thread, NULL, anchor_thread, anchor);
    if (code)
        return why_set(why, ERR_SYSTEM, "cannot start the compute thread: %s", strerror(code));
    anchor->running = true;
    return 0;
}

void anchor_join(struct anchor *anchor)
{
    if (anchor->running)
        pthread_join(anchor->thread, NULL);
    anchor->running = false;
}

void anchor_free(struct anchor *anchor)
{
    if (!anchor)
        return;
    BUG_IF(anchor->running);
    pass_free(anchor);
    replay_free(anchor->replay);
    assembly_free(anchor->assembly);
    mem_free(anchor);
}

/* ---- the loop thread ---- */

static void send(struct worker *worker, int process, enum wire_type type, const void *payload)
{
    struct letter letter = compute_letter(type, payload, 0, (enum mail_road)(MAIL_STAGES + process), 0, 0);
    roads_send(worker->roads, &letter);
}

/* The lowest replica that is there sends them. */
static bool sends_snapshots(const struct anchor *anchor, int process)
{
    return shape_sends_snapshots(&anchor->settings.profile, process / anchor->settings.assign.stages);
}

/* What is held of a fragment; 0 = it is wanted whole. */
static void tell_fragment(struct anchor *anchor, int process, int fragment, struct worker *worker)
{
    int stage = process % anchor->settings.assign.stages;
    struct wire_want want = {.version = replay_held(anchor->replay, stage, fragment), .chunk = (uint32_t)fragment};
    send(worker, process, WIRE_WANT, &want);
}

static void tell_held(struct anchor *anchor, int process, struct worker *worker)
{
    struct wire_held held;
    assembly_held(anchor->assembly, process % anchor->settings.assign.stages, &held);
    send(worker, process, WIRE_HELD, &held);
}

void anchor_grant(struct anchor *anchor, const struct wire_grant *grant, struct worker *worker)
{
    anchor->rate_bps = grant->rate_bps;
    for (int i = 0; i < anchor->settings.assign.replicas * anchor->settings.assign.stages; i++)
        roads_set_pace(worker->roads, (enum mail_road)(MAIL_STAGES + i), anchor->rate_bps);
}

void anchor_road(struct anchor *anchor, int process, struct worker *worker)
{
    roads_set_pace(worker->roads, (enum mail_road)(MAIL_STAGES + process), anchor->rate_bps);
    for (int f = 0; anchor->replay && f < anchor->settings.profile.sync_fragments; f++)
        tell_fragment(anchor, process, f, worker);
    if (!anchor->replay && sends_snapshots(anchor, process))
        tell_held(anchor, process, worker);
}

static void tell_flipped(struct anchor *anchor, uint64_t version, struct worker *worker)
{
    struct wire_mark mark = {.mark = MARK_FLIPPED, .version = version, .step = version};
    uint64_t versions, now_ns = clock_now_ns();
    assembly_bytes(anchor->assembly, &mark.bytes, &mark.total, &versions);
    mark.elapsed_ns = anchor->flipped_ns ? now_ns - anchor->flipped_ns : 0;
    mark.value = (double)(anchor->replay ? replay_repeated(anchor->replay) : assembly_repeated(anchor->assembly));
    anchor->flipped_ns = now_ns;
    log_at(LOG_INFO, "anchor", "holds version %" PRIu64 ", the %" PRIu64 "th: %" PRIu64 " of %" PRIu64 " bytes travelled",
           version, versions, mark.bytes, mark.total);
    /* Stages before kedged, which may order the next at once: it shall be a difference to this one. */
    for (int i = 0; i < anchor->settings.assign.stages && !anchor->replay; i++)
        tell_held(anchor, anchor->sender * anchor->settings.assign.stages + i, worker);
    control_send(worker->control, WIRE_MARK, &mark);
    mail_post(worker->mail, &(struct letter){.type = MAIL_FLIPPED, .road = MAIL_CONTROL, .step = version});
}

static int take_chunk(struct anchor *anchor, int process, const struct wire_chunk *chunk, struct worker *worker,
                      struct why *why)
{
    struct wire_want want = {.version = chunk->version, .chunk = chunk->chunk};
    int got = assembly_chunk(anchor->assembly, process % anchor->settings.assign.stages, chunk, why);
    if (got == ERR_AGAIN) {
        log_at(LOG_WARN, "anchor",
               "chunk %u of version %" PRIu64 " did not make what it should: it is asked for again, whole", chunk->chunk,
               chunk->version);
        send(worker, process, WIRE_WANT, &want);
    }
    if (got == 1)
        tell_flipped(anchor, chunk->version, worker);
    return got == ERR_INVALID ? got : 0;
}

static int take_follow(struct anchor *anchor, int process, const struct wire_follow *piece, struct worker *worker, struct why *why)
{
    int stages = anchor->settings.assign.stages, stage = process % stages, fragment;
    int got = replay_take(anchor->replay, anchor->assembly, stage, process / stages, piece, why);
    while ((fragment = replay_lost(anchor->replay, stage)) >= 0)
        tell_fragment(anchor, process, fragment, worker);
    if (got == 1)
        tell_flipped(anchor, piece->number, worker);
    if (got == 2) /* after what is wanted: a version that is taken now has it */
        control_send(worker->control, WIRE_MARK,
                     &(struct wire_mark){.mark = MARK_DAMAGED, .version = piece->number, .step = piece->number});
    return got < 0 ? got : 0;
}

int anchor_message(struct anchor *anchor, int process, const struct frame_header *header, const uint8_t *payload,
                   size_t bytes, struct worker *worker, struct why *why)
{
    union {
        struct wire_snapshot snapshot;
        struct wire_chunk chunk;
        struct wire_follow follow;
    } decoded;
    bool words = header->type == WIRE_SNAPSHOT || header->type == WIRE_CHUNK, rounds = header->type == WIRE_FOLLOW;
    if (!(anchor->replay ? rounds : words) || !sends_snapshots(anchor, process))
        return why_set(why, ERR_INVALID, "a %s has no place on the road to the anchor", wire_find(header->type)->name);
    int err = wire_decode(header->type, payload, bytes, &decoded, why);
    if (err)
        return err;
    worker->busy_ns = clock_now_ns();
    if (rounds)
        return take_follow(anchor, process, &decoded.follow, worker, why);
    if (header->type == WIRE_SNAPSHOT) {
        anchor->sender = process / anchor->settings.assign.stages;
        return assembly_begin(anchor->assembly, process % anchor->settings.assign.stages, &decoded.snapshot, why);
    }
    return take_chunk(anchor, process, &decoded.chunk, worker, why);
}
