#include "gpu/train/measures.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "gpu/train/bases.h"
#include "gpu/train/inside.h"
#include "gpu/train/shape.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/wire/frame.h"

#define SLOW_NS (200 * CLOCK_MS)

static bool means_only(const struct profile *profile)
{
    return !measures_calibrates(profile);
}

bool measures_calibrates(const struct profile *profile)
{
    struct codec_settings settings;
    shape_codec(profile, 0, &settings);
    if (profile_anchor_measures(profile) && codec_has_state(&settings, CODEC_FORWARD))
        return true;
    return codec_needs_state(&settings) || (profile->codec != CODEC_DENSE && profile->reference == REFERENCE_TOKENS);
}

static uint64_t late(const struct profile *profile)
{
    return means_only(profile) ? 1 : (uint64_t)profile->late;
}

int measures_check(const struct profile *profile, struct why *why)
{
    if (!means_only(profile) && profile->late / profile->refresh + 2 > MEASURES_MOST)
        return why_set(why, ERR_INVALID, "boundary.late = %" PRId64 " with boundary.refresh = %" PRId64
                       ": at most %d measurements can wait", profile->late, profile->refresh, MEASURES_MOST - 2);
    return 0;
}

size_t measures_letter_bytes(const struct profile *profile)
{
    struct codec_settings settings;
    shape_codec(profile, 0, &settings);
    size_t forward = codec_made_bytes(&settings, CODEC_FORWARD), backward = codec_made_bytes(&settings, CODEC_BACKWARD);
    return forward > backward ? forward : backward;
}

/* ---- what is solved beside the training ---- */

struct measures_work {
    struct codec *codec; /* only its settled statistics are looked at */
    enum codec_way way;
    pthread_t thread;
    bool running;
    int err;
    uint8_t *state;
    size_t bytes;
};

static void *work_main(void *arg)
{
    struct measures_work *work = arg;
    work->err = codec_export(work->codec, work->way, &work->state, &work->bytes);
    return NULL;
}

static struct measures_work *work_begin(struct codec *codec, enum codec_way way)
{
    struct measures_work *work = mem_new(sizeof *work);
    *work = (struct measures_work){.codec = codec, .way = way};
    work->running = pthread_create(&work->thread, NULL, work_main, work) == 0;
    if (!work->running) /* no thread to be had: then now */
        work_main(work);
    return work;
}

static void work_wait(struct measures_work *work)
{
    if (work->running)
        pthread_join(work->thread, NULL);
    work->running = false;
}

static void work_free(struct measures_work *work)
{
    work_wait(work);
    mem_free(work->state);
    mem_free(work);
}

static void drop_first(struct measures *measures, enum codec_way way, int count)
{
    struct measures_entry *waiting = measures->waiting[way];
    for (int i = 0; i < count; i++)
        work_free(waiting[i].work);
    measures->count[way] -= count;
    memmove(waiting, waiting + count, (size_t)measures->count[way] * sizeof *waiting);
}

void measures_free(struct measures *measures)
{
    drop_first(measures, CODEC_FORWARD, measures->count[CODEC_FORWARD]);
    drop_first(measures, CODEC_BACKWARD, measures->count[CODEC_BACKWARD]);
}

/* ---- measuring ---- */

static bool measures_here(const struct boundary *side, enum codec_way way)
{
    return side->codec && codec_has_state(&side->settings, way);
}

static bool step_measures(const struct compute *compute)
{
    const struct profile *profile = &compute->settings.profile;
    const struct pass *pass = &compute->pass;
    if (pass->stamp.kind == STAMP_CALIBRATE)
        return true;
    if (profile_anchor_measures(profile))
        return false;
    return pass->stamp.kind == STAMP_TRAIN && (pass->step - 1) % (uint64_t)profile->refresh == 0 &&
           pass->step > compute->measures.calibrated;
}

void measures_activations(struct compute *compute, const struct micro_batch *micro_batch, const float *x)
{
    if (measures_here(&compute->down, CODEC_FORWARD) && step_measures(compute))
        codec_measure(compute->down.codec, &micro_batch->use, x);
}

/* By what errors are weighed, for a codec that does: activations and gradients as they come, decoded. */
void measures_arrived(struct compute *compute, const struct micro_batch *micro_batch, const float *x)
{
    if (measures_here(&compute->up, CODEC_BACKWARD) && codec_weighs(&compute->up.settings) && step_measures(compute))
        codec_measure(compute->up.codec, &micro_batch->use, x);
}

void measures_returned(struct compute *compute, const struct micro_batch *micro_batch, const float *dx)
{
    if (measures_here(&compute->down, CODEC_FORWARD) && codec_weighs(&compute->down.settings) && step_measures(compute))
        codec_measure_gradient(compute->down.codec, &micro_batch->use, dx);
}

void measures_gradients(struct compute *compute, const struct micro_batch *micro_batch, const float *dx)
{
    if (measures_here(&compute->up, CODEC_BACKWARD) && step_measures(compute))
        codec_measure_gradient(compute->up.codec, &micro_batch->use, dx);
}

void measures_end(struct compute *compute)
{
    struct measures *measures = &compute->measures;
    if (!step_measures(compute))
        return;
    measures->calibration = compute->pass.stamp.kind == STAMP_CALIBRATE;
    measures->pending = (uint32_t)(compute->pass.step + measures->calibration);
    if (measures->calibration)
        measures->calibrated = measures->pending;
}

/* ---- from measurement to version ---- */

static enum codec_way other_way(enum codec_way way)
{
    return way == CODEC_FORWARD ? CODEC_BACKWARD : CODEC_FORWARD;
}

static int halt_unusable(struct compute *compute, const struct boundary *side, enum codec_way way, uint32_t version)
{
    return compute_halt(compute, compute->pass.step,
                        "the statistics of %s of step %u at boundary %u are not finite or have no solution, but its loss is "
                        "finite",
                        way == CODEC_FORWARD ? "activations" : "gradients", version, side->settings.boundary);
}

/* Settled, and put at the end of what waits while it is being solved. A calibration has no verdict yet when it is settled:
 * what
 * cannot be used of it is left out, and a stamp that names it all the same finds it missing. */
static int keep(struct compute *compute, struct boundary *side, enum codec_way way, uint32_t version, uint64_t due)
{
    struct measures *measures = &compute->measures;
    if (!measures_here(side, way))
        return 0;
    if (measures->count[way]) /* what is settled is still being looked at */
        work_wait(measures->waiting[way][measures->count[way] - 1].work);
    if (codec_weighs(&side->settings))
        codec_settle(side->codec, other_way(way)); /* absent: the weights stay as they are */
    if (codec_settle(side->codec, way) < 0)
        return version == measures->calibrated ? 0 : halt_unusable(compute, side, way, version);
    BUG_IF(measures->count[way] == MEASURES_MOST);
    measures->waiting[way][measures->count[way]++] =
        (struct measures_entry){.version = version, .due = due, .work = work_begin(side->codec, way)};
    return 0;
}

static void forget(struct boundary *side, enum codec_way way)
{
    if (side->codec)
        codec_forget(side->codec, way);
    if (side->codec && codec_weighs(&side->settings))
        codec_forget(side->codec, other_way(way));
}

int measures_settle(struct compute *compute)
{
    struct measures *measures = &compute->measures;
    uint32_t version = measures->pending;
    measures->pending = 0;
    if (!version)
        return 0;
    if (measures->calibration && compute->first && measures->calibration_bad) {
        forget(&compute->down, CODEC_FORWARD);
        return 0;
    }
    if (measures->calibration) /* the gradients' part is settled already */
        return keep(compute, &compute->down, CODEC_FORWARD, version, version);
    if (!compute->pass.stamp.apply) {
        forget(&compute->down, CODEC_FORWARD);
        forget(&compute->up, CODEC_BACKWARD);
        return 0;
    }
    uint64_t due = version + late(&compute->settings.profile);
    int err = keep(compute, &compute->down, CODEC_FORWARD, version, due);
    return err ? err : keep(compute, &compute->up, CODEC_BACKWARD, version, due);
}

/* How good the code of this tensor can be expected to be, beside what is possible at all. */
static void tell_distance(struct compute *compute, const struct boundary *side, enum codec_way way)
{
    double expected, bound;
    struct codec_use use = {.rows = 1, .format_override = -1};
    use.keep = codec_keep(&side->settings, compute->settings.profile.mask_rate);
    if (use.keep && codec_distortion(side->codec, way, use.keep, &expected, &bound))
        compute_say(compute, EVENT_INFO, compute->pass.step, "statistics",
                    "boundary %u: %s have %zu bytes a token; the error to expect is %.1f dB above the bound for a Gaussian",
                    side->settings.boundary, way == CODEC_FORWARD ? "activations" : "gradients",
                    codec_bytes(&side->settings, &use, way), 10 * log10(expected / bound));
}

/* Results do not depend on timing: a version that is due is waited for. Whoever pays for the time should know. */
static void wait_until_solved(struct compute *compute, const struct boundary *side, const struct measures_entry *entry)
{
    struct measures *measures = &compute->measures;
    uint64_t began_ns = clock_now_ns();
    work_wait(entry->work);
    uint64_t waited_ns = clock_now_ns() - began_ns;
    if (waited_ns < SLOW_NS || measures->slow_told || entry->version == measures->calibrated)
        return;
    measures->slow_told = true;
    compute_say(compute, EVENT_WARN, compute->pass.step, "statistics",
                "boundary %u: training waited %.1f s for the statistics of step %u; a larger boundary.late than %" PRId64
                " leaves them the time, and a smaller boundary.rank makes them quicker",
                side->settings.boundary, (double)waited_ns / 1e9, entry->version, compute->settings.profile.late);
}

/* Taken into use here and sent. Its bytes are a cost that a dense exchange does not have. */
static int ship(struct compute *compute, struct boundary *side, enum codec_way way, int index)
{
    const struct measures_entry *entry = &compute->measures.waiting[way][index];
    struct measures_work *work = entry->work;
    struct why why = {0};
    wait_until_solved(compute, side, entry);
    if (work->err)
        return halt_unusable(compute, side, way, entry->version);
    int err = codec_import(side->codec, way, entry->version, work->state, work->bytes, &why);
    if (err)
        BUG("own codec state: %s", why.text);
    if (entry->version == compute->measures.calibrated)
        tell_distance(compute, side, way);
    size_t bytes = codec_state_bytes(&side->settings, way);
    struct wire_codec_state message = {.boundary = (uint16_t)side->settings.boundary,
                                       .version = entry->version,
                                       .body = {work->state, (uint32_t)bytes}};
    struct letter letter = compute_letter(WIRE_CODEC_STATE, &message, bytes,
                                          way == CODEC_FORWARD ? MAIL_DOWNSTREAM : MAIL_UPSTREAM, entry->version, 0);
    err = mail_send(compute->mail, &letter, &compute->pass.wait_ns[WAIT_SEND]);
    drop_first(&compute->measures, way, index + 1); /* nobody will name an older one any more */
    return err;
}

int measures_ship_forward(struct compute *compute)
{
    struct measures *measures = &compute->measures;
    const struct measures_entry *waiting = measures->waiting[CODEC_FORWARD];
    uint32_t version = compute->pass.stamp.codec_version;
    if (compute->pass.stamp.kind != STAMP_TRAIN)
        return 0;
    measures->named = version > measures->named ? version : measures->named;
    for (int i = 0; i < measures->count[CODEC_FORWARD]; i++)
        if (waiting[i].version == version)
            return ship(compute, &compute->down, CODEC_FORWARD, i);
    return 0;
}

int measures_ship_backward(struct compute *compute)
{
    struct measures *measures = &compute->measures;
    const struct measures_entry *waiting = measures->waiting[CODEC_BACKWARD];
    const struct pass *pass = &compute->pass;
    int err = 0, newest = -1;
    if (pass->stamp.kind == STAMP_CALIBRATE) {
        measures->calibrated = (uint32_t)pass->step + 1;
        err = keep(compute, &compute->up, CODEC_BACKWARD, measures->calibrated, measures->calibrated);
    }
    for (int i = 0; i < measures->count[CODEC_BACKWARD]; i++)
        if (waiting[i].due <= pass->step + 1)
            newest = i;
    return err || newest < 0 ? err : ship(compute, &compute->up, CODEC_BACKWARD, newest);
}

/* What is not newer than the calibration is left out, by all stages alike: they have the same versions. */
void measures_adopt(struct compute *compute, const struct bases_set *set)
{
    const struct bases_part *part;
    struct why why = {0};
    for (int i = 0; (part = bases_part(compute->settings.bases, i)) != NULL; i++) {
        struct codec *codec = compute->up.codec;
        if (!codec || compute->up.settings.boundary != part->settings.boundary)
            codec = compute->down.codec;
        size_t bytes = codec_made_bytes(&part->settings, part->way);
        if (set->version > codec_newest(codec) &&
            codec_import(codec, part->way, (uint32_t)set->version, set->states[i], bytes, &why) < 0)
            BUG("the loop thread let a bad state pass: %s", why.text);
    }
}

int measures_receive(struct compute *compute, const struct letter *letter)
{
    struct wire_codec_state message;
    struct why why = {0};
    bool forward = letter->road == MAIL_UPSTREAM;
    struct boundary *side = forward ? &compute->up : &compute->down;
    const char *peer = forward ? compute->settings.upstream : compute->settings.downstream;
    if (wire_decode(WIRE_CODEC_STATE, letter->payload, letter->bytes, &message, &why) < 0)
        BUG("the loop thread let a bad codec state pass: %s", why.text);
    if (!side->codec || message.boundary != side->settings.boundary)
        return compute_halt(compute, letter->step, "%s sent the codec state of boundary %u", peer, message.boundary);
    if (codec_import(side->codec, forward ? CODEC_FORWARD : CODEC_BACKWARD, message.version, message.body.data,
                     message.body.bytes, &why) < 0)
        return compute_halt(compute, letter->step, "codec state %u from %s: %s", message.version, peer, why.text);
    return 0;
}

/* ---- on disk: for each way the number of entries, then each of them: version, due, bytes of its state (0: it has none), state ---- */

struct saved_entry {
    uint64_t version, due, bytes;
};

size_t measures_save_bytes(struct compute *compute)
{
    struct measures *measures = &compute->measures;
    size_t bytes = 2 * sizeof(uint64_t);
    for (int way = 0; way < 2; way++)
        for (int i = 0; i < measures->count[way]; i++) {
            work_wait(measures->waiting[way][i].work);
            bytes += sizeof(struct saved_entry) + measures->waiting[way][i].work->bytes;
        }
    return bytes;
}

size_t measures_save_most(const struct compute *compute)
{
    const struct profile *profile = &compute->settings.profile;
    size_t entries = means_only(profile) ? 2 : (size_t)(profile->late / profile->refresh + 2);
    return 2 * (sizeof(uint64_t) + entries * (sizeof(struct saved_entry) + measures_letter_bytes(profile)));
}

void measures_save(struct compute *compute, uint8_t *out)
{
    const struct measures *measures = &compute->measures;
    BUG_IF(measures->pending);
    for (int way = 0; way < 2; way++) {
        uint64_t count = (uint64_t)measures->count[way];
        memcpy(out, &count, sizeof count);
        out += sizeof count;
        for (int i = 0; i < measures->count[way]; i++) {
            const struct measures_entry *entry = &measures->waiting[way][i];
            struct saved_entry saved = {.version = entry->version, .due = entry->due, .bytes = entry->work->bytes};
            memcpy(out, &saved, sizeof saved);
            if (saved.bytes)
                memcpy(out + sizeof saved, entry->work->state, saved.bytes);
            out += sizeof saved + saved.bytes;
        }
    }
}

static int restore_entry(struct compute *compute, enum codec_way way, const uint8_t **at, size_t *left, struct why *why)
{
    struct measures *measures = &compute->measures;
    struct boundary *side = way == CODEC_FORWARD ? &compute->down : &compute->up;
    struct saved_entry saved;
    if (*left < sizeof saved)
        return ERR_INVALID;
    memcpy(&saved, *at, sizeof saved);
    *at += sizeof saved;
    *left -= sizeof saved;
    if (saved.bytes > *left || saved.version > UINT32_MAX || !measures_here(side, way) ||
        (saved.bytes && saved.bytes != codec_made_bytes(&side->settings, way)) ||
        (saved.bytes && codec_check_state(&side->settings, way, (uint32_t)saved.version, *at, saved.bytes, why) < 0))
        return ERR_INVALID;
    struct measures_work *work = mem_new(sizeof *work);
    *work = (struct measures_work){.codec = side->codec, .way = way, .err = saved.bytes ? 0 : ERR_ABSENT, .bytes = saved.bytes};
    work->state = saved.bytes ? mem_copy(*at, saved.bytes) : NULL;
    measures->waiting[way][measures->count[way]++] =
        (struct measures_entry){.version = (uint32_t)saved.version, .due = saved.due, .work = work};
    *at += saved.bytes;
    *left -= saved.bytes;
    return 0;
}

int measures_restore(struct compute *compute, const uint8_t *bytes, size_t count, struct why *why)
{
    const uint8_t *at = bytes;
    size_t left = count;
    int err = 0;
    for (int way = 0; way < 2 && !err; way++) {
        uint64_t entries;
        if (left < sizeof entries)
            err = ERR_INVALID;
        else
            memcpy(&entries, at, sizeof entries);
        if (err || entries > MEASURES_MOST) {
            err = ERR_INVALID;
            break;
        }
        at += sizeof entries;
        left -= sizeof entries;
        for (uint64_t i = 0; i < entries && !err; i++)
            err = restore_entry(compute, (enum codec_way)way, &at, &left, why);
    }
    return err || left ? why_set(why, ERR_INVALID, "what is saved of statistics on their way makes no sense") : 0;
}

/* ---- stage 0 ---- */

uint32_t measures_name(const struct compute *compute, uint64_t step, bool apply)
{
    const struct measures *measures = &compute->measures;
    uint32_t version = measures->named, pending = measures->pending;
    if (!compute->down.codec || !codec_has_state(&compute->down.settings, CODEC_FORWARD))
        return version;
    for (int i = 0; i < measures->count[CODEC_FORWARD]; i++)
        if (measures->waiting[CODEC_FORWARD][i].due <= step)
            version = measures->waiting[CODEC_FORWARD][i].version;
    if (profile_anchor_measures(&compute->settings.profile) && compute->drive.basis > version)
        version = (uint32_t)compute->drive.basis;
    bool good = measures->calibration ? !measures->calibration_bad : apply;
    uint64_t due = measures->calibration ? pending : pending + late(&compute->settings.profile);
    return pending && good && due <= step ? pending : version;
}
