/*
 * Products of numbers that are hard: far apart in size, nearly cancelling, near the smallest, not finite. And what products in panels
 * promise beyond the op table: a row of the result has the same bits whatever the number of threads and the other rows are.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/helpers/dice.h"
#include "tests/helpers/numbers.h"
#include "tests/helpers/reference.h"
#include "tests/helpers/rig.h"

enum { M = 75, N = 93, K = 610 };
enum product { FLOATS, WORDS, HALF, PRODUCTS };

/* c[m,n] = a[m,k] · b[n,k]ᵀ; operands in bf16 are rounded first, in place. */
static void multiply(struct rig *rig, enum product product, float *c, float *a, float *b, int64_t m, int64_t n, int64_t k)
{
    const struct ops *ops = rig->ops;
    uint16_t *a_words = rig_take(rig, m * k * 2), *b_words = rig_take(rig, n * k * 2);
    if (product == HALF) {
        ops->halve(rig->device, a_words, a, m * k);
        ops->widen(rig->device, a, a_words, m * k);
    }
    if (product != FLOATS) {
        ops->halve(rig->device, b_words, b, n * k);
        ops->widen(rig->device, b, b_words, n * k);
    }
    if (product == FLOATS)
        ops->matmul(rig->device, c, a, b, m, n, k, k, k, n, false, true, false);
    else if (product == WORDS)
        ops->matmul_words(rig->device, c, a, b_words, m, n, k, k, k, n, false, true, false);
    else
        ops->matmul_half(rig->device, c, a_words, b_words, m, n, k, k, k, n, false, true, false);
}

/* Each element against fp64: within 2√k roundings of Σ|a||b|, and `least` for each product. Where
 * the judge is not finite, neither is c. */
static void judge(struct rig *rig, enum product product, float *a, float *b, double least, const char *what)
{
    float *c = rig_floats(rig, M * N);
    double *want = rig_doubles(rig, M * N), *sizes = rig_doubles(rig, M * N);
    multiply(rig, product, c, a, b, M, N, K);
    reference_matmul(want, sizes, rig_wide(rig, a, M * K), rig_wide(rig, b, N * K), M, N, K, K, K, N, false, true, false);
    for (int64_t i = 0; i < M * N; i++) {
        double error = fabs((double)c[i] - want[i]), most = 2 * NUMBERS_EPS * sqrt((double)K) * sizes[i] + (double)K * least;
        if (isfinite(want[i]) ? !(error <= most) : isfinite(c[i]))
            fail_msg("%s, product %d (%s): element %lld is %.9g instead of %.9g, more than %.3g away", what, product, rig->label,
                     (long long)i, (double)c[i], want[i], most);
    }
}

/* Normal numbers times 2^±spread. */
static float *spread_noise(struct rig *rig, int64_t count, uint64_t seed, int spread)
{
    float *x = rig_noise(rig, count, seed, 1);
    struct dice dice = {seed};
    for (int64_t i = 0; i < count; i++)
        x[i] = ldexpf(x[i], (int)dice_below(&dice, (uint64_t)(2 * spread + 1)) - spread);
    return x;
}

static void sizes_each(struct rig *rig)
{
    for (int product = FLOATS; product < PRODUCTS; product++) {
        judge(rig, (enum product)product, spread_noise(rig, M * K, 1, 40), spread_noise(rig, N * K, 2, 20), 0, "sizes far apart");
        float *a = rig_noise(rig, M * K, 3, 1), *b = rig_noise(rig, N * K, 4, 1);
        for (int64_t i = 0; i + 1 < M * K; i += 2)
            a[i + 1] = -a[i] * (1 + 0x1p-20f * (float)(i % 3));
        for (int64_t i = 0; i + 1 < N * K; i += 2)
            b[i + 1] = b[i];
        judge(rig, (enum product)product, a, b, 0, "cancellation");
        for (int64_t i = 0; i < M * K; i++) /* of three words each; a product of words that is left out is 64 roundings */
            a[i] = ldexpf(1 + 0x1p-9f + 0x1p-18f, (int)(i * 7 % 11));
        for (int64_t i = 0; i < N * K; i++)
            b[i] = ldexpf(1 + 0x1p-9f + 0x1p-18f, (int)(i * 5 % 13));
        judge(rig, (enum product)product, a, b, 0, "all words");
    }
}

static void sizes_far_apart(void **state)
{
    (void)state;
    rig_each(sizes_each);
}

static void smallest_each(struct rig *rig)
{
    for (int product = FLOATS; product < PRODUCTS; product++) {
        float *a = spread_noise(rig, M * K, 5, 24), *b = rig_noise(rig, N * K, 6, 1);
        double largest = 0;
        for (int64_t i = 0; i < M * K; i++)
            a[i] *= 0x1p-125f;
        for (int64_t i = 0; i < N * K; i++)
            largest = fabs((double)b[i]) > largest ? fabs((double)b[i]) : largest;
        judge(rig, (enum product)product, a, b, 0x1p-124 * (largest + 2), "denormals");
    }
}

static void smallest(void **state)
{
    (void)state;
    rig_each(smallest_each);
}

static void not_finite_each(struct rig *rig)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int product = FLOATS; product < PRODUCTS; product++) {
        float *a = rig_noise(rig, M * K, 7, 1), *b = rig_noise(rig, N * K, 8, 1);
        for (int64_t i = 0; i < 3; i++) {
            a[(20 * i + 3) * K + 200 * i] = bad[i];
            b[(30 * i + 5) * K + 100 * i + 7] = bad[i];
        }
        judge(rig, (enum product)product, a, b, 0, "not finite");
    }
}

static void not_finite(void **state)
{
    (void)state;
    rig_each(not_finite_each);
}

static bool is_slow(const char *isa)
{
    struct rig rig;
    rig_open(&rig, isa, 1);
    bool slow = rig.ops->half_is_slow(rig.device);
    rig_close(&rig);
    return slow;
}

/* All rows by one thread, and some of them by two. */
static void rows_meet(const char *isa, enum product product)
{
    enum { FIRST = 13, SOME = 40 };
    struct rig one, two;
    rig_open(&one, isa, 1);
    rig_open(&two, isa, 2);
    float *a = rig_noise(&one, M * K, 1, 1), *b = rig_noise(&one, N * K, 2, 1), *c = rig_floats(&one, M * N);
    float *some = rig_floats(&two, SOME * N);
    multiply(&one, product, c, a, b, M, N, K);
    multiply(&two, product, some, a + FIRST * K, b, SOME, N, K);
    numbers_same(some, c + FIRST * N, SOME * N * 4, "product %d of some rows, %s", product, isa);
    rig_close(&one);
    rig_close(&two);
}

/* Which products are made in panels: all on the matrix unit, those of bf16 where AVX-512 BF16 is slow. */
static void rows_do_not_meet(void **state)
{
    (void)state;
    const char *names[RIG_ISAS];
    bool tested = false;
    int count = rig_isas(names);
    for (int i = 0; i < count; i++)
        for (int product = FLOATS; product < PRODUCTS; product++)
            if (strcmp(names[i], "amx") == 0 || (strcmp(names[i], "avx512") == 0 && product == HALF && is_slow(names[i]))) {
                rows_meet(names[i], (enum product)product);
                tested = true;
            }
    if (!tested) {
        print_message("no products are made in panels here: whether their rows depend on each other is not tested\n");
        skip();
    }
}

/* More rows on both sides than are shared at a time. */
static void large(enum product product)
{
    enum { ROWS = 2065, COLUMNS = 2100, DEPTH = 16 };
    struct rig rig;
    rig_open(&rig, NULL, 2);
    float *a = rig_noise(&rig, ROWS * DEPTH, 1, 1), *b = rig_noise(&rig, COLUMNS * DEPTH, 2, 1);
    float *c = rig_floats(&rig, (int64_t)ROWS * COLUMNS);
    double *want = rig_doubles(&rig, (int64_t)ROWS * COLUMNS);
    multiply(&rig, product, c, a, b, ROWS, COLUMNS, DEPTH);
    reference_matmul(want, NULL, rig_wide(&rig, a, ROWS * DEPTH), rig_wide(&rig, b, COLUMNS * DEPTH), ROWS, COLUMNS, DEPTH, DEPTH,
                     DEPTH, COLUMNS, false, true, false);
    numbers_near(c, want, (int64_t)ROWS * COLUMNS, 2 * NUMBERS_EPS * sqrt(DEPTH), "a large product");
    rig_close(&rig);
}

static void large_each_way(void **state)
{
    (void)state;
    large(FLOATS);
    large(HALF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_far_apart), cmocka_unit_test(smallest), cmocka_unit_test(not_finite),
                                       cmocka_unit_test(rows_do_not_meet), cmocka_unit_test(large_each_way)};
    cmocka_set_message_output(CM_OUTPUT_STDOUT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
