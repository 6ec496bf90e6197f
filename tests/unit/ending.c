/* What makes a run hold or end, on an owned clock: losses, drift, silence, and what people order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "tests/helpers/worlds.h"

/* ---- losses ---- */

static void killed_worker_holds_the_run(void **state)
{
    (void)state;
    world_form(&world);
    world_forget(&world);
    world_gone(&world, WORLD_R0S1, ERR_GONE);
    assert_int_equal(world_phase(&world), PHASE_TRAINING); /* it may only have lost us */
    world_exit(&world, WORLD_R0S1, -1, 9);
    assert_int_equal(world_phase(&world), PHASE_HOLDING);
    assert_string_equal(world_reason(&world),
                        "r0s1 on host b was killed by signal 9 (Killed); 'kedge stop laptop' ends the run");
    assert_string_equal(world.sent[world_newest(&world, WORLD_R0S0, WIRE_HOLD)].payload.hold.reason, world_reason(&world));
    assert_int_equal(world_count(&world, WORLD_R0S1, WIRE_HOLD), 0);
    assert_int_equal(worlds_row(WORLD_R0S1)->state, PROCESS_EXITED);
    assert_int_equal(world_event(&world, "process-exit", "killed by signal 9 (Killed)"), EVENT_ALERT);
    struct wire_reply reply = world_order(&world, ORDER_RESUME, "", "");
    assert_int_equal(reply.err, ERR_REFUSED);
    worlds_assert_says(reply.text, "cannot resume: r0s1 on host b was killed");
}

static void neighbours_news_before_the_agents(void **state)
{
    (void)state;
    world_form(&world);
    world_alert(&world, WORLD_R0S0, "peer-lost", "the road to r0s1 is lost: closed the connection");
    assert_int_equal(world_phase(&world), PHASE_HOLDING);
    worlds_assert_says(world_reason(&world), "r0s0 on host a: the road to r0s1 is lost");
    world_forget(&world);
    world_exit(&world, WORLD_R0S1, -1, 11);
    worlds_assert_says(world_reason(&world),
                "r0s1 on host b was killed by signal 11 (Segmentation fault)"); /* the cause, not the symptom */
    assert_int_equal(world_event(&world, "holds", "signal 11"), EVENT_ALERT);
}

static void neighbours_news_after_the_agents(void **state)
{
    (void)state;
    world_form(&world);
    world_exit(&world, WORLD_R0S1, -1, 9);
    world_alert(&world, WORLD_R0S0, "peer-lost", "the road to r0s1 is lost");
    worlds_assert_says(world_reason(&world), "r0s1 on host b was killed");
    world_exit(&world, WORLD_R0S0, 1, 0); /* the first cause stays */
    worlds_assert_says(world_reason(&world), "r0s1 on host b was killed");
    assert_int_equal(world_event(&world, "process-exit", "r0s0 on host a ended with exit code 1"), EVENT_ALERT);
}

static void drift_holds_and_others_do_not(void **state)
{
    (void)state;
    world_form(&world);
    world_alert(&world, WORLD_R0S0, "non-finite", "loss of step 3 is not finite: dropped");
    assert_int_equal(world_phase(&world), PHASE_TRAINING);
    world_alert(&world, WORLD_R0S1, "drift", "channels of step 3 differ");
    assert_int_equal(world_phase(&world), PHASE_HOLDING);
    worlds_assert_says(world_reason(&world), "r0s1 on host b: channels of step 3 differ");
}

static void silence_is_told_and_training_goes_on(void **state)
{
    (void)state;
    world_form(&world);
    world_gone(&world, WORLD_R0S0, ERR_TIMEOUT);
    world_pass(&world, 10);
    assert_int_equal(world_phase(&world), PHASE_TRAINING);
    worlds_assert_says(world_reason(&world), "r0s0 on host a has not been heard of for 10.0 s; it may train on and come back");
    worlds_assert_says(worlds_row(WORLD_R0S0)->waiting, "not heard of for 10.0 s");
    assert_int_equal(worlds_row(WORLD_R0S0)->heard_ns_ago, 10 * CLOCK_SECOND);
    assert_int_equal(world_event(&world, "silent", ""), -1);
    world_pass(&world, 595);
    assert_int_equal(world_event(&world, "silent", "r0s0 on host a has not been heard of for 10 m 00 s"), EVENT_ALERT);
    assert_int_equal(world_phase(&world), PHASE_TRAINING);
    world_forget(&world);
    assert_int_equal(world_hello(&world, WORLD_R0S0, 1, NULL), 0);
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_START), 1); /* harmless when it trains, needed when it missed it */
    world_pass(&world, 1);
    assert_string_equal(world_reason(&world), "");
}

/* ---- orders and ends ---- */

static void pause_and_resume(void **state)
{
    (void)state;
    struct wire_reply reply = world_order(&world, ORDER_PAUSE, "", "");
    assert_int_equal(reply.err, ERR_REFUSED);
    world_form(&world);
    for (uint64_t step = 1; step <= 5; step++)
        world_sample(&world, WORLD_R0S1, STAMP_TRAIN, step, 2.0);
    world_pass(&world, 10);
    world_forget(&world);
    assert_int_equal(world_order(&world, ORDER_RESUME, "", "").err, 0);
    assert_int_equal(world.sent_count, 0);
    assert_int_equal(world_order(&world, ORDER_PAUSE, "", "").err, 0);
    assert_int_equal(world_phase(&world), PHASE_HOLDING);
    worlds_assert_says(world_reason(&world), "paused by anna@home; 'kedge resume laptop' goes on");
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_HOLD), 1);
    world_pass(&world, 100);
    assert_int_equal(world.record->state.row.trained_ns, 10 * CLOCK_SECOND); /* holding is not training */
    world_gone(&world, WORLD_R0S1, ERR_GONE);
    reply = world_order(&world, ORDER_RESUME, "", "");
    assert_int_equal(reply.err, ERR_REFUSED);
    worlds_assert_says(reply.text, "r0s1 on host b is away");
    world_hello(&world, WORLD_R0S1, 1, NULL);
    assert_int_equal(world_count(&world, WORLD_R0S1, WIRE_HOLD), 2); /* it may have missed it */
    world_forget(&world);
    reply = world_order(&world, ORDER_RESUME, "", "");
    assert_int_equal(reply.err, 0);
    worlds_assert_says(reply.text, "from step 6");
    assert_int_equal(world.sent[world_newest(&world, WORLD_R0S0, WIRE_START)].payload.start.first_step, 6);
    assert_int_equal(world_phase(&world), PHASE_TRAINING);
}

static void all_done_finishes(void **state)
{
    (void)state;
    world_form(&world);
    worlds_finish();
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_STOP), 1);
    worlds_assert_says(world_reason(&world), "all 100 steps are trained; waits for r0s0 on host a and others to end");
    worlds_end_processes();
    assert_int_equal(world_phase(&world), PHASE_FINISHED);
    assert_string_equal(world_reason(&world), "all 100 steps are trained");
    assert_int_equal(world_order(&world, ORDER_STOP, "", "").err, 0);
    assert_int_equal(world_order(&world, ORDER_SET, "mask.rate", "0.5").err, ERR_GONE);
}

static void pause_that_came_too_late(void **state)
{
    (void)state;
    world_form(&world);
    world_order(&world, ORDER_PAUSE, "", "");
    worlds_finish();
}

static void stop_before_anybody_came(void **state)
{
    (void)state;
    struct wire_reply reply = world_order(&world, ORDER_STOP, "", "");
    assert_int_equal(reply.err, 0);
    assert_true(run_is_over(world.run));
    assert_int_equal(world_phase(&world), PHASE_STOPPED);
    assert_string_equal(world_reason(&world), "stopped by anna@home");
}

static void stop_while_forming(void **state)
{
    (void)state;
    world_form_agents(&world);
    world_hello(&world, WORLD_R0S0, 1, NULL);
    world_order(&world, ORDER_STOP, "", "");
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_STOP), 1);
    assert_int_equal(world_hello(&world, WORLD_R0S1, 1, NULL), 0); /* was on its way: is told at once */
    assert_int_equal(world_count(&world, WORLD_R0S1, WIRE_STOP), 1);
    worlds_end_processes();
    assert_int_equal(world_phase(&world), PHASE_STOPPED);
}

static void stop_while_training(void **state)
{
    (void)state;
    world_form(&world);
    struct wire_reply reply = world_order(&world, ORDER_STOP, "", "");
    assert_string_equal(reply.text, "stopping: 2 workers and 2 agents are told to end, and killed after 15.0 s");
    assert_int_equal(world.sent[world_newest(&world, WORLD_R0S1, WIRE_STOP)].payload.stop.grace_ms, 15000);
    reply = world_order(&world, ORDER_STOP, "", "");
    assert_int_equal(reply.err, 0);
    worlds_assert_says(reply.text, "is stopping already");
    assert_int_equal(world_count(&world, WORLD_R0S1, WIRE_STOP), 1);
    world_alert(&world, WORLD_R0S0, "peer-lost", "r0s1 said goodbye"); /* expected now */
    assert_int_equal(world_event(&world, "peer-lost", "r0s1 said goodbye"), EVENT_INFO);
    worlds_end_processes();
    assert_int_equal(world_phase(&world), PHASE_STOPPED);
}

static void stop_while_holding(void **state)
{
    (void)state;
    world_form(&world);
    world_exit(&world, WORLD_R0S1, -1, 9);
    world_gone(&world, WORLD_R0S1, ERR_GONE);
    world_order(&world, ORDER_STOP, "", "");
    worlds_assert_says(world_reason(&world), "waits for r0s0 on host a to end");
    world_exit(&world, WORLD_R0S0, 0, 0);
    world_gone(&world, WORLD_AGENT_A, 0);
    world_gone(&world, WORLD_AGENT_B, 0);
    assert_int_equal(world_phase(&world), PHASE_STOPPED);
}

static void stubborn_workers_are_left_to_their_agents(void **state)
{
    (void)state;
    world_form(&world);
    world_order(&world, ORDER_STOP, "", "");
    world_pass(&world, 14);
    assert_int_equal(world_count(&world, WORLD_AGENT_A, WIRE_STOP), 0);
    world_pass(&world, 2);
    assert_int_equal(world_count(&world, WORLD_AGENT_A, WIRE_STOP), 1);
    worlds_assert_says(world_reason(&world), "what is left is killed; waits for r0s0 on host a and others to end");
    world_exit(&world, WORLD_R0S0, -1, 9);
    world_exit(&world, WORLD_R0S1, -1, 9);
    world_gone(&world, WORLD_AGENT_A, 0);
    world_gone(&world, WORLD_AGENT_B, 0);
    assert_true(run_is_over(world.run));
}

static void lost_agents_are_named_at_the_end(void **state)
{
    (void)state;
    world_form(&world);
    for (int i = 0; i < WORLD_PROCESSES; i++)
        world_gone(&world, i, ERR_TIMEOUT);
    world_order(&world, ORDER_STOP, "", "");
    world_pass(&world, 60);
    assert_true(run_is_over(world.run));
    assert_int_equal(world_phase(&world), PHASE_STOPPED);
    worlds_assert_says(world_reason(&world), "r0s0 on host a and others did not report its end and may still run there");
    assert_int_equal(world_event(&world, "left-over", "may still run"), EVENT_ALERT);
}

static void stop_now_hurries(void **state)
{
    (void)state;
    world_form(&world);
    world_order(&world, ORDER_STOP, "", "");
    assert_int_equal(world_count(&world, WORLD_AGENT_A, WIRE_STOP), 0);
    worlds_assert_says(world_order(&world, ORDER_STOP_NOW, "", "").text, "what is left is killed now");
    assert_int_equal(world.sent[world_newest(&world, WORLD_AGENT_A, WIRE_STOP)].payload.stop.grace_ms, 0);
    world_exit(&world, WORLD_R0S0, -1, 9);
    world_exit(&world, WORLD_R0S1, -1, 9);
    world_gone(&world, WORLD_AGENT_A, 0);
    world_gone(&world, WORLD_AGENT_B, 0);
    assert_true(run_is_over(world.run));
}

static void stop_now_at_once(void **state)
{
    (void)state;
    world_form(&world);
    assert_int_equal(world_order(&world, ORDER_STOP_NOW, "", "").err, 0);
    assert_int_equal(world_count(&world, WORLD_AGENT_B, WIRE_STOP), 1);
    assert_int_equal(world.sent[world_newest(&world, WORLD_AGENT_B, WIRE_STOP)].payload.stop.grace_ms, 0);
}

static void unknown_order(void **state)
{
    (void)state;
    struct wire_order order = {.kind = 99, .request = 7};
    struct wire_reply reply;
    run_order(world.run, &order, &reply);
    assert_int_equal(reply.err, ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        worlds_test(killed_worker_holds_the_run),
        worlds_test(neighbours_news_before_the_agents),
        worlds_test(neighbours_news_after_the_agents),
        worlds_test(drift_holds_and_others_do_not),
        worlds_test(silence_is_told_and_training_goes_on),
        worlds_test(pause_and_resume),
        worlds_test(all_done_finishes),
        worlds_test(pause_that_came_too_late),
        worlds_test(stop_before_anybody_came),
        worlds_test(stop_while_forming),
        worlds_test(stop_while_training),
        worlds_test(stop_while_holding),
        worlds_test(stubborn_workers_are_left_to_their_agents),
        worlds_test(lost_agents_are_named_at_the_end),
        worlds_test(stop_now_hurries),
        worlds_test(stop_now_at_once),
        worlds_test(unknown_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
