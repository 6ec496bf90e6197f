/* Cross entropy in vocabulary chunks against the judge, who sees the whole vocabulary at once. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/helpers/dice.h"
#include "tests/helpers/numbers.h"
#include "tests/helpers/reference.h"
#include "tests/helpers/rig.h"

struct softmax {
    float *maximum, *sum, *target_logit;
};

/* Columns [first, first + count) of logits[rows, columns] as the chunk that the op sees. */
static float *chunk_of(struct rig *rig, const float *logits, int64_t rows, int64_t columns, int64_t first, int64_t count)
{
    float *chunk = rig_floats(rig, rows * count);
    for (int64_t r = 0; r < rows; r++)
        memcpy(chunk + r * count, logits + r * columns + first, (size_t)count * sizeof *chunk);
    return chunk;
}

static struct softmax softmax_start(struct rig *rig, int64_t rows)
{
    struct softmax at = {rig_floats(rig, rows), rig_zeros(rig, rows), rig_zeros(rig, rows)};
    for (int64_t r = 0; r < rows; r++)
        at.maximum[r] = -INFINITY;
    return at;
}

static void softmax_case(struct rig *rig, int64_t rows, int64_t columns, int64_t chunk, double spread, bool some_targets)
{
    float *logits = rig_noise(rig, rows * columns, 1, spread);
    uint32_t *targets = rig_take(rig, rows * 4);
    struct dice dice = {2};
    for (int64_t r = 0; r < rows; r++)
        targets[r] = some_targets && r % 3 == 1 ? UINT32_MAX : (uint32_t)dice_below(&dice, (uint64_t)columns);
    double *wide = rig_wide(rig, logits, rows * columns), *maximum = rig_doubles(rig, rows), *sum = rig_doubles(rig, rows);
    double *gradient = rig_doubles(rig, rows * columns),
           loss = reference_softmax(maximum, sum, wide, targets, rows, columns);
    reference_softmax_backward(gradient, wide, targets, rows, columns, 0.25);
    struct softmax at = softmax_start(rig, rows);
    for (int64_t first = 0; first < columns; first += chunk) {
        int64_t count = columns - first < chunk ? columns - first : chunk;
        rig->ops->softmax_chunk(rig->device, at.maximum, at.sum, at.target_logit,
                                chunk_of(rig, logits, rows, columns, first, count), targets, rows, count, first);
    }
    double tolerance = (8 + sqrt((double)columns)) * NUMBERS_EPS;
    numbers_near(at.maximum, maximum, rows, 0, "softmax maximum %lld×%lld by %lld (%s)", (long long)rows, (long long)columns,
                 (long long)chunk, rig->label);
    numbers_near(at.sum, sum, rows, tolerance, "softmax sum %lld×%lld by %lld (%s)", (long long)rows, (long long)columns,
                 (long long)chunk, rig->label);
    double got = rig->ops->softmax_loss(rig->device, at.maximum, at.sum, at.target_logit, targets, rows);
    if (!(fabs(got - loss) <= tolerance * (double)rows))
        fail_msg("softmax_loss (%s): got %.12g, want %.12g, tolerance %.3g", rig->label, got, loss,
                 tolerance * (double)rows);
    for (int64_t first = 0; first < columns; first += chunk) {
        int64_t count = columns - first < chunk ? columns - first : chunk;
        float *part = chunk_of(rig, logits, rows, columns, first, count);
        double *want = rig_doubles(rig, rows * count);
        for (int64_t i = 0; i < rows * count; i++)
            want[i] = gradient[i / count * columns + first + i % count];
        rig->ops->softmax_backward_chunk(rig->device, part, at.maximum, at.sum, targets, rows, count, first, 0.25f);
        numbers_near_scaled(part, want, rows * count, tolerance, 0.25 * sqrt((double)rows),
                            "softmax gradient %lld×%lld by %lld (%s)", (long long)rows, (long long)columns, (long long)chunk,
                            rig->label);
    }
}

/* Both passes in one; `half`: the gradient is rounded to bf16, and a row's words begin where the row did. */
static void whole_case(struct rig *rig, int64_t rows, int64_t columns, double spread, bool half)
{
    float *logits = rig_noise(rig, rows * columns, 1, spread), *got = rig_floats(rig, rows * columns);
    uint32_t *targets = rig_take(rig, rows * 4);
    struct dice dice = {3};
    for (int64_t r = 0; r < rows; r++)
        targets[r] = r % 3 == 1 ? UINT32_MAX : (uint32_t)dice_below(&dice, (uint64_t)columns);
    double *wide = rig_wide(rig, logits, rows * columns), *maximum = rig_doubles(rig, rows), *sum = rig_doubles(rig, rows);
    double *gradient = rig_doubles(rig, rows * columns), loss = reference_softmax(maximum, sum, wide, targets, rows, columns);
    reference_softmax_backward(gradient, wide, targets, rows, columns, 0.25);
    struct softmax at = {rig_noise(rig, rows, 4, 1), rig_noise(rig, rows, 5, 1), rig_noise(rig, rows, 6, 1)}; /* all overwritten */
    rig->ops->softmax_whole(rig->device, at.maximum, at.sum, at.target_logit, logits, targets, rows, columns, 0.25f, half);
    for (int64_t r = 0; r < rows; r++) {
        if (half)
            rig->ops->widen(rig->device, got + r * columns, (const uint16_t *)(logits + r * columns), columns);
        else
            memcpy(got + r * columns, logits + r * columns, (size_t)columns * sizeof *got);
    }
    double tolerance = (8 + sqrt((double)columns)) * NUMBERS_EPS + (half ? 0x1p-9 : 0);
    numbers_near_scaled(got, gradient, rows * columns, tolerance, 0.25 * sqrt((double)rows),
                        "whole softmax gradient %lld×%lld (%s)", (long long)rows, (long long)columns, rig->label);
    double found = rig->ops->softmax_loss(rig->device, at.maximum, at.sum, at.target_logit, targets, rows);
    if (!(fabs(found - loss) <= (8 + sqrt((double)columns)) * NUMBERS_EPS * (double)rows))
        fail_msg("loss of a whole softmax (%s): got %.12g, want %.12g", rig->label, found, loss);
}

static void whole_each(struct rig *rig)
{
    for (int half = 0; half < 2; half++) {
        whole_case(rig, 1, 1, 1, half);
        whole_case(rig, 7, 37, 3, half);
        whole_case(rig, 40, 300, 10, half);
        whole_case(rig, 5, 32001, 2, half);
        whole_case(rig, 200, 259, 40, half);
    }
}

static void test_whole(void **state)
{
    (void)state;
    rig_each(whole_each);
}

static void softmax_each(struct rig *rig)
{
    softmax_case(rig, 1, 1, 1, 1, false);
    softmax_case(rig, 1, 256, 256, 3, false);
    softmax_case(rig, 7, 37, 10, 3, true);
    softmax_case(rig, 40, 300, 128, 10, true);
    softmax_case(rig, 3, 1000, 1, 2, false);
    softmax_case(rig, 200, 259, 64, 40, true); /* far apart: most probabilities underflow */
}

static void test_softmax(void **state)
{
    (void)state;
    rig_each(softmax_each);
}

/* A NaN or infinite logit must show in the loss; rows that are no targets are zero whatever they hold. */
static void non_finite_each(struct rig *rig)
{
    static const float bad[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++) {
        float logits[2 * 50] = {0};
        uint32_t targets[2] = {3, UINT32_MAX};
        logits[7] = bad[i];
        logits[57] = NAN;
        struct softmax at = softmax_start(rig, 2);
        rig->ops->softmax_chunk(rig->device, at.maximum, at.sum, at.target_logit, logits, targets, 2, 50, 0);
        assert_true(isnan(rig->ops->softmax_loss(rig->device, at.maximum, at.sum, at.target_logit, targets, 2)));
        rig->ops->softmax_backward_chunk(rig->device, logits, at.maximum, at.sum, targets, 2, 50, 0, 1);
        assert_false(rig->ops->all_finite(rig->device, logits, 50));
        for (int c = 50; c < 100; c++)
            assert_true(logits[c] == 0);
        logits[7] = bad[i];
        logits[57] = NAN;
        rig->ops->softmax_whole(rig->device, at.maximum, at.sum, at.target_logit, logits, targets, 2, 50, 1, false);
        assert_true(isnan(rig->ops->softmax_loss(rig->device, at.maximum, at.sum, at.target_logit, targets, 2)));
        assert_false(rig->ops->all_finite(rig->device, logits, 50));
        for (int c = 50; c < 100; c++)
            assert_true(logits[c] == 0);
    }
}

static void test_non_finite(void **state)
{
    (void)state;
    rig_each(non_finite_each);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_softmax), cmocka_unit_test(test_whole), cmocka_unit_test(test_non_finite)};
    cmocka_set_message_output(CM_OUTPUT_STDOUT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
