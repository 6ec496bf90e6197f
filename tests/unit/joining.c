/* Replicas that come back: what is said to whom on the way, what ends it, and how often it is tried. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "tests/helpers/trio.h"

/* Replica 2 is dead, and all know it. */
static void all_gone(void)
{
    for (int s = 0; s < TRIO_STAGES; s++)
        if (record_find_process(trio.record, trio_name_of(trio_stage_at(2, s)))->row.state != PROCESS_EXITED)
            trio_killed(trio_stage_at(2, s));
    for (int r = 0; r < 2; r++)
        for (int s = 0; s < TRIO_STAGES; s++)
            trio_parted(r, s, 2, 5, false);
}

static void ready(int state)
{
    for (int s = 0; s < TRIO_STAGES; s++)
        trio_say(trio_stage_at(2, s), WIRE_READY, &(struct wire_ready){.state = (uint8_t)state});
}

/* Up to the moment when its stages copy. */
static void come(void)
{
    trio.sent_count = 0;
    for (int s = 0; s < TRIO_STAGES; s++) {
        trio.life[trio_stage_at(2, s)]++;
        trio_hello(trio_stage_at(2, s));
        assert_int_equal(trio.sent[trio_newest(trio_stage_at(2, s), WIRE_ASSIGN)].of.assign.members, 3);
    }
    ready(READY_LOADED);
    for (int r = 0; r < 2; r++)
        for (int s = 0; s < TRIO_STAGES; s++) {
            const struct wire_road *road = &trio.sent[trio_newest(trio_stage_at(r, s), WIRE_ROAD)].of.road;
            assert_true(road->side == ROAD_SIBLING && road->replica == 2 && road->life == trio.life[trio_stage_at(2, s)]);
        }
    assert_int_equal(trio_count(trio_stage_at(2, 0), WIRE_ROAD), 3);
    assert_int_equal(trio_count(trio_stage_at(2, 0), WIRE_JOIN), 0);
    ready(READY_ROADS);
    for (int s = 0; s < TRIO_STAGES; s++)
        assert_int_equal(trio_count(trio_stage_at(2, s), WIRE_JOIN), 1);
}

static void enter(int process, uint64_t step)
{
    trio_say(process, WIRE_ENTERED,
        &(struct wire_entered){.replica = 2, .life = trio.life[trio_stage_at(2, 0)], .step = step, .round = 17});
}

static void it_comes_back(void **state)
{
    (void)state;
    trio_killed(trio_stage_at(2, 0));
    trio_pass(2);
    assert_false(trio_happened("replica-starts", "")); /* its other stage is still there, and its siblings have not answered */
    all_gone();
    trio_pass(2);
    assert_true(trio_happened("replica-starts", "replica 2 is started again"));
    for (int s = 0; s < TRIO_STAGES; s++)
        assert_int_equal(trio.sent[trio_newest(trio_host_of(trio_stage_at(2, s)), WIRE_SPAWN)].of.spawn.incarnation, 2);
    come();
    assert_int_equal(trio_count(trio_stage_at(0, 0), WIRE_JOIN), 0);
    ready(READY_COPIED);
    assert_int_equal(trio_count(trio_stage_at(0, 0), WIRE_JOIN), 1);
    assert_int_equal(trio_count(trio_stage_at(1, 0), WIRE_JOIN), 0);
    enter(trio_stage_at(1, 0), 40);
    enter(trio_stage_at(0, 0), 40);
    assert_int_equal(trio_count(trio_stage_at(2, 0), WIRE_START), 0);
    ready(READY_JOINED);
    assert_true(trio_happened("replica-joined", "replica 2 joined at step 40, round 17; 3 of 3 replicas train"));
    for (int s = 0; s < TRIO_STAGES; s++)
        assert_int_equal(trio.sent[trio_newest(trio_stage_at(2, s), WIRE_START)].of.start.first_step, 40);
    trio.sent_count = 0;
    run_gone(trio.run, &trio.handles[trio_stage_at(2, 1)], ERR_GONE, "nothing heard for 2.5 s");
    trio_hello(trio_stage_at(2, 1));
    assert_int_equal(trio_count(trio_stage_at(2, 1), WIRE_LEAVE), 0); /* of its former life the others hear, not it */
    run_gone(trio.run, &trio.handles[trio_stage_at(1, 1)], ERR_GONE, "nothing heard for 2.5 s");
    trio_hello(trio_stage_at(1, 1));
    assert_int_equal(trio.sent[trio_newest(trio_stage_at(1, 1), WIRE_LEAVE)].of.leave.life, 1);
    trio_killed(trio_stage_at(2, 1)); /* and is a replica as any other */
    assert_int_equal(trio.sent[trio_newest(trio_stage_at(0, 1), WIRE_PART)].of.part.life, 2);
    assert_int_equal(trio.record->state.row.phase, PHASE_TRAINING);
}

static void the_lowest_dies_meanwhile(void **state)
{
    (void)state;
    all_gone();
    trio_pass(2);
    come();
    ready(READY_COPIED);
    trio_killed(trio_stage_at(0, 0));
    trio_pass(2);
    assert_true(trio_count(trio_stage_at(1, 0), WIRE_JOIN) > 0);
    enter(trio_stage_at(1, 0), 50);
    ready(READY_JOINED);
    assert_true(trio_happened("replica-joined", "replica 2 joined at step 50, round 17; 2 of 3 replicas train"));
}

static void who_dies_on_the_way_is_tried_again(void **state)
{
    (void)state;
    for (uint32_t tried = 1; tried <= 3; tried++) {
        all_gone();
        trio_pass(10);
        trio.sent_count = 0;
        come();
        if (tried == 2)
            ready(READY_COPIED);
        trio_killed(trio_stage_at(2, tried % 2));
        assert_true(trio_happened("join-failed", "replica 2 did not join: r2s"));
        for (int s = 0; s < TRIO_STAGES; s++)
            assert_int_equal(trio.sent[trio_newest(trio_stage_at(1, s), WIRE_PART)].of.part.life, trio.life[trio_stage_at(2, s)]);
        trio.sent_count = 0;
        trio_say(trio_stage_at(0, 0), WIRE_PARTED, &(struct wire_parted){.replica = 2, .life = tried, .received = 1}); /* old news */
        trio_say(trio_stage_at(1, 0), WIRE_PARTED, &(struct wire_parted){.replica = 2, .life = tried, .received = 1});
        assert_true(trio_leave_to(trio_stage_at(0, 0), 2) == UINT64_MAX);
    }
    trio.sent_count = 0;
    all_gone();
    assert_int_equal(trio_leave_to(trio_stage_at(0, 0), 2), 5);
    trio_pass(10);
    assert_true(trio_happened("replica-down", "replica 2 ended 3 more times within ten minutes"));
    assert_int_equal(trio_count(trio_host_of(trio_stage_at(2, 0)), WIRE_SPAWN), 0);
    assert_int_equal(trio.record->state.row.phase, PHASE_TRAINING);
}

static void no_wait_without_an_end(void **state)
{
    (void)state;
    all_gone();
    trio_pass(2);
    come();
    ready(READY_COPIED);
    trio_pass(1000); /* nobody waits for it yet */
    assert_false(trio_happened("join-failed", ""));
    enter(trio_stage_at(0, 0), 60);
    trio_pass(119);
    assert_false(trio_happened("join-failed", ""));
    trio_pass(3);
    assert_true(trio_happened("join-failed", "it was let in and did not begin within 2 m"));
    assert_int_equal(trio.record->state.row.phase, PHASE_TRAINING);
}

static void a_road_of_one_that_joins(void **state)
{
    (void)state;
    all_gone();
    trio_pass(2);
    come();
    trio_lost(1, 0, 2);
    trio_pass(1);
    assert_false(trio_happened("join-failed", ""));
    trio_pass(5);
    assert_true(trio_happened("join-failed", "a road to one of its siblings is lost"));
}

static void who_was_away_hears_of_the_former_life(void **state)
{
    (void)state;
    all_gone();
    trio_pass(2);
    come();
    trio.sent_count = 0;
    run_gone(trio.run, &trio.handles[trio_stage_at(1, 0)], ERR_GONE, "the connection was closed");
    trio_hello(trio_stage_at(1, 0));
    assert_int_equal(trio_leave_to(trio_stage_at(1, 0), 2), 5);
    assert_int_equal(trio.sent[trio_newest(trio_stage_at(1, 0), WIRE_LEAVE)].of.leave.life, 1);
    assert_int_equal(trio_count(trio_stage_at(1, 0), WIRE_PART), 0);
}

/* What was under way when the scheduler died is given up, and tried again by the next one. */
static void a_new_scheduler_tries_again(void **state)
{
    (void)state;
    all_gone();
    trio_pass(2);
    come();
    run_free(trio.run);
    trio.sent_count = 0;
    trio.run = run_new(&trio.profile, &trio.plan, 7, trio.record, NULL, &trio_sink, NULL);
    for (int i = 0; i < TRIO_ALL; i++)
        trio_hello(i);
    trio_pass(2);
    assert_true(trio_count(trio_host_of(trio_stage_at(2, 0)), WIRE_SIGNAL) > 0);
    for (int s = 0; s < TRIO_STAGES; s++) {
        trio_killed(trio_stage_at(2, s));
        trio_parted(0, s, 2, 0, false);
        trio_parted(1, s, 2, 0, false);
    }
    trio_pass(2);
    assert_int_equal(trio.sent[trio_newest(trio_host_of(trio_stage_at(2, 0)), WIRE_SPAWN)].of.spawn.incarnation, 3);
    come();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        trio_test_rejoin(it_comes_back),
        trio_test_rejoin(the_lowest_dies_meanwhile),
        trio_test_rejoin(who_dies_on_the_way_is_tried_again),
        trio_test_rejoin(no_wait_without_an_end),
        trio_test_rejoin(a_road_of_one_that_joins),
        trio_test_rejoin(who_was_away_hears_of_the_former_life),
        trio_test_rejoin(a_new_scheduler_tries_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
