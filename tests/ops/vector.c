/* Ops over plain arrays, the optimiser and the column mean against the judge, at sizes around the chunks they are cut into.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/helpers/numbers.h"
#include "tests/helpers/reference.h"
#include "tests/helpers/rig.h"

static const int64_t counts[] = {0, 1, 7, 16, 33, 1000, 16384, 16385, 50001};
enum { COUNTS = sizeof counts / sizeof *counts };

static void simple_each(struct rig *rig)
{
    for (int n = 0; n < COUNTS; n++) {
        int64_t count = counts[n];
        float *x = rig_noise(rig, count, 1, 3), *y = rig_noise(rig, count, 2, 1);
        double *want = rig_doubles(rig, count), squares = 0;
        for (int64_t i = 0; i < count; i++) {
            want[i] = (double)x[i] + (double)y[i];
            squares += (double)x[i] * (double)x[i];
        }
        double got = rig->ops->sum_squares(rig->device, x, count), tolerance = sqrt((double)count) * 0x1p-52;
        if (!(fabs(got - squares) <= tolerance * squares))
            fail_msg("sum_squares of %lld (%s): got %.17g, want %.17g, tolerance %.3g", (long long)count, rig->label, got,
                     squares, tolerance);
        rig->ops->add(rig->device, y, x, count);
        numbers_near(y, want, count, NUMBERS_EPS, "add %lld (%s)", (long long)count, rig->label);
        for (int64_t i = 0; i < count; i++)
            want[i] = (double)x[i] * (double)0.3f;
        rig->ops->scale(rig->device, x, 0.3f, count);
        numbers_near(x, want, count, NUMBERS_EPS, "scale %lld (%s)", (long long)count, rig->label);
        for (int64_t i = 0; i < count; i++)
            want[i] = -2.5;
        rig->ops->fill(rig->device, x, -2.5f, count);
        numbers_near(x, want, count, 0, "fill %lld (%s)", (long long)count, rig->label);
    }
}

static void test_simple(void **state)
{
    (void)state;
    rig_each(simple_each);
}

/* One bad element anywhere is found, and none is found where there is none, not even the largest number. */
static void finite_each(struct rig *rig)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int n = 1; n < COUNTS; n++) {
        int64_t count = counts[n], places[] = {0, count / 2, count - 1};
        float *x = rig_noise(rig, count, 1, 1e30);
        x[0] = 3.4028235e38f;
        x[count - 1] = -3.4028235e38f;
        assert_true(rig->ops->all_finite(rig->device, x, count));
        for (int i = 0; i < 9; i++) {
            float *at = x + places[i % 3], before = *at;
            *at = bad[i / 3];
            if (rig->ops->all_finite(rig->device, x, count))
                fail_msg("all_finite of %lld (%s) overlooks %g at %lld", (long long)count, rig->label, (double)*at,
                         (long long)places[i % 3]);
            *at = before;
        }
    }
    assert_true(rig->ops->all_finite(rig->device, NULL, 0));
}

static void test_finite(void **state)
{
    (void)state;
    rig_each(finite_each);
}

static void adamw_each(struct rig *rig)
{
    for (int n = 0; n < COUNTS; n++) {
        int64_t count = counts[n];
        float *p = rig_noise(rig, count, 1, 0.02), *m = rig_zeros(rig, count), *v = rig_zeros(rig, count);
        double *p_want = rig_wide(rig, p, count), *m_want = rig_doubles(rig, count), *v_want = rig_doubles(rig, count);
        double scale = numbers_norm(p_want, count); /* a parameter may cross zero */
        for (int t = 1; t <= 3; t++) {
            scale += 0.01 * sqrt((double)count);
            float *g = rig_noise(rig, count, 10 + (uint64_t)t, 5);
            struct adamw s = {.learning_rate = 0.01f,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .epsilon = 1e-8f,
                              .weight_decay = 0.1f,
                              .gradient_scale = 0.37f,
                              .correction1 = (float)(1 - pow(0.9, t)),
                              .correction2 = (float)(1 - pow(0.95, t))};
            reference_adamw(p_want, rig_wide(rig, g, count), m_want, v_want, count, &s);
            rig->ops->adamw(rig->device, p, g, m, v, count, &s);
            numbers_same(g, rig_zeros(rig, count), count * 4, "adamw uses up the gradient of %lld (%s)", (long long)count, rig->label);
            numbers_near_scaled(p, p_want, count, 8 * NUMBERS_EPS, scale, "adamw p of %lld, step %d (%s)", (long long)count,
                                t, rig->label);
            numbers_near(m, m_want, count, 8 * NUMBERS_EPS, "adamw m of %lld, step %d (%s)", (long long)count, t,
                         rig->label);
            numbers_near(v, v_want, count, 8 * NUMBERS_EPS, "adamw v of %lld, step %d (%s)", (long long)count, t,
                         rig->label);
        }
    }
}

static void test_adamw(void **state)
{
    (void)state;
    rig_each(adamw_each);
}

static void column_mean_each(struct rig *rig)
{
    static const int64_t shapes[][2] = {{1, 1}, {5, 1}, {1, 70}, {33, 63}, {300, 129}};
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        int64_t rows = shapes[n][0], width = shapes[n][1];
        float *x = rig_noise(rig, rows * width, 1, 100), *mean = rig_floats(rig, width);
        double *want = rig_doubles(rig, width);
        for (int64_t i = 0; i < rows * width; i++)
            want[i % width] += (double)x[i] / (double)rows;
        rig->ops->column_mean(rig->device, mean, x, rows, width);
        numbers_near(mean, want, width, NUMBERS_EPS, "column_mean %lld×%lld (%s)", (long long)rows, (long long)width,
                     rig->label);
    }
}

static void rows_each(struct rig *rig)
{
    static const int64_t shapes[][2] = {{1, 1}, {5, 1}, {1, 70}, {33, 63}, {300, 129}};
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        int64_t rows = shapes[n][0], width = shapes[n][1], count = rows * width;
        float *x = rig_noise(rig, count, 1, 1), *bias = rig_noise(rig, width, 2, 1), *sum = rig_noise(rig, width, 3, 1);
        double *want = rig_wide(rig, sum, width), *want_x = rig_doubles(rig, count);
        for (int64_t i = 0; i < count; i++) {
            want[i % width] += (double)x[i];
            want_x[i] = (double)x[i] + (double)bias[i % width];
        }
        rig->ops->sum_rows(rig->device, sum, x, rows, width);
        numbers_near(sum, want, width, 2 * NUMBERS_EPS, "sum_rows %lld×%lld (%s)", (long long)rows, (long long)width, rig->label);
        rig->ops->add_rows(rig->device, x, bias, rows, width);
        numbers_near(x, want_x, count, NUMBERS_EPS, "add_rows %lld×%lld (%s)", (long long)rows, (long long)width, rig->label);
    }
}

static void test_rows(void **state)
{
    (void)state;
    rig_each(rows_each);
}

static void test_column_mean(void **state)
{
    (void)state;
    rig_each(column_mean_each);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_simple), cmocka_unit_test(test_finite),
                                       cmocka_unit_test(test_adamw), cmocka_unit_test(test_column_mean),
                                       cmocka_unit_test(test_rows)};
    cmocka_set_message_output(CM_OUTPUT_STDOUT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
