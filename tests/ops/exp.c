/* The vectorisable exponential against the C library's in fp64: at most 2 units in the last place, and the right thing at
 * the ends. */
#include "gpu/cpu/kernels_math.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_exp(void **state)
{
    double worst = 0;
    float at = 0;
    (void)state;
    for (float x = -87.0f; x < 88.72f; x += 3.7e-5f + fabsf(x) * 1e-6f) {
        double want = exp((double)x), unit = ldexp(1, ilogb(want) - 23), error = fabs((double)math_exp(x) - want) / unit;
        if (!(error <= worst)) {
            worst = error;
            at = x;
        }
    }
    if (!(worst <= 2))
        fail_msg("error of %.3g units at %.9g: got %.9g, want %.9g", worst, (double)at, (double)math_exp(at),
                 exp((double)at));
}

static void test_ends(void **state)
{
    (void)state;
    assert_true(math_exp(0) == 1 && math_exp(-0.0f) == 1);
    assert_true(math_exp(INFINITY) == INFINITY && math_exp(89) == INFINITY && math_exp(1e30f) == INFINITY);
    assert_true(math_exp(-INFINITY) == 0 && math_exp(-87.1f) == 0 && math_exp(-1e30f) == 0);
    for (uint32_t payload = 1; payload < 0x400000; payload += 12345) /* whatever the bits of a NaN are */
        assert_true(isnan(math_exp(math_from_bits(0x7FC00000u | payload))) &&
                    isnan(math_exp(math_from_bits(0xFF800000u | payload))));
    for (float x = 88; x < 89; x = nextafterf(x, 90)) /* each number around the largest finite result */
        if (!(math_exp(x) >= 1e38f))
            fail_msg("e^%.9g is %g", (double)x, (double)math_exp(x));
    assert_true(isfinite(math_exp(88.7228317f)) && math_exp(88.7228317f) > 3.4e38f); /* the next number is above */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_exp), cmocka_unit_test(test_ends)};
    cmocka_set_message_output(CM_OUTPUT_STDOUT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
