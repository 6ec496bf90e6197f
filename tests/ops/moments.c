/*
 * AdamW with moments in bf16 and in 8 bits: the step of a parameter is that of the exact formula from the moments as they are kept; what
 * is kept is one of the two numbers around the exact value, right on average; and a small model learns as fast as with fp32.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/math/half.h"
#include "gpu/model/model.h"
#include "ssh/base/mem.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/numbers.h"
#include "tests/helpers/reference.h"
#include "tests/helpers/rig.h"

enum { COUNT = 30011, STEPS = 4 };

/* Each kept value beside the exact one; returns how far they are apart on average, in units of the last bit. */
static double check_rounding(const uint16_t *kept, const double *exact, const char *what)
{
    double sum = 0;
    int used = 0;
    for (int i = 0; i < COUNT; i++) {
        double value = (double)half_to_float(kept[i]), bit = exp2(floor(log2(fabs(exact[i]))) - 7);
        if (fabs(exact[i]) < 1e-20)
            continue;
        if (!(fabs(value - exact[i]) <= 1.001 * bit))
            fail_msg("%s %d is kept as %.9g, %.9g is right", what, i, value, exact[i]);
        sum += (value - exact[i]) / bit * (exact[i] < 0 ? -1 : 1);
        used++;
    }
    return sum / used;
}

static void half_each(struct rig *rig)
{
    float *p = rig_noise(rig, COUNT, 1, 0.02), *zeros = rig_zeros(rig, COUNT);
    uint16_t *m = rig_take(rig, COUNT * 2), *v = rig_take(rig, COUNT * 2), *again = rig_take(rig, COUNT * 2);
    double *m_want = rig_doubles(rig, COUNT), *v_want = rig_doubles(rig, COUNT), *p_want = rig_wide(rig, p, COUNT);
    memset(m, 0, COUNT * 2);
    memset(v, 0, COUNT * 2);
    for (int t = 1; t <= STEPS; t++) {
        float *g = rig_noise(rig, COUNT, 10 + (uint64_t)t, 5);
        const struct adamw s = {.learning_rate = 0.01f, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f, .weight_decay = 0.1f,
                                .gradient_scale = 0.37f, .correction1 = (float)(1 - pow(0.9, t)),
                                .correction2 = (float)(1 - pow(0.999, t))};
        for (int i = 0; i < COUNT; i++) { /* from what is kept */
            m_want[i] = (double)half_to_float(m[i]);
            v_want[i] = (double)half_to_float(v[i]);
            p_want[i] = (double)p[i];
        }
        float *before = rig_copy(rig, p, COUNT), *g_before = rig_copy(rig, g, COUNT);
        uint16_t *m_before = rig_take(rig, COUNT * 2), *v_before = rig_take(rig, COUNT * 2);
        memcpy(m_before, m, COUNT * 2);
        memcpy(v_before, v, COUNT * 2);
        reference_adamw(p_want, rig_wide(rig, g, COUNT), m_want, v_want, COUNT, &s);
        rig->ops->adamw_half(rig->device, p, g, m, v, COUNT, &s, (uint32_t)t);
        numbers_same(g, zeros, COUNT * 4, "the gradient is used up (%s)", rig->label);
        numbers_near_scaled(p, p_want, COUNT, 8 * NUMBERS_EPS, numbers_norm(p_want, COUNT) + 0.01 * sqrt(COUNT), "p, step %d (%s)", t,
                            rig->label);
        double bias[2] = {check_rounding(m, m_want, "m"), check_rounding(v, v_want, "v")};
        if (!(fabs(bias[0]) < 0.015 && fabs(bias[1]) < 0.015)) /* five standard deviations: 0.5 / √30011 is 0.003 */
            fail_msg("rounding is off by %.4f and %.4f bits on average (%s)", bias[0], bias[1], rig->label);
        memcpy(again, m, COUNT * 2); /* the same seed gives the same bits, another does not */
        rig->ops->adamw_half(rig->device, before, g_before, m_before, v_before, COUNT, &s, (uint32_t)t);
        numbers_same(m_before, again, COUNT * 2, "the same seed (%s)", rig->label);
        numbers_same(v_before, v, COUNT * 2, "the same seed (%s)", rig->label);
    }
}

static void rounding_is_right_on_average(void **state)
{
    (void)state;
    rig_each(half_each);
}

/* ---- in 8 bits ---- */

/* The judge's own reading of what is kept: a sign for m, an exponent that counts from the block's base, three bits of mantissa. */
static double byte_value(uint8_t code, uint8_t base, bool is_signed)
{
    int digits = is_signed ? code & 127 : code;
    double size = digits ? ldexp(1 + (digits & 7) / 8.0, (digits >> 3) + base - 127) : 0;
    return is_signed && code & 128 ? -size : size;
}

static void values_of(double *values, const uint8_t *codes, const uint8_t *bases, bool is_signed)
{
    for (int i = 0; i < COUNT; i++)
        values[i] = byte_value(codes[i], bases[i / ADAMW_BLOCK], is_signed);
}

/* Beside the exact values; those below the range of the largest of the block are 0, or for v the least that there is. Returns how far
 * the others are off on average, in units of the last bit. */
static double check_bytes(const double *kept, const double *exact, double range, bool is_signed, const char *label)
{
    double sum = 0;
    int used = 0;
    for (int i = 0; i < COUNT; i++) {
        double largest = 0, size = fabs(exact[i]), bit = exp2(floor(log2(size)) - 3);
        for (int j = i / ADAMW_BLOCK * ADAMW_BLOCK; j < COUNT && j < (i / ADAMW_BLOCK + 1) * ADAMW_BLOCK; j++)
            largest = fmax(largest, fabs(exact[j]));
        if (size < largest * range) {
            if (!(fabs(kept[i]) <= largest * range * 2 && (is_signed || kept[i] > 0 || size < 1e-37)))
                fail_msg("%g is kept as %g below %g (%s)", exact[i], kept[i], largest, label);
            continue;
        }
        if (!(fabs(kept[i] - exact[i]) <= 1.001 * bit))
            fail_msg("value %d is kept as %.9g, %.9g is right (%s)", i, kept[i], exact[i], label);
        sum += (kept[i] - exact[i]) / bit * (exact[i] < 0 ? -1 : 1);
        used++;
    }
    assert_true(used > COUNT / 2);
    return sum / used;
}

static void byte_each(struct rig *rig)
{
    enum { BASES = COUNT / ADAMW_BLOCK + 1 };
    float *p = rig_noise(rig, COUNT, 1, 0.02), *zeros = rig_zeros(rig, COUNT);
    uint8_t *m = rig_take(rig, COUNT), *v = rig_take(rig, COUNT), *m_base = rig_take(rig, BASES), *v_base = rig_take(rig, BASES);
    double *m_want = rig_doubles(rig, COUNT), *v_want = rig_doubles(rig, COUNT), *p_want = rig_doubles(rig, COUNT);
    double *m_kept = rig_doubles(rig, COUNT), *v_kept = rig_doubles(rig, COUNT);
    memset(m, 0, COUNT);
    memset(v, 0, COUNT);
    memset(m_base, 0, BASES);
    memset(v_base, 0, BASES);
    for (int t = 1; t <= STEPS; t++) {
        float *g = rig_noise(rig, COUNT, 10 + (uint64_t)t, 5);
        for (int i = 0; i < COUNT; i += 7)
            g[i] *= ldexpf(1, -(i % 90)); /* far apart in one block */
        g[100] = 0;
        const struct adamw s = {.learning_rate = 0.01f, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f, .weight_decay = 0.1f,
                                .gradient_scale = 0.37f, .correction1 = (float)(1 - pow(0.9, t)),
                                .correction2 = (float)(1 - pow(0.999, t))};
        values_of(m_want, m, m_base, true);
        values_of(v_want, v, v_base, false);
        for (int i = 0; i < COUNT; i++)
            p_want[i] = (double)p[i];
        reference_adamw(p_want, rig_wide(rig, g, COUNT), m_want, v_want, COUNT, &s);
        rig->ops->adamw_byte(rig->device, p, g, m, v, m_base, v_base, COUNT, &s, (uint32_t)t);
        numbers_same(g, zeros, COUNT * 4, "the gradient is used up (%s)", rig->label);
        numbers_near_scaled(p, p_want, COUNT, 8 * NUMBERS_EPS, numbers_norm(p_want, COUNT) + 0.01 * sqrt(COUNT), "p, step %d (%s)", t,
                            rig->label);
        values_of(m_kept, m, m_base, true);
        values_of(v_kept, v, v_base, false);
        double bias[2] = {check_bytes(m_kept, m_want, 0x1p-14, true, rig->label), check_bytes(v_kept, v_want, 0x1p-30, false, rig->label)};
        if (!(fabs(bias[0]) < 0.015 && fabs(bias[1]) < 0.015))
            fail_msg("rounding is off by %.4f and %.4f bits on average (%s)", bias[0], bias[1], rig->label);
    }
}

static void bytes_are_right_on_average(void **state)
{
    (void)state;
    rig_each(byte_each);
}

/* ---- a model ---- */

enum { SEQUENCES = 4, TOKENS = 32, ROWS = SEQUENCES * TOKENS };

static double learn(struct rig *rig, enum stage_moments moments, int steps, uint64_t *hash)
{
    struct stage_shape shape = {.model = {.hidden = 32, .layers = 2, .heads = 4, .kv_heads = 2, .ffn = 64, .vocabulary = 64, .head_width = 8,
                                          .rope_theta = 10000, .norm_epsilon = 1e-5f},
                                .layers = 2, .first = true, .last = true, .sequences = SEQUENCES, .tokens = TOKENS, .slots = 1,
                                .moments = moments};
    const struct adamw settings = {.learning_rate = 3e-3f, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f, .gradient_scale = 1};
    struct stage *stage;
    struct why why = {0};
    uint32_t ids[ROWS], targets[ROWS];
    double loss = 0;
    assert_int_equal(stage_new(rig->ops, rig->device, &shape, &stage, &why), 0);
    stage_fresh(stage, 3);
    for (int t = 1; t <= steps; t++) {
        struct dice dice = {(uint64_t)t};
        for (int i = 0; i < ROWS; i++) { /* each token follows from the one before it */
            ids[i] = i % TOKENS && dice_below(&dice, 8) ? targets[i - 1] : (uint32_t)dice_below(&dice, 64);
            targets[i] = (ids[i] * 5 + 7) % 64;
        }
        stage_forward(stage, 0, ids, NULL, SEQUENCES, TOKENS);
        loss = stage_loss(stage, 0, targets, 1.0f / ROWS) / ROWS;
        stage_backward(stage, 0, NULL);
        stage_step(stage, &settings, t);
    }
    *hash = stage_hash(stage);
    stage_free(stage);
    return loss;
}

static void a_model_learns(void **state)
{
    struct rig rig;
    uint64_t full, half, again;
    (void)state;
    rig_open(&rig, NULL, 1);
    double first = learn(&rig, STAGE_MOMENTS_FP32, 1, &full), exact = learn(&rig, STAGE_MOMENTS_FP32, 60, &full);
    for (int moments = STAGE_MOMENTS_BF16; moments <= STAGE_MOMENTS_FP8; moments++) {
        double kept = learn(&rig, (enum stage_moments)moments, 60, &half);
        learn(&rig, (enum stage_moments)moments, 60, &again);
        if (!(kept < first / 3 && fabs(kept - exact) < 0.1 * exact + 0.01))
            fail_msg("loss %.4f at first, %.4f with moments of kind %d, %.4f with fp32", first, kept, moments, exact);
        assert_true(half == again && half != full);
    }
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rounding_is_right_on_average), cmocka_unit_test(bytes_are_right_on_average),
                                       cmocka_unit_test(a_model_learns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
