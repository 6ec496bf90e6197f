/*
 * The mathematics of boundary statistics against what is known in closed form: ridge regression, residuals, eigenvectors
 * (whole spectra and
 * a few of many, with and without gaps), the deal of bits, the bound of rate and distortion.
 */
#include "gpu/math/statistics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/mem.h"
#include "tests/helpers/dice.h"

static double uniform(struct dice *dice)
{
    return (double)dice_below(dice, 2000001) / 1000000 - 1;
}

static void fill(struct dice *dice, double *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = uniform(dice);
}

/* ---- regression ---- */

static void a_system_is_solved(void **state)
{
    (void)state;
    struct dice dice = {1};
    enum { N = 23, M = 5, R = 40 };
    double f[R * N], a[N * N], b[N * M], x[N * M], copy[N * N];
    fill(&dice, f, R * N);
    fill(&dice, x, N * M);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            a[i * N + j] = i == j ? 0.01 : 0;
            for (int r = 0; r < R; r++)
                a[i * N + j] += f[r * N + i] * f[r * N + j];
        }
    memcpy(copy, a, sizeof a);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < M; j++) {
            b[i * M + j] = 0;
            for (int k = 0; k < N; k++)
                b[i * M + j] += a[i * N + k] * x[k * M + j];
        }
    assert_int_equal(statistics_solve(a, b, N, M), 0);
    for (int i = 0; i < N * M; i++)
        assert_true(fabs(b[i] - x[i]) < 1e-9);
    copy[3 * N + 3] = -1; /* not positive definite */
    assert_int_equal(statistics_solve(copy, b, N, M), ERR_INVALID);
    copy[3 * N + 3] = NAN;
    assert_int_equal(statistics_solve(copy, b, N, M), ERR_INVALID);
}

/* Of an exact linear relation nothing is left, of noise its covariance; for any B it is Σ (x − Bᵀf)(x − Bᵀf)ᵀ. */
static void a_residual_is_what_is_left(void **state)
{
    (void)state;
    struct dice dice = {2};
    enum { N = 7, W = 6, R = 50 };
    double f[R * N], x[R * W], ff[N * N] = {0}, fx[N * W] = {0}, xx[W * W] = {0}, out[W * W], real[W * W] = {0};
    float b[N * W];
    fill(&dice, f, R * N);
    fill(&dice, x, R * W);
    for (int i = 0; i < N * W; i++)
        b[i] = (float)uniform(&dice);
    for (int r = 0; r < R; r++) {
        double e[W];
        for (int j = 0; j < W; j++) {
            e[j] = x[r * W + j];
            for (int k = 0; k < N; k++)
                e[j] -= (double)b[k * W + j] * f[r * N + k];
        }
        for (int i = 0; i < W; i++)
            for (int j = 0; j < W; j++) {
                real[i * W + j] += e[i] * e[j];
                xx[i * W + j] += x[r * W + i] * x[r * W + j];
            }
        for (int i = 0; i < N; i++) {
            for (int j = 0; j < N; j++)
                ff[i * N + j] += f[r * N + i] * f[r * N + j];
            for (int j = 0; j < W; j++)
                fx[i * W + j] += f[r * N + i] * x[r * W + j];
        }
    }
    statistics_residual(out, xx, ff, fx, b, N, W);
    for (int i = 0; i < W * W; i++) {
        assert_true(fabs(out[i] - real[i]) < 1e-9);
        assert_true(out[i] >= out[i % W * W + i / W] && out[i] <= out[i % W * W + i / W]);
    }
    statistics_residual(out, xx, NULL, NULL, NULL, 0, W); /* no reference */
    assert_memory_equal(out, xx, sizeof xx);
}

/* ---- eigenvectors ---- */

static double product(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

/* A matrix with these eigenvalues in random directions: reflections of a diagonal one. */
static void with_spectrum(struct dice *dice, const double *values, int64_t n, double *a)
{
    double *v = mem_array((size_t)n, sizeof *v), *w = mem_array((size_t)n, sizeof *w);
    memset(a, 0, (size_t)(n * n) * sizeof *a);
    for (int64_t i = 0; i < n; i++)
        a[i * n + i] = values[i];
    for (int round = 0; round < 5; round++) {
        fill(dice, v, n);
        double scale = 2 / product(v, v, n);
        for (int side = 0; side < 2; side++) { /* A ← H·A, transposed: twice is H·A·H */
            for (int64_t i = 0; i < n; i++)
                w[i] = scale * product(a + i * n, v, n);
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < n; j++)
                    a[i * n + j] -= w[i] * v[j];
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < i; j++) {
                    double kept = a[i * n + j];
                    a[i * n + j] = a[j * n + i];
                    a[j * n + i] = kept;
                }
        }
    }
    mem_free(v);
    mem_free(w);
}

/* Largest relative error of values, of A·v = λ·v, of orthonormality. */
static double check(const double *a, const double *wanted, int64_t n, int64_t count, double *of_values, double *of_frame)
{
    double *values = mem_array((size_t)count, sizeof *values), *vectors = mem_array((size_t)(count * n), sizeof *vectors),
        worst = 0;
    assert_int_equal(statistics_eigen(a, n, count, values, vectors), 0);
    *of_values = *of_frame = 0;
    for (int64_t i = 0; i < count; i++) {
        const double *v = vectors + i * n;
        double error = fabs(values[i] - wanted[i]) / wanted[0], left = 0, largest = 0;
        *of_values = error > *of_values ? error : *of_values;
        for (int64_t r = 0; r < n; r++) {
            left += pow(product(a + r * n, v, n) - values[i] * v[r], 2);
            largest = fabs(v[r]) > fabs(largest) ? v[r] : largest;
        }
        worst = sqrt(left) / wanted[0] > worst ? sqrt(left) / wanted[0] : worst;
        assert_true(largest > 0);
        assert_true(i == 0 || values[i] <= values[i - 1]);
        for (int64_t k = 0; k <= i; k++) {
            double off = fabs(product(v, vectors + k * n, n) - (k == i));
            *of_frame = off > *of_frame ? off : *of_frame;
        }
    }
    mem_free(values);
    mem_free(vectors);
    return worst;
}

static void whole_spectra(void **state)
{
    (void)state;
    struct dice dice = {3};
    static const int64_t sizes[] = {1, 2, 3, 5, 17, 64, 96};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int kind = 0; kind < 3; kind++) {
            int64_t n = sizes[s];
            double *a = mem_array((size_t)(n * n), sizeof *a), *values = mem_array((size_t)n, sizeof *values), of_values,
                frame;
            for (int64_t i = 0; i < n; i++)
                values[i] = kind == 0   ? pow((double)(i + 1), -1.5)
                            : kind == 1 ? (i < n / 2 ? 2.0 : 1.0) /* two eigenvalues, many times each */
                                        : (i < 3 ? 1.0 / (double)(i + 1) : 0.0);
            with_spectrum(&dice, values, n, a);
            double worst = check(a, values, n, n, &of_values, &frame);
            if (worst > 1e-13 || of_values > 1e-13 || frame > 1e-13)
                fail_msg("n %d, kind %d: residual %g, values %g, frame %g", (int)n, kind, worst, of_values, frame);
            mem_free(a);
            mem_free(values);
        }
}

/* Where there is a gap after the last one asked for, subspace iteration finds the very ones; in a slowly falling spectrum
 * it finds a frame
 * that holds nearly as much. */
static void a_few_of_many(void **state)
{
    (void)state;
    struct dice dice = {4};
    enum { N = 150, K = 20 };
    double *a = mem_array(N * N, sizeof *a), values[N], of_values, frame, found[K], sum = 0, most = 0;
    double *vectors = mem_array(K * N, sizeof *vectors);
    for (int i = 0; i < N; i++)
        values[i] = i < K ? 1.0 - 0.02 * i : 0.01 * pow(0.97, i);
    with_spectrum(&dice, values, N, a);
    double worst = check(a, values, N, K, &of_values, &frame);
    if (worst > 1e-9 || of_values > 1e-12 || frame > 1e-12)
        fail_msg("with a gap: residual %g, values %g, frame %g", worst, of_values, frame);
    for (int i = 0; i < N; i++)
        values[i] = pow((double)(i + 1), -0.7);
    with_spectrum(&dice, values, N, a);
    assert_int_equal(statistics_eigen(a, N, K, found, vectors), 0);
    for (int i = 0; i < K; i++) {
        sum += found[i];
        most += values[i];
    }
    if (sum < 0.995 * most || sum > most * (1 + 1e-12))
        fail_msg("without a gap the subspace holds %.5f of what is possible", sum / most);
    a[5] = INFINITY;
    assert_int_equal(statistics_eigen(a, N, K, found, vectors), ERR_INVALID);
    mem_free(a);
    mem_free(vectors);
}

/* ---- bits ---- */

/* aᵀ·a + I for a random a. */
static void positive(struct dice *dice, int64_t n, double *out)
{
    double *a = mem_array((size_t)(n * n), sizeof *a);
    fill(dice, a, n * n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            out[i * n + j] = i == j;
            for (int64_t k = 0; k < n; k++)
                out[i * n + j] += a[k * n + i] * a[k * n + j];
        }
    mem_free(a);
}

/* For x of covariance S: what is left without the last coefficients, e = Σ_{i ≥ count} y_i·u_i, costs E[eᵀWe], the sum of their values. */
static void a_weighed_error_is_the_values_that_are_left(void **state)
{
    (void)state;
    enum { N = 24, COUNT = 9 };
    struct dice dice = {23};
    double s[N * N], w[N * N], covariance[N * N], lower[N * N], values[N], u[N * N], v[N * N], left = 0, cost = 0, largest = 0;
    positive(&dice, N, s);
    positive(&dice, N, w);
    memcpy(covariance, s, sizeof s);
    memcpy(lower, w, sizeof w);
    assert_int_equal(statistics_weigh(covariance, lower, N), 0);
    assert_int_equal(statistics_eigen(covariance, N, N, values, u), 0);
    statistics_unweigh(lower, N, N, u, v);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            largest = fmax(largest, fabs(product(v + i * N, u + j * N, N) - (i == j)));
    assert_true(largest < 1e-9);
    for (int i = COUNT; i < N; i++)
        left += values[i];
    for (int i = COUNT; i < N; i++)
        for (int j = COUNT; j < N; j++) { /* E[y_i·y_j] · u_iᵀW u_j */
            double together = 0, weighed = 0;
            for (int k = 0; k < N; k++) {
                together += v[i * N + k] * product(s + k * N, v + j * N, N);
                weighed += u[i * N + k] * product(w + k * N, u + j * N, N);
            }
            cost += together * weighed;
        }
    assert_true(fabs(cost - left) < 1e-9 * left);
    w[0] = -1;
    assert_int_equal(statistics_weigh(covariance, w, N), ERR_INVALID);
}

static void bits_go_where_the_error_is_largest(void **state)
{
    (void)state;
    static const float values[] = {64, 16, 4, 1, 0.9f};
    static const struct {
        int64_t budget, dealt;
        int most;
        uint8_t bits[5];
    } cases[] = {
        {0, 0, 8, {0}},         {1, 1, 8, {1}},          {2, 2, 8, {2}},
        {3, 3, 8, {2, 1}},      {6, 6, 8, {3, 2, 1}},    {10, 10, 8, {4, 3, 2, 1}},
        {11, 11, 8, {4, 3, 2, 1, 1}}, {6, 6, 2, {2, 2, 2}}, {99, 10, 2, {2, 2, 2, 2, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t bits[5];
        assert_int_equal(statistics_deal(values, 5, cases[i].budget, cases[i].most, bits), cases[i].dealt);
        assert_memory_equal(bits, cases[i].bits, sizeof bits);
    }
}

static void the_bound_is_that_of_the_textbook(void **state)
{
    (void)state;
    static const double equal[] = {3, 3, 3, 3}, uneven[] = {16, 4, 1};
    assert_true(fabs(statistics_bound(equal, 4, 0) - 12) < 1e-9);
    assert_true(fabs(statistics_bound(equal, 4, 8) - 12.0 / 16) < 1e-9);   /* 2 bits each: variance / 16 */
    assert_true(fabs(statistics_bound(uneven, 3, 1) - (4 + 4 + 1)) < 1e-9); /* water level 4 */
    assert_true(fabs(statistics_bound(uneven, 3, 3) - 3) < 1e-9);           /* water level 1 */
    assert_true(fabs(statistics_bound(uneven, 3, 6) - 0.75) < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_system_is_solved),
        cmocka_unit_test(a_residual_is_what_is_left),
        cmocka_unit_test(whole_spectra),
        cmocka_unit_test(a_few_of_many),
        cmocka_unit_test(a_weighed_error_is_the_values_that_are_left),
        cmocka_unit_test(bits_go_where_the_error_is_largest),
        cmocka_unit_test(the_bound_is_that_of_the_textbook),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
