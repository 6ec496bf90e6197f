/* Replicas that leave: who is asked, what is made of the answers in any order, who leaves after a partition, and when a run has to hold. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/trio.h"

static void the_least_counts_for_each_stage(void **state)
{
    (void)state;
    trio_killed(trio_stage_at(2, 1));
    assert_true(trio_happened("replica-left",
                         "replica 2 leaves the run: r2s1 on host b was killed by signal 9 (Killed); 2 of 3 replicas go on"));
    assert_int_equal(trio.record->state.row.phase, PHASE_TRAINING);
    for (int r = 0; r < 2; r++)
        for (int s = 0; s < TRIO_STAGES; s++)
            assert_int_equal(trio_count(trio_stage_at(r, s), WIRE_PART), 1);
    assert_int_equal(trio_count(trio_host_of(trio_stage_at(2, 0)), WIRE_SIGNAL), 1); /* the rest of it is of no use */
    trio_parted(0, 0, 2, 5, false);
    trio_parted(1, 1, 2, 7, false);
    assert_true(trio_leave_to(trio_stage_at(0, 0), 2) == UINT64_MAX && trio_leave_to(trio_stage_at(1, 1), 2) == UINT64_MAX);
    trio_parted(1, 0, 2, 4, false);
    assert_true(trio_leave_to(trio_stage_at(0, 0), 2) == 4 && trio_leave_to(trio_stage_at(1, 0), 2) == 4 && trio_leave_to(trio_stage_at(0, 1),
        2) == UINT64_MAX);
    trio_parted(0, 1, 2, 8, false);
    assert_true(trio_leave_to(trio_stage_at(0, 1), 2) == 7 && trio_leave_to(trio_stage_at(1, 1), 2) == 7);
    trio_killed(trio_stage_at(2, 0)); /* its end is no news any more */
    assert_int_equal(trio.record->state.row.phase, PHASE_TRAINING);
}

static void who_leaves_meanwhile_is_not_waited_for(void **state)
{
    (void)state;
    trio_killed(trio_stage_at(2, 0));
    trio_parted(0, 0, 2, 9, false);
    trio_parted(0, 1, 2, 9, false);
    trio_killed(trio_stage_at(1, 0));
    assert_true(trio_leave_to(trio_stage_at(0, 0), 2) == 9 && trio_leave_to(trio_stage_at(0, 1), 2) == 9);
    trio_parted(0, 0, 1, 3, false);
    assert_int_equal(trio_leave_to(trio_stage_at(0, 0), 1), 3);
    assert_true(trio_happened("replica-left", "1 of 3 replicas go on"));
    trio_killed(trio_stage_at(0, 1)); /* nobody is left to go on */
    assert_int_equal(trio.record->state.row.phase, PHASE_HOLDING);
    assert_non_null(strstr(trio.record->state.row.reason, "r0s1 on host a was killed by signal 9"));
}

/* A neighbour is often faster than the agent: the agent's word is the better reason, and is waited for, but not for long. */
static void a_broken_cut(void **state)
{
    (void)state;
    struct wire_event lost = {.level = EVENT_ALERT, .code = "peer-lost", .text = "lost r1s1: connection reset"};
    trio_say(trio_stage_at(1, 0), WIRE_EVENT, &lost);
    assert_int_equal(trio.record->state.row.phase, PHASE_TRAINING);
    assert_int_equal(trio_count(trio_stage_at(0, 0), WIRE_PART), 0);
    trio_killed(trio_stage_at(1, 1));
    assert_true(trio_happened("replica-left", "replica 1 leaves the run: r1s1 on host"));
    trio_say(trio_stage_at(2, 0), WIRE_EVENT, &(struct wire_event){.level = EVENT_ALERT, .code = "peer-lost",
                                                         .text = "lost r2s1: no route"});
    trio_pass(5);
    assert_true(trio_happened("replica-left", "lost r2s1: no route"));
    assert_int_equal(trio.record->state.row.phase, PHASE_TRAINING);
    assert_int_equal(trio_count(trio_host_of(trio_stage_at(2, 0)), WIRE_SIGNAL) + trio_count(trio_host_of(trio_stage_at(2, 1)), WIRE_SIGNAL) > 0, 1);
}

static void one_side_of_a_partition_leaves(void **state)
{
    (void)state;
    trio_lost(0, 0, 1); /* replica 0 and 2 see each other, 1 sees nobody */
    trio_lost(1, 0, 0);
    trio_lost(1, 1, 2);
    trio_lost(2, 1, 1);
    trio_pass(1);
    assert_false(trio_happened("replica-left", ""));
    trio_pass(5);
    assert_true(trio_happened("replica-left", "replica 1 leaves the run: 2 of its siblings lost their roads to it"));
    assert_false(trio_happened("replica-left", "replica 0 leaves"));
    assert_false(trio_happened("replica-left", "replica 2 leaves"));
    trio_lost(0, 1, 2); /* of two that lost each other the higher one */
    trio_lost(2, 1, 0);
    trio_pass(5);
    assert_true(trio_happened("replica-left", "replica 2 leaves"));
    assert_false(trio_happened("replica-left", "replica 0 leaves"));
}

static void who_comes_back_hears_it_again(void **state)
{
    (void)state;
    trio_killed(trio_stage_at(2, 0));
    for (int s = 0; s < TRIO_STAGES; s++) {
        trio_parted(0, s, 2, 5, false);
        trio_parted(1, s, 2, 6, false);
    }
    trio.sent_count = 0;
    run_gone(trio.run, &trio.handles[trio_stage_at(1, 0)], ERR_GONE, "the connection was closed");
    trio_hello(trio_stage_at(1, 0));
    assert_int_equal(trio_count(trio_stage_at(1, 0), WIRE_PART), 1);
    trio_parted(1, 0, 2, 6, false); /* the LEAVE was lost with the road */
    assert_int_equal(trio_leave_to(trio_stage_at(1, 0), 2), 5);
}

/* Another kedged asks all again; what the former one decided stands, whatever the others count. */
static void a_new_scheduler_decides_the_same(void **state)
{
    (void)state;
    trio_killed(trio_stage_at(2, 0));
    trio_killed(trio_stage_at(2, 1));
    run_free(trio.run);
    trio.sent_count = 0;
    trio.run = run_new(&trio.profile, &trio.plan, 7, trio.record, NULL, &trio_sink, NULL);
    for (int i = 0; i < TRIO_AGENTS; i++)
        trio_hello(i);
    for (int r = 0; r < 2; r++)
        for (int s = 0; s < TRIO_STAGES; s++)
            trio_hello(trio_stage_at(r, s));
    for (int r = 0; r < 2; r++)
        assert_int_equal(trio_count(trio_stage_at(r, 0), WIRE_PART), 1);
    trio_parted(0, 0, 2, 4, true);
    trio_parted(1, 0, 2, 6, false);
    assert_int_equal(trio_leave_to(trio_stage_at(1, 0), 2), 4);
    assert_int_equal(trio.record->state.row.phase, PHASE_TRAINING);
}

static void saved(int replica, int stage)
{
    struct wire_saved message = {.step = (uint64_t)trio.profile.steps, .bytes = 1};
    snprintf(message.file, sizeof message.file, "r%ds%d.safetensors", replica, stage);
    trio_say(trio_stage_at(replica, stage), WIRE_SAVED, &message);
}

static void the_others_finish(void **state)
{
    (void)state;
    for (int r = 0; r < 2; r++)
        for (int s = 0; s < TRIO_STAGES; s++)
            trio_say(trio_stage_at(r, s), WIRE_DONE, &(struct wire_done){.step = (uint64_t)trio.profile.steps});
    assert_int_equal(trio.record->state.row.phase, PHASE_TRAINING);
    trio_killed(trio_stage_at(2, 1));
    assert_int_equal(trio.record->state.row.phase, PHASE_TRAINING);
    saved(0, 0);
    saved(0, 1);
    assert_int_equal(trio.record->state.row.phase, PHASE_FINISHED);
}

/* The lowest one dies while it writes the last weights: all are done, and the run is not before the next one has written them, all of them. */
static void the_next_one_writes_the_last_weights(void **state)
{
    (void)state;
    saved(0, 0);
    for (int r = 0; r < TRIO_REPLICAS; r++)
        for (int s = 0; s < TRIO_STAGES; s++)
            if (r > 0 || s > 0)
                trio_say(trio_stage_at(r, s), WIRE_DONE, &(struct wire_done){.step = (uint64_t)trio.profile.steps});
    trio_killed(trio_stage_at(0, 0));
    assert_int_equal(trio.record->state.row.phase, PHASE_TRAINING);
    saved(0, 1); /* a last word of who has left */
    assert_int_equal(trio.sets, 0);
    saved(1, 1);
    assert_int_equal(trio.record->state.row.phase, PHASE_TRAINING);
    assert_int_equal(trio.sets, 0);
    saved(1, 0);
    assert_int_equal(trio.sets, 1);
    assert_int_equal(trio.newest_set.replica, 1);
    assert_string_equal(trio.newest_set.files[TRIO_STAGES].file, "r1s0.safetensors");
    assert_string_equal(trio.newest_set.files[TRIO_STAGES + 1].file, "r1s1.safetensors");
    assert_int_equal(trio.record->state.row.phase, PHASE_FINISHED);
}

/* Weights of who was the lowest when they were asked for are a set, whoever is the lowest now; what two replicas say makes none. */
static void a_set_is_of_one_replica(void **state)
{
    (void)state;
    saved(0, 0);
    saved(1, 1);
    assert_int_equal(trio.sets, 0);
    saved(1, 0);
    assert_int_equal(trio.sets, 1);
    assert_int_equal(trio.newest_set.replica, 1);
    saved(0, 0);
    saved(0, 1);
    assert_int_equal(trio.sets, 1); /* of that step there is one */
}

static void averaged_gradients_need_everybody(void **state)
{
    run_free(trio.run);
    record_free(trio.record);
    (void)state;
    trio.profile.sync_every = 1;
    trio.profile.sync_fragments = 1;
    trio.profile.sync_overlap = 0;
    trio.profile.sync_outer = OUTER_NONE;
    trio_begin();
    trio_killed(trio_stage_at(2, 0));
    assert_int_equal(trio.record->state.row.phase, PHASE_HOLDING);
    assert_false(trio_happened("replica-left", ""));
}

/* Deaths, answers, lost roads and returns in any order: every stage of who is here gets one and the same number, never more
 * than what any of them that is still here has. */
static void any_order(void **state)
{
    (void)state;
    struct dice dice = {.state = 11};
    for (int trial = 0; trial < 200; trial++) {
        run_free(trio.run);
        record_free(trio.record);
        trio_begin();
        int dead[2] = {(int)dice_below(&dice, TRIO_REPLICAS), 0};
        dead[1] = (dead[0] + 1 + (int)dice_below(&dice, TRIO_REPLICAS - 1)) % TRIO_REPLICAS;
        int last = TRIO_REPLICAS - dead[0] - dead[1];
        uint64_t has[TRIO_REPLICAS];
        for (int r = 0; r < TRIO_REPLICAS; r++)
            has[r] = dice_below(&dice, 9);
        trio_killed(trio_stage_at(dead[0], (int)dice_below(&dice, TRIO_STAGES)));
        bool first = dice_below(&dice, 2), second = dice_below(&dice, 2);
        if (first)
            trio_parted(last, 0, dead[0], has[last], false);
        if (second)
            trio_parted(dead[1], 0, dead[0], has[dead[1]], false);
        uint64_t decided = trio_leave_to(trio_stage_at(last, 0), dead[0]);
        assert_int_equal(decided != UINT64_MAX, first && second);
        trio_killed(trio_stage_at(dead[1], (int)dice_below(&dice, TRIO_STAGES)));
        if (!first)
            trio_parted(last, 0, dead[0], has[last], false);
        uint64_t told = trio_leave_to(trio_stage_at(last, 0), dead[0]);
        assert_true(told != UINT64_MAX && told <= has[last] && (decided == UINT64_MAX || told == decided));
        assert_int_equal(trio.record->state.row.phase, PHASE_TRAINING);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        trio_test(the_least_counts_for_each_stage),
        trio_test(who_leaves_meanwhile_is_not_waited_for),
        trio_test(a_broken_cut),
        trio_test(one_side_of_a_partition_leaves),
        trio_test(the_next_one_writes_the_last_weights),
        trio_test(a_set_is_of_one_replica),
        trio_test(who_comes_back_hears_it_again),
        trio_test(a_new_scheduler_decides_the_same),
        trio_test(the_others_finish),
        trio_test(averaged_gradients_need_everybody),
        trio_test(any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
