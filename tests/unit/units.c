/* What of a file a host has: only whole units are believed, each once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ssh/session/units.h"

#define MIB UNITS_BYTES

static void ranges_are_whole_units(void **unused)
{
    static const char *const bad[] = {"",           "0",           "0 0",       "0 1",         "1 1048576",       "0 2097153",
                                      "3145728 8",  "3145728 100", "0 3145829", "-0 1048576",  "0 1048576 1",    "x 1048576",
                                      "4194304 1",  "0x0 1048576", "18446744073708503040 2097152"};
    struct units units;
    uint64_t first, count;
    (void)unused;
    units_init(&units, 3 * MIB + 99);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (units_read(&units, bad[i], &first, &count))
            fail_msg("'%s' was taken", bad[i]);
    assert_true(units_read(&units, "1048576 2097152", &first, &count));
    assert_true(first == 1 && count == 2);
    assert_true(units_read(&units, "3145728 99", &first, &count));
    assert_true(first == 3 && count == 1);
    units_clear(&units);
}

static void each_is_ordered_and_comes_once(void **unused)
{
    struct units units;
    uint64_t first;
    (void)unused;
    units_init(&units, 3 * MIB + 99);
    assert_true(units_set_there(&units, 1, 1, UNIT_MISSING));
    assert_int_equal(units_next(&units, 9, &first), 1);
    assert_int_equal(first, 0);
    assert_int_equal(units_next(&units, 9, &first), 1); /* looking is not ordering */
    units_order(&units, 0, 1);
    assert_int_equal(units_next(&units, 9, &first), 2);
    assert_int_equal(first, 2);
    assert_int_equal(units_whole(&units, 0), 0);
    assert_false(units_set_there(&units, 2, 1, UNIT_ORDERED));
    assert_true(units_set_there(&units, 0, 1, UNIT_ORDERED));
    assert_false(units_set_there(&units, 0, 1, UNIT_ORDERED));
    assert_int_equal(units_whole(&units, 0), 2 * MIB);
    assert_int_equal(units.there_bytes, 2 * MIB);
    units_order(&units, 2, 2);
    assert_int_equal(units_next(&units, 9, &first), 0);
    assert_true(units_set_there(&units, 2, 2, UNIT_ORDERED));
    assert_int_equal(units_whole(&units, 2 * MIB), 3 * MIB + 99);
    assert_int_equal(units.there_bytes, 3 * MIB + 99);
    units_forget(&units);
    assert_int_equal(units_next(&units, 9, &first), 4);
    assert_int_equal(units.there_bytes, 0);
    units_clear(&units);
}

static void of_nothing(void **unused)
{
    struct units units;
    uint64_t first, count;
    (void)unused;
    units_init(&units, 0);
    assert_int_equal(units_next(&units, 9, &first), 0);
    assert_int_equal(units_whole(&units, 0), 0);
    assert_false(units_read(&units, "0 0", &first, &count));
    units_clear(&units);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_whole_units),
        cmocka_unit_test(each_is_ordered_and_comes_once),
        cmocka_unit_test(of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
