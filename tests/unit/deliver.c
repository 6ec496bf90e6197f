/* When snapshots go and how fast: just in time on a free road, below what activations need on a full one, never less than
 * the floor; a road that gets half as fast is seen in the pace. */
#include "scheduler/deliver.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MBIT 1e6

static struct deliver_pace pace_of(uint64_t whole, uint64_t left, double capacity, double busy, double seconds)
{
    struct deliver_pace pace;
    deliver_pace(&(struct deliver_road){whole, left, capacity, busy}, &(struct deliver_time){seconds, 4}, &pace);
    return pace;
}

static struct deliver_pace pace(uint64_t left, double capacity, double busy, double seconds)
{
    return pace_of(left, left, capacity, busy, seconds);
}

static void seconds_left_are_the_goal_s(void **state)
{
    (void)state;
    struct deliver_goal goal = {.version = 100, .staleness = 20, .step = 102, .step_seconds = 1.5, .compute_seconds = 4};
    assert_true(fabs(deliver_time(&goal).left - (15 * 1.5 - 4)) < 1e-9 && fabs(deliver_time(&goal).least - 4 * 1.5) < 1e-9);
    goal.step = 115;
    goal.computed = true;
    assert_true(fabs(deliver_time(&goal).left - 2 * 1.5) < 1e-9);
    goal.step = 130; /* late: haste is of no use */
    assert_true(deliver_time(&goal).left < 0 && fabs(deliver_time(&goal).least - 10 * 1.5) < 1e-9);
    goal.compute_seconds = 100;
    assert_true(fabs(deliver_time(&goal).least - 50) < 1e-9);
}

static void a_free_road_is_used_just_in_time(void **state)
{
    (void)state;
    struct deliver_pace p = pace(10000000, 200 * MBIT, 20 * MBIT, 20); /* 4 Mbit/s would do; the floor is as much */
    assert_true(!p.limited && fabs(p.rate_bps - 4.6 * MBIT) < 0.01 * MBIT && p.seconds < 20);
    p = pace(1000, 200 * MBIT, 20 * MBIT, 20);
    assert_true(!p.limited && fabs(p.rate_bps - 4 * MBIT) < 1);
    p = pace(10000000, 0, 0, 20); /* nothing is known of the road: no burst all the same */
    assert_true(!p.limited && fabs(p.rate_bps - 4.6 * MBIT) < 0.01 * MBIT);
    p = pace(1000, 0, 0, 20);
    assert_true(!p.limited && fabs(p.rate_bps - MBIT) < 1);
    p = pace(10000000, 0, 0, -1); /* and none when it is late */
    assert_true(!p.limited && fabs(p.rate_bps - 20 * MBIT) < 1);
}

static void activations_keep_their_road(void **state)
{
    (void)state;
    struct deliver_pace p = pace(1000000000, 200 * MBIT, 150 * MBIT, 20);
    assert_true(p.limited && fabs(p.rate_bps - 40 * MBIT) < 1);
    p = pace(1000000000, 200 * MBIT, 300 * MBIT, -5); /* late, and nothing is left: the floor */
    assert_true(p.limited && fabs(p.rate_bps - 4 * MBIT) < 1);
}

/* A simulation: 40 MB of difference every 20 steps of 1.4 s on a road of 200 Mbit/s that activations fill by half, then of
 * 100 Mbit/s. */
static void half_the_rate_still_holds_the_goal(void **state)
{
    (void)state;
    for (int halved = 0; halved < 2; halved++) {
        double capacity = halved ? 100 * MBIT : 200 * MBIT, busy = 50 * MBIT, left = 40e6, seconds = 0;
        struct deliver_goal goal = {.version = 100, .staleness = 20, .step = 100, .step_seconds = 1.4, .compute_seconds = 3};
        while (left > 0 && seconds < 100) {
            struct deliver_pace p = pace_of((uint64_t)40e6, (uint64_t)left, capacity, busy, deliver_time(&goal).left);
            assert_true(p.rate_bps <= capacity - busy);
            left -= p.rate_bps / 8 * 0.25;
            seconds += 0.25;
            goal.step = 100 + seconds / 1.4;
        }
        uint64_t newest = (uint64_t)(100 + (seconds + 3) / 1.4);
        assert_int_equal(deliver_use_step(100, 20, newest), 120);
    }
}

/* What both ways of a version were like, by simulated time: when the last directions were there, and the highest rates. */
struct journey {
    double seconds, out_bps, back_bps;
};

static struct journey travel(struct deliver_road back, double capacity, double busy, double compute)
{
    struct journey journey = {0};
    double out_bytes = 40e6;
    struct deliver_goal goal = {.version = 100, .staleness = 20, .step = 100, .step_seconds = 1.4, .compute_seconds = compute};
    const double turn = 0.1;
    while (out_bytes > 0 && journey.seconds < 100) {
        struct deliver_time both = deliver_time(&goal), out = deliver_time_out(&both, &back, (uint64_t)out_bytes);
        struct deliver_pace p = pace_of((uint64_t)40e6, (uint64_t)out_bytes, capacity, busy, out.left);
        journey.out_bps = fmax(journey.out_bps, p.rate_bps);
        out_bytes -= p.rate_bps / 8 * turn;
        journey.seconds += turn;
        goal.step = 100 + journey.seconds / goal.step_seconds;
    }
    journey.seconds += compute;
    goal.step = 100 + journey.seconds / goal.step_seconds;
    goal.computed = true;
    struct deliver_pace p;
    struct deliver_time time = deliver_time(&goal);
    back.left_bytes = back.whole_bytes;
    deliver_pace(&back, &time, &p);
    journey.back_bps = p.rate_bps;
    journey.seconds += p.seconds;
    return journey;
}

/* 17 of 20 steps of 1.4 s are there for both ways and 3 s of computing: 20.8 s. */
static void both_ways_share_the_time(void **state)
{
    (void)state;
    const double seconds = 20.8, in_time = 17 * 1.4;
    struct deliver_road back = {.whole_bytes = 15000000, .capacity_bps = 200 * MBIT, .busy_bps = 20 * MBIT};
    struct journey j = travel(back, 200 * MBIT, 50 * MBIT, 3);
    double level = 1.15 * 8 * 55e6 / seconds;
    assert_true(j.seconds < in_time && j.out_bps < 1.01 * level && j.back_bps < 1.01 * level);
    /* Nothing comes back: the snapshot has all of the time, and takes it. */
    j = travel((struct deliver_road){.capacity_bps = 200 * MBIT}, 200 * MBIT, 50 * MBIT, 3);
    assert_true(j.seconds < in_time + 0.1 && j.out_bps < 1.01 * 1.15 * 8 * 40e6 / seconds);
    /* Nothing is known of any road. */
    back.capacity_bps = back.busy_bps = 0;
    j = travel(back, 0, 0, 3);
    assert_true(j.seconds < in_time && j.out_bps < 1.01 * level && j.back_bps < 1.01 * level);
    /* The anchor's road has room for 9.5 Mbit/s: it is not asked for more, and the snapshot makes up for it. */
    back = (struct deliver_road){.whole_bytes = 15000000, .capacity_bps = 20 * MBIT, .busy_bps = 9.5 * MBIT};
    j = travel(back, 200 * MBIT, 50 * MBIT, 3);
    assert_true(j.seconds < in_time && j.back_bps <= 9.5 * MBIT + 1 && j.out_bps > level && j.out_bps < 200 * MBIT - 50 * MBIT);
    /* It has room for nothing: the floor, too late, and the snapshot does not go faster than there is room for. */
    back.busy_bps = 40 * MBIT;
    j = travel(back, 200 * MBIT, 150 * MBIT, 3);
    assert_true(fabs(j.back_bps - 0.4 * MBIT) < 1 && j.out_bps <= 40 * MBIT + 1);
}

static void steps_of_use_and_of_the_next(void **state)
{
    (void)state;
    assert_int_equal(deliver_use_step(100, 20, 110), 120);
    assert_int_equal(deliver_use_step(100, 20, 125), 127);
    assert_true(deliver_is_due(0, 20, 0) && deliver_is_due(1, 20, 20) && !deliver_is_due(1, 20, 19));
}

/* Directions that nobody used, because they came too late, do not stand before newer ones. */
static void the_newest_that_is_due_is_told(void **state)
{
    (void)state;
    struct deliver_directions all[] = {{100, 3, 0}, {0, 0, 0}, {120, 3, 0}, {140, 1, 0}};
    uint64_t from = 0;
    assert_int_equal(deliver_choose(all, 4, 3, 0, 20, 110, &from), -1); /* too early */
    assert_int_equal(deliver_choose(all, 4, 3, 0, 20, 117, &from), 0);
    assert_int_equal(from, 120);
    all[0].told_from = 120;
    assert_int_equal(deliver_choose(all, 4, 3, 0, 20, 122, &from), -1); /* on its way */
    assert_int_equal(deliver_choose(all, 4, 3, 100, 20, 136, &from), -1);
    assert_int_equal(deliver_choose(all, 4, 3, 100, 20, 137, &from), 2);
    assert_int_equal(from, 140);
    assert_int_equal(deliver_choose(all, 4, 3, 0, 20, 124, &from), -1); /* never used, and the next is not due */
    assert_int_equal(deliver_choose(all, 4, 3, 0, 20, 400, &from), 2);
    assert_int_equal(from, 402);
    all[3].holders = 3;
    assert_int_equal(deliver_choose(all, 4, 3, 0, 20, 400, &from), 3);
    all[3].told_from = 402;
    assert_int_equal(deliver_choose(all, 4, 3, 0, 20, 405, &from), -1);
    assert_int_equal(deliver_choose(all, 4, 3, 140, 20, 405, &from), -1); /* the older ones are done with */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seconds_left_are_the_goal_s),  cmocka_unit_test(a_free_road_is_used_just_in_time),
        cmocka_unit_test(activations_keep_their_road),  cmocka_unit_test(half_the_rate_still_holds_the_goal),
        cmocka_unit_test(both_ways_share_the_time),
        cmocka_unit_test(steps_of_use_and_of_the_next), cmocka_unit_test(the_newest_that_is_due_is_told),
    };
    cmocka_set_message_output(CM_OUTPUT_STDOUT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
