/* A run comes together, on an owned clock: who is waited for, what is said again, and who may speak for whom. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/helpers/worlds.h"

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
    assert_int_equal(worlds_row(WORLD_R0S1)->state, PROCESS_STARTED);
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
    assert_int_equal(worlds_row(WORLD_R0S0)->state, PROCESS_READY);
    assert_string_equal(world_reason(&world), "");
}

static void says_who_is_awaited(void **state)
{
    (void)state;
    world_hello(&world, WORLD_AGENT_A, 1, NULL);
    world_pass(&world, 3);
    assert_string_equal(world_reason(&world), "waits for agent@b to say hello, 3.0 s of 2 m 00 s");
    worlds_assert_says(worlds_row(WORLD_R0S0)->waiting, "waits for agent@b to say hello, 3.0 s");
    worlds_assert_says(worlds_row(WORLD_AGENT_B)->waiting, "has yet to say hello, 3.0 s");
    assert_string_equal(worlds_row(WORLD_AGENT_A)->waiting, "");
    world_hello(&world, WORLD_AGENT_B, 1, NULL);
    world_pass(&world, 2);
    worlds_assert_says(world_reason(&world), "waits for r0s0 on host a (and 1 more) to start and say hello, 2.0 s");
    world_hello(&world, WORLD_R0S0, 1, NULL);
    world_hello(&world, WORLD_R0S1, 1, NULL);
    world_ready(&world, WORLD_R0S0, READY_LOADED);
    world_pass(&world, 2);
    worlds_assert_says(world_reason(&world), "waits for r0s1 on host b to load its layers, 4.0 s");
    worlds_assert_says(worlds_row(WORLD_R0S0)->waiting, "waits for r0s1 to load its layers");
    world_ready(&world, WORLD_R0S1, READY_LOADED);
    world_ready(&world, WORLD_R0S0, READY_ROADS);
    world_pass(&world, 1);
    worlds_assert_says(world_reason(&world), "waits for r0s1 on host b to have its roads");
}

static void missing_agent_ends_the_run(void **state)
{
    (void)state;
    world_hello(&world, WORLD_AGENT_A, 1, NULL);
    world_pass(&world, 119.5);
    assert_int_equal(world_phase(&world), PHASE_FORMING);
    world_pass(&world, 1);
    assert_int_equal(world_phase(&world), PHASE_STOPPING);
    worlds_assert_says(world_reason(&world),
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
    worlds_assert_says(world_reason(&world), "r0s1 on host b ended with exit code 1: no memory for 3 layers; log/r0s1.log");
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
    worlds_assert_says(world_reason(&world), "set listen in [host b]");
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

static void strangers_are_refused(void **state)
{
    (void)state;
    struct wire_hello hello = world_hello_of(WORLD_R0S0);
    worlds_refuse(WORLD_R0S0, hello, 1, "was not asked to start yet");
    world_form_agents(&world);
    snprintf(hello.name, sizeof hello.name, "r0s7");
    worlds_refuse(WORLD_R0S0, hello, 1, "'r0s7' on host a is no process of run laptop; the nearest name is r0s0");
    hello = world_hello_of(WORLD_R0S0);
    snprintf(hello.host, sizeof hello.host, "b");
    worlds_refuse(WORLD_R0S0, hello, 1, "r0s0 belongs on host a, but host b speaks for it");
    hello = world_hello_of(WORLD_R0S0);
    hello.role = ROLE_AGENT;
    worlds_refuse(WORLD_R0S0, hello, 1, "r0s0 says that its role is agent, but it is stage");
    hello = world_hello_of(WORLD_R0S0);
    hello.profile_hash = 42;
    worlds_refuse(WORLD_R0S0, hello, 1, "works by another profile (hash 000000000000002a");
    hello.profile_hash = profile_hash(&world.profile);
    assert_int_equal(world_hello_as(&world, WORLD_R0S0, hello, 1, NULL), 0);
}

static void incarnations_are_kept_apart(void **state)
{
    (void)state;
    world_form(&world);
    record_find_process(world.record, "r0s1")->row.incarnation = 2; /* as after a restart */
    worlds_refuse(WORLD_R0S1, world_hello_of(WORLD_R0S1), 1, "incarnation 1 of r0s1 on host b is too old, 2 has taken its place");
    worlds_refuse(WORLD_R0S1, world_hello_of(WORLD_R0S1), 3, "incarnation 3 of r0s1 on host b was never asked for");
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
    worlds_refuse(WORLD_R0S1, world_hello_of(WORLD_R0S1), 1,
           "incarnation 1 of r0s1 on host b is over: r0s1 on host b was killed by signal 9");
}

static void one_place_one_process(void **state)
{
    (void)state;
    world_form(&world);
    struct wire_hello twin = world_hello_of(WORLD_R0S0);
    twin.pid = 77;
    worlds_refuse(WORLD_R0S0, twin, 1, "is here already as pid 1002; pid 77 is one too many");
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
    worlds_refuse(WORLD_AGENT_A, hello, 1, "host a is another machine than before");
}

static void each_role_says_its_own(void **state)
{
    (void)state;
    world_form(&world);
    struct why why = {0};
    struct wire_sample sample = {.step = 1};
    assert_int_equal(run_message(world.run, &world.roads[WORLD_AGENT_A], WIRE_SAMPLE, &sample, &why), ERR_INVALID);
    worlds_assert_says(why.text, "agent@a may not say SAMPLE to kedged");
    struct wire_process report = {.process = "r0s1", .incarnation = 1, .state = PROCESS_EXITED};
    why.err = 0;
    assert_int_equal(run_message(world.run, &world.roads[WORLD_AGENT_A], WIRE_PROCESS, &report, &why), ERR_INVALID);
    worlds_assert_says(why.text, "agent@a reports 'r0s1', which is no process of its host");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        worlds_test(forms_step_by_step),
        worlds_test(says_who_is_awaited),
        worlds_test(missing_agent_ends_the_run),
        worlds_test(worker_that_fails_while_forming_ends_the_run),
        worlds_test(stage_without_an_address_ends_the_run),
        worlds_test(what_a_lost_road_swallowed_is_said_again),
        worlds_test(strangers_are_refused),
        worlds_test(incarnations_are_kept_apart),
        worlds_test(the_dead_do_not_come_back),
        worlds_test(one_place_one_process),
        worlds_test(another_machine_is_refused),
        worlds_test(each_role_says_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
