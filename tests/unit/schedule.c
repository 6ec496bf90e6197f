/*
 * The pipeline schedule in a simulated pipeline: stages with their own forward and backward times, full-duplex roads with a
 * delay and a serialisation time. Properties: no deadlock, every send has one matching receive in the order 0 … M−1, never
 * more than `limit` micro-batches in a stage, and the time of method.md §7.
 */
#include "gpu/train/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "gpu/math/philox.h"

enum { MAX_STAGES = 8, MAX_MICRO = 64 };

struct pipe {                 /* one direction of one road */
    double free_at;           /* the sender's end is busy until then */
    double arrive[MAX_MICRO]; /* when micro-batch k is at the other end */
    int sent, received;
};

struct sim {
    int stages, micro_batches;
    int limit[MAX_STAGES];
    double forward[MAX_STAGES], backward[MAX_STAGES], delay, transfer;
    struct schedule schedule[MAX_STAGES];
    struct pipe down[MAX_STAGES], up[MAX_STAGES]; /* down[i]: i → i+1, up[i]: i+1 → i */
    double busy_until[MAX_STAGES];
    int doing[MAX_STAGES]; /* enum schedule_action, or −1 */
    double now;
};

static void pipe_send(struct sim *sim, struct pipe *pipe, int micro_batch)
{
    assert_int_equal(pipe->sent, micro_batch);
    double begin = fmax(sim->now, pipe->free_at);
    pipe->free_at = begin + sim->transfer;
    pipe->arrive[micro_batch] = pipe->free_at + sim->delay;
    pipe->sent++;
}

static int pipe_receive(struct sim *sim, struct pipe *pipe)
{
    while (pipe->received < pipe->sent && pipe->arrive[pipe->received] <= sim->now + 1e-12)
        pipe->received++;
    return pipe->received;
}

static void sim_complete(struct sim *sim, int i)
{
    struct schedule *schedule = &sim->schedule[i];
    if (sim->doing[i] == SCHEDULE_FORWARD) {
        if (i < sim->stages - 1)
            pipe_send(sim, &sim->down[i], schedule->forwarded);
        schedule->forwarded++;
    } else {
        if (i > 0)
            pipe_send(sim, &sim->up[i - 1], schedule->backwarded);
        schedule->backwarded++;
    }
    sim->doing[i] = -1;
    assert_true(schedule->forwarded <= sim->micro_batches && schedule->backwarded <= schedule->forwarded);
    assert_true(schedule->forwarded - schedule->backwarded <= sim->limit[i]);
}

/* What has come for stage i, and what it may begin now. */
static void sim_begin(struct sim *sim, int i)
{
    struct schedule *schedule = &sim->schedule[i];
    if (i > 0)
        schedule->arrived_activations = pipe_receive(sim, &sim->down[i - 1]);
    if (i < sim->stages - 1)
        schedule->arrived_gradients = pipe_receive(sim, &sim->up[i]);
    if (sim->doing[i] >= 0)
        return;
    enum schedule_action action = schedule_next(schedule);
    if (action != SCHEDULE_FORWARD && action != SCHEDULE_BACKWARD)
        return;
    sim->doing[i] = (int)action;
    sim->busy_until[i] = sim->now + (action == SCHEDULE_FORWARD ? sim->forward[i] : sim->backward[i]);
}

/* The next moment at which anything changes; INFINITY = nothing ever will. */
static double sim_next_moment(const struct sim *sim)
{
    double next = INFINITY;
    for (int i = 0; i < sim->stages; i++) {
        if (sim->doing[i] >= 0)
            next = fmin(next, sim->busy_until[i]);
        const struct pipe *pipes[] = {&sim->down[i], &sim->up[i]};
        for (int k = 0; k < 2; k++)
            if (pipes[k]->received < pipes[k]->sent)
                next = fmin(next, pipes[k]->arrive[pipes[k]->received]);
    }
    return next;
}

/* Runs one step; returns its time. */
static double sim_run(struct sim *sim)
{
    sim->now = 0;
    for (int i = 0; i < sim->stages; i++) {
        schedule_begin(&sim->schedule[i], i, sim->stages, sim->micro_batches, sim->limit[i]);
        sim->down[i] = sim->up[i] = (struct pipe){0};
        sim->doing[i] = -1;
    }
    for (;;) {
        for (int i = 0; i < sim->stages; i++)
            sim_begin(sim, i);
        double next = sim_next_moment(sim);
        if (isinf(next))
            break;
        sim->now = fmax(next, sim->now);
        for (int i = 0; i < sim->stages; i++)
            if (sim->doing[i] >= 0 && sim->busy_until[i] <= sim->now + 1e-12)
                sim_complete(sim, i);
    }
    for (int i = 0; i < sim->stages; i++) {
        if (schedule_next(&sim->schedule[i]) != SCHEDULE_DONE)
            fail_msg("deadlock: stage %d of %d, %d micro-batches, limit %d, stands at %d forward and %d backward", i,
                     sim->stages, sim->micro_batches, sim->limit[i], sim->schedule[i].forwarded,
                     sim->schedule[i].backwarded);
        int crossing = i < sim->stages - 1 ? sim->micro_batches : 0;
        assert_int_equal(sim->down[i].sent, crossing);
        assert_int_equal(sim->down[i].received, crossing);
        assert_int_equal(sim->up[i].sent, crossing);
        assert_int_equal(sim->up[i].received, crossing);
    }
    return sim->now;
}

static double draw(uint32_t *counter) /* uniform in [0, 1), the same in every run of the test */
{
    uint32_t in[4] = {(*counter)++, 0, 0, 0}, key[2] = {7, 11}, out[4];
    philox4x32(in, key, out);
    return out[0] / 4294967296.0;
}

static void no_deadlock_whatever_the_times(void **state)
{
    (void)state;
    uint32_t counter = 0;
    for (int run = 0; run < 3000; run++) {
        struct sim sim = {.stages = 1 + (int)(draw(&counter) * MAX_STAGES),
                          .micro_batches = 1 + (int)(draw(&counter) * MAX_MICRO)};
        sim.delay = draw(&counter) * draw(&counter);
        sim.transfer = draw(&counter) * draw(&counter);
        int slots = 1 + (int)(draw(&counter) * 40);
        for (int i = 0; i < sim.stages; i++) {
            sim.forward[i] = 0.001 + draw(&counter) * 0.1;
            sim.backward[i] = 0.001 + draw(&counter) * 0.2;
            /* Each stage measures for itself: limits need not agree, and some runs have wild ones. */
            sim.limit[i] = run % 3 == 0 ? 1 + (int)(draw(&counter) * slots)
                                        : schedule_limit(i, sim.stages, sim.micro_batches, slots,
                                                         sim.forward[i] + sim.backward[i], sim.delay, sim.transfer);
            assert_true(sim.limit[i] >= 1 && sim.limit[i] <= slots);
        }
        sim_run(&sim);
    }
}

static double uniform_run(int stages, int micro_batches, double t, double delay, double transfer, int slots, bool standard)
{
    struct sim sim = {.stages = stages, .micro_batches = micro_batches, .delay = delay, .transfer = transfer};
    for (int i = 0; i < stages; i++) {
        sim.forward[i] = t / 3;
        sim.backward[i] = t * 2 / 3;
        sim.limit[i] = standard ? stages - i : schedule_limit(i, stages, micro_batches, slots, t, delay, transfer);
    }
    return sim_run(&sim);
}

static double formula(int p, int m, double t, double delay, double transfer)
{
    return (m - 1) * fmax(t, transfer) + p * t + 2 * (p - 1) * (delay + transfer);
}

static void time_is_that_of_the_formula(void **state)
{
    (void)state;
    uint32_t counter = 1u << 20;
    for (int run = 0; run < 2000; run++) {
        int p = 2 + (int)(draw(&counter) * (MAX_STAGES - 1)), m = 4 + (int)(draw(&counter) * (MAX_MICRO - 3));
        double t = 0.01 + draw(&counter) * 0.2, delay = draw(&counter) * 0.2;
        double transfer = t * draw(&counter); /* the road is at most as slow as the computing */
        double ratio = uniform_run(p, m, t, delay, transfer, MAX_MICRO, false) / formula(p, m, t, delay, transfer);
        if (ratio > 1.10 || ratio < 0.9)
            fail_msg("p=%d m=%d t=%.3f delay=%.3f transfer=%.3f: %.3f of the formula", p, m, t, delay, transfer, ratio);
    }
}

static void standard_limit_is_clearly_worse_on_slow_roads(void **state)
{
    (void)state;
    assert_int_equal(schedule_limit(0, 8, 32, 64, 0.15, 0.067, 0), 16);
    double aware = uniform_run(8, 32, 0.15, 0.067, 0, 64, false), standard = uniform_run(8, 32, 0.15, 0.067, 0, 64, true);
    if (fabs(aware - 6.8) > 0.35 || fabs(standard - 10.4) > 0.6)
        fail_msg("latency-aware %.2f s (6.8 expected), standard %.2f s (10.4 expected)", aware, standard);
    assert_true(standard > 1.4 * aware);
}

static void limit_keeps_its_bounds(void **state)
{
    (void)state;
    assert_int_equal(schedule_limit(0, 4, 16, 64, 0.1, 0, 0), 4);     /* no delay: the standard depth */
    assert_int_equal(schedule_limit(3, 4, 16, 64, 0.1, 10, 1), 1);    /* the last stage never waits for a gradient */
    assert_int_equal(schedule_limit(0, 4, 2, 64, 0.1, 0, 0), 2);      /* not more than there are */
    assert_int_equal(schedule_limit(0, 8, 64, 3, 0.15, 0.067, 0), 3); /* memory decides */
    assert_int_equal(schedule_limit(0, 8, 64, 64, 0, 0, 0), 8);       /* nothing measured */
    assert_int_equal(schedule_limit(0, 2, 64, 64, 1e-6, 1e9, 0), 64); /* absurd measurements stay in range */
    assert_int_equal(schedule_limit(0, 1, 16, 64, 0.1, 0, 0), 1);
}

static void waits_name_their_cause(void **state)
{
    (void)state;
    struct schedule schedule;
    schedule_begin(&schedule, 1, 3, 4, 2);
    assert_int_equal(schedule_next(&schedule), SCHEDULE_WAIT_ACT);
    schedule.arrived_activations = 3;
    assert_int_equal(schedule_next(&schedule), SCHEDULE_FORWARD);
    schedule.forwarded = 2;
    assert_int_equal(schedule_next(&schedule), SCHEDULE_WAIT_GRAD); /* the limit */
    schedule.arrived_gradients = 1;
    assert_int_equal(schedule_next(&schedule), SCHEDULE_BACKWARD);
    schedule.backwarded = 1;
    assert_int_equal(schedule_next(&schedule), SCHEDULE_FORWARD);
    schedule_begin(&schedule, 0, 1, 1, 1);
    assert_int_equal(schedule_next(&schedule), SCHEDULE_FORWARD);
    schedule.forwarded = 1;
    assert_int_equal(schedule_next(&schedule), SCHEDULE_BACKWARD);
    schedule.backwarded = 1;
    assert_int_equal(schedule_next(&schedule), SCHEDULE_DONE);
    schedule_begin(&schedule, 1, 2, 0, 1); /* a pass without micro-batches */
    assert_int_equal(schedule_next(&schedule), SCHEDULE_DONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_deadlock_whatever_the_times),
        cmocka_unit_test(time_is_that_of_the_formula),
        cmocka_unit_test(standard_limit_is_clearly_worse_on_slow_roads),
        cmocka_unit_test(limit_keeps_its_bounds),
        cmocka_unit_test(waits_name_their_cause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
