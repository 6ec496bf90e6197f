/* Norm, rotation, gated unit and embedding against the judge, forward and backward. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/helpers/dice.h"
#include "tests/helpers/numbers.h"
#include "tests/helpers/reference.h"
#include "tests/helpers/rig.h"

static const int64_t shapes[][2] = {{1, 1}, {1, 7}, {3, 1}, {5, 17}, {16, 64}, {17, 100}, {70, 257}, {1100, 40}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

#define HALF_EPS (0x1p-8 + 8 * NUMBERS_EPS) /* one rounding to bf16 more */

static void rmsnorm_each(struct rig *rig)
{
    for (int n = 0; n < SHAPES; n++) {
        int64_t rows = shapes[n][0], width = shapes[n][1], count = rows * width;
        float *x = rig_noise(rig, count, 1, 2), *gain = rig_noise(rig, width, 2, 1), *dy = rig_noise(rig, count, 3, 1);
        float *y = rig_floats(rig, count), *inverse = rig_floats(rig, rows);
        float *dx = rig_zeros(rig, count), *dgain = rig_zeros(rig, width);
        double *x_wide = rig_wide(rig, x, count), *gain_wide = rig_wide(rig, gain, width), epsilon = (double)1e-5f;
        double *y_want = rig_doubles(rig, count), *inverse_want = rig_doubles(rig, rows);
        double *dx_want = rig_doubles(rig, count), *dgain_want = rig_doubles(rig, width);
        reference_rmsnorm_forward(y_want, inverse_want, x_wide, gain_wide, rows, width, epsilon);
        reference_rmsnorm_backward(dx_want, dgain_want, rig_wide(rig, dy, count), x_wide, gain_wide, rows, width, epsilon);
        double root = sqrt((double)width), scale = numbers_norm(dx_want, count);
        for (int64_t i = 0; i < rows; i++) /* with one channel dx is all cancellation: its parts are the measure then */
            scale += fabs(inverse_want[i]) * 0.1;
        rig->ops->rmsnorm_forward(rig->device, y, inverse, x, gain, rows, width, 1e-5f);
        numbers_near(y, y_want, count, (4 + root) * NUMBERS_EPS, "rmsnorm %lld×%lld (%s)", (long long)rows, (long long)width,
                     rig->label);
        numbers_near(inverse, inverse_want, rows, (4 + root) * NUMBERS_EPS, "rmsnorm inverse (%s)", rig->label);
        rig->ops->rmsnorm_backward(rig->device, dx, dgain, dy, x, gain, inverse, rows, width);
        numbers_near_scaled(dx, dx_want, count, (8 + 2 * root) * NUMBERS_EPS, scale, "rmsnorm dx %lld×%lld (%s)",
                            (long long)rows, (long long)width, rig->label);
        numbers_near(dgain, dgain_want, width, (8 + sqrt((double)rows)) * NUMBERS_EPS, "rmsnorm dgain %lld×%lld (%s)",
                     (long long)rows, (long long)width, rig->label);
        /* Both add to what is there. */
        float *dx_twice = rig_copy(rig, dx, count), *dgain_twice = rig_copy(rig, dgain, width);
        rig->ops->rmsnorm_backward(rig->device, dx_twice, dgain_twice, dy, x, gain, inverse, rows, width);
        for (int64_t i = 0; i < count; i++)
            dx_want[i] *= 2;
        for (int64_t i = 0; i < width; i++)
            dgain_want[i] *= 2;
        numbers_near_scaled(dx_twice, dx_want, count, (8 + 2 * root) * NUMBERS_EPS, 2 * scale, "rmsnorm dx += (%s)",
                            rig->label);
        numbers_near(dgain_twice, dgain_want, width, (8 + sqrt((double)rows)) * NUMBERS_EPS, "rmsnorm dgain += (%s)",
                     rig->label);
    }
}

static void test_rmsnorm(void **state)
{
    (void)state;
    rig_each(rmsnorm_each);
}

static void rope_case(struct rig *rig, int64_t sequences, int64_t tokens, int64_t heads, int64_t width, int64_t gap)
{
    int64_t stride = heads * width + gap, count = sequences * tokens * stride;
    float frequency[64], *x = rig_noise(rig, count, 1, 1), *start = rig_copy(rig, x, count);
    double *want = rig_wide(rig, x, count), *before = rig_wide(rig, x, count);
    for (int64_t i = 0; i < width / 2; i++)
        frequency[i] = (float)pow(10000, -2.0 * (double)i / (double)width);
    reference_rope(want, frequency, sequences, tokens, heads, width, stride, false);
    rig->ops->rope(rig->device, x, frequency, sequences, tokens, 0, heads, width, stride, false);
    numbers_near(x, want, count, 4 * NUMBERS_EPS, "rope %lld×%lld×%lld×%lld (%s)", (long long)sequences, (long long)tokens,
                 (long long)heads, (long long)width, rig->label);
    for (int64_t row = 0; row < sequences * tokens; row++)
        numbers_same(x + row * stride + heads * width, start + row * stride + heads * width, gap * 4, "rope's gap");
    rig->ops->rope(rig->device, x, frequency, sequences, tokens, 0, heads, width, stride, true);
    numbers_near(x, before, count, 8 * NUMBERS_EPS, "rope there and back (%s)", rig->label);
    reference_rope(want, frequency, sequences, tokens, heads, width, stride, true);
    numbers_near(x, want, count, 8 * NUMBERS_EPS, "rope backward (%s)", rig->label);
}

/* Positions that do not begin at 0: the rows of a longer text, to the last bit; a table that grows by ones on the way. */
static void rope_first(struct rig *rig)
{
    enum { TOKENS = 40, HEADS = 2, WIDTH = 8, STRIDE = HEADS * WIDTH };
    float *whole = rig_noise(rig, TOKENS * STRIDE, 5, 1), *rows = rig_copy(rig, whole, TOKENS * STRIDE), frequency[WIDTH / 2];
    for (int i = 0; i < WIDTH / 2; i++)
        frequency[i] = (float)pow(100, -2.0 * i / WIDTH) + 0.001f;
    for (int64_t first = 0; first < TOKENS; first += 1 + first / 3)
        rig->ops->rope(rig->device, rows + first * STRIDE, frequency, 1, first + 1 + first / 3 < TOKENS ? 1 + first / 3 : TOKENS - first,
                       first, HEADS, WIDTH, STRIDE, false);
    rig->ops->rope(rig->device, whole, frequency, 1, TOKENS, 0, HEADS, WIDTH, STRIDE, false);
    numbers_same(rows, whole, TOKENS * STRIDE * 4, "rope in pieces (%s)", rig->label);
}

static void rope_each(struct rig *rig)
{
    rope_first(rig);
    rope_case(rig, 1, 1, 1, 2, 0);
    rope_case(rig, 2, 5, 3, 6, 7);
    rope_case(rig, 1, 130, 2, 16, 1); /* more positions than before, other frequencies */
    rope_case(rig, 3, 40, 2, 16, 0);  /* fewer: the table is kept */
    rope_case(rig, 1, 3000, 1, 64, 0);
}

static void test_rope(void **state)
{
    (void)state;
    rig_each(rope_each);
}

static void swiglu_each(struct rig *rig)
{
    for (int n = 0; n < SHAPES; n++) {
        int64_t rows = shapes[n][0], width = shapes[n][1], count = rows * width;
        float *gate_up = rig_noise(rig, 2 * count, 1, 4), *dy = rig_noise(rig, count, 2, 1);
        float *y = rig_floats(rig, count), *d_gate_up = rig_floats(rig, 2 * count);
        double *wide = rig_wide(rig, gate_up, 2 * count), *y_want = rig_doubles(rig, count);
        double *d_want = rig_doubles(rig, 2 * count);
        reference_swiglu_forward(y_want, wide, rows, width);
        reference_swiglu_backward(d_want, rig_wide(rig, dy, count), wide, rows, width);
        rig->ops->swiglu_forward(rig->device, y, gate_up, rows, width);
        numbers_near(y, y_want, count, 8 * NUMBERS_EPS, "swiglu %lld×%lld (%s)", (long long)rows, (long long)width,
                     rig->label);
        float *again = rig_floats(rig, count);
        rig->ops->swiglu_backward(rig->device, d_gate_up, again, dy, gate_up, rows, width);
        numbers_same(again, y, count * 4, "swiglu again (%s)", rig->label);
        numbers_near(d_gate_up, d_want, 2 * count, 8 * NUMBERS_EPS, "swiglu backward %lld×%lld (%s)", (long long)rows,
                     (long long)width, rig->label);
        rig->ops->swiglu_backward(rig->device, gate_up, dy, dy, gate_up, rows, width);
        numbers_same(gate_up, d_gate_up, 2 * count * 4, "swiglu backward in place (%s)", rig->label);
        numbers_same(dy, y, count * 4, "swiglu again, in place (%s)", rig->label);
    }
}

/* The same of numbers that a bf16 holds: what comes out is rounded, and nothing else. */
static void swiglu_half_each(struct rig *rig)
{
    for (int n = 0; n < SHAPES; n++) {
        int64_t rows = shapes[n][0], width = shapes[n][1], count = rows * width;
        float *gate_up = rig_floats(rig, 2 * count), *dy = rig_noise(rig, count, 2, 1), *back = rig_floats(rig, 2 * count);
        uint16_t *words = rig_take(rig, 4 * count), *y = rig_take(rig, 2 * count);
        double *y_want = rig_doubles(rig, count), *d_want = rig_doubles(rig, 2 * count);
        rig->ops->halve(rig->device, words, rig_noise(rig, 2 * count, 1, 4), 2 * count);
        rig->ops->widen(rig->device, gate_up, words, 2 * count);
        double *wide = rig_wide(rig, gate_up, 2 * count);
        reference_swiglu_forward(y_want, wide, rows, width);
        reference_swiglu_backward(d_want, rig_wide(rig, dy, count), wide, rows, width);
        rig->ops->swiglu_forward_half(rig->device, y, words, rows, width);
        rig->ops->widen(rig->device, back, y, count);
        numbers_near(back, y_want, count, HALF_EPS, "swiglu of bf16 %lld×%lld (%s)", (long long)rows, (long long)width, rig->label);
        uint16_t *again = rig_take(rig, 2 * count);
        rig->ops->swiglu_backward_half(rig->device, words, again, dy, words, rows, width);
        numbers_same(again, y, count * 2, "swiglu of bf16 again (%s)", rig->label);
        rig->ops->widen(rig->device, back, words, 2 * count);
        numbers_near(back, d_want, 2 * count, HALF_EPS, "swiglu backward of bf16 %lld×%lld (%s)", (long long)rows, (long long)width,
                     rig->label);
    }
}

static void test_swiglu_half(void **state)
{
    (void)state;
    rig_each(swiglu_half_each);
}

static void test_swiglu(void **state)
{
    (void)state;
    rig_each(swiglu_each);
}

/* Far out, where exponentials overflow, the gate is 0 or the identity, and a NaN stays one. */
static void swiglu_far_each(struct rig *rig)
{
    float gate_up[2 * 6] = {-1000, -90, 90, 1000, 0, NAN, 1, 1, 1, 1, 1, 1}, y[6], dy[6] = {1, 1, 1, 1, 1, 1}, d[12];
    rig->ops->swiglu_forward(rig->device, y, gate_up, 1, 6);
    rig->ops->swiglu_backward(rig->device, d, dy, dy, gate_up, 1, 6);
    assert_true(fabsf(y[0]) < 1e-30f && fabsf(y[1]) < 1e-30f && y[2] == 90 && y[3] == 1000 && y[4] == 0 && isnan(y[5]));
    assert_true(fabsf(d[0]) < 1e-30f && fabsf(d[1]) < 1e-30f && d[2] == 1 && d[3] == 1 && d[4] == 0.5f && isnan(d[5]));
}

static void test_swiglu_far(void **state)
{
    (void)state;
    rig_each(swiglu_far_each);
}

static void embedding_each(struct rig *rig)
{
    static const int64_t cases[][3] = {
        {1, 1, 1}, {7, 20, 17}, {50, 300, 64}, {3, 100, 129}, {11, 400, 100}}; /* entries, rows, width */
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        int64_t entries = cases[n][0], rows = cases[n][1], width = cases[n][2];
        float *table = rig_noise(rig, entries * width, 1, 1), *y = rig_floats(rig, rows * width);
        float *dy = rig_noise(rig, rows * width, 2, 1), *dtable = rig_noise(rig, entries * width, 3, 1);
        double *want = rig_wide(rig, dtable, entries * width);
        uint32_t *ids = rig_take(rig, rows * 4);
        struct dice dice = {4};
        for (int64_t r = 0; r < rows; r++)
            ids[r] = (uint32_t)dice_below(&dice, (uint64_t)entries);
        rig->ops->embedding_forward(rig->device, y, table, ids, rows, width);
        for (int64_t r = 0; r < rows; r++) {
            numbers_same(y + r * width, table + ids[r] * width, width * 4, "embedding row %lld (%s)", (long long)r,
                         rig->label);
            for (int64_t h = 0; h < width; h++)
                want[ids[r] * width + h] += (double)dy[r * width + h];
        }
        rig->ops->embedding_backward(rig->device, dtable, dy, ids, rows, width);
        numbers_near(dtable, want, entries * width, sqrt((double)rows) * NUMBERS_EPS, "embedding_backward %lld×%lld (%s)",
                     (long long)rows, (long long)width, rig->label);
    }
}

static void test_embedding(void **state)
{
    (void)state;
    rig_each(embedding_each);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rmsnorm), cmocka_unit_test(test_rope),
                                       cmocka_unit_test(test_swiglu), cmocka_unit_test(test_swiglu_far),
                                       cmocka_unit_test(test_swiglu_half),
                                       cmocka_unit_test(test_embedding)};
    cmocka_set_message_output(CM_OUTPUT_STDOUT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
