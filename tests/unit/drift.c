/* Replicas that tell different weights of the same round are found, once, with the one that they differ from; who is late is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "scheduler/drift.h"

static struct drift drift;

static int say(int stage, int replica, uint64_t round, uint64_t hash)
{
    return drift_check(&drift, stage, replica, &(struct wire_outer){.round = round, .fragment = (uint16_t)(round % 3), .hash = hash, .contributors = 3});
}

static int begin(void **state)
{
    (void)state;
    drift = (struct drift){.agreed = 0};
    return 0;
}

static void test_agree(void **state)
{
    (void)state;
    for (uint64_t round = 1; round < 100; round++)
        for (int replica = 0; replica < 3; replica++)
            for (int stage = 0; stage < 2; stage++)
                assert_int_equal(say(stage, replica, round, 10 * round + (uint64_t)stage), -1);
    assert_int_equal(drift.agreed, 2 * 99);
}

static void test_differ(void **state)
{
    (void)state;
    say(1, 2, 7, 5);
    assert_int_equal(say(0, 1, 7, 6), -1); /* another stage is another thing */
    assert_int_equal(say(1, 0, 7, 6), 2);
    assert_int_equal(say(1, 1, 7, 6), -1); /* told already */
    say(1, 0, 8, 5);
    assert_int_equal(say(1, 1, 8, 5), -1);
    assert_int_equal(drift_check(&drift, 1, 2, &(struct wire_outer){.round = 8, .fragment = 2, .hash = 5, .skipped = 1}), 0);
    assert_int_equal(drift.agreed, 0);
}

static void test_apart(void **state)
{
    (void)state;
    for (uint64_t round = 1; round <= 10; round++) /* one is ahead */
        say(0, 0, round, round);
    for (uint64_t round = 1; round <= 10; round++)
        assert_int_equal(say(0, 1, round, round == 4 ? 0 : round), round == 4 ? 0 : -1);
    say(0, 0, 10 + DRIFT_ROUNDS, 1);
    assert_int_equal(say(0, 1, 10, 99), -1); /* forgotten: cannot be compared any more */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_agree, begin),
        cmocka_unit_test_setup(test_differ, begin),
        cmocka_unit_test_setup(test_apart, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
