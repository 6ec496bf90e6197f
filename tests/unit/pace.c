/* The token bucket: never more than rate and burst, never less than the rate to a sender that always wants, no overflow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "ssh/link/pace.h"

static uint64_t state_of_chance = 1;

static uint64_t chance(uint64_t below)
{
    uint64_t x = state_of_chance += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (x ^ (x >> 31)) % below;
}

/* A sender that asks at random times and always has a frame: what it sent after any time is bounded on both sides. */
static void rate_is_kept(void **unused)
{
    (void)unused;
    static const uint64_t rates[] = {8, 9600, 1000000, 200000000, UINT64_C(10000000000), UINT64_C(400000000000)};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        struct pace pace;
        uint64_t rate = rates[i], start = 123456789, now = start, sent = 0, frame = rate / 800 + 1;
        uint64_t step = frame * 8 * CLOCK_SECOND / rate + 1; /* the time of one frame */
        pace_init(&pace, rate, now);
        for (int turn = 0; turn < 20000; turn++) {
            uint64_t wait = pace_wait_ns(&pace, now);
            if (wait == 0) {
                pace_spend(&pace, frame);
                sent += frame;
            }
            double allowed = (double)(now - start) / 1e9 * (double)rate / 8 + (double)pace.burst_bytes + (double)frame;
            assert_true((double)sent <= allowed);
            now += wait && chance(2) ? wait : chance(step) + 1;
        }
        double due = (double)(now - start) / 1e9 * (double)rate / 8;
        assert_true((double)sent >= due * 0.97 - (double)frame);
    }
}

static void wait_is_exact(void **unused)
{
    (void)unused;
    struct pace pace;
    pace_init(&pace, 8000000, 0); /* a byte a microsecond */
    pace_spend(&pace, pace.burst_bytes + 1000);
    uint64_t wait = pace_wait_ns(&pace, 0);
    assert_in_range(wait, 1001 * 1000, 1001 * 1000 + 1);
    assert_int_not_equal(pace_wait_ns(&pace, wait - 1000), 0);
    assert_int_equal(pace_wait_ns(&pace, wait), 0);
}

static void asking_often_loses_nothing(void **unused)
{
    (void)unused;
    struct pace pace;
    uint64_t now = 0, sent = 0;
    pace_init(&pace, 1000000, now); /* 8 µs a byte, asked every 3 µs */
    pace_spend(&pace, (uint64_t)pace.tokens);
    for (; now < CLOCK_SECOND; now += 3000)
        if (pace_wait_ns(&pace, now) == 0) {
            pace_spend(&pace, 100);
            sent += 100;
        }
    assert_in_range(sent, 124800, 125100);
}

static void reserve_is_left_to_others(void **unused)
{
    (void)unused;
    struct pace pace;
    pace_init(&pace, 8000000, 0);
    int64_t half = (int64_t)pace.burst_bytes / 2;
    pace_spend(&pace, pace.burst_bytes - (uint64_t)half);
    assert_int_equal(pace_wait_ns(&pace, 0), 0);
    assert_int_not_equal(pace_wait_above_ns(&pace, half, 0), 0);
    assert_int_not_equal(pace_wait_above_ns(&pace, INT64_MAX, 0), 0);
    pace_spend(&pace, (uint64_t)half + 10);
    assert_int_not_equal(pace_wait_ns(&pace, 0), 0);
    assert_int_equal(pace_wait_above_ns(&pace, -100, 0), 0);
    /* A full bucket always passes, whatever the reserve. */
    assert_int_equal(pace_wait_above_ns(&pace, INT64_MAX, CLOCK_SECOND), 0);
}

static void unlimited_never_waits(void **unused)
{
    (void)unused;
    struct pace pace;
    pace_init(&pace, 0, 5);
    for (int i = 0; i < 100; i++) {
        pace_spend(&pace, UINT64_MAX);
        assert_int_equal(pace_wait_ns(&pace, 5), 0);
    }
}

static void rate_may_change(void **unused)
{
    (void)unused;
    struct pace pace;
    pace_init(&pace, 0, 0);
    pace_set(&pace, 8000000, 0);
    pace_spend(&pace, 1000000);
    assert_in_range(pace_wait_ns(&pace, 0), 990 * CLOCK_MS, 1001 * CLOCK_MS);
    pace_set(&pace, 80000000, 0); /* ten times faster: the same debt is paid sooner */
    assert_in_range(pace_wait_ns(&pace, 0), 99 * CLOCK_MS, 101 * CLOCK_MS);
    pace_set(&pace, 0, 0);
    assert_int_equal(pace_wait_ns(&pace, 0), 0);
}

static void extremes_do_not_overflow(void **unused)
{
    (void)unused;
    static const uint64_t rates[] = {1, 8, UINT64_MAX / 2, UINT64_MAX};
    static const uint64_t times[] = {0, 1, CLOCK_SECOND, UINT64_MAX / 2, UINT64_MAX - 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        struct pace pace;
        pace_init(&pace, rates[i], 0);
        for (size_t t = 0; t < sizeof times / sizeof *times; t++) {
            for (int k = 0; k < 5; k++)
                pace_spend(&pace, UINT64_MAX);
            pace_wait_ns(&pace, times[t]);
            assert_true(pace.tokens <= (int64_t)pace.burst_bytes);
            pace_wait_above_ns(&pace, INT64_MIN / 2, times[t]);
            pace_wait_above_ns(&pace, INT64_MAX, times[t]);
        }
        pace_wait_ns(&pace, 0); /* a clock that steps back gives nothing and takes nothing */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rate_is_kept),
        cmocka_unit_test(wait_is_exact),
        cmocka_unit_test(asking_often_loses_nothing),
        cmocka_unit_test(reserve_is_left_to_others),
        cmocka_unit_test(unlimited_never_waits),
        cmocka_unit_test(rate_may_change),
        cmocka_unit_test(extremes_do_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
