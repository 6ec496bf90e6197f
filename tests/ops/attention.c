/*
 * Attention, forward and backward, against the judge: head groups, lengths around the tile of 64, widths that fill no
 * vector, and rows that lie in one fused q-k-v tensor as the model has them. What lies between the rows must not be touched.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/helpers/numbers.h"
#include "tests/helpers/reference.h"
#include "tests/helpers/rig.h"

static const struct {
    int64_t sequences, tokens, heads, kv_heads, d;
    double spread; /* of q and k: large ones make sharp softmaxes */
} shapes[] = {
    {1, 1, 1, 1, 1, 1},  {1, 1, 4, 1, 8, 1},    {3, 2, 2, 2, 5, 1},    {2, 63, 4, 4, 16, 1},  {1, 64, 8, 2, 32, 2},
    {1, 65, 4, 1, 6, 3}, {2, 130, 8, 2, 24, 1}, {1, 200, 2, 2, 64, 2}, {1, 70, 4, 2, 128, 1}, {1, 129, 3, 1, 1, 1},
};

/* Offsets of k and v in the fused row, and its length. */
struct fused {
    int64_t k, v, stride, rows;
};

/* Largest |q||k|/√d: rounding errors of scores, and so relative ones of probabilities, are in proportion to it. */
static double largest_score(const float *fused, const struct fused *at, int64_t heads, int64_t kv_heads, int64_t d)
{
    double q = 0, k = 0;
    for (int64_t row = 0; row < at->rows; row++)
        for (int64_t head = 0; head < heads; head++) {
            double q_squares = 0, k_squares = 0;
            for (int64_t c = 0; c < d; c++) {
                double one = (double)fused[row * at->stride + head * d + c];
                double other = (double)fused[row * at->stride + at->k + head % kv_heads * d + c];
                q_squares += one * one;
                k_squares += other * other;
            }
            q = fmax(q, sqrt(q_squares));
            k = fmax(k, sqrt(k_squares));
        }
    return q * k / sqrt((double)d);
}

/* Compares the columns [from, from + width) of every row, and that the other columns still hold the filling of rig_take. */
static void near_columns(struct rig *rig, const float *got, const double *want, const struct fused *at, int64_t from,
                         int64_t width, double tolerance, const char *what)
{
    float *mine = rig_floats(rig, at->rows * width), *filling = rig_floats(rig, at->stride);
    double *judged = rig_doubles(rig, at->rows * width);
    for (int64_t row = 0; row < at->rows; row++) {
        memcpy(mine + row * width, got + row * at->stride + from, (size_t)width * sizeof *mine);
        memcpy(judged + row * width, want + row * at->stride + from, (size_t)width * sizeof *judged);
        numbers_same(got + row * at->stride, filling, from * 4, "%s: before the columns", what);
        numbers_same(got + row * at->stride + from + width, filling, (at->stride - from - width) * 4,
                     "%s: behind the columns", what);
    }
    numbers_near(mine, judged, at->rows * width, tolerance, "%s (%s)", what, rig->label);
}

/* The first sequence again, with its keys and values as a cache: all queries at once, and the last ones alone. */
static void cached_case(struct rig *rig, const float *x, const struct fused *at, const double *want, int64_t tokens, int64_t heads,
                        int64_t kv_heads, int64_t d, double tolerance)
{
    int64_t output = heads * d;
    float *o = rig_floats(rig, tokens * output);
    for (int i = 0; i < 2; i++) {
        int64_t first = i * 2 * tokens / 3;
        rig->ops->attention_cached(rig->device, o, x + first * at->stride, x + at->k, x + at->v, tokens - first, first, heads, kv_heads,
                                   d, at->stride, at->stride);
        numbers_near(o, want + first * output, (tokens - first) * output, tolerance, "attention cached from %lld of %lld (%s)",
                     (long long)first, (long long)tokens, rig->label);
    }
}

static void attention_case(struct rig *rig, size_t n, bool half)
{
    int64_t sequences = shapes[n].sequences, tokens = shapes[n].tokens, heads = shapes[n].heads,
            kv_heads = shapes[n].kv_heads;
    int64_t d = shapes[n].d, rows = sequences * tokens, output = heads * d, kv_width = kv_heads * d;
    struct fused at = {.k = output, .v = output + kv_width, .stride = output + 2 * kv_width + 3, .rows = rows};
    struct reference_attention shape = {sequences, tokens, heads, kv_heads, d, at.stride, at.stride};
    char label[100];
    snprintf(label, sizeof label, "attention%s %lld×%lld, %lld/%lld heads of %lld", half ? " of bf16" : "", (long long)sequences, (long long)tokens,
             (long long)heads, (long long)kv_heads, (long long)d);
    float *x = rig_noise(rig, rows * at.stride, 1, shapes[n].spread), *d_o = rig_noise(rig, rows * output, 2, 1);
    double *wide = rig_wide(rig, x, rows * at.stride);
    double *o_want = rig_doubles(rig, rows * output), *log_want = rig_doubles(rig, rows * heads);
    double *d_want = rig_doubles(rig, rows * at.stride);
    reference_attention_forward(o_want, log_want, wide, wide + at.k, wide + at.v, &shape);
    reference_attention_backward(d_want, d_want + at.k, d_want + at.v, rig_wide(rig, d_o, rows * output), wide, wide + at.k,
                                 wide + at.v, &shape);
    double tolerance =
        (8 + 4 * (sqrt((double)d) + sqrt((double)tokens) + largest_score(x, &at, heads, kv_heads, d))) * NUMBERS_EPS;
    if (half) /* probabilities are off by what their scores are */
        tolerance = (4 + largest_score(x, &at, heads, kv_heads, d)) * 0x1p-9;

    float *o = rig_floats(rig, rows * output), *log_sum = rig_floats(rig, rows * heads);
    rig->ops->attention_forward(rig->device, o, log_sum, x, x + at.k, x + at.v, sequences, tokens, heads, kv_heads, d,
                                at.stride, at.stride, NULL, half);
    numbers_near(o, o_want, rows * output, tolerance, "%s (%s)", label, rig->label);
    numbers_near_scaled(log_sum, log_want, rows * heads, tolerance, sqrt((double)(rows * heads)), "%s log_sum (%s)", label,
                        rig->label);
    if (!half)
        cached_case(rig, x, &at, o_want, tokens, heads, kv_heads, d, tolerance);

    float *dq = rig_floats(rig, rows * at.stride), *dk = rig_floats(rig, rows * at.stride);
    float *dv = rig_floats(rig, rows * at.stride);
    rig->ops->attention_backward(rig->device, dq, dk + at.k, dv + at.v, d_o, o, log_sum, x, x + at.k, x + at.v, sequences,
                                 tokens, heads, kv_heads, d, at.stride, at.stride, NULL, half);
    near_columns(rig, dv, d_want, &at, at.v, kv_width, tolerance, "attention dv");
    if (tokens == 1) /* one key: the score has no influence at all, and d_o·v − Σ d_o·o leaves only rounding */
        return;
    near_columns(rig, dq, d_want, &at, 0, output, tolerance, "attention dq");
    near_columns(rig, dk, d_want, &at, at.k, kv_width, tolerance, "attention dk");
}

static void attention_each(struct rig *rig)
{
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
        for (int half = 0; half < 2; half++)
            attention_case(rig, n, half);
}

static void test_attention(void **state)
{
    (void)state;
    rig_each(attention_each);
}

/* The past does not see the future: changing later positions changes no bit of earlier outputs. */
static void causal(struct rig *rig, bool half)
{
    int64_t tokens = 150, cut = 90, d = 16, stride = 3 * d;
    float *x = rig_noise(rig, tokens * stride, 1, 1), *o = rig_floats(rig, tokens * d), *log_sum = rig_floats(rig, tokens);
    rig->ops->attention_forward(rig->device, o, log_sum, x, x + d, x + 2 * d, 1, tokens, 1, 1, d, stride, stride, NULL, half);
    float *before = rig_copy(rig, o, tokens * d);
    numbers_noise(x + cut * stride, (tokens - cut) * stride, 2, 5);
    rig->ops->attention_forward(rig->device, o, log_sum, x, x + d, x + 2 * d, 1, tokens, 1, 1, d, stride, stride, NULL, half);
    numbers_same(o, before, cut * d * 4, "outputs of the past (%s)", rig->label);
    assert_true(memcmp(o + cut * d, before + cut * d, (size_t)((tokens - cut) * d) * 4) != 0);
}

static void causal_each(struct rig *rig)
{
    causal(rig, false);
    causal(rig, true);
}

static void test_causal(void **state)
{
    (void)state;
    rig_each(causal_each);
}

/* Large scores must not overflow, and a NaN must reach the output of its query. */
static void extreme(struct rig *rig, bool half)
{
    int64_t tokens = 70, d = 4, stride = 3 * d;
    float *x = rig_noise(rig, tokens * stride, 1, 100), *o = rig_floats(rig, tokens * d), *log_sum = rig_floats(rig, tokens);
    rig->ops->attention_forward(rig->device, o, log_sum, x, x + d, x + 2 * d, 1, tokens, 1, 1, d, stride, stride, NULL, half);
    assert_true(rig->ops->all_finite(rig->device, o, tokens * d) && rig->ops->all_finite(rig->device, log_sum, tokens));
    x[66 * stride] = NAN;
    rig->ops->attention_forward(rig->device, o, log_sum, x, x + d, x + 2 * d, 1, tokens, 1, 1, d, stride, stride, NULL, half);
    for (int64_t t = 0; t < tokens; t++)
        assert_int_equal(isnan(o[t * d]) != 0, t == 66);
}

static void extreme_each(struct rig *rig)
{
    extreme(rig, false);
    extreme(rig, true);
}

static void test_extreme(void **state)
{
    (void)state;
    rig_each(extreme_each);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_attention), cmocka_unit_test(test_causal),
                                       cmocka_unit_test(test_extreme)};
    cmocka_set_message_output(CM_OUTPUT_STDOUT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
