/* The end of a host's lease: when something has to be done, as a function of what is known, and what a run of one replica does then. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/lease.h"
#include "ssh/base/clock.h"
#include "tests/helpers/world.h"

#define SECOND ((int64_t)CLOCK_SECOND)
#define TIMEOUT (10 * CLOCK_SECOND)
#define LEAVE (20 * CLOCK_SECOND)

static void the_margin_is_what_saving_and_leaving_take(void **state)
{
    static const struct {
        struct lease_facts facts;
        double seconds;
    } rows[] = {
        {{NAN, NAN, 0, TIMEOUT, LEAVE}, 20},                         /* an anchor alone: nothing is saved */
        {{NAN, NAN, 2000000000, TIMEOUT, LEAVE}, 10 + 100 + 20},         /* 2 GB at 20 MB/s */
        {{NAN, 5, 2000000000, TIMEOUT, LEAVE}, 10 + 100 + 10 + 20},         /* and two steps */
        {{30, 5, 2000000000, TIMEOUT, LEAVE}, 10 + 90 + 10 + 20},           /* measured: three times that, whatever the bytes */
        {{0.5, 5, 2000000000, TIMEOUT, LEAVE}, 10 + 1.5 + 10 + 20},
        {{NAN, 1e9, UINT64_MAX, TIMEOUT, LEAVE}, 10 + 86400 + 20},          /* nonsense is bounded */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_true(fabs((double)lease_margin_ns(&rows[i].facts) / 1e9 - rows[i].seconds) < 1e-6);
}

static void each_moment_has_its_deed(void **state)
{
    /* margins of 130 s and of 20 s */
    static const struct lease_facts facts = {30, 5, 1000, TIMEOUT, LEAVE}, anchor = {30, 5, 0, TIMEOUT, LEAVE};
    static const struct {
        int64_t left_seconds;
        const struct lease_facts *facts;
        bool saved;
        enum lease_state due;
    } rows[] = {
        {1000000, &facts, false, LEASE_NOT}, {131, &facts, false, LEASE_NOT}, {130, &facts, false, LEASE_SAVES},
        {21, &facts, false, LEASE_SAVES},    {20, &facts, false, LEASE_LEAVES}, {0, &facts, false, LEASE_LEAVES},
        {-500, &facts, false, LEASE_LEAVES}, {130, &facts, true, LEASE_LEAVES}, {131, &facts, true, LEASE_NOT},
        {21, &anchor, false, LEASE_NOT},     {20, &anchor, false, LEASE_LEAVES},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (lease_due(rows[i].left_seconds * SECOND, rows[i].facts, rows[i].saved) != rows[i].due)
            fail_msg("row %zu", i);
}

/* Host b's ends so many seconds after kedged has begun. */
static void begin(struct world *world, double seconds)
{
    world_init(world);
    world->profile.hosts[1].lease_until_s = clock_wall_ms() / 1000 + (uint64_t)seconds;
    world_restart(world);
    world_form(world);
    world_sample(world, WORLD_R0S0, STAMP_TRAIN, 7, 2.5);
    world_sample(world, WORLD_R0S1, STAMP_TRAIN, 7, 2.5);
}

static void saved(struct world *world, int stage, uint64_t step, const char *reason)
{
    struct wire_saved saved = {.step = step, .bytes = 1000, .hash = 1};
    snprintf(saved.file, sizeof saved.file, "%s.safetensors", world_name(stage));
    snprintf(saved.reason, sizeof saved.reason, "%s", reason);
    world_say(world, stage, WIRE_SAVED, &saved);
}

/* How long before the end something is done: in whole seconds, by the same clock. */
static double pass_until(struct world *world, int process, enum wire_type type, double most)
{
    double passed = 0;
    while (!world_count(world, process, type) && passed < most) {
        world_pass(world, 1);
        passed++;
    }
    return passed;
}

static void one_replica_is_saved_and_stopped(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 3600);
    double passed = pass_until(&world, WORLD_R0S0, WIRE_SAVE, 3600);
    assert_true(passed > 3500 && passed < 3590); /* grace and silence of a timeout of 10 s, and a little */
    assert_true(world_event(&world, "lease", "the lease of host b ends at 20") == EVENT_WARN);
    assert_int_equal(world_phase(&world), PHASE_TRAINING);
    saved(&world, WORLD_R0S0, 7, "");
    assert_int_equal(world_phase(&world), PHASE_TRAINING); /* half a set is none */
    saved(&world, WORLD_R0S1, 7, "");
    world_pass(&world, 2);
    assert_int_equal(world_phase(&world), PHASE_STOPPING);
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_STOP), 1);
    for (int stage = WORLD_R0S0; stage <= WORLD_R0S1; stage++) {
        world_gone(&world, stage, 0);
        world_exit(&world, stage, 0, 0);
    }
    world_gone(&world, WORLD_AGENT_A, 0);
    world_gone(&world, WORLD_AGENT_B, 0);
    world_pass(&world, 1);
    assert_int_equal(world_phase(&world), PHASE_STOPPED);
    const struct record_event *last = record_find_event(world.record, world.record->newest_event);
    assert_non_null(strstr(last->row.text, "stopping → stopped: the lease of host b ends at 20"));
    assert_non_null(strstr(last->row.text, "; the weights after step 7 are in checkpoint/7: 'kedge export laptop DIR' takes them out before"));
    world_clear(&world);
}

/* Weights that are not written, or not in time, do not keep it beyond the end. */
static void what_is_not_saved_is_said(void **state)
{
    struct world world;
    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        begin(&world, 600);
        pass_until(&world, WORLD_R0S0, WIRE_SAVE, 600);
        if (!slow) {
            saved(&world, WORLD_R0S0, 7, "");
            saved(&world, WORLD_R0S1, 7, "no space left on device");
        }
        world_pass(&world, slow ? 60 : 2);
        assert_int_equal(world_phase(&world), slow ? PHASE_STOPPED : PHASE_STOPPING);
        assert_non_null(strstr(world_reason(&world), "; no new weights could be saved"));
        if (slow)
            assert_int_equal(world_event(&world, "lease", "were not saved in time"), EVENT_ALERT);
        else
            assert_int_equal(world_event(&world, "checkpoint", "no space left on device"), EVENT_ALERT);
        world_clear(&world);
    }
}

/* What was measured counts from then on: a set that took long makes the next one begin earlier. */
static void the_measured_time_counts(void **state)
{
    struct world world;
    (void)state;
    begin(&world, 3600);
    world_order(&world, ORDER_CHECKPOINT, "", "");
    world_pass(&world, 100);
    saved(&world, WORLD_R0S0, 7, "");
    saved(&world, WORLD_R0S1, 7, "");
    world_sample(&world, WORLD_R0S0, STAMP_TRAIN, 8, 2.5);
    world_sample(&world, WORLD_R0S1, STAMP_TRAIN, 8, 2.5);
    world_forget(&world);
    double passed = pass_until(&world, WORLD_R0S0, WIRE_SAVE, 3500);
    assert_true(passed > 3500 - 300 - 60 && passed < 3500 - 300);
    world_clear(&world);
}

static void a_lease_that_is_over_ends_what_begins(void **state)
{
    struct world world;
    (void)state;
    world_init(&world);
    world.profile.hosts[1].lease_until_s = 1;
    world_restart(&world);
    world_pass(&world, 2);
    assert_int_equal(world_phase(&world), PHASE_STOPPED);
    assert_non_null(strstr(world_reason(&world), "the lease of host b ended at 1970-01-01T00:00:01Z; no new weights could be saved"));
    world_clear(&world);
}

static void without_an_end_nothing_ends(void **state)
{
    struct world world;
    (void)state;
    world_init(&world);
    world_form(&world);
    world_pass(&world, 100000);
    assert_int_equal(world_phase(&world), PHASE_TRAINING);
    assert_int_equal(world_count(&world, WORLD_R0S0, WIRE_SAVE), 0);
    world_clear(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_margin_is_what_saving_and_leaving_take),
        cmocka_unit_test(each_moment_has_its_deed),
        cmocka_unit_test(one_replica_is_saved_and_stopped),
        cmocka_unit_test(what_is_not_saved_is_said),
        cmocka_unit_test(the_measured_time_counts),
        cmocka_unit_test(a_lease_that_is_over_ends_what_begins),
        cmocka_unit_test(without_an_end_nothing_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
