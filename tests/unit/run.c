/* A run beside its forming and ending, on an owned clock: knobs, a scheduler that begins again, hosts, numbers; and anything in any order. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "ssh/base/log.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/worlds.h"

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
    worlds_end_processes();
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
    worlds_assert_says(world_reason(&world), "has not been heard of for 1.0 s");
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
    worlds_finish();
    worlds_end_processes();
}

static void adopts_what_happened_meanwhile(void **state)
{
    (void)state;
    world_form(&world);
    world_restart(&world);
    world_hello(&world, WORLD_AGENT_B, 1, NULL);
    world_exit(&world, WORLD_R0S1, -1, 9); /* the agent says again what became of its children */
    assert_int_equal(world_phase(&world), PHASE_HOLDING);
    worlds_assert_says(world_reason(&world), "r0s1 on host b was killed by signal 9");
    world_restart(&world);
    assert_int_equal(world_phase(&world), PHASE_HOLDING);
    world_hello(&world, WORLD_AGENT_B, 1, NULL);
    world_exit(&world, WORLD_R0S1, -1, 9); /* and again: no second event */
    worlds_refuse(WORLD_R0S1, world_hello_of(WORLD_R0S1), 1, "killed by signal 9");
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
    worlds_end_processes();
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
    assert_true(worlds_row(WORLD_R0S1)->compute_share == 0.5 && worlds_row(WORLD_R0S1)->memory_bytes == 2 << 20);
    assert_string_equal(worlds_row(WORLD_R0S0)->waiting, "waits for gradient from r0s1, 25 % of the step");
    world_pass(&world, 7);
    assert_string_equal(worlds_row(WORLD_R0S0)->waiting, "no step has ended for 7.0 s");
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
        worlds_test(knob_from_order_to_ledger),
        worlds_test(knob_waits_for_training),
        worlds_test(adopts_a_training_run),
        worlds_test(adopts_what_happened_meanwhile),
        worlds_test(adopts_a_forming_run),
        worlds_test(adopts_a_stopping_run),
        worlds_test(hosts_are_as_their_agents_say),
        worlds_test(logins_are_recorded),
        worlds_test(numbers_of_the_run),
        worlds_test(roads_in_numbers),
        worlds_test(anything_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
