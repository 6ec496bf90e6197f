/*
 * Keys never wait for a road: the real console on a pseudo terminal, 1,000 processes that report once a second over a road of 1 s there and
 * back, and then a road that is dead while the console dials again and again. Each key is on the terminal long before the road could have said
 * anything; how long exactly is a matter of the machine and measured in tests/bench/keys.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "tests/helpers/crowd.h"

#define KEYS 12
#define MOST 100

static void assert_quick(struct crowd *crowd)
{
    uint64_t took[MOST];
    int count = crowd_measure(crowd, KEYS, took, MOST);
    assert_int_equal(count, 5 * KEYS);
    if (took[count / 2] > CLOCK_SECOND || took[count - 1] > 10 * CLOCK_SECOND)
        fail_msg("a key took %.3f s (median), %.3f s (longest)", (double)took[count / 2] / 1e9, (double)took[count - 1] / 1e9);
}

static void no_key_waits_for_a_road(void **state)
{
    (void)state;
    struct crowd *crowd = crowd_begin(1000, 10, CLOCK_SECOND, 500 * CLOCK_MS, 24, 80, NULL);
    assert_quick(crowd);
    crowd_fall_silent(crowd);
    crowd_rest(crowd, 5 * CLOCK_SECOND); /* it is given up, and dialled again once a second */
    assert_quick(crowd);
    crowd_end(crowd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_key_waits_for_a_road)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
