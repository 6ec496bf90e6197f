/*
 * One pass as a list of phases: read `phases` from top to bottom.
 *
 * A pass is a training step, an evaluation, or the end (which only settles what is owed). Stage 0 stamps it; every other
 * stage obeys the stamp that came down the pipeline, so nothing that must agree is decided twice. Forward and backward go in
 * the order 0, 1, 2, … on every stage whatever the timing, gradients are summed in that order: results do not depend on the
 * network.
 *
 * The optimiser step of a training step is owed until the next stamp, which carries the verdict on its gradient: apply (with
 * the clip scale of the global norm) or drop (not finite somewhere).
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "gpu/train/inside.h"
#include "gpu/train/save.h"
#include "gpu/train/follow.h"
#include "gpu/train/snap.h"
#include "ssh/base/clock.h"
#include "ssh/wire/frame.h"

#define LOOK_NS (200 * CLOCK_MS) /* longest time in a wait without looking at orders and roads again */

/* ---- measuring ---- */

static uint64_t median_time(const struct compute *compute)
{
    unsigned count = compute->times_count < TIMES_KEPT ? compute->times_count : TIMES_KEPT;
    for (unsigned i = 0; i < count; i++) {
        unsigned below = 0, same = 0;
        for (unsigned k = 0; k < count; k++) {
            below += compute->times_ns[k] < compute->times_ns[i];
            same += compute->times_ns[k] == compute->times_ns[i];
        }
        if (below <= count / 2 && count / 2 < below + same)
            return compute->times_ns[i];
    }
    return 0;
}

/* How many micro-batches this stage may hold. Affects time only. */
static int pass_limit(const struct compute *compute)
{
    const struct profile *profile = &compute->settings.profile;
    int micro_batches = compute->pass.stamp.micro_batches, slots = compute->slots;
    if (profile->in_flight > 0 && profile->in_flight < slots)
        slots = (int)profile->in_flight;
    uint64_t t_ns = median_time(compute), rate_bps = compute->roads.rate_bps;
    if (profile->in_flight > 0 || t_ns == 0 || compute->pass.stamp.kind != STAMP_TRAIN)
        return schedule_limit(compute->stage, compute->stages, micro_batches, slots, 1, 1e6, 0);
    double transfer = rate_bps ? (double)compute->pass.act_bytes * 8 / (double)rate_bps : 0;
    return schedule_limit(compute->stage, compute->stages, micro_batches, slots, (double)t_ns / 1e9,
                          (double)compute->roads.delay_ns / 1e9, transfer);
}

/* A wait for the gradient of something that has not left yet, or for activations while gradients have not left, is the
 * road's. */
static enum wait_cause true_cause(const struct compute *compute, enum wait_cause cause)
{
    const struct schedule *schedule = &compute->pass.schedule;
    uint64_t unsent = compute->roads.unsent[cause == WAIT_GRAD ? MAIL_DOWNSTREAM : MAIL_UPSTREAM];
    if (cause == WAIT_GRAD)
        return unsent >= (uint64_t)(schedule->forwarded - schedule->backwarded) && unsent > 0 ? WAIT_SEND : cause;
    return unsent > 0 ? WAIT_SEND : cause;
}

/* Waiting is normal, but not for so long: then people want to know who waits for whom. */
static void tell_stall(struct compute *compute, enum wait_cause cause, uint64_t now_ns)
{
    struct pass *pass = &compute->pass;
    uint64_t patience_ns = compute->timeouts.greet_ns;
    if (pass->stall_told || now_ns - pass->waiting_since_ns < patience_ns)
        return;
    pass->stall_told = true;
    bool gradient = cause == WAIT_GRAD;
    compute_say(compute, EVENT_WARN, pass->step, "stalled",
                "waits for %s of step %" PRIu64 ", micro-batch %d, from %s for %" PRIu64 " s now; the road stands",
                gradient ? "the gradient" : "the activations", pass->step,
                gradient ? pass->schedule.backwarded : pass->schedule.forwarded,
                gradient ? compute->settings.downstream : compute->settings.upstream,
                (now_ns - pass->waiting_since_ns) / CLOCK_SECOND);
}

/* ---- one micro-batch ---- */

static void split_windows(struct compute *compute, const struct micro_batch *micro_batch)
{
    int64_t tokens = micro_batch->tokens, positions = micro_batch->sequences * (tokens + 1);
    for (int64_t s = 0; s < micro_batch->sequences; s++) {
        const uint32_t *window = compute->windows + s * (tokens + 1);
        memcpy(compute->inputs + s * tokens, window, (size_t)tokens * sizeof *window);
        memcpy(compute->targets + s * tokens, window + 1, (size_t)tokens * sizeof *window);
    }
    bool apart = compute->least_planes > 0;
    for (int64_t i = 0; i < positions; i++) {
        int64_t place = i % (tokens + 1), row = i - i / (tokens + 1); /* of the input that it is */
        bool begins = apart && compute->marks[i] & TOKEN_BEGINS;
        if (place && (!(compute->marks[i] & TOKEN_LEARNED) || begins))
            compute->targets[row - 1] = UINT32_MAX;
        if (place < tokens)
            compute->begins[row] = begins;
    }
}

static uint64_t count_targets(const struct compute *compute, int64_t rows)
{
    uint64_t count = 0;
    for (int64_t i = 0; i < rows; i++)
        count += compute->targets[i] != UINT32_MAX;
    return count;
}

static int read_windows(struct compute *compute, const struct micro_batch *micro_batch)
{
    const struct profile *profile = &compute->settings.profile;
    bool calibrates = compute->pass.stamp.kind == STAMP_CALIBRATE;
    uint64_t began_ns = clock_now_ns();
    struct why why = {0};
    int err = 0;
    for (int64_t s = 0; s < micro_batch->sequences && !err; s++) {
        uint32_t *window = compute->windows + s * (micro_batch->tokens + 1);
        uint8_t *marks = compute->marks + s * (micro_batch->tokens + 1);
        uint64_t step = calibrates ? (uint64_t)profile->steps + 1 : compute->pass.step; /* windows that no step reads */
        if (calibrates || compute->pass.stamp.kind == STAMP_TRAIN)
            err = data_train_window(compute->data, (uint64_t)profile->seed, step, micro_batch->of_run, (uint32_t)s,
                                    micro_batch->tokens, window, marks, &why);
        else
            err = data_validation_window(compute->data, (int64_t)micro_batch->index * profile->micro_batch + s,
                                         profile->validation_windows, micro_batch->tokens, window, marks, &why);
    }
    compute->pass.wait_ns[WAIT_DATA] += clock_now_ns() - began_ns;
    return err ? compute_halt(compute, compute->pass.step, "%s", why.text) : 0;
}

/* The gradient is that of the mean loss over all positions of the step; drive_clip_scale makes it that over its targets. */
static float loss_scale(const struct compute *compute)
{
    const struct profile *profile = &compute->settings.profile;
    if (compute->pass.stamp.kind == STAMP_EVALUATE)
        return 0;
    return 1.0f / (float)(compute->pass.stamp.micro_batches * profile->micro_batch * profile->sequence);
}

static int step_forward(struct compute *compute)
{
    struct pass *pass = &compute->pass;
    struct micro_batch micro_batch;
    crossing_shape(compute, (uint32_t)pass->schedule.forwarded, &micro_batch);
    int err = 0;
    const float *x = NULL;
    if (compute->first) {
        err = read_windows(compute, &micro_batch);
    } else {
        err = crossing_receive_activations(compute, &micro_batch);
        x = stage_input(compute->model, micro_batch.slot);
    }
    if (err)
        return err;
    split_windows(compute, &micro_batch);
    if (compute->least_planes)
        stage_documents(compute->model, micro_batch.slot, compute->begins, micro_batch.sequences, micro_batch.tokens);
    const float *y =
        stage_forward(compute->model, micro_batch.slot, compute->inputs, x, micro_batch.sequences, micro_batch.tokens);
    if (compute->last) {
        pass->loss += stage_loss(compute->model, micro_batch.slot, compute->targets, loss_scale(compute));
        pass->targets += count_targets(compute, micro_batch.rows);
    } else {
        err = crossing_send_activations(compute, &micro_batch, y);
    }
    pass->schedule.forwarded++;
    return err;
}

static int step_backward(struct compute *compute)
{
    struct pass *pass = &compute->pass;
    struct micro_batch micro_batch;
    crossing_shape(compute, (uint32_t)pass->schedule.backwarded, &micro_batch);
    bool trains = pass->stamp.kind == STAMP_TRAIN, learns = pass->stamp.kind != STAMP_EVALUATE;
    bool ends = pass->schedule.backwarded == pass->schedule.micro_batches - 1;
    double later = 0, squares = -1;
    const float *dx = NULL;
    int err = compute->last ? 0 : crossing_receive_gradient(compute, &micro_batch, &later);
    if (err)
        return err;
    if (learns)
        dx = stage_backward(compute->model, micro_batch.slot, compute->last ? NULL : stage_gradient(compute->model));
    if (trains && ends && compute->last)
        err = tied_send(compute, MAIL_UPSTREAM);
    else if (trains && ends && compute->first)
        err = tied_add(compute);
    if (trains)
        correct_half(compute);
    if (trains && ends && !err)
        err = siblings_average(compute);
    if (err)
        return err;
    if (trains && ends)
        correct_gradients(compute);
    if (learns && ends)
        squares = pass->squares = stage_gradient_squares(compute->model) + later;
    if (dx)
        measures_gradients(compute, &micro_batch, dx);
    if (learns && !compute->first && ends)
        err = measures_ship_backward(compute);
    if (!err && !compute->first)
        err = crossing_send_gradient(compute, &micro_batch, dx, squares);
    pass->schedule.backwarded++;
    return err;
}

/* What has happened since the last note goes into the timeline. */
static void note(struct compute *compute)
{
    struct pass *pass = &compute->pass;
    const uint64_t parts_ns[PART_COUNT] = {
        [PART_DATA] = pass->wait_ns[WAIT_DATA], [PART_COMPUTE] = pass->compute_ns > pass->pack_ns ? pass->compute_ns - pass->pack_ns : 0,
        [PART_PACK] = pass->pack_ns,            [PART_SEND] = pass->wait_ns[WAIT_SEND],
        [PART_ACT] = pass->wait_ns[WAIT_ACT],   [PART_GRAD] = pass->wait_ns[WAIT_GRAD],
        [PART_STAMP] = pass->wait_ns[WAIT_STAMP], [PART_SYNC] = pass->wait_ns[WAIT_SYNC],
    };
    timeline_note(&pass->timeline, parts_ns, clock_now_ns() - pass->began_ns);
}

static uint64_t waits_inside(const struct pass *pass)
{
    return pass->wait_ns[WAIT_DATA] + pass->wait_ns[WAIT_SEND] + pass->wait_ns[WAIT_SYNC];
}

/* Forward or backward, with its time; both together are the t that the limit is made of. */
static int step_compute(struct compute *compute, enum schedule_action action)
{
    struct pass *pass = &compute->pass;
    int slot = (action == SCHEDULE_FORWARD ? pass->schedule.forwarded : pass->schedule.backwarded) % compute->slots;
    uint64_t before_ns = clock_now_ns(), apart_ns = waits_inside(pass);
    int err = action == SCHEDULE_FORWARD ? step_forward(compute) : step_backward(compute);
    apart_ns = waits_inside(pass) - apart_ns;
    uint64_t took_ns = clock_now_ns() - before_ns;
    took_ns = took_ns > apart_ns ? took_ns - apart_ns : 0;
    pass->compute_ns += took_ns;
    note(compute);
    pass->stall_told = false;
    pass->waiting_since_ns = 0;
    if (action == SCHEDULE_FORWARD)
        compute->forward_ns[slot] = took_ns;
    else if (pass->stamp.kind == STAMP_TRAIN)
        compute->times_ns[compute->times_count++ % TIMES_KEPT] = compute->forward_ns[slot] + took_ns;
    return err;
}

static int step_wait(struct compute *compute, enum wait_cause cause)
{
    struct pass *pass = &compute->pass;
    enum wait_cause counted = true_cause(compute, cause);
    uint64_t before_ns = clock_now_ns();
    if (!pass->waiting_since_ns)
        pass->waiting_since_ns = before_ns;
    int err = compute_accept(compute, LOOK_NS);
    uint64_t now_ns = clock_now_ns();
    pass->wait_ns[counted] += now_ns - before_ns;
    note(compute);
    if (err == ERR_AGAIN)
        tell_stall(compute, cause, now_ns);
    return err == ERR_AGAIN ? 0 : err;
}

/* ---- phases ---- */

/* What was measured before, now that its verdict is known; the version that this stamp names goes ahead of it. */
static int phase_statistics(struct compute *compute)
{
    int err = measures_settle(compute);
    return err ? err : measures_ship_forward(compute);
}

static int phase_check(struct compute *compute)
{
    const struct wire_stamp *stamp = &compute->pass.stamp;
    const struct boundary *both[] = {&compute->up, &compute->down};
    int err = correct_switch(compute);
    for (int i = 0; i < 2 && !err; i++)
        if (both[i]->codec && stamp->kind == STAMP_TRAIN && !codec_holds(both[i]->codec, stamp->codec_version))
            return compute_halt(compute, compute->pass.step,
                                "step %" PRIu64 " asks for version %u of the codec state, which boundary %u "
                                "does not have (the newest is %u)",
                                compute->pass.step, stamp->codec_version, both[i]->settings.boundary,
                                codec_newest(both[i]->codec));
    if (!err && stamp->apply && !compute->optimizer.owed)
        return compute_halt(compute, compute->pass.step,
                            "the stamp of step %" PRIu64 " applies an optimiser step that was not computed here",
                            compute->pass.step);
    return err;
}

static int phase_stamp(struct compute *compute)
{
    if (compute->last)
        return 0;
    struct letter letter = compute_letter(WIRE_STAMP, &compute->pass.stamp, 0, MAIL_DOWNSTREAM, compute->pass.step, 0);
    letter.evaluation = compute->pass.stamp.kind == STAMP_EVALUATE;
    letter.dense_bytes = letter.evaluation ? 0 : letter.bytes + FRAME_HEADER_BYTES;
    return mail_send(compute->mail, &letter, &compute->pass.wait_ns[WAIT_SEND]);
}

/* The optimiser step of the previous training step. */
static int phase_settle(struct compute *compute)
{
    const struct profile *profile = &compute->settings.profile;
    struct optimizer *optimizer = &compute->optimizer;
    uint64_t before_ns = clock_now_ns();
    int err = tied_settle(compute);
    if (err)
        return err;
    if (optimizer->owed && compute->pass.stamp.apply) {
        struct adamw settings = {
            .learning_rate = optimizer->learning_rate,
            .beta1 = (float)profile->beta1,
            .beta2 = (float)profile->beta2,
            .epsilon = (float)profile->epsilon,
            .weight_decay = (float)profile->weight_decay,
            .gradient_scale = compute->pass.stamp.clip_scale,
        };
        stage_step(compute->model, &settings, ++optimizer->applied);
    } else if (optimizer->owed) {
        stage_zero_gradients(compute->model);
        optimizer->skipped++;
        siblings_restore(compute, compute->trained);
    }
    compute->settled = optimizer->owed ? compute->trained - (compute->pass.stamp.kind == STAMP_TRAIN) : 0;
    optimizer->owed = false;
    compute->pass.compute_ns += clock_now_ns() - before_ns;
    return 0;
}

/* With the newest weights, which the phase before has just made. */
static int phase_save(struct compute *compute)
{
    if (compute->pass.stamp.kind == STAMP_SAVE)
        save_set(compute);
    return 0;
}

static void keep_words(struct compute *compute)
{
    uint16_t *words = snap_begin(compute->settings.snap);
    if (!siblings_words(compute, words)) /* what replicas have in common, or what this one has */
        stage_words_get(compute->model, words);
    snap_commit(compute->settings.snap, compute->pass.step);
}

/* The weights that the step begins with, for the anchor. */
static int phase_capture(struct compute *compute)
{
    struct pass *pass = &compute->pass;
    uint64_t before_ns = clock_now_ns();
    if (pass->stamp.kind != STAMP_TRAIN || !pass->stamp.capture || (!compute->settings.snap && !compute->settings.follow))
        return 0;
    struct wire_mark mark = {.mark = MARK_CAPTURED, .version = pass->step, .step = pass->step};
    if (compute->settings.follow) {
        mark.bytes = siblings_capture(compute, pass->step);
        mark.total = follow_full_bytes(compute->settings.follow);
    } else {
        mark.total = snap_full_bytes(compute->settings.snap);
        keep_words(compute);
    }
    mark.elapsed_ns = clock_now_ns() - before_ns;
    compute_tell(compute, WIRE_MARK, &mark, pass->step);
    pass->compute_ns += mark.elapsed_ns;
    return 0;
}

/* What the other replicas are to have of that step, and what is due from them. */
static int phase_sync(struct compute *compute)
{
    uint64_t before_ns = clock_now_ns(), apart_ns = waits_inside(&compute->pass);
    int err = compute->settled ? siblings_after_step(compute, compute->settled) : 0;
    apart_ns = waits_inside(&compute->pass) - apart_ns;
    compute->pass.compute_ns += clock_now_ns() - before_ns - apart_ns;
    return err;
}

static int phase_micro_batches(struct compute *compute)
{
    struct pass *pass = &compute->pass;
    int err = 0;
    while (!err) {
        enum schedule_action action = schedule_next(&pass->schedule);
        if (action == SCHEDULE_DONE)
            break;
        if (mail_orders(compute->mail))
            return ERR_GONE;
        /* What has come meanwhile may change the choice: backward first. */
        while ((err = compute_accept(compute, 0)) == 0)
            ;
        if (err != ERR_AGAIN)
            break;
        err = 0;
        action = schedule_next(&pass->schedule);
        if (action == SCHEDULE_FORWARD || action == SCHEDULE_BACKWARD)
            err = step_compute(compute, action);
        else
            err = step_wait(compute, action == SCHEDULE_WAIT_ACT ? WAIT_ACT : WAIT_GRAD);
    }
    return err;
}

static int phase_owe(struct compute *compute)
{
    const struct pass *pass = &compute->pass;
    if (pass->stamp.kind == STAMP_TRAIN) {
        compute->optimizer.owed = true;
        compute->optimizer.learning_rate = pass->stamp.learning_rate;
    }
    if (pass->stamp.kind == STAMP_CALIBRATE)
        stage_zero_gradients(compute->model);
    measures_end(compute);
    if (!compute->first)
        return 0;
    drive_judge(compute);
    bool sum = pass->stamp.kind == STAMP_TRAIN && compute->drive.finite && !compute->last;
    return sum ? tied_send(compute, MAIL_DOWNSTREAM) : 0; /* a dropped step needs no sum */
}

static int phase_report(struct compute *compute)
{
    struct pass *pass = &compute->pass;
    uint64_t now_ns = clock_now_ns();
    struct wire_sample sample = {
        .step = pass->step,
        .kind = pass->stamp.kind,
        .loss = pass->targets ? pass->loss / (double)pass->targets : (double)NAN,
        .gradient_norm = compute->first && pass->stamp.kind == STAMP_TRAIN ? compute->drive.norm : (double)NAN,
        .learning_rate = pass->stamp.learning_rate,
        .clip_scale = compute->first ? drive_clip_scale(compute) : pass->stamp.clip_scale,
        .mask_rate = pass->stamp.mask_rate,
        .tokens = pass->targets,
        .step_ns = now_ns - pass->began_ns,
        .compute_ns = pass->compute_ns > pass->pack_ns ? pass->compute_ns - pass->pack_ns : 0,
        .pack_ns = pass->pack_ns,
        .wait_act_ns = pass->wait_ns[WAIT_ACT],
        .wait_grad_ns = pass->wait_ns[WAIT_GRAD],
        .wait_stamp_ns = pass->wait_ns[WAIT_STAMP],
        .wait_send_ns = pass->wait_ns[WAIT_SEND],
        .wait_data_ns = pass->wait_ns[WAIT_DATA],
        .wait_sync_ns = pass->wait_ns[WAIT_SYNC],
        .skipped = compute->optimizer.skipped,
        .began_wall_ns = pass->began_wall_ns,
    };
    timeline_write(&pass->timeline, sample.timeline);
    siblings_report(compute, &sample);
    correct_report(compute);
    if (pass->stamp.kind == STAMP_TRAIN || (pass->stamp.kind == STAMP_EVALUATE && compute->last))
        compute_tell(compute, WIRE_SAMPLE, &sample, pass->step);
    save_look(compute, pass->stamp.kind == STAMP_FINISH);
    if (pass->stamp.kind == STAMP_FINISH)
        compute_tell(compute, WIRE_DONE, &(struct wire_done){.step = pass->step}, pass->step);
    return 0;
}

static int (*const phases[])(struct compute *compute) = {
    phase_statistics,    /* what the stamp names of them goes ahead of it */
    phase_check,         /* can the stamp be obeyed? */
    phase_stamp,         /* pass it on before our own work, so that later stages settle meanwhile */
    phase_settle,        /* apply or drop the optimiser step that the stamp judges */
    phase_sync,          /* other replicas: what is due is merged, what is next is sent */
    phase_capture,       /* a snapshot for the anchor, if the stamp asks for it */
    phase_save,          /* write the weights, if the stamp asks for it */
    phase_micro_batches, /* 1F1B: forward, backward, what crosses, what is waited for */
    phase_owe,           /* a new optimiser step is owed; stage 0 judges it */
    phase_report,
};

static void pass_begin(struct compute *compute, const struct wire_stamp *stamp, uint64_t step)
{
    uint64_t now_ns = clock_now_ns(), act_bytes = compute->pass.act_bytes;
    compute->pass = (struct pass){.running = true, .step = step, .stamp = *stamp, .squares = 0, .act_bytes = act_bytes};
    compute->pass.began_ns = compute->first ? now_ns : compute->idle_since_ns;
    compute->pass.began_wall_ns = clock_wall_ns() - (now_ns - compute->pass.began_ns);
    compute->pass.wait_ns[WAIT_STAMP] = now_ns - compute->pass.began_ns;
    note(compute);
    mail_get_roads(compute->mail, &compute->roads);
    schedule_begin(&compute->pass.schedule, compute->stage, compute->stages, stamp->micro_batches, pass_limit(compute));
    compute->pass.schedule.arrived_activations += compute->early;
    compute->early = 0;
    if (stamp->kind == STAMP_TRAIN)
        compute->trained = step;
}

int step_run(struct compute *compute, const struct wire_stamp *stamp, uint64_t step)
{
    int err = 0;
    pass_begin(compute, stamp, step);
    for (size_t i = 0; i < sizeof phases / sizeof *phases && !err; i++) {
        err = phases[i](compute);
        note(compute);
    }
    compute->pass.running = false;
    compute->idle_since_ns = clock_now_ns();
    return err;
}
