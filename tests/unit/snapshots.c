/*
 * When snapshots are taken, without any network: one after the other, and in place of one that was damaged another at once, in place
 * of the second one after another when the next is due.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/helpers/trio.h"

enum { ANCHOR = TRIO_ALL, EVERY = 10 };

static uint64_t step;

static void say_step(void)
{
    step++;
    for (int r = 0; r < TRIO_REPLICAS; r++)
        for (int s = 0; s < TRIO_STAGES; s++)
            trio_say(trio_stage_at(r, s), WIRE_SAMPLE, &(struct wire_sample){.step = step, .loss = 2, .kind = STAMP_TRAIN, .tokens = 1});
    trio_pass(0.25);
}

static void anchor_says(uint8_t mark, uint64_t version)
{
    trio_say(ANCHOR, WIRE_MARK, &(struct wire_mark){.mark = mark, .version = version, .step = version});
}

/* All stages of the replica that sends them have it. */
static void captured(uint64_t version)
{
    for (int s = 0; s < TRIO_STAGES; s++)
        trio_say(trio_stage_at(0, s), WIRE_MARK, &(struct wire_mark){.mark = MARK_CAPTURED, .version = version, .step = version, .total = 100});
}

static int orders(void)
{
    return trio_count(trio_stage_at(0, 0), WIRE_CAPTURE);
}

static int up(void **state)
{
    struct wire_hello hello = {.version = WIRE_VERSION, .role = ROLE_ANCHOR, .program = "test", .name = "anchor", .host = "b",
                               .announce = "127.0.0.1:7001", .pid = 99};
    struct why why = {0};
    trio_up(state);
    run_free(trio.run);
    record_free(trio.record);
    snprintf(trio.profile.anchor_host, sizeof trio.profile.anchor_host, "b");
    trio.profile.anchor_every = EVERY;
    trio.profile.anchor_follow = true;
    trio_begin();
    trio.handles[ANCHOR] = ANCHOR;
    if (run_hello(trio.run, &trio.handles[ANCHOR], &hello, 1, &why) < 0)
        fail_msg("%s", why.text);
    run_welcome(trio.run, &trio.handles[ANCHOR]);
    trio_say(ANCHOR, WIRE_READY, &(struct wire_ready){.state = READY_LOADED});
    step = 0;
    while (!orders() && step < 3 * EVERY)
        say_step();
    assert_int_equal(orders(), 1);
    captured(step + 1);
    return 0;
}

static void one_after_the_other(void **state)
{
    (void)state;
    uint64_t first = step + 1;
    for (int i = 0; i < 2 * EVERY; i++)
        say_step();
    assert_int_equal(orders(), 1); /* the first is on its way */
    anchor_says(MARK_FLIPPED, first);
    say_step();
    assert_int_equal(orders(), 2);
}

static void another_for_one_that_was_damaged(void **state)
{
    (void)state;
    uint64_t version = step + 1;
    anchor_says(MARK_DAMAGED, version - 1); /* not this one */
    say_step();
    assert_int_equal(orders(), 1);
    anchor_says(MARK_DAMAGED, version);
    assert_true(trio_happened("snapshot-damaged", "another one is taken"));
    say_step();
    assert_int_equal(orders(), 2);
    captured(step + 1);
    anchor_says(MARK_DAMAGED, version); /* said by a second stage's part, too late */
    anchor_says(MARK_DAMAGED, step + 1);
    assert_true(trio_happened("snapshot-damaged", "nor was the one before"));
    for (int i = 0; i < EVERY / 2; i++)
        say_step();
    assert_int_equal(orders(), 2);
    for (int i = 0; i < EVERY; i++)
        say_step();
    assert_int_equal(orders(), 3);
    captured(step + 1);
    anchor_says(MARK_FLIPPED, step + 1); /* from here on damage is news again */
    for (int i = 0; orders() < 4 && i < 2 * EVERY; i++)
        say_step();
    captured(step + 1);
    anchor_says(MARK_DAMAGED, step + 1);
    say_step();
    assert_int_equal(orders(), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_after_the_other, up, trio_down),
        cmocka_unit_test_setup_teardown(another_for_one_that_was_damaged, up, trio_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
