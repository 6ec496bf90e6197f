/* The run's state machine on an owned clock: forming, training, holding, the ends, and who is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "ssh/base/log.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/world.h"

static struct world world;

static int set_up(void **state)
{
    (void)state;
    world_init(&world);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_clear(&world);
    return 0;
}

static void assert_text(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("'%s' is not in '%s'", words, text);
}

static const struct wire_process_row *row(int process)
{
    return &record_find_process(world.record, world_name(process))->row;
}

/* ---- forming ---- */

static void forms_step_by_step(void **state)
{
    (void)state;
    assert_int_equal(world_phase(&world), PHASE_FORMING);
    world_hello(&world, WORLD_AGENT_A, 1, NULL);
    assert_int_equal(world.sent_count, 0); /* not before all agents are there */
    world_hello(&world, WORLD_AGENT_B, 1, NULL);
    assert_int_equal(world_count(&world, WORLD_AGENT_A, WIRE_SPAWN), 1);
    assert_int_equal(world_count(&world, WORLD_AGENT_B, WIRE_SPAWN), 1);
    assert_string_equal(world.sent[world_newest(&world, WORLD_AGENT_B, WIRE_SPAWN)].payload.spawn.process, "r0s1");
    assert_int_equal(world.sent[world_newest(&world, WORLD_AGENT_B, WIRE_SPAWN)].payload.spawn.incarnation, 1);
    world_started(&world, WORLD_R0S1);
    assert_int_equal(row(WORLD_R0S1)->state, PROCESS_STARTED);
    world_hello(&world, WORLD_R0S1, 1, NULL); /* before the PROCESS report of r0s0, in any order */
    world_hello(&world, WORLD_R0S0, 1, NULL);
    const struct wire_assign *assign = &world.sent[world_newest(&world, WORLD_R0S1, WIRE_ASSIGN)].payload.assign;
    assert_int_equal(assign->stage, 1);
    assert_int_equal(assign->stages, 2);
    assert_int_equal(assign->first_layer, world.plan.stages[1].first_layer);
    assert_int_equal(assign->first_step, 1);
    world_ready(&world, WORLD_R0S1, READY_LOADED);
    assert_int_equal(world_count(&world, WORLD_R0S1, WIRE_ROAD), 0); /* not before both ends are loaded */
    world_ready(&world, WORLD_R0S0, READY_LOADED);
    const struct wire_road *dial = &world.sent[world_newest(&world, WORLD_R0S0, WIRE_ROAD)].payload.road;
    const struct wire_road *wait = &world.sent[world_newest(&world, WORLD_R0S1, WIRE_ROAD)].payload.road;
    assert_true(dial->dial == 1 && wait->dial == 0 && dial->side == ROAD_DOWNSTREAM && wait->side == ROAD_UPSTREAM);
    assert_string_equal(dial->peer, "r0s1");
    assert_string_equal(wait->peer, "r0s0");
    assert_string_equal(dial->address, "127.0.0.1:7003");
    world_ready(&world, WORLD_R0S0, READY_ROADS);
    assert_int_equal(world_phase(&world), PHASE_FORMING);
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_START), 0);
    world_ready(&world, WORLD_R0S1, READY_ROADS);
    assert_int_equal(world_phase(&world), PHASE_TRAINING);
    const struct wire_start *start = &world.sent[world_newest(&world, WORLD_R0S0, WIRE_START)].payload.start;
    assert_true(start->first_step == 1 && start->last_step == 101);
    assert_int_equal(world_count(&world, WORLD_R0S1, WIRE_START), 1);
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_ASSIGN), 1);
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_ROAD), 1);
    assert_int_equal(row(WORLD_R0S0)->state, PROCESS_READY);
    assert_string_equal(world_reason(&world), "");
}

static void says_who_is_awaited(void **state)
{
    (void)state;
    world_hello(&world, WORLD_AGENT_A, 1, NULL);
    world_pass(&world, 3);
    assert_string_equal(world_reason(&world), "waits for agent@b to say hello, 3.0 s of 2 m 00 s");
    assert_text(row(WORLD_R0S0)->waiting, "waits for agent@b to say hello, 3.0 s");
    assert_text(row(WORLD_AGENT_B)->waiting, "has yet to say hello, 3.0 s");
    assert_string_equal(row(WORLD_AGENT_A)->waiting, "");
    world_hello(&world, WORLD_AGENT_B, 1, NULL);
    world_pass(&world, 2);
    assert_text(world_reason(&world), "waits for r0s0 on host a (and 1 more) to start and say hello, 2.0 s");
    world_hello(&world, WORLD_R0S0, 1, NULL);
    world_hello(&world, WORLD_R0S1, 1, NULL);
    world_ready(&world, WORLD_R0S0, READY_LOADED);
    world_pass(&world, 2);
    assert_text(world_reason(&world), "waits for r0s1 on host b to load its layers, 4.0 s");
    assert_text(row(WORLD_R0S0)->waiting, "waits for r0s1 to load its layers");
    world_ready(&world, WORLD_R0S1, READY_LOADED);
    world_ready(&world, WORLD_R0S0, READY_ROADS);
    world_pass(&world, 1);
    assert_text(world_reason(&world), "waits for r0s1 on host b to have its roads");
}

static void missing_agent_ends_the_run(void **state)
{
    (void)state;
    world_hello(&world, WORLD_AGENT_A, 1, NULL);
    world_pass(&world, 119.5);
    assert_int_equal(world_phase(&world), PHASE_FORMING);
    world_pass(&world, 1);
    assert_int_equal(world_phase(&world), PHASE_STOPPING);
    assert_text(world_reason(&world),
                "agent@b did not say hello within 2 m 00 s; log/agent@b.log in the run's folder may tell why");
    assert_int_equal(world_count(&world, WORLD_AGENT_A, WIRE_STOP), 1);
    assert_false(run_is_over(world.run));
    world_gone(&world, WORLD_AGENT_A, 0);
    assert_true(run_is_over(world.run));
    assert_int_equal(world_phase(&world), PHASE_STOPPED);
    assert_string_equal(world_reason(&world),
                        "agent@b did not say hello within 2 m 00 s; log/agent@b.log in the run's folder may tell why");
}

static void worker_that_fails_while_forming_ends_the_run(void **state)
{
    (void)state;
    world_form_agents(&world);
    world_exit(&world, WORLD_R0S1, 1, 0);
    assert_int_equal(world_phase(&world), PHASE_STOPPING);
    assert_text(world_reason(&world), "r0s1 on host b ended with exit code 1: no memory for 3 layers; log/r0s1.log");
}

static void stage_without_an_address_ends_the_run(void **state)
{
    (void)state;
    world_form_agents(&world);
    world_hello(&world, WORLD_R0S0, 1, NULL);
    struct wire_hello hello = world_hello_of(WORLD_R0S1);
    hello.announce[0] = '\0';
    world_hello_as(&world, WORLD_R0S1, hello, 1, NULL);
    world_ready(&world, WORLD_R0S0, READY_LOADED);
    world_ready(&world, WORLD_R0S1, READY_LOADED);
    assert_int_equal(world_phase(&world), PHASE_STOPPING);
    assert_text(world_reason(&world), "set listen in [host b]");
}

static void what_a_lost_road_swallowed_is_said_again(void **state)
{
    (void)state;
    world_form_agents(&world);
    world_hello(&world, WORLD_R0S0, 1, NULL);
    world_gone(&world, WORLD_R0S0, ERR_GONE);
    assert_int_equal(world_hello(&world, WORLD_R0S0, 1, NULL), 0);
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_ASSIGN), 2);
    world_hello(&world, WORLD_R0S1, 1, NULL);
    world_ready(&world, WORLD_R0S0, READY_LOADED);
    world_ready(&world, WORLD_R0S1, READY_LOADED);
    world_gone(&world, WORLD_R0S1, ERR_TIMEOUT);
    assert_int_equal(world_hello(&world, WORLD_R0S1, 1, NULL), 0);
    assert_int_equal(world_count(&world, WORLD_R0S1, WIRE_ROAD), 2);
    assert_int_equal(world_count(&world, WORLD_R0S1, WIRE_ASSIGN), 1); /* it had loaded: that is known */
}

/* ---- who may speak ---- */

static void refuse(int process, struct wire_hello hello, uint32_t incarnation, const char *words)
{
    struct why why = {0};
    assert_int_equal(world_hello_as(&world, process, hello, incarnation, &why), ERR_REFUSED);
    assert_text(why.text, words);
    assert_int_equal(world_event(&world, "refused", words), EVENT_WARN);
    world_pass(&world, 2);
}

static void strangers_are_refused(void **state)
{
    (void)state;
    struct wire_hello hello = world_hello_of(WORLD_R0S0);
    refuse(WORLD_R0S0, hello, 1, "was not asked to start yet");
    world_form_agents(&world);
    snprintf(hello.name, sizeof hello.name, "r0s7");
    refuse(WORLD_R0S0, hello, 1, "'r0s7' on host a is no process of run laptop; the nearest name is r0s0");
    hello = world_hello_of(WORLD_R0S0);
    snprintf(hello.host, sizeof hello.host, "b");
    refuse(WORLD_R0S0, hello, 1, "r0s0 belongs on host a, but host b speaks for it");
    hello = world_hello_of(WORLD_R0S0);
    hello.role = ROLE_AGENT;
    refuse(WORLD_R0S0, hello, 1, "r0s0 says that its role is agent, but it is stage");
    hello = world_hello_of(WORLD_R0S0);
    hello.profile_hash = 42;
    refuse(WORLD_R0S0, hello, 1, "works by another profile (hash 000000000000002a");
    hello.profile_hash = profile_hash(&world.profile);
    assert_int_equal(world_hello_as(&world, WORLD_R0S0, hello, 1, NULL), 0);
}

static void incarnations_are_kept_apart(void **state)
{
    (void)state;
    world_form(&world);
    record_find_process(world.record, "r0s1")->row.incarnation = 2; /* as after a restart */
    refuse(WORLD_R0S1, world_hello_of(WORLD_R0S1), 1, "incarnation 1 of r0s1 on host b is too old, 2 has taken its place");
    refuse(WORLD_R0S1, world_hello_of(WORLD_R0S1), 3, "incarnation 3 of r0s1 on host b was never asked for");
    struct wire_process late = {.process = "r0s1", .incarnation = 1, .state = PROCESS_EXITED, .exit_code = -1, .signal = 9};
    world_say(&world, WORLD_AGENT_B, WIRE_PROCESS, &late);
    assert_int_equal(world_phase(&world), PHASE_TRAINING); /* the end of an old one is no news of the new one */
    assert_int_equal(world_event(&world, "old-incarnation", "incarnation 1"), EVENT_INFO);
}

static void the_dead_do_not_come_back(void **state)
{
    (void)state;
    world_form(&world);
    world_gone(&world, WORLD_R0S1, ERR_GONE);
    world_exit(&world, WORLD_R0S1, -1, 9);
    refuse(WORLD_R0S1, world_hello_of(WORLD_R0S1), 1,
           "incarnation 1 of r0s1 on host b is over: r0s1 on host b was killed by signal 9");
}

static void one_place_one_process(void **state)
{
    (void)state;
    world_form(&world);
    struct wire_hello twin = world_hello_of(WORLD_R0S0);
    twin.pid = 77;
    refuse(WORLD_R0S0, twin, 1, "is here already as pid 1002; pid 77 is one too many");
    /* The same process on a new road takes its place: the old road may be dead without our knowing. */
    struct world_road fresh = {.process = WORLD_R0S0};
    struct wire_hello again = world_hello_of(WORLD_R0S0);
    assert_int_equal(run_hello(world.run, &fresh, &again, 1, NULL), 0);
    assert_true(world.roads[WORLD_R0S0].closed);
    struct wire_done done = {.step = 1};
    struct why why = {0};
    assert_int_equal(run_message(world.run, &world.roads[WORLD_R0S0], WIRE_DONE, &done, &why), ERR_GONE);
    run_gone(world.run, &fresh, ERR_GONE, "gone");
}

static void another_machine_is_refused(void **state)
{
    (void)state;
    struct wire_hello hello = world_hello_of(WORLD_AGENT_A);
    hello.host_nonce = 5;
    assert_int_equal(world_hello_as(&world, WORLD_AGENT_A, hello, 1, NULL), 0);
    world_gone(&world, WORLD_AGENT_A, ERR_GONE);
    hello.host_nonce = 6;
    refuse(WORLD_AGENT_A, hello, 1, "host a is another machine than before");
}

static void each_role_says_its_own(void **state)
{
    (void)state;
    world_form(&world);
    struct why why = {0};
    struct wire_sample sample = {.step = 1};
    assert_int_equal(run_message(world.run, &world.roads[WORLD_AGENT_A], WIRE_SAMPLE, &sample, &why), ERR_INVALID);
    assert_text(why.text, "agent@a may not say SAMPLE to kedged");
    struct wire_process report = {.process = "r0s1", .incarnation = 1, .state = PROCESS_EXITED};
    why.err = 0;
    assert_int_equal(run_message(world.run, &world.roads[WORLD_AGENT_A], WIRE_PROCESS, &report, &why), ERR_INVALID);
    assert_text(why.text, "agent@a reports 'r0s1', which is no process of its host");
    why.err = 0;
    sample.step = 101;
    assert_int_equal(run_message(world.run, &world.roads[WORLD_R0S1], WIRE_SAMPLE, &sample, &why), ERR_INVALID);
    struct wire_road_sample road = {.peer = "r0s9"};
    why.err = 0;
    assert_int_equal(run_message(world.run, &world.roads[WORLD_R0S1], WIRE_ROAD_SAMPLE, &road, &why), ERR_INVALID);
    struct wire_knob_used used = {.ledger = 1};
    why.err = 0;
    assert_int_equal(run_message(world.run, &world.roads[WORLD_R0S1], WIRE_KNOB_USED, &used, &why), ERR_INVALID);
    why.err = 0;
    assert_int_equal(run_message(world.run, &world.roads[WORLD_R0S1], WIRE_ORDER, &used, &why), ERR_INVALID);
}

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
    assert_int_equal(row(WORLD_R0S1)->state, PROCESS_EXITED);
    assert_int_equal(world_event(&world, "process-exit", "killed by signal 9 (Killed)"), EVENT_ALERT);
    struct wire_reply reply = world_order(&world, ORDER_RESUME, "", "");
    assert_int_equal(reply.err, ERR_REFUSED);
    assert_text(reply.text, "cannot resume: r0s1 on host b was killed");
}

static void neighbours_news_before_the_agents(void **state)
{
    (void)state;
    world_form(&world);
    world_alert(&world, WORLD_R0S0, "peer-lost", "the road to r0s1 is lost: closed the connection");
    assert_int_equal(world_phase(&world), PHASE_HOLDING);
    assert_text(world_reason(&world), "r0s0 on host a: the road to r0s1 is lost");
    world_forget(&world);
    world_exit(&world, WORLD_R0S1, -1, 11);
    assert_text(world_reason(&world),
                "r0s1 on host b was killed by signal 11 (Segmentation fault)"); /* the cause, not the symptom */
    assert_int_equal(world_event(&world, "holds", "signal 11"), EVENT_ALERT);
}

static void neighbours_news_after_the_agents(void **state)
{
    (void)state;
    world_form(&world);
    world_exit(&world, WORLD_R0S1, -1, 9);
    world_alert(&world, WORLD_R0S0, "peer-lost", "the road to r0s1 is lost");
    assert_text(world_reason(&world), "r0s1 on host b was killed");
    world_exit(&world, WORLD_R0S0, 1, 0); /* the first cause stays */
    assert_text(world_reason(&world), "r0s1 on host b was killed");
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
    assert_text(world_reason(&world), "r0s1 on host b: channels of step 3 differ");
}

static void silence_is_told_and_training_goes_on(void **state)
{
    (void)state;
    world_form(&world);
    world_gone(&world, WORLD_R0S0, ERR_TIMEOUT);
    world_pass(&world, 10);
    assert_int_equal(world_phase(&world), PHASE_TRAINING);
    assert_text(world_reason(&world), "r0s0 on host a has not been heard of for 10.0 s; it may train on and come back");
    assert_text(row(WORLD_R0S0)->waiting, "not heard of for 10.0 s");
    assert_int_equal(row(WORLD_R0S0)->heard_ns_ago, 10 * CLOCK_SECOND);
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
    assert_text(world_reason(&world), "paused by anna@home; 'kedge resume laptop' goes on");
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_HOLD), 1);
    world_pass(&world, 100);
    assert_int_equal(world.record->state.row.trained_ns, 10 * CLOCK_SECOND); /* holding is not training */
    world_gone(&world, WORLD_R0S1, ERR_GONE);
    reply = world_order(&world, ORDER_RESUME, "", "");
    assert_int_equal(reply.err, ERR_REFUSED);
    assert_text(reply.text, "r0s1 on host b is away");
    world_hello(&world, WORLD_R0S1, 1, NULL);
    assert_int_equal(world_count(&world, WORLD_R0S1, WIRE_HOLD), 2); /* it may have missed it */
    world_forget(&world);
    reply = world_order(&world, ORDER_RESUME, "", "");
    assert_int_equal(reply.err, 0);
    assert_text(reply.text, "from step 6");
    assert_int_equal(world.sent[world_newest(&world, WORLD_R0S0, WIRE_START)].payload.start.first_step, 6);
    assert_int_equal(world_phase(&world), PHASE_TRAINING);
}

static void finish_run(void)
{
    struct wire_done done = {.step = 100};
    world_say(&world, WORLD_R0S0, WIRE_DONE, &done);
    assert_int_not_equal(world_phase(&world), PHASE_FINISHED);
    world_say(&world, WORLD_R0S1, WIRE_DONE, &done);
    assert_int_equal(world_phase(&world), PHASE_FINISHED);
}

static void end_processes(void)
{
    world_gone(&world, WORLD_R0S0, 0);
    world_gone(&world, WORLD_R0S1, 0);
    assert_int_equal(world_count(&world, WORLD_AGENT_A, WIRE_STOP), 0);
    world_exit(&world, WORLD_R0S0, 0, 0);
    world_exit(&world, WORLD_R0S1, 0, 0);
    assert_int_equal(world_count(&world, WORLD_AGENT_A, WIRE_STOP), 1);
    assert_int_equal(world_count(&world, WORLD_AGENT_B, WIRE_STOP), 1);
    world_gone(&world, WORLD_AGENT_B, 0);
    assert_false(run_is_over(world.run));
    world_gone(&world, WORLD_AGENT_A, 0);
    assert_true(run_is_over(world.run));
    assert_int_equal(world.record->state.over, 1);
}

static void all_done_finishes(void **state)
{
    (void)state;
    world_form(&world);
    finish_run();
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_STOP), 1);
    assert_text(world_reason(&world), "all 100 steps are trained; waits for r0s0 on host a and others to end");
    end_processes();
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
    finish_run();
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
    end_processes();
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
    assert_text(reply.text, "is stopping already");
    assert_int_equal(world_count(&world, WORLD_R0S1, WIRE_STOP), 1);
    world_alert(&world, WORLD_R0S0, "peer-lost", "r0s1 said goodbye"); /* expected now */
    assert_int_equal(world_event(&world, "peer-lost", "r0s1 said goodbye"), EVENT_INFO);
    end_processes();
    assert_int_equal(world_phase(&world), PHASE_STOPPED);
}

static void stop_while_holding(void **state)
{
    (void)state;
    world_form(&world);
    world_exit(&world, WORLD_R0S1, -1, 9);
    world_gone(&world, WORLD_R0S1, ERR_GONE);
    world_order(&world, ORDER_STOP, "", "");
    assert_text(world_reason(&world), "waits for r0s0 on host a to end");
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
    assert_text(world_reason(&world), "what is left is killed; waits for r0s0 on host a and others to end");
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
    assert_text(world_reason(&world), "r0s0 on host a and others did not report its end and may still run there");
    assert_int_equal(world_event(&world, "left-over", "may still run"), EVENT_ALERT);
}

static void stop_now_hurries(void **state)
{
    (void)state;
    world_form(&world);
    world_order(&world, ORDER_STOP, "", "");
    assert_int_equal(world_count(&world, WORLD_AGENT_A, WIRE_STOP), 0);
    assert_text(world_order(&world, ORDER_STOP_NOW, "", "").text, "what is left is killed now");
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

/* ---- knobs through the run ---- */

static void knob_from_order_to_ledger(void **state)
{
    (void)state;
    world_form(&world);
    world_sample(&world, WORLD_R0S1, STAMP_TRAIN, 10, 2.0);
    world_forget(&world);
    struct wire_reply reply = world_order(&world, ORDER_SET, "mask.rate", "0.9");
    assert_int_equal(reply.err, 0);
    assert_int_equal(reply.ledger, 1);
    assert_string_equal(reply.text, "accepted: mask.rate=0.9 from step 12");
    const struct wire_knob *knob = &world.sent[world_newest(&world, WORLD_R0S0, WIRE_KNOB)].payload.knob;
    assert_true(knob->ledger == 1 && knob->from_step == 12);
    assert_string_equal(knob->value, "0.9");
    assert_int_equal(world_count(&world, WORLD_R0S1, WIRE_KNOB), 0); /* stage 0 stamps, nobody else */
    world_gone(&world, WORLD_R0S0, ERR_GONE);
    world_hello(&world, WORLD_R0S0, 1, NULL);
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_KNOB), 2); /* may have been lost */
    struct wire_knob_used used = {.ledger = 1, .step = 13, .name = "mask.rate", .value = "0.9"};
    world_say(&world, WORLD_R0S0, WIRE_KNOB_USED, &used);
    const struct record_ledger *ledger = record_find_ledger(world.record, 1);
    assert_true(ledger->row.state == LEDGER_ACTIVE && ledger->row.step == 13);
    world_pass(&world, 1);
    assert_true(fabs(world.record->state.row.mask_rate - 0.9) < 1e-9);
    used.step = 1;
    used.ledger = 99;
    world_say(&world, WORLD_R0S0, WIRE_KNOB_USED, &used); /* nonsense is an alert, not an end */
    assert_int_equal(world_event(&world, "knob", "which nobody proposed"), EVENT_ALERT);
}

static void knob_waits_for_training(void **state)
{
    (void)state;
    assert_int_equal(world_order(&world, ORDER_SET, "mask.rate", "0.9").err, 0);
    world_form(&world);
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_KNOB), 1);
    world_order(&world, ORDER_STOP, "", "");
    end_processes();
    assert_int_equal(record_find_ledger(world.record, 1)->row.state, LEDGER_REFUSED);
}

/* ---- kedged is killed and begins again ---- */

static void adopts_a_training_run(void **state)
{
    (void)state;
    world_form(&world);
    world_sample(&world, WORLD_R0S1, STAMP_TRAIN, 20, 2.0);
    world_order(&world, ORDER_SET, "mask.rate", "0.8");
    struct wire_knob_used used = {.ledger = 1, .step = 22, .name = "mask.rate", .value = "0.8"};
    world_say(&world, WORLD_R0S0, WIRE_KNOB_USED, &used);
    world_order(&world, ORDER_SET, "mask.rate", "0.7");
    world_pass(&world, 10);
    world_restart(&world);
    assert_int_equal(world_phase(&world), PHASE_TRAINING);
    assert_int_equal(world.record->state.row.step, 20);
    assert_int_equal(world_event(&world, "adopt", "was training at step 20"), EVENT_WARN);
    world_pass(&world, 1);
    assert_text(world_reason(&world), "has not been heard of for 1.0 s");
    for (int i = 0; i < WORLD_PROCESSES; i++)
        assert_int_equal(world_hello(&world, i, 1, NULL), 0);
    assert_int_equal(world_count(&world, WORLD_AGENT_A, WIRE_SPAWN), 0);
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_ASSIGN), 0);
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_KNOB), 1); /* the pending one, not the used one */
    assert_string_equal(world.sent[world_newest(&world, WORLD_R0S0, WIRE_KNOB)].payload.knob.value, "0.7");
    world_pass(&world, 1);
    assert_true(fabs(world.record->state.row.mask_rate - 0.8) < 1e-9);
    assert_string_equal(world_reason(&world), "");
    assert_true(world.record->state.row.trained_ns >= 12 * CLOCK_SECOND);
    world_sample(&world, WORLD_R0S1, STAMP_TRAIN, 25, 1.0);
    assert_int_equal(world.record->state.row.step, 25);
    finish_run();
    end_processes();
}

static void adopts_what_happened_meanwhile(void **state)
{
    (void)state;
    world_form(&world);
    world_restart(&world);
    world_hello(&world, WORLD_AGENT_B, 1, NULL);
    world_exit(&world, WORLD_R0S1, -1, 9); /* the agent says again what became of its children */
    assert_int_equal(world_phase(&world), PHASE_HOLDING);
    assert_text(world_reason(&world), "r0s1 on host b was killed by signal 9");
    world_restart(&world);
    assert_int_equal(world_phase(&world), PHASE_HOLDING);
    world_hello(&world, WORLD_AGENT_B, 1, NULL);
    world_exit(&world, WORLD_R0S1, -1, 9); /* and again: no second event */
    refuse(WORLD_R0S1, world_hello_of(WORLD_R0S1), 1, "killed by signal 9");
}

static void adopts_a_forming_run(void **state)
{
    (void)state;
    world_form_agents(&world);
    world_hello(&world, WORLD_R0S0, 1, NULL);
    world_ready(&world, WORLD_R0S0, READY_LOADED);
    world_restart(&world);
    assert_int_equal(world_phase(&world), PHASE_FORMING);
    world_form_agents(&world);
    assert_int_equal(world_count(&world, WORLD_AGENT_A, WIRE_SPAWN), 0);
    world_hello(&world, WORLD_R0S0, 1, NULL);
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_ASSIGN), 0); /* it had loaded */
    world_hello(&world, WORLD_R0S1, 1, NULL);
    assert_int_equal(world_count(&world, WORLD_R0S1, WIRE_ASSIGN), 1);
    world_ready(&world, WORLD_R0S1, READY_LOADED);
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_ROAD), 1);
    world_ready(&world, WORLD_R0S1, READY_ROADS);
    world_ready(&world, WORLD_R0S0, READY_ROADS);
    assert_int_equal(world_phase(&world), PHASE_TRAINING);
}

static void adopts_a_stopping_run(void **state)
{
    (void)state;
    world_form(&world);
    world_order(&world, ORDER_STOP, "", "");
    world_restart(&world);
    assert_int_equal(world_phase(&world), PHASE_STOPPING);
    for (int i = 0; i < WORLD_PROCESSES; i++)
        assert_int_equal(world_hello(&world, i, 1, NULL), 0);
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_STOP), 1);
    end_processes();
    assert_string_equal(world_reason(&world), "stopped by anna@home");
}

/* ---- hosts ---- */

static void hosts_are_as_their_agents_say(void **state)
{
    (void)state;
    const struct record_host *a = &world.record->hosts[0], *b = &world.record->hosts[1];
    assert_int_equal(world.record->host_count, 2);
    assert_true(isnan(a->row.clock_offset) && a->row.heard_ns_ago == UINT64_MAX && a->row.processes == 0 && a->row.memory_bytes == 0);
    world_form(&world);
    struct wire_host told = {.host = "nobody", .cpu_share = 0.5F, .memory_bytes = 1000, .clock_offset = 7, .processes = 99};
    assert_int_equal(world_say(&world, WORLD_AGENT_B, WIRE_HOST, &told), 0);
    world_pass(&world, 2);
    assert_string_equal(b->row.host, "b");
    assert_true(b->row.memory_bytes == 1000 && b->row.cpu_share == 0.5F && b->row.processes == 1);
    assert_true(b->row.clock_offset == -300 && b->row.rtt_ns == 20 * CLOCK_MS && b->row.heard_ns_ago < 3 * CLOCK_SECOND);
    assert_true(a->row.memory_bytes == 0 && a->row.processes == 1);
    world_exit(&world, WORLD_R0S1, 1, 0);
    world_gone(&world, WORLD_AGENT_B, ERR_GONE);
    world_pass(&world, 9);
    assert_true(b->row.processes == 0 && b->row.heard_ns_ago > 8 * CLOCK_SECOND && b->row.clock_offset == -300);
    world_restart(&world);
    assert_int_equal(world.record->host_count, 2);
    assert_int_equal(world.record->hosts[1].row.memory_bytes, 1000);
    struct why why = {0};
    assert_int_equal(world_hello(&world, WORLD_R0S0, 1, NULL), 0);
    assert_int_equal(run_message(world.run, &world.roads[WORLD_R0S0], WIRE_HOST, &told, &why), ERR_INVALID);
}

/* Consoles try to log in; what changes is an event, and an agent's own row does not undo it. */
static void logins_are_recorded(void **state)
{
    (void)state;
    const struct record_host *b = &world.record->hosts[1];
    world_form(&world);
    assert_true(b->row.login == LOGIN_UNKNOWN && b->row.login_ns_ago == UINT64_MAX);
    uint64_t before = world.record->state.row.newest_event;
    assert_int_equal(world_order(&world, ORDER_LOGIN, "b", "open").err, 0);
    assert_int_equal(world.record->state.row.newest_event, before); /* as it should be: no news */
    assert_int_equal(b->row.login, LOGIN_OPEN);
    for (int i = 0; i < 2; i++)
        assert_int_equal(world_order(&world, ORDER_LOGIN, "b", "shut").err, 0);
    assert_int_equal(world.record->state.row.newest_event, before + 1);
    struct wire_host told = {.host = "b", .memory_bytes = 1000, .login = LOGIN_OPEN};
    assert_int_equal(world_say(&world, WORLD_AGENT_B, WIRE_HOST, &told), 0);
    world_pass(&world, 3);
    assert_true(b->row.login == LOGIN_SHUT && b->row.login_ns_ago >= 3 * CLOCK_SECOND && b->row.login_ns_ago < 5 * CLOCK_SECOND);
    assert_int_equal(world_order(&world, ORDER_LOGIN, "b", "open").err, 0);
    assert_int_equal(world.record->state.row.newest_event, before + 2);
    assert_int_equal(world_order(&world, ORDER_LOGIN, "nobody", "open").err, ERR_INVALID);
    assert_int_equal(world_order(&world, ORDER_LOGIN, "a", "perhaps").err, ERR_INVALID);
    assert_int_equal(world.record->hosts[0].row.login, LOGIN_UNKNOWN);
}

/* ---- numbers ---- */

static void numbers_of_the_run(void **state)
{
    (void)state;
    world_form(&world);
    const struct wire_run_state *run = &world.record->state.row;
    assert_true(isnan(run->loss) && isnan(run->tokens_per_second) && isnan(run->first_validation_loss));
    world_sample(&world, WORLD_R0S1, STAMP_EVALUATE, 0, 5.5);
    assert_true(run->first_validation_loss == 5.5 && run->validation_loss == 5.5);
    for (uint64_t step = 1; step <= 20; step++) {
        world_sample(&world, WORLD_R0S0, STAMP_TRAIN, step, 0);
        assert_int_equal(run->step, step - 1); /* the last stage's word counts */
        world_sample(&world, WORLD_R0S1, STAMP_TRAIN, step, 4.0 - 0.1 * (double)step);
        assert_int_equal(run->step, step);
    }
    assert_true(fabs(run->loss - 2.0) < 1e-12 && fabs(run->tokens_per_second - 2000) < 1e-9);
    assert_true(fabs(run->step_seconds - 0.5) < 1e-12 && run->gradient_norm == 1.5);
    assert_int_equal(run->tokens, 20 * world.plan.tokens_per_step);
    world_sample(&world, WORLD_R0S1, STAMP_EVALUATE, 20, 3.5);
    assert_true(run->first_validation_loss == 5.5 && run->validation_loss == 3.5 && run->validation_step == 20);
    world_sample(&world, WORLD_R0S1, STAMP_TRAIN, 19, 9.0); /* late: not the newest */
    assert_true(run->step == 20 && run->loss < 3);
    assert_true(row(WORLD_R0S1)->compute_share == 0.5 && row(WORLD_R0S1)->memory_bytes == 2 << 20);
    assert_string_equal(row(WORLD_R0S0)->waiting, "waits for gradient from r0s1, 25 % of the step");
    world_pass(&world, 7);
    assert_string_equal(row(WORLD_R0S0)->waiting, "no step has ended for 7.0 s");
    assert_int_equal(world.samples, 43);
}

static void roads_in_numbers(void **state)
{
    (void)state;
    world_form(&world);
    struct wire_road_sample sample = {.peer = "r0s1", .lane = LANE_ACT, .queued_bytes = 3};
    for (uint64_t i = 1; i <= 8; i++) {
        sample.sent_bytes = i * 1000;
        sample.dense_bytes = i * 20000;
        sample.evaluation_bytes = 500;
        world_say(&world, WORLD_R0S0, WIRE_ROAD_SAMPLE, &sample);
        world_pass(&world, 1);
    }
    const struct record_road *road = record_road(world.record, "r0s0", "r0s1", LANE_ACT);
    assert_true(road->row.sent_bytes == 8000 && road->row.dense_bytes == 160000 &&
                fabs(road->row.bytes_per_second - 1000) < 1e-9);
    sample.sent_bytes = 10; /* a new road counts from 0; what went over the old one stays counted */
    sample.dense_bytes = 200;
    sample.evaluation_bytes = 5;
    world_say(&world, WORLD_R0S0, WIRE_ROAD_SAMPLE, &sample);
    assert_true(road->row.evaluation_bytes == 505 && road->row.sent_bytes == 8010 && road->row.dense_bytes == 160200 && isnan(road->row.bytes_per_second));
    world_pass(&world, 1);
    sample.sent_bytes = 510;
    world_say(&world, WORLD_R0S0, WIRE_ROAD_SAMPLE, &sample);
    assert_true(road->row.sent_bytes == 8510 && fabs(road->row.bytes_per_second - 500) < 1e-9);
    world_pass(&world, 5);
    assert_true(isnan(road->row.bytes_per_second)); /* nobody says: unknown, not 0 */
    assert_int_equal(world.record->road_count, 1);
}

/* ---- anything, in any order ---- */

static void do_something(struct dice *dice)
{
    static const char *const codes[] = {"peer-lost", "drift", "non-finite", "knob"};
    int process = (int)dice_below(dice, WORLD_PROCESSES), stage = WORLD_R0S0 + (int)dice_below(dice, 2);
    struct world_road *road = &world.roads[process], *agent = &world.roads[stage - 2];
    struct wire_hello hello = world_hello_of(process);
    struct wire_process report = {.incarnation = 1 + (dice_below(dice, 10) == 0), .state = PROCESS_STARTED};
    struct wire_event event = {.level = (uint8_t)dice_below(dice, 3)};
    struct wire_ready ready = {.state = (uint8_t)(1 + dice_below(dice, 2))};
    struct wire_sample sample = {.step = dice_below(dice, 101), .kind = (uint8_t)dice_below(dice, 3), .step_ns = dice_u64(dice)};
    struct wire_knob_used used = {.ledger = dice_below(dice, 5), .step = 3, .name = "mask.rate", .value = "0.5"};
    snprintf(report.process, sizeof report.process, "%s", world_name(stage));
    snprintf(event.code, sizeof event.code, "%s", codes[dice_below(dice, 4)]);
    switch (dice_below(dice, 14)) {
    case 0:
        if (dice_below(dice, 5))
            break;
        report.state = PROCESS_EXITED;
        report.signal = (int32_t)dice_below(dice, 64);
        run_message(world.run, agent, WIRE_PROCESS, &report, NULL);
        break;
    case 1:
        run_message(world.run, agent, WIRE_PROCESS, &report, NULL);
        break;
    case 2:
        run_gone(world.run, road, dice_below(dice, 2) ? ERR_GONE : 0, "gone");
        break;
    case 3:
        run_message(world.run, &world.roads[stage], WIRE_EVENT, &event, NULL);
        break;
    case 4:
    case 5:
        run_message(world.run, &world.roads[stage], WIRE_READY, &ready, NULL);
        break;
    case 6:
        run_message(world.run, &world.roads[stage], WIRE_SAMPLE, &sample, NULL);
        break;
    case 7:
        if (dice_below(dice, 4) == 0)
            run_message(world.run, &world.roads[stage], WIRE_DONE, &(struct wire_done){.step = 100}, NULL);
        break;
    case 8:
        run_message(world.run, &world.roads[WORLD_R0S0], WIRE_KNOB_USED, &used, NULL);
        break;
    case 9:
        world_order(&world, dice_below(dice, 40) ? ORDER_PAUSE + (enum order_kind)dice_below(dice, 2) : ORDER_STOP, "", "");
        break;
    case 10:
        world_order(&world, ORDER_SET, "mask.rate", dice_below(dice, 2) ? "0.5" : "0.25");
        break;
    case 11:
        world_pass(&world, (double)dice_below(dice, dice_below(dice, 20) ? 3 : 150));
        break;
    case 12:
        if (dice_below(dice, 10) == 0)
            world_restart(&world);
        break;
    default:
        hello.pid += dice_below(dice, 10) == 0;
        world_hello_as(&world, process, hello, 1 + (dice_below(dice, 20) == 0), NULL);
    }
    world_forget(&world);
}

/* Whatever happens, no state is reached that has no way on, and a STOP comes to its end. */
static void anything_in_any_order(void **state)
{
    (void)state;
    int phases[PHASE_STOPPED + 1] = {0};
    struct dice dice = {.state = 11};
    log_set_level(LOG_ERROR);
    for (int round = 0; round < 300; round++) {
        if (round % 2)
            world_form(&world);
        for (int i = 0; i < 120 && !run_is_over(world.run); i++) {
            do_something(&dice);
            phases[world_phase(&world)]++;
        }
        world_order(&world, ORDER_STOP, "", "");
        world_pass(&world, 60);
        assert_true(run_is_over(world.run));
        assert_true(world_phase(&world) == PHASE_STOPPED || world_phase(&world) == PHASE_FINISHED);
        phases[world_phase(&world)]++;
        world_clear(&world);
        world_init(&world);
    }
    for (int phase = PHASE_FORMING; phase <= PHASE_STOPPED; phase++)
        if (phases[phase] == 0)
            fail_msg("%s was never tried", wire_phase_name(phase));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(forms_step_by_step),
        TEST(says_who_is_awaited),
        TEST(missing_agent_ends_the_run),
        TEST(worker_that_fails_while_forming_ends_the_run),
        TEST(stage_without_an_address_ends_the_run),
        TEST(what_a_lost_road_swallowed_is_said_again),
        TEST(strangers_are_refused),
        TEST(incarnations_are_kept_apart),
        TEST(the_dead_do_not_come_back),
        TEST(one_place_one_process),
        TEST(another_machine_is_refused),
        TEST(each_role_says_its_own),
        TEST(killed_worker_holds_the_run),
        TEST(neighbours_news_before_the_agents),
        TEST(neighbours_news_after_the_agents),
        TEST(drift_holds_and_others_do_not),
        TEST(silence_is_told_and_training_goes_on),
        TEST(pause_and_resume),
        TEST(all_done_finishes),
        TEST(pause_that_came_too_late),
        TEST(stop_before_anybody_came),
        TEST(stop_while_forming),
        TEST(stop_while_training),
        TEST(stop_while_holding),
        TEST(stubborn_workers_are_left_to_their_agents),
        TEST(lost_agents_are_named_at_the_end),
        TEST(stop_now_hurries),
        TEST(stop_now_at_once),
        TEST(unknown_order),
        TEST(knob_from_order_to_ledger),
        TEST(knob_waits_for_training),
        TEST(adopts_a_training_run),
        TEST(adopts_what_happened_meanwhile),
        TEST(adopts_a_forming_run),
        TEST(adopts_a_stopping_run),
        TEST(hosts_are_as_their_agents_say),
        TEST(logins_are_recorded),
        TEST(numbers_of_the_run),
        TEST(roads_in_numbers),
        TEST(anything_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
