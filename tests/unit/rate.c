/* The learning rate's shape: warm-up reaches the base exactly, the cosine ends at the final share, nothing jumps or divides
 * by 0. */
#include "gpu/train/rate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void assert_near(double value, double expected)
{
    if (fabs(value - expected) > 1e-12)
        fail_msg("%.17g, not %.17g", value, expected);
}

static void warmup_is_linear(void **state)
{
    (void)state;
    struct rate rate = {.cosine = true, .warmup = 8, .steps = 72, .final_share = 0.1};
    for (uint64_t step = 1; step <= 8; step++)
        assert_near(rate_factor(&rate, step), (double)step / 8);
}

static void cosine_has_its_three_points(void **state)
{
    (void)state;
    struct rate rate = {.cosine = true, .warmup = 8, .steps = 72, .final_share = 0.1};
    assert_near(rate_factor(&rate, 8), 1);
    assert_near(rate_factor(&rate, 40), 0.55);
    assert_near(rate_factor(&rate, 72), 0.1);
    assert_near(rate_factor(&rate, 1000), 0.1);
    for (uint64_t step = 9; step <= 72; step++)
        assert_true(rate_factor(&rate, step) < rate_factor(&rate, step - 1));
}

static void constant_stays(void **state)
{
    (void)state;
    struct rate rate = {.warmup = 2, .steps = 10, .final_share = 0.1};
    assert_near(rate_factor(&rate, 1), 0.5);
    for (uint64_t step = 2; step <= 12; step++)
        assert_near(rate_factor(&rate, step), 1);
}

static void degenerate_lengths(void **state)
{
    (void)state;
    struct rate none = {.cosine = true, .warmup = 0, .steps = 10, .final_share = 0};
    assert_true(rate_factor(&none, 1) > 0.9 && rate_factor(&none, 1) < 1);
    assert_near(rate_factor(&none, 10), 0);
    struct rate only = {.cosine = true, .warmup = 20, .steps = 10, .final_share = 0.5};
    assert_near(rate_factor(&only, 10), 0.5); /* half of the warm-up */
    struct rate equal = {.cosine = true, .warmup = 10, .steps = 10, .final_share = 0.5};
    assert_near(rate_factor(&equal, 10), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warmup_is_linear),
        cmocka_unit_test(cosine_has_its_three_points),
        cmocka_unit_test(constant_stays),
        cmocka_unit_test(degenerate_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
