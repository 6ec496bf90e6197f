/*
 * What is expected of the channels that a mask left out: the op against fp64, by another formula and another elimination; and MMSE
 * decoding of a Gaussian whose covariance is known, whose mean square error must be the conditional variance that theory says, from a
 * state that is given and from one that was measured.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/math/codec.h"
#include "gpu/math/half.h"
#include "gpu/math/mask.h"
#include "ssh/base/mem.h"
#include "tests/helpers/backend.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/numbers.h"
#include "tests/helpers/rig.h"

/* x ← a⁻¹·b by Gauss-Jordan elimination with pivots; both are used up. `columns` right sides, row by row. */
static void eliminate(double *a, double *b, int64_t n, int64_t columns)
{
    for (int64_t k = 0; k < n; k++) {
        int64_t best = k;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(a[i * n + k]) > fabs(a[best * n + k]))
                best = i;
        for (int64_t j = 0; j < n; j++) {
            double other = a[k * n + j];
            a[k * n + j] = a[best * n + j], a[best * n + j] = other;
        }
        for (int64_t j = 0; j < columns; j++) {
            double other = b[k * columns + j];
            b[k * columns + j] = b[best * columns + j], b[best * columns + j] = other;
        }
        for (int64_t i = 0; i < n; i++) {
            double factor = i == k ? 0 : a[i * n + k] / a[k * n + k];
            for (int64_t j = k; j < n && i != k; j++)
                a[i * n + j] -= factor * a[k * n + j];
            for (int64_t j = 0; j < columns && i != k; j++)
                b[i * columns + j] -= factor * b[k * columns + j];
        }
    }
    for (int64_t k = 0; k < n; k++)
        for (int64_t j = 0; j < columns; j++)
            b[k * columns + j] /= a[k * n + k];
}

/* ---- the op ---- */

struct law {
    const float *factors, *noise; /* [width, rank], [width] */
    int64_t rank, width;
};

static double covariance(const struct law *law, int64_t one, int64_t other)
{
    double sum = one == other ? (double)law->noise[one] : 0;
    for (int64_t r = 0; r < law->rank; r++)
        sum += (double)law->factors[one * law->rank + r] * (double)law->factors[other * law->rank + r];
    return sum;
}

static void plain_expect(double *z, const float *values, const uint16_t *channels, const struct law *law, int64_t keep)
{
    double *a = mem_array((size_t)(keep * keep), sizeof *a), *b = mem_array((size_t)keep, sizeof *b);
    for (int64_t i = 0; i < keep; i++) {
        b[i] = (double)values[i];
        for (int64_t j = 0; j < keep; j++)
            a[i * keep + j] = covariance(law, channels[i], channels[j]);
    }
    eliminate(a, b, keep, 1);
    for (int64_t r = 0; r < law->rank; r++) {
        z[r] = 0;
        for (int64_t i = 0; i < keep; i++)
            z[r] += (double)law->factors[channels[i] * law->rank + r] * b[i];
    }
    mem_free(a);
    mem_free(b);
}

static void check_op(struct rig *rig, int64_t rows, int64_t rank, int64_t width, int64_t keep)
{
    float *factors = rig_noise(rig, rank * width, 1, 1), *noise = rig_floats(rig, width), *values = rig_noise(rig, rows * keep, 2, 1),
          *z = rig_floats(rig, rows * rank);
    uint16_t *channels = rig_take(rig, 2 * rows * keep);
    double *want = rig_doubles(rig, rows * rank);
    struct mask_key key = {.seed = 3, .step = 4};
    for (int64_t c = 0; c < width; c++) { /* channels of very different size, and one of nothing but noise */
        float scale = c % 7 == 0 ? 300.0f : c % 5 == 0 ? 0.01f : 1.0f;
        for (int64_t r = 0; r < rank; r++)
            factors[c * rank + r] *= c == 2 ? 0 : scale / (float)(1 + r);
        noise[c] = scale * scale * (c % 3 ? 0x1p-14f : 0.5f);
    }
    rig->ops->mask_channels(rig->device, channels, &key, rows, width, keep, 0);
    rig->ops->mask_expect(rig->device, z, values, channels, factors, noise, rows, rank, width, keep);
    struct law law = {factors, noise, rank, width};
    for (int64_t r = 0; r < rows; r++)
        plain_expect(want + r * rank, values + r * keep, channels + r * keep, &law, keep);
    numbers_near(z, want, rows * rank, sqrt((double)rank) * NUMBERS_EPS, "rank %d, %d of %d channels (%s)", (int)rank, (int)keep, (int)width,
                 rig->label);
}

static void check_put(struct rig *rig)
{
    enum { PUT_ROWS = 3, PUT_WIDTH = 5, PUT_KEEP = 2 };
    static const uint16_t channels[PUT_ROWS * PUT_KEEP] = {0, 4, 1, 2, 1, 3};
    float *x = rig_noise(rig, PUT_ROWS * PUT_WIDTH, 4, 1), *values = rig_noise(rig, PUT_ROWS * PUT_KEEP, 5, 1),
          *want = rig_copy(rig, x, PUT_ROWS * PUT_WIDTH);
    for (int i = 0; i < PUT_ROWS * PUT_KEEP; i++)
        want[i / PUT_KEEP * PUT_WIDTH + channels[i]] = values[i];
    rig->ops->mask_put(rig->device, x, values, channels, PUT_ROWS, PUT_WIDTH, PUT_KEEP);
    numbers_same(x, want, PUT_ROWS * PUT_WIDTH * 4, "values in their places (%s)", rig->label);
}

static void op_each(struct rig *rig)
{
    check_op(rig, 37, 12, 60, 5); /* the channels' system is the smaller one */
    check_op(rig, 9, 12, 60, 12);
    check_op(rig, 37, 5, 60, 31); /* that of the directions is */
    check_op(rig, 3, 1, 9, 9);
    check_op(rig, 5, 64, 64, 1);
    check_op(rig, 2, 100, 700, 70);
    check_put(rig);
}

static void the_op_is_the_formula(void **state)
{
    (void)state;
    rig_each(op_each);
}

/* The same bits for any number of threads; what is not finite stays in its row. */
static void rows_know_nothing_of_each_other(void **state)
{
    (void)state;
    enum { ROWS = 61, RANK = 30, WIDTH = 90, KEEP = 20 };
    float *kept[2];
    for (int threads = 1; threads <= 2; threads++) {
        struct rig rig;
        rig_open(&rig, NULL, threads);
        float *factors = rig_noise(&rig, RANK * WIDTH, 1, 1), *noise = rig_zeros(&rig, WIDTH), *values = rig_noise(&rig, ROWS * KEEP, 2, 1),
              *z = rig_floats(&rig, ROWS * RANK);
        uint16_t *channels = rig_take(&rig, 2 * ROWS * KEEP);
        for (int i = 0; i < WIDTH; i++)
            noise[i] = 0.1f;
        values[7 * KEEP + 3] = NAN;
        values[8 * KEEP + 19] = INFINITY;
        rig.ops->mask_channels(rig.device, channels, &(struct mask_key){.seed = 1}, ROWS, WIDTH, KEEP, 0);
        rig.ops->mask_expect(rig.device, z, values, channels, factors, noise, ROWS, RANK, WIDTH, KEEP);
        for (int i = 0; i < ROWS * RANK; i++)
            assert_int_equal(!isfinite(z[i]), i / RANK == 7 || i / RANK == 8);
        kept[threads - 1] = mem_copy(z, ROWS * RANK * sizeof *z);
        rig_close(&rig);
    }
    assert_memory_equal(kept[0], kept[1], ROWS * RANK * sizeof(float));
    mem_free(kept[0]);
    mem_free(kept[1]);
}

/* ---- the codec, of a Gaussian ---- */

enum { WIDTH = 48, ROWS = 2048, CELLS = WIDTH * ROWS, RANK = 6 };

static struct backend cpu;

static struct codec_settings settings_of(int64_t rank)
{
    return (struct codec_settings){.kind = CODEC_KIND_MASK, .format = FORMAT_FP32, .reference = CODEC_REFERENCE_MEAN,
                                   .decoding = CODEC_DECODING_MMSE, .width = WIDTH, .max_rows = ROWS, .seed = 42, .boundary = 1, .slots = 1,
                                   .rank = rank, .forward_share = 0.5, .decay = 0.5};
}

static struct codec_use use_of(int64_t keep)
{
    return (struct codec_use){.step = 9, .micro_batch = 2, .rows = ROWS, .keep = keep, .format_override = -1, .version = 1};
}

/* Factors of known size and a variance beside them, different in every channel, all of them numbers of bf16. */
static void known_law(float *factors, float *noise)
{
    numbers_noise(factors, RANK * WIDTH, 6, 1);
    for (int i = 0; i < RANK * WIDTH; i++)
        factors[i] = half_to_float(half_from_float(factors[i] * (i / RANK == 5 ? 3.0f : 1.0f) / (float)(1 + i % RANK)));
    for (int c = 0; c < WIDTH; c++)
        noise[c] = half_to_float(half_from_float(0.05f + 0.01f * (float)(c % 9)));
}

static float mean_of(int64_t channel)
{
    return (float)(channel % 5) - 2;
}

/* x[ROWS, WIDTH] drawn from the law. */
static void draw(const struct law *law, uint64_t seed, float *x)
{
    float *z = mem_array((size_t)(ROWS * law->rank), sizeof *z), *e = mem_array(CELLS, sizeof *e);
    numbers_noise(z, ROWS * law->rank, seed, 1);
    numbers_noise(e, CELLS, seed + 1, 1);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < WIDTH; c++) {
            double sum = (double)mean_of(c) + sqrt((double)law->noise[c]) * (double)e[r * WIDTH + c];
            for (int64_t i = 0; i < law->rank; i++)
                sum += (double)z[r * law->rank + i] * (double)law->factors[c * law->rank + i];
            x[r * WIDTH + c] = (float)sum;
        }
    mem_free(z);
    mem_free(e);
}

/* Tr(C_rest,rest − C_rest,kept·C_kept,kept⁻¹·C_kept,rest), the mean over the rows' own channels; and without any knowledge of C. */
static double conditional_variance(const struct law *law, const struct codec_settings *s, const struct codec_use *use, double *unconditional)
{
    uint16_t *channels = mem_array((size_t)(ROWS * use->keep), sizeof *channels);
    float *device = cpu.ops->alloc(cpu.device, (size_t)(ROWS * use->keep) * sizeof *channels);
    struct mask_key key = {.seed = s->seed, .step = use->step, .micro_batch = use->micro_batch, .boundary = s->boundary};
    double sum = 0, before = 0;
    int64_t k = use->keep;
    cpu.ops->mask_channels(cpu.device, (uint16_t *)(void *)device, &key, ROWS, WIDTH, k, 0);
    cpu.ops->copy_out(cpu.device, channels, device, (size_t)(ROWS * k) * sizeof *channels);
    cpu.ops->finish(cpu.device);
    double *a = mem_array((size_t)(k * k), sizeof *a), *cross = mem_array((size_t)(k * WIDTH), sizeof *cross),
           *solved = mem_array((size_t)(k * WIDTH), sizeof *solved);
    for (int64_t r = 0; r < ROWS; r++) {
        const uint16_t *at = channels + r * k;
        bool kept[WIDTH] = {0};
        for (int64_t i = 0; i < k; i++) {
            kept[at[i]] = true;
            for (int64_t j = 0; j < k; j++)
                a[i * k + j] = covariance(law, at[i], at[j]);
            for (int64_t c = 0; c < WIDTH; c++)
                cross[i * WIDTH + c] = solved[i * WIDTH + c] = covariance(law, at[i], c);
        }
        eliminate(a, solved, k, WIDTH);
        for (int64_t c = 0; c < WIDTH; c++) {
            before += kept[c] ? 0 : covariance(law, c, c);
            sum += kept[c] ? 0 : covariance(law, c, c);
            for (int64_t i = 0; i < k && !kept[c]; i++)
                sum -= cross[i * WIDTH + c] * solved[i * WIDTH + c];
        }
    }
    cpu.ops->free(cpu.device, device);
    mem_free(channels);
    mem_free(a);
    mem_free(cross);
    mem_free(solved);
    *unconditional = before / ROWS;
    return sum / ROWS;
}

/* Mean square error of a row, through both ends. */
static double error_through(struct codec *codec, const struct codec_settings *s, const struct codec_use *use, const float *x)
{
    float *device = backend_tensor(&cpu, x, CELLS), *out = mem_array(CELLS, sizeof *out);
    size_t bytes = codec_bytes(s, use, CODEC_FORWARD);
    uint8_t *message = mem_array(bytes, 1);
    struct why why = {0};
    double sum = 0;
    codec_encode(codec, use, device, message);
    if (codec_decode(codec, use, message, bytes, device, &why) != 0)
        fail_msg("%s", why.text);
    backend_get(&cpu, out, device, CELLS);
    for (int64_t i = 0; i < CELLS; i++)
        sum += ((double)out[i] - (double)x[i]) * ((double)out[i] - (double)x[i]);
    cpu.ops->free(cpu.device, device);
    mem_free(message);
    mem_free(out);
    return sum / ROWS;
}

/* The law as it travels: a factor is √4 · half of it, the reference the mean. */
static uint8_t *state_of(const struct law *law, const struct codec_settings *s)
{
    uint8_t *state = mem_new(codec_state_bytes(s, CODEC_FORWARD)), *at = state;
    for (int64_t c = 0; c < WIDTH; c++, at += 2)
        half_put(at, half_from_float(mean_of(c)));
    for (int64_t r = 0; r < law->rank; r++, at += 4)
        memcpy(at, &(float){4}, 4);
    for (int64_t i = 0; i < law->rank * WIDTH; i++, at += 2)
        half_put(at, half_from_float(law->factors[i % WIDTH * law->rank + i / WIDTH] / 2));
    for (int64_t c = 0; c < WIDTH; c++, at += 2)
        half_put(at, half_from_float(law->noise[c]));
    return state;
}

static struct codec *open_codec(const struct codec_settings *settings)
{
    struct codec *codec;
    struct why why = {0};
    if (codec_new(cpu.ops, cpu.device, settings, &codec, &why) != 0)
        fail_msg("%s", why.text);
    return codec;
}

static void give(struct codec *codec, const struct codec_settings *s, const struct law *law)
{
    struct why why = {0};
    uint8_t *state = state_of(law, s);
    if (codec_import(codec, CODEC_FORWARD, 1, state, codec_state_bytes(s, CODEC_FORWARD), &why) != 0)
        fail_msg("%s", why.text);
    mem_free(state);
}

/* What was really measured of draws like these, as version 1. */
static void measure(struct codec *codec, const struct law *law)
{
    float *x = mem_array(CELLS, sizeof *x);
    struct codec_use use = use_of(1);
    uint8_t *state;
    size_t bytes;
    for (int round = 0; round < 8; round++) {
        draw(law, 100 + 2 * (uint64_t)round, x);
        float *device = backend_tensor(&cpu, x, CELLS);
        codec_measure(codec, &use, device);
        cpu.ops->finish(cpu.device);
        cpu.ops->free(cpu.device, device);
    }
    assert_int_equal(codec_settle(codec, CODEC_FORWARD), 0);
    assert_int_equal(codec_export(codec, CODEC_FORWARD, &state, &bytes), 0);
    assert_int_equal(codec_import(codec, CODEC_FORWARD, 1, state, bytes, NULL), 0);
    mem_free(state);
    mem_free(x);
}

static void check_error(struct codec *codec, const struct codec_settings *s, const struct law *law, int64_t keep, double slack)
{
    float *x = mem_array(CELLS, sizeof *x);
    struct codec_use use = use_of(keep);
    double before, theory = conditional_variance(law, s, &use, &before);
    assert_true(theory < 0.5 * before); /* there is something to know */
    draw(law, 7, x);
    double error = error_through(codec, s, &use, x);
    if (getenv("SHOW"))
        print_message("keep %d: %.4f, in theory %.4f, without %.4f\n", (int)keep, error, theory, before);
    if (error > theory * (1.05 + slack) || error < theory * 0.95)
        fail_msg("keep %d: mean square error %g, theory says %g", (int)keep, error, theory);
    mem_free(x);
}

static void errors_are_those_of_theory(void **state)
{
    (void)state;
    float factors[RANK * WIDTH], noise[WIDTH];
    struct law law = {factors, noise, RANK, WIDTH};
    known_law(factors, noise);
    for (int measured = 0; measured < 3; measured++) { /* given; measured; measured in all directions */
        struct codec_settings settings = settings_of(measured == 2 ? 0 : RANK);
        struct codec *codec = open_codec(&settings);
        if (measured)
            measure(codec, &law);
        else
            give(codec, &settings, &law);
        static const int64_t keeps[] = {4, 6, 20};
        for (int i = 0; i < 3; i++)
            check_error(codec, &settings, &law, keeps[i], measured ? 0.03 : 0);
        codec_free(codec);
    }
}

static void what_travels_is_not_touched(void **state)
{
    (void)state;
    float factors[RANK * WIDTH], noise[WIDTH], *x = mem_array(CELLS, sizeof *x);
    struct law law = {factors, noise, RANK, WIDTH};
    struct codec_settings settings = settings_of(RANK);
    struct codec_use use = use_of(WIDTH);
    struct codec *codec = open_codec(&settings);
    known_law(factors, noise);
    give(codec, &settings, &law);
    draw(&law, 7, x);
    assert_true(error_through(codec, &settings, &use, x) < 1e-9); /* all channels */
    codec_free(codec);
    mem_free(x);
}

/* The gradient is the plain mask's, and has no statistics. */
static void gradients_are_those_of_the_mask(void **state)
{
    (void)state;
    struct codec_settings settings = settings_of(RANK), plain = settings;
    plain.decoding = CODEC_DECODING_PLAIN;
    struct codec *codecs[2] = {open_codec(&settings), open_codec(&plain)};
    struct codec_use use = use_of(5);
    size_t bytes = codec_bytes(&settings, &use, CODEC_BACKWARD);
    float *dx = mem_array(CELLS, sizeof *dx), *out[2];
    uint8_t *message = mem_array(bytes, 1);
    assert_false(codec_has_state(&settings, CODEC_BACKWARD));
    numbers_noise(dx, CELLS, 3, 1);
    for (int i = 0; i < 2; i++) {
        float *device = backend_tensor(&cpu, dx, CELLS);
        out[i] = mem_array(CELLS, sizeof *out[i]);
        codec_encode_gradient(codecs[i], &use, device, message);
        assert_int_equal(codec_decode_gradient(codecs[i], &use, message, bytes, device, NULL), 0);
        backend_get(&cpu, out[i], device, CELLS);
        cpu.ops->free(cpu.device, device);
        codec_free(codecs[i]);
    }
    assert_memory_equal(out[0], out[1], CELLS * sizeof(float));
    mem_free(out[0]);
    mem_free(out[1]);
    mem_free(dx);
    mem_free(message);
}

/* ---- states ---- */

static void states_of_strangers(void **state)
{
    (void)state;
    float factors[RANK * WIDTH], noise[WIDTH], zeros[RANK * WIDTH] = {0};
    struct law law = {factors, noise, RANK, WIDTH};
    struct codec_settings settings = settings_of(RANK);
    struct codec *codec = open_codec(&settings), *other = open_codec(&settings);
    size_t bytes = codec_state_bytes(&settings, CODEC_FORWARD);
    struct why why = {0};
    known_law(factors, noise);
    noise[3] = -1;
    uint8_t *bad = state_of(&law, &settings);
    assert_int_equal(codec_import(codec, CODEC_FORWARD, 1, bad, bytes, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "channel 3 of version 1 is negative"));
    mem_free(bad);
    /* Directions of nothing at all are no reason to divide by 0. */
    memset(noise, 0, sizeof noise);
    struct law nothing = {zeros, noise, RANK, WIDTH};
    float *x = mem_array(CELLS, sizeof *x);
    struct codec_use use = use_of(4);
    give(codec, &settings, &nothing);
    numbers_noise(x, CELLS, 9, 1);
    double error = error_through(codec, &settings, &use, x);
    assert_true(error > 0.5 * (WIDTH - 4) && isfinite(error));
    mem_free(x);
    /* A run that goes on from disk decodes the same. */
    size_t saved_bytes = codec_save_bytes(&settings);
    uint8_t *saved = mem_new(saved_bytes), *again = mem_new(saved_bytes);
    codec_save(codec, saved);
    assert_int_equal(codec_restore(other, saved, saved_bytes, &why), 0);
    codec_save(other, again);
    assert_memory_equal(saved, again, saved_bytes);
    mem_free(saved);
    mem_free(again);
    codec_free(codec);
    codec_free(other);
    settings.gain = CODEC_GAIN_RMS;
    why = (struct why){0};
    assert_int_equal(codec_new(cpu.ops, cpu.device, &settings, &codec, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "gain rule"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_op_is_the_formula),     cmocka_unit_test(rows_know_nothing_of_each_other),
        cmocka_unit_test(errors_are_those_of_theory), cmocka_unit_test(what_travels_is_not_touched),
        cmocka_unit_test(gradients_are_those_of_the_mask),
        cmocka_unit_test(states_of_strangers),
    };
    backend_open(&cpu, 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    backend_close(&cpu);
    return failed;
}
