/* Numbers over time: bounded for ever, peaks kept, gaps are gaps; what comes late finds its place. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "console/plot.h"
#include "console/series.h"
#include "tests/helpers/dice.h"

static void a_week_of_steps_is_bounded(void **unused)
{
    struct series series = {0};
    double low, high;
    (void)unused;
    for (int i = 1; i <= 1000000; i++)
        series_add(&series, i, i == 777777 ? 50 : 1 + (i % 2));
    assert_true(series.count <= SERIES_POINTS);
    assert_true(series.count >= SERIES_POINTS / 4);
    assert_true(series_range(&series, 0, 1e9, &low, &high) == series.count);
    assert_true(low == 1 && high == 50); /* a peak of one step in a million is still seen */
    for (size_t i = 1; i < series.count; i++)
        assert_true(series.points[i].x > series.points[i - 1].x);
    assert_true(series_at(&series, 0.5) == NULL);
    assert_true(series_at(&series, 500000)->x <= 500000);
    series_clear(&series);
}

static void the_same_x_is_replaced(void **unused)
{
    struct series series = {0};
    (void)unused;
    series_add(&series, 1, 5);
    series_add(&series, 1, 6);
    series_add(&series, 0.5, 7); /* the past does not change */
    series_add(&series, NAN, 7);
    assert_int_equal(series.count, 1);
    assert_true(series.points[0].y == 6);
    series_clear(&series);
}

static void what_comes_late_finds_its_place(void **unused)
{
    struct series series = {0};
    struct dice dice = {3};
    (void)unused;
    for (int i = 5000; i < 5100; i++)
        series_add(&series, i, 2);
    for (int i = 0; i < 20000; i++)
        series_insert(&series, (double)dice_below(&dice, 6000), 3);
    assert_true(series.count <= SERIES_POINTS);
    for (size_t i = 1; i < series.count; i++)
        assert_true(series.points[i].x > series.points[i - 1].x);
    series_clear(&series);
}

static void trails_have_gaps(void **unused)
{
    struct trail trail = {.newest = 0};
    (void)unused;
    assert_true(isnan(trail_get(&trail, 100, 0)));
    trail_put(&trail, 1000, 4);
    trail_put(&trail, 1003, 8);
    assert_true(trail_get(&trail, 1003, 0) == 8);
    assert_true(isnan(trail_get(&trail, 1003, 1)));
    assert_true(trail_get(&trail, 1003, 3) == 4);
    assert_true(isnan(trail_get(&trail, 1004, 0))); /* now is not known yet */
    trail_put(&trail, 1001, 5);                     /* a journal that is read later fills a gap */
    assert_true(trail_get(&trail, 1003, 2) == 5);
    trail_put(&trail, 500, 9); /* too old to be kept */
    assert_true(isnan(trail_get(&trail, 1003, 503)));
    assert_true(fabs(trail_mean(&trail, 1003, TRAIL_POINTS) - 17.0 / 3) < 1e-6);
    assert_true(trail_peak(&trail, 1003, TRAIL_POINTS) == 8);
    assert_true(isnan(trail_mean(&trail, 5000, TRAIL_POINTS)));
    trail_put(&trail, 100000, 1);
    assert_true(isnan(trail_get(&trail, 100000, 1)));
}

static void scales_are_round(void **unused)
{
    (void)unused;
    assert_true(plot_round_up(0) == 1 && plot_round_up(NAN) == 1);
    assert_true(fabs(plot_round_up(57e3) - 100e3) < 1 && fabs(plot_round_up(1e6) - 1e6) < 1 && fabs(plot_round_up(1.2e6) - 2e6) < 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_week_of_steps_is_bounded),      cmocka_unit_test(the_same_x_is_replaced),
        cmocka_unit_test(what_comes_late_finds_its_place), cmocka_unit_test(trails_have_gaps),
        cmocka_unit_test(scales_are_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
