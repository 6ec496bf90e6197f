/* Where each letter of the mailbox belongs: one row a message type (compute_accept of compute.h). */
#include <inttypes.h>
#include <string.h>

#include "gpu/train/compute.h"
#include "gpu/train/siblings.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"

static int accept_stamp(struct compute *compute, struct letter *letter)
{
    const struct profile *profile = &compute->settings.profile;
    struct wire_stamp stamp;
    int64_t windows = profile->validation_windows, micro_batch = profile->micro_batch;
    const int64_t expected[] = {[STAMP_TRAIN] = profile->micro_batches,
                                [STAMP_EVALUATE] = (windows + micro_batch - 1) / micro_batch,
                                [STAMP_FINISH] = 0,
                                [STAMP_SAVE] = 0,
                                [STAMP_CALIBRATE] = profile->calibrate};
    if (wire_decode(WIRE_STAMP, letter->payload, letter->bytes, &stamp, NULL) < 0)
        BUG("the loop thread let a bad stamp pass");
    if (compute->stamped)
        return compute_halt(compute, letter->step, "two stamps came at once, of step %" PRIu64 " and step %" PRIu64,
                            compute->stamp_step, letter->step);
    if (stamp.micro_batches != expected[stamp.kind] || stamp.keep > codec_keep_most(&compute->up.settings) ||
        (stamp.kind == STAMP_CALIBRATE && (stamp.keep || !measures_calibrates(profile))))
        return compute_halt(compute, letter->step,
                            "the stamp of step %" PRIu64 " has %u micro-batches and a budget of %u: not this profile",
                            letter->step, stamp.micro_batches, stamp.keep);
    bool follows = stamp.kind == STAMP_TRAIN ? letter->step == compute->trained + 1 : letter->step == compute->trained;
    if (compute->trained && !follows)
        return compute_halt(compute, letter->step, "the stamp of step %" PRIu64 " came after training step %" PRIu64,
                            letter->step, compute->trained);
    compute->stamped = true;
    compute->stamp = stamp;
    compute->stamp_step = letter->step;
    return 0;
}

/* Micro-batches come in order: the next one is the only one that may. */
static int accept_next(struct compute *compute, struct letter *letter, int *arrived, struct letter *ring, const char *what,
                       const char *peer)
{
    const struct pass *pass = &compute->pass;
    if (!pass->running || letter->step != pass->step || letter->micro_batch != (uint32_t)*arrived ||
        *arrived >= pass->schedule.micro_batches)
        return compute_halt(compute, letter->step,
                            "%s of step %" PRIu64 ", micro-batch %u, came from %s when step %" PRIu64
                            ", micro-batch %d, was next",
                            what, letter->step, letter->micro_batch, peer, pass->step, *arrived);
    ring[*arrived % compute->most] = *letter;
    letter->payload = NULL;
    ++*arrived;
    return 0;
}

/* A pass without micro-batches may wait for siblings; the stage before ours, whose siblings were quicker, is in the next one by then. */
static bool is_early(const struct compute *compute, const struct letter *letter)
{
    const struct pass *pass = &compute->pass;
    return pass->running && pass->schedule.micro_batches == 0 && compute->stamped && letter->step == compute->stamp_step &&
           letter->micro_batch == (uint32_t)compute->early && compute->early < compute->most && compute->early < compute->stamp.micro_batches;
}

static int accept_act(struct compute *compute, struct letter *letter)
{
    if (is_early(compute, letter)) {
        compute->acts[compute->early++] = *letter;
        letter->payload = NULL;
        return 0;
    }
    return accept_next(compute, letter, &compute->pass.schedule.arrived_activations, compute->acts, "the activations",
                       compute->settings.upstream);
}

static int accept_grad(struct compute *compute, struct letter *letter)
{
    struct schedule *schedule = &compute->pass.schedule;
    if (schedule->arrived_gradients >= schedule->forwarded)
        return compute_halt(compute, letter->step, "%s sent a gradient of step %" PRIu64 " before it had the activations",
                            compute->settings.downstream, letter->step);
    return accept_next(compute, letter, &schedule->arrived_gradients, compute->grads, "the gradient",
                       compute->settings.downstream);
}

static int accept_codec_state(struct compute *compute, struct letter *letter)
{
    return measures_receive(compute, letter);
}

static int accept_tied(struct compute *compute, struct letter *letter)
{
    return tied_accept(compute, letter);
}

static int accept_sync(struct compute *compute, struct letter *letter)
{
    return post_accept(compute, letter);
}

static int accept_part(struct compute *compute, struct letter *letter)
{
    return members_accept_part(compute, letter);
}

static int accept_leave(struct compute *compute, struct letter *letter)
{
    return members_accept_leave(compute, letter);
}

static int accept_have(struct compute *compute, struct letter *letter)
{
    return members_accept_have(compute, letter);
}

static int accept_agree(struct compute *compute, struct letter *letter)
{
    return agree_accept(compute, letter);
}

static int accept_road(struct compute *compute, struct letter *letter)
{
    return members_accept_road(compute, letter);
}

static int accept_join(struct compute *compute, struct letter *letter)
{
    return join_accept(compute, letter);
}

static int accept_enter(struct compute *compute, struct letter *letter)
{
    return join_accept_enter(compute, letter);
}

static int accept_pull(struct compute *compute, struct letter *letter)
{
    return join_accept_pull(compute, letter);
}

static int accept_state(struct compute *compute, struct letter *letter)
{
    return join_accept_state(compute, letter);
}

static int accept_start(struct compute *compute, struct letter *letter)
{
    struct wire_start start;
    if (wire_decode(WIRE_START, letter->payload, letter->bytes, &start, NULL) < 0)
        BUG("the loop thread let a bad START pass");
    if (!compute->pass.running)
        compute->idle_since_ns = clock_now_ns();
    if (compute->first)
        drive_start(compute, &start);
    return 0;
}

static int accept_hold(struct compute *compute, struct letter *letter)
{
    (void)letter;
    compute->drive.held = true; /* only stage 0 looks at it: the others get no stamp then */
    return 0;
}

static int accept_knob(struct compute *compute, struct letter *letter)
{
    struct wire_knob knob;
    if (wire_decode(WIRE_KNOB, letter->payload, letter->bytes, &knob, NULL) < 0)
        BUG("the loop thread let a bad KNOB pass");
    if (compute->first)
        drive_knob(compute, &knob);
    else
        compute_say(compute, EVENT_WARN, compute->trained, "knob", "%s = %s is not taken: only the first stage stamps",
                    knob.name, knob.value);
    return 0;
}

static int accept_capture(struct compute *compute, struct letter *letter)
{
    struct wire_capture capture;
    if (wire_decode(WIRE_CAPTURE, letter->payload, letter->bytes, &capture, NULL) < 0)
        BUG("the loop thread let a bad CAPTURE pass");
    if (compute->first)
        drive_capture(compute, &capture);
    return 0;
}

static int accept_use(struct compute *compute, struct letter *letter)
{
    struct wire_use use;
    if (wire_decode(WIRE_USE, letter->payload, letter->bytes, &use, NULL) < 0)
        BUG("the loop thread let a bad USE pass");
    if (compute->first)
        drive_use(compute, &use);
    return 0;
}

static int accept_save(struct compute *compute, struct letter *letter)
{
    struct wire_save save;
    if (wire_decode(WIRE_SAVE, letter->payload, letter->bytes, &save, NULL) < 0)
        BUG("the loop thread let a bad SAVE pass");
    if (compute->first)
        drive_save(compute, &save);
    return 0;
}

static const struct {
    uint16_t type;
    int (*accept)(struct compute *compute, struct letter *letter);
} acceptors[] = {
    {WIRE_ACT, accept_act},   {WIRE_GRAD, accept_grad},   {WIRE_STAMP, accept_stamp}, {WIRE_CODEC_STATE, accept_codec_state},
    {WIRE_TIED, accept_tied}, {WIRE_SYNC, accept_sync},   {WIRE_START, accept_start}, {WIRE_HOLD, accept_hold},
    {WIRE_KNOB, accept_knob}, {WIRE_SAVE, accept_save},   {WIRE_AGREE, accept_agree}, {WIRE_CAPTURE, accept_capture}, {WIRE_USE, accept_use},
    {WIRE_PART, accept_part}, {WIRE_LEAVE, accept_leave}, {WIRE_HAVE, accept_have},
    {WIRE_ROAD, accept_road}, {WIRE_JOIN, accept_join},   {WIRE_ENTER, accept_enter}, {WIRE_PULL, accept_pull},
    {WIRE_STATE, accept_state},
};

int compute_accept(struct compute *compute, uint64_t at_most_ns)
{
    struct letter letter;
    int err = mail_take(compute->mail, &letter, at_most_ns);
    if (err) {
        mail_get_roads(compute->mail, &compute->roads);
        return err;
    }
    size_t i = 0;
    while (i < sizeof acceptors / sizeof *acceptors && acceptors[i].type != letter.type)
        i++;
    BUG_IF(i == sizeof acceptors / sizeof *acceptors);
    err = acceptors[i].accept(compute, &letter);
    mem_free(letter.payload);
    return err;
}
