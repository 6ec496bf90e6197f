/*
 * Spectral correction: the published form on stored matrices that LAPACK filtered; the limits of every filter; meters
 * against plain sums; two halves tell signal from noise; NaN leaves no trace.
 */
#include "gpu/math/filter.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/math/subspace.h"
#include "ssh/base/mem.h"
#include "tests/helpers/backend.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/numbers.h"

static struct backend cpu;

/* A filter of one matrix with everything on the device. */
struct bench {
    int64_t m, n;
    struct filter_settings settings;
    struct filter *filter;
    struct filter_state *state;
    struct filter_basis basis;
    float *left, *right, *singular;
};

static struct bench bench_open(int kind, int64_t m, int64_t n, int64_t rank)
{
    struct bench b = {.m = m, .n = n, .settings = {.kind = kind, .scale = FILTER_ABSOLUTE, .tau = 1e-3, .rank = rank}};
    struct why why = {0};
    b.filter = filter_new(cpu.ops, cpu.device, &b.settings, m, n, &why);
    assert_non_null(b.filter);
    b.state = filter_state_new(b.filter, m, n);
    return b;
}

static void bench_reopen(struct bench *b)
{
    struct why why = {0};
    filter_state_free(b->state);
    filter_free(b->filter);
    b->filter = filter_new(cpu.ops, cpu.device, &b->settings, b->m, b->n, &why);
    b->state = filter_state_new(b->filter, b->m, b->n);
}

static void bench_drop_basis(struct bench *b)
{
    if (b->left) {
        cpu.ops->free(cpu.device, b->left);
        cpu.ops->free(cpu.device, b->right);
        mem_free(b->singular);
    }
    b->left = b->right = b->singular = NULL;
    b->basis = (struct filter_basis){0};
}

static void bench_close(struct bench *b)
{
    bench_drop_basis(b);
    filter_state_free(b->state);
    filter_free(b->filter);
}

/* The basis of an anchor gradient, as the anchor makes it. */
static void bench_anchor(struct bench *b, const float *anchor)
{
    int64_t rank = b->settings.rank, width = subspace_width(b->m, b->n, rank);
    struct why why = {0};
    struct subspace *subspace = subspace_new(cpu.ops, cpu.device, b->m, b->n, rank, &why);
    float *matrix = backend_tensor(&cpu, anchor, b->m * b->n), *start = mem_array((size_t)(b->n * width), 4);
    float *left = mem_array((size_t)(b->m * rank), 4), *right = mem_array((size_t)(b->n * rank), 4);
    bench_drop_basis(b);
    b->singular = mem_array((size_t)rank, 4);
    subspace_find(subspace, matrix, b->m, b->n, rank, 12, 1, start, &(struct subspace_result){left, right, b->singular});
    b->left = backend_tensor(&cpu, left, b->m * rank);
    b->right = backend_tensor(&cpu, right, b->n * rank);
    b->basis = (struct filter_basis){.rank = rank, .left = b->left, .right = b->right, .singular = b->singular, .energy =
                                     cpu.ops->sum_squares(cpu.device, matrix, b->m * b->n)};
    cpu.ops->free(cpu.device, matrix);
    subspace_free(subspace);
    mem_free(start);
    mem_free(left);
    mem_free(right);
}

static struct filter_meters apply(struct bench *b, const float *gradient, const float *half, double mix, float *out)
{
    int64_t count = b->m * b->n;
    float *g = backend_tensor(&cpu, gradient, count), *h = backend_tensor(&cpu, half, count);
    struct filter_meters meters;
    /* The half is lost: the output goes there, as in training. */
    filter_apply(b->filter, b->state, b->basis.rank || b->basis.whole ? &b->basis : NULL, g, half ? h : NULL, mix, h, &meters);
    backend_get(&cpu, out, h, count);
    cpu.ops->free(cpu.device, g);
    cpu.ops->free(cpu.device, h);
    return meters;
}

static double square(const float *a, const float *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += pow((double)a[i] - (b ? (double)b[i] : 0), 2);
    return sum;
}

static const char *const golden_names[] = {"wide", "tall", "square"};

static void read_golden(const char *name, const char *what, struct golden *golden)
{
    char key[40];
    snprintf(key, sizeof key, "%s.%s", name, what);
    golden_read("tests/ops/fixtures/filter.txt", key, golden);
}

/* ⟨Ĝ, Ĝ − plain·G⟩: what of ‖Ĝ‖² is not of the plain gradient. */
static double of_the_filter(const float *out, const float *g, int64_t count, double plain)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)out[i] * ((double)out[i] - plain * (double)g[i]);
    return sum;
}

static void the_published_form(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct golden anchor, gradient, corrected;
        read_golden(golden_names[i], "anchor", &anchor);
        read_golden(golden_names[i], "gradient", &gradient);
        read_golden(golden_names[i], "corrected", &corrected);
        int64_t m = anchor.rows, n = anchor.columns;
        struct bench b = bench_open(FILTER_TIKHONOV, m, n, m < n ? m : n);
        float *a = golden_floats(&anchor), *g = golden_floats(&gradient), *out = mem_array((size_t)(m * n), 4);
        bench_anchor(&b, a);
        struct filter_meters meters = apply(&b, g, NULL, 0.7, out);
        numbers_near(out, corrected.values, m * n, 2e-5, "%s", golden_names[i]);
        assert_true(fabs(meters.changed - of_the_filter(out, g, m * n, 0.3)) < 1e-4 * meters.gradient);
        assert_true(meters.changed > 0 && meters.changed < meters.corrected);
        assert_true(fabs(meters.corrected - square(out, NULL, m * n)) < 1e-5 * meters.gradient);
        bench_close(&b);
        mem_free(a);
        mem_free(g);
        mem_free(out);
        golden_free(&anchor);
        golden_free(&gradient);
        golden_free(&corrected);
    }
}

/* The same matrices by the formula of LAPACK's directions: each by itself, and the anchor's gradient alone. */
static void of_each_direction_by_itself(void **state)
{
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        struct golden anchor, gradient, wanted;
        read_golden(golden_names[i / 2], "anchor", &anchor);
        read_golden(golden_names[i / 2], "gradient", &gradient);
        read_golden(golden_names[i / 2], i % 2 ? "replaced" : "aligned", &wanted);
        int64_t m = anchor.rows, n = anchor.columns;
        struct bench b = bench_open(i % 2 ? FILTER_GRADIENT : FILTER_ALIGN, m, n, m < n ? m : n);
        b.settings.scale = FILTER_SPECTRUM;
        b.settings.tau = 0.55;
        bench_reopen(&b);
        float *a = golden_floats(&anchor), *g = golden_floats(&gradient), *out = mem_array((size_t)(m * n), 4);
        bench_anchor(&b, a);
        struct filter_meters meters = apply(&b, g, NULL, i % 2 ? 0.2 : 0.7, out);
        numbers_near(out, wanted.values, m * n, 2e-5, "%s", golden_names[i / 2]);
        assert_true(fabs(meters.changed - of_the_filter(out, g, m * n, i % 2 ? 0.8 : 0.3)) < 1e-4 * meters.gradient);
        if (i % 2) { /* the same when it came whole */
            float *matrix = backend_tensor(&cpu, a, m * n);
            bench_drop_basis(&b);
            b.basis = (struct filter_basis){.whole = matrix, .energy = square(a, NULL, m * n)};
            struct filter_meters again = apply(&b, g, NULL, 0.2, out);
            numbers_near(out, wanted.values, m * n, 2e-5, "%s, whole", golden_names[i / 2]);
            assert_true(fabs(again.aligned - meters.aligned) < 1e-5 * sqrt(meters.gradient * meters.anchor));
            assert_true(fabs(again.changed - meters.changed) < 1e-4 * meters.gradient);
            cpu.ops->free(cpu.device, matrix);
        }
        bench_close(&b);
        mem_free(a);
        mem_free(g);
        mem_free(out);
        golden_free(&anchor);
        golden_free(&gradient);
        golden_free(&wanted);
    }
}

enum { M = 24, N = 40, CELLS = M * N };

/* mix 0, no anchor, an anchor of zeros: bit for bit, negative zeros too. */
static void identities_bit_for_bit(void **state)
{
    (void)state;
    float g[CELLS], a[CELLS], half[CELLS], out[CELLS], zero[CELLS] = {0};
    numbers_noise(g, CELLS, 1, 1);
    numbers_noise(a, CELLS, 2, 1);
    numbers_noise(half, CELLS, 3, 1);
    g[5] = -0.0f;
    for (int kind = FILTER_NONE; kind <= FILTER_GRADIENT; kind++) {
        struct bench b = bench_open(kind, M, N, 8);
        if (kind != FILTER_SHRINK) {
            apply(&b, g, half, 1, out);
            numbers_same(out, g, sizeof g, "filter %d without an anchor", kind);
            bench_anchor(&b, zero);
            apply(&b, g, half, 1, out);
            numbers_same(out, g, sizeof g, "filter %d with an anchor of zeros", kind);
        }
        bench_anchor(&b, a);
        apply(&b, g, half, 0, out);
        numbers_same(out, g, sizeof g, "filter %d, mix 0", kind);
        bench_close(&b);
    }
}

static void perfect_and_orthogonal_anchors(void **state)
{
    (void)state;
    float g[CELLS] = {0}, a[CELLS] = {0}, half[CELLS], out[CELLS];
    for (int i = 0; i < CELLS; i++) { /* rank 2; the anchor lies in other rows and columns */
        g[i] = i / N < 6 && i % N < 10 ? (float)((i / N + 1) * (i % N - 3) + (i / N % 2)) / 50 : 0;
        a[i] = i / N >= 12 && i % N >= 20 ? (float)((i / N) * (i % N - 30) + 1) / 50 : 0;
        half[i] = g[i] / 2;
    }
    for (int kind = FILTER_TIKHONOV; kind <= FILTER_WIENER; kind++) {
        struct bench b = bench_open(kind, M, N, 2);
        b.settings.tau = 1e-7;
        bench_reopen(&b);
        bench_anchor(&b, g);
        struct filter_meters meters = apply(&b, g, half, 1, out);
        assert_true(square(out, g, CELLS) < 1e-7 * meters.gradient);
        assert_true(fabs(meters.aligned * meters.aligned / (meters.gradient * meters.anchor) - 1) < 1e-4);
        assert_true(fabs(meters.inside / meters.gradient - 1) < 1e-4);
        bench_anchor(&b, a);
        bench_reopen(&b);
        meters = apply(&b, g, half, 1, out);
        assert_true(fabs(meters.aligned) < 1e-4 * sqrt(meters.gradient * meters.anchor) &&
                    meters.inside < 1e-6 * meters.gradient);
        if (kind == FILTER_TIKHONOV) /* nothing of it passes, */
            assert_true(square(out, NULL, CELLS) < 1e-6 * meters.gradient);
        else /* or all: the halves agree outside of the basis */
            assert_true(square(out, g, CELLS) < 1e-5 * meters.gradient);
        bench_close(&b);
    }
}

static void vectors_and_one_direction(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 9}, {9, 1}, {1, 1}};
    for (size_t i = 0; i < 3; i++)
        for (int kind = FILTER_TIKHONOV; kind <= FILTER_GRADIENT; kind++) {
            float g[9], half[9], out[9];
            numbers_noise(g, 9, 4, 1);
            for (int j = 0; j < 9; j++)
                half[j] = g[j] / 2;
            struct bench b = bench_open(kind, shapes[i][0], shapes[i][1], 1);
            b.settings.tau = 1e-9;
            bench_reopen(&b);
            bench_anchor(&b, g);
            apply(&b, g, half, 1, out);
            assert_true(square(out, g, shapes[i][0] * shapes[i][1]) < 1e-9 * square(g, NULL, 9));
            bench_close(&b);
        }
}

/* Linear filters with one basis commute with averaging. */
static void averaging_before_or_after(void **state)
{
    (void)state;
    float g[2][CELLS], mean[CELLS], a[CELLS], out[2][CELLS], after[CELLS];
    double want[CELLS];
    numbers_noise(a, CELLS, 9, 1);
    for (int i = 0; i < 2; i++)
        numbers_noise(g[i], CELLS, 20 + (uint64_t)i, 1);
    struct bench b = bench_open(FILTER_TIKHONOV, M, N, 8);
    b.settings.scale = FILTER_SPECTRUM;
    b.settings.tau = 2;
    bench_reopen(&b);
    bench_anchor(&b, a);
    for (int i = 0; i < CELLS; i++)
        mean[i] = (g[0][i] + g[1][i]) / 2;
    apply(&b, g[0], NULL, 0.7, out[0]);
    apply(&b, g[1], NULL, 0.7, out[1]);
    apply(&b, mean, NULL, 0.7, after);
    for (int i = 0; i < CELLS; i++)
        want[i] = ((double)out[0][i] + (double)out[1][i]) / 2;
    numbers_near(after, want, CELLS, 1e-5, "averaged");
    bench_close(&b);
}

static double cosine(const float *a, const float *b)
{
    double ab = 0;
    for (int i = 0; i < CELLS; i++)
        ab += (double)a[i] * (double)b[i];
    return ab / sqrt(square(a, NULL, CELLS) * square(b, NULL, CELLS));
}

/* A rank-3 signal under noise of three times its norm, with an anchor that is only partly right: each filter points closer
 * to the signal than the raw gradient does; what the halves say of signal and noise is right within sampling. */
static void noise_is_taken_out(void **state)
{
    (void)state;
    float signal[CELLS], noise[2][CELLS], anchor[CELLS], g[CELLS], half[CELLS], out[CELLS];
    for (int i = 0; i < CELLS; i++) {
        double r = i / N, c = i % N;
        signal[i] = (float)(sin(r / 3) * cos(c / 5) + 0.5 * cos(r / 2) * sin(c / 3) + 0.2 * (r / M) * (c / N));
    }
    double norm = sqrt(square(signal, NULL, CELLS)), deviation = 3 * norm / sqrt(CELLS) / sqrt(2);
    numbers_noise(anchor, CELLS, 31, 0.3 * norm / sqrt(CELLS));
    for (int i = 0; i < CELLS; i++)
        anchor[i] += signal[i];
    for (int kind = FILTER_TIKHONOV; kind <= FILTER_GRADIENT; kind++) {
        struct bench b = bench_open(kind, M, N, 8);
        b.settings.scale = FILTER_SPECTRUM;
        b.settings.tau = 5;
        bench_reopen(&b);
        bench_anchor(&b, anchor);
        double before = 0, after = 0, measured = 0;
        for (uint64_t step = 0; step < 20; step++) {
            for (uint64_t h = 0; h < 2; h++)
                numbers_noise(noise[h], CELLS, 100 + 2 * step + h, deviation * (kind == FILTER_SHRINK ? 0.3 : 1));
            for (int i = 0; i < CELLS; i++) {
                half[i] = signal[i] / 2 + noise[0][i];
                g[i] = half[i] + signal[i] / 2 + noise[1][i];
            }
            struct filter_meters meters = apply(&b, g, half, 1, out);
            before += cosine(g, signal) / 20;
            after += cosine(out, signal) / 20;
            measured += meters.noise / (square(g, NULL, CELLS) - square(signal, NULL, CELLS)) / 20;
        }
        assert_true(after > before + 0.05);
        if (kind == FILTER_WIENER)
            assert_true(after > 2 * before && fabs(measured - 1) < 0.1);
        bench_close(&b);
    }
}

static void norms_and_fading(void **state)
{
    (void)state;
    float g[CELLS], half[CELLS], a[CELLS], out[CELLS];
    numbers_noise(g, CELLS, 41, 1);
    numbers_noise(half, CELLS, 42, 0.7);
    numbers_noise(a, CELLS, 43, 1);
    struct bench b = bench_open(FILTER_TIKHONOV, M, N, 8);
    b.settings.norm = FILTER_NORM_GRADIENT;
    bench_reopen(&b);
    bench_anchor(&b, a);
    struct filter_meters meters = apply(&b, g, half, 0.5, out);
    assert_true(fabs(square(out, NULL, CELLS) / meters.gradient - 1) < 1e-4);
    assert_true(meters.changed > 0 && meters.changed < meters.corrected);
    b.settings.norm = FILTER_NORM_SIGNAL;
    bench_reopen(&b);
    assert_true(filter_needs_half(&b.settings));
    meters = apply(&b, g, half, 0.5, out);
    assert_true(fabs(square(out, NULL, CELLS) - meters.signal) < 1e-4 * meters.gradient);
    bench_close(&b);
    assert_true(filter_fade(0, 50) >= 1 && filter_fade(50, 50) >= 1 && filter_fade(100, 50) <= 0 &&
                filter_fade(1000, 50) <= 0);
    assert_true(fabs(filter_fade(75, 50) - 0.5) < 1e-12);
}

static void non_finite_leaves_no_trace(void **state)
{
    (void)state;
    float g[CELLS], half[CELLS], bad[CELLS], a[CELLS], out[CELLS], want[CELLS];
    numbers_noise(g, CELLS, 51, 1);
    numbers_noise(half, CELLS, 52, 0.7);
    numbers_noise(a, CELLS, 53, 1);
    memcpy(bad, g, sizeof g);
    bad[17] = NAN;
    for (int kind = FILTER_TIKHONOV; kind <= FILTER_GRADIENT; kind++) {
        struct bench b = bench_open(kind, M, N, 8);
        bench_anchor(&b, a);
        apply(&b, g, half, 0.7, want);
        bench_reopen(&b);
        apply(&b, bad, half, 0.7, out);
        assert_true(isnan(out[17]));
        apply(&b, g, half, 0.7, out);
        numbers_same(out, want, sizeof out, "filter %d after a NaN", kind);
        bench_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_form),
        cmocka_unit_test(of_each_direction_by_itself),
        cmocka_unit_test(identities_bit_for_bit),
        cmocka_unit_test(perfect_and_orthogonal_anchors),
        cmocka_unit_test(vectors_and_one_direction),
        cmocka_unit_test(averaging_before_or_after),
        cmocka_unit_test(noise_is_taken_out),
        cmocka_unit_test(norms_and_fading),
        cmocka_unit_test(non_finite_leaves_no_trace),
    };
    backend_open(&cpu, 1);
    cmocka_set_message_output(CM_OUTPUT_STDOUT);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    backend_close(&cpu);
    return failed;
}
