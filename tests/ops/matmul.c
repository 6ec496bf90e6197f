/* Matrix products, of fp32, bf16 and both, against the judge: every combination of transposes, row strides wider than the rows, accumulation, odd
 * sizes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/helpers/numbers.h"
#include "tests/helpers/reference.h"
#include "tests/helpers/rig.h"

static const struct {
    int64_t m, n, k, gap; /* gap: unused elements at the end of each row */
} shapes[] = {
    {1, 1, 1, 0},    {1, 17, 5, 3},    {13, 1, 64, 0},    {7, 9, 1, 2},
    {64, 64, 64, 0}, {33, 65, 129, 5}, {128, 48, 300, 0}, {5, 260, 31, 1},
    {200, 96, 70, 0}, {3, 700, 900, 2}, /* large enough for primitives; more bf16 than is made fp32 at a time */
    {66, 40, 530, 3}, {16, 310, 75, 0}, /* several blocks of depth of the matrix unit; tiles that hang over on all sides */
};

/* What an operand in bf16 is: the words, and `x` itself becomes what they say. */
static uint16_t *words_of(struct rig *rig, float *x, int64_t count)
{
    uint16_t *words = rig_take(rig, count * (int64_t)sizeof *words);
    rig->ops->halve(rig->device, words, x, count);
    rig->ops->widen(rig->device, x, words, count);
    return words;
}

enum product { FLOATS, WORDS, HALF };

static void matmul_case(struct rig *rig, int64_t m, int64_t n, int64_t k, int64_t gap, int flags, enum product product)
{
    static const char *const names[] = {"matmul", "matmul_words", "matmul_half"};
    bool transpose_a = flags & 1, transpose_b = flags & 2, accumulate = flags & 4;
    int64_t lda = (transpose_a ? m : k) + gap, ldb = (transpose_b ? k : n) + gap, ldc = n + gap;
    int64_t a_count = lda * (transpose_a ? k : m), b_count = ldb * (transpose_b ? n : k), c_count = ldc * m;
    float *a = rig_noise(rig, a_count, 1, 1), *x = rig_noise(rig, b_count, 2, 1), *c = rig_noise(rig, c_count, 3, 1);
    const uint16_t *a_words = product == HALF ? words_of(rig, a, a_count) : NULL;
    const uint16_t *x_words = product != FLOATS ? words_of(rig, x, b_count) : NULL;
    double *want = rig_wide(rig, c, c_count), *sizes = rig_doubles(rig, c_count);
    if (!accumulate) /* what was there before must not matter, whatever it was */
        for (int64_t i = 0; i < m; i++)
            c[i * ldc] = NAN;
    reference_matmul(want, sizes, rig_wide(rig, a, a_count), rig_wide(rig, x, b_count), m, n, k, lda, ldb, ldc, transpose_a,
                     transpose_b, accumulate);
    if (product == FLOATS)
        rig->ops->matmul(rig->device, c, a, x, m, n, k, lda, ldb, ldc, transpose_a, transpose_b, accumulate);
    else if (product == WORDS)
        rig->ops->matmul_words(rig->device, c, a, x_words, m, n, k, lda, ldb, ldc, transpose_a, transpose_b, accumulate);
    else
        rig->ops->matmul_half(rig->device, c, a_words, x_words, m, n, k, lda, ldb, ldc, transpose_a, transpose_b, accumulate);
    double tolerance = 2 * NUMBERS_EPS * sqrt((double)k);
    numbers_near(c, want, c_count, tolerance, "%s %lld×%lld×%lld flags %d (%s)", names[product], (long long)m,
                 (long long)n, (long long)k, flags, rig->label);
    for (int64_t i = 0; i < c_count; i++)
        if (!(fabs((double)c[i] - want[i]) <= tolerance * sizes[i]))
            fail_msg("%s %lld×%lld×%lld flags %d (%s), element %lld: error %.3g, tolerance %.3g", names[product],
                     (long long)m, (long long)n, (long long)k, flags, rig->label, (long long)i, fabs((double)c[i] - want[i]),
                     tolerance * sizes[i]);
}

static void matmul_each(struct rig *rig)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int flags = 0; flags < 8; flags++)
            for (int product = FLOATS; product <= HALF; product++)
                matmul_case(rig, shapes[i].m, shapes[i].n, shapes[i].k, shapes[i].gap, flags, (enum product)product);
}

static void test_matmul(void **state)
{
    (void)state;
    rig_each(matmul_each);
}

/* A sum of nothing is zero, and a product without rows touches nothing. */
static void empty_each(struct rig *rig)
{
    float *c = rig_noise(rig, 6, 1, 1), *before = rig_copy(rig, c, 6), one = 1;
    rig->ops->matmul(rig->device, c, &one, &one, 2, 3, 0, 1, 3, 3, false, false, true);
    rig->ops->matmul(rig->device, c, &one, &one, 0, 3, 1, 1, 3, 3, false, false, false);
    rig->ops->matmul(rig->device, c, &one, &one, 2, 0, 1, 1, 3, 3, false, false, false);
    numbers_same(c, before, 6 * 4, "empty product");
    rig->ops->matmul(rig->device, c, &one, &one, 2, 2, 0, 1, 3, 3, false, false, false);
    before[0] = before[1] = before[3] = before[4] = 0;
    numbers_same(c, before, 6 * 4, "empty sum");
}

static void test_empty(void **state)
{
    (void)state;
    rig_each(empty_each);
}

/* Non-finite values are news and must come through. */
static void non_finite_each(struct rig *rig)
{
    float a[4] = {1, NAN, 1, 1}, x[4] = {1, 1, 1, INFINITY}, c[4];
    rig->ops->matmul(rig->device, c, a, x, 2, 2, 2, 2, 2, 2, false, false, false);
    assert_true(isnan(c[0]) && isnan(c[1]) && c[2] == 2 && isinf(c[3]));
}

static void test_non_finite(void **state)
{
    (void)state;
    rig_each(non_finite_each);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_matmul), cmocka_unit_test(test_empty),
                                       cmocka_unit_test(test_non_finite)};
    cmocka_set_message_output(CM_OUTPUT_STDOUT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
