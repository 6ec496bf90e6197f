/*
 * Codecs on a real small model without any training: how much its loss rises when its activations go through three cuts,
 * statistics being
 * those of 4 × 2048 tokens. The ranges are those of the method's prototype; those of the largest
 * channels and of the hybrid, of few bits in a mask and of MMSE decoding, which it has no numbers for, are what was
 * measured, widely.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ssh/base/mem.h"
#include "tests/helpers/mild.h"
#include "tests/helpers/pipeline.h"

enum { WINDOWS = 48 };

static struct mild mild;
static struct backend cpu;
static double dense;
static struct pipeline *measured; /* calibrated, and its statistics lent to all others */

struct row {
    const char *name;
    int codec, gain, reference, decoding, values, bits;
    double bytes; /* of a token, mean of both directions; the mask: channels in bf16 */
    double least, most;
};

static void profile_of(const struct row *row, struct profile *profile)
{
    mild_profile(&mild, profile);
    profile->codec = row->codec;
    profile->gain = row->gain;
    profile->reference = row->reference;
    profile->context = 4;
    profile->rank = 0;
    profile->values = row->values;
    profile->decoding = row->decoding;
    profile->bits = row->bits;
    profile->forward_share = 0.5;
    profile->mask_rate = 1 - row->bytes / (double)(2 * profile->hidden);
}

static double rise(const struct row *row)
{
    struct profile profile;
    struct pipeline *pipeline = mem_new(sizeof *pipeline);
    int64_t starts[WINDOWS];
    profile_of(row, &profile);
    mild_windows(&mild, WINDOWS, starts);
    pipeline_init(pipeline, &cpu, &profile, mild_layers);
    if (profile.decoding == DECODING_MMSE || profile.codec == CODEC_ENTROPY) /* what these have is in no other state */
        pipeline_calibrate(pipeline);
    else if (profile.reference == REFERENCE_TOKENS)
        pipeline_lend(measured, pipeline);
    double loss = pipeline_loss_through(pipeline, (const uint8_t *)mild.test, starts, WINDOWS, false);
    pipeline_clear(pipeline);
    mem_free(pipeline);
    return loss - dense;
}

static void measure(void)
{
    static const struct row row = {"", CODEC_SUBSPACE, GAIN_ONE, REFERENCE_TOKENS, DECODING_PLAIN, VALUES_BF16, 2, 22, 0, 0};
    struct profile profile;
    int64_t starts[WINDOWS];
    profile_of(&row, &profile);
    mild_windows(&mild, WINDOWS, starts);
    measured = mem_new(sizeof *measured);
    pipeline_init(measured, &cpu, &profile, mild_layers);
    dense = pipeline_loss_through(measured, (const uint8_t *)mild.test, starts, WINDOWS, true);
    pipeline_calibrate(measured);
}

static void losses_rise_as_the_prototype_says(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"everything kept", CODEC_SUBSPACE, GAIN_ONE, REFERENCE_TOKENS, DECODING_PLAIN, VALUES_BF16, 2, 384, -0.001, 0.001},
        {"everything kept by the mask", CODEC_MASK, GAIN_ONE, REFERENCE_NONE, DECODING_PLAIN, VALUES_BF16, 2, 384, -0.001, 0.001},
        {"random 5 %, unbiased, no reference", CODEC_MASK, GAIN_UNBIASED, REFERENCE_NONE, DECODING_PLAIN, VALUES_BF16, 2, 0.05 * 384, 2, 20},
        {"random 5 %, gain one, tokens", CODEC_MASK, GAIN_ONE, REFERENCE_TOKENS, DECODING_PLAIN, VALUES_BF16, 2, 0.05 * 384, 0.25, 0.40},
        {"random 5 %, MMSE, tokens", CODEC_MASK, GAIN_ONE, REFERENCE_TOKENS, DECODING_MMSE, VALUES_BF16, 2, 0.05 * 384, 0.22, 0.30},
        {"random 19 % in 4 bits, tokens", CODEC_MASK, GAIN_ONE, REFERENCE_TOKENS, DECODING_PLAIN, VALUES_INT4, 2, 72, 0.22, 0.35},
        {"the same, MMSE", CODEC_MASK, GAIN_ONE, REFERENCE_TOKENS, DECODING_MMSE, VALUES_INT4, 2, 72, 0.14, 0.22},
        {"principal 20 % in 4 bits", CODEC_PRINCIPAL, GAIN_ONE, REFERENCE_TOKENS, DECODING_PLAIN, VALUES_BF16, 4, 21, 0.07, 0.14},
        {"principal 40 % in 2 bits", CODEC_PRINCIPAL, GAIN_ONE, REFERENCE_TOKENS, DECODING_PLAIN, VALUES_BF16, 2, 22, 0.04, 0.09},
        {"subspace, 176 bits", CODEC_SUBSPACE, GAIN_ONE, REFERENCE_TOKENS, DECODING_PLAIN, VALUES_BF16, 2, 22, 0.04, 0.09},
        {"largest channels", CODEC_TOPK, GAIN_ONE, REFERENCE_TOKENS, DECODING_PLAIN, VALUES_BF16, 2, 22, 0.1, 0.5},
        {"hybrid, 176 bits", CODEC_HYBRID, GAIN_ONE, REFERENCE_TOKENS, DECODING_PLAIN, VALUES_BF16, 2, 22, 0.05, 0.3},
        {"entropy, 176 bits", CODEC_ENTROPY, GAIN_ONE, REFERENCE_TOKENS, DECODING_PLAIN, VALUES_BF16, 2, 22, 0.02, 0.06},
        {"everything kept, entropy-coded", CODEC_ENTROPY, GAIN_ONE, REFERENCE_TOKENS, DECODING_PLAIN, VALUES_BF16, 2, 200, -0.002, 0.002},
        {"principal 80 % in 4 bits", CODEC_PRINCIPAL, GAIN_ONE, REFERENCE_TOKENS, DECODING_PLAIN, VALUES_BF16, 4, 79, -0.005, 0.02},
    };
    int wrong = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (getenv("ONLY") && strtoul(getenv("ONLY"), NULL, 10) != i) /* for people: one row */
            continue;
        double value = rise(&rows[i]);
        bool right = value >= rows[i].least && value <= rows[i].most;
        if (!right || getenv("SHOW"))
            printf("%-36s %8.4f (%g to %g)\n", rows[i].name, value, rows[i].least, rows[i].most);
        wrong += !right;
    }
    if (wrong)
        fail_msg("%d of the rows above are out of range (dense %.4f)", wrong, dense);
}

/* Of 96 windows it is 1.6895, and 1.6892 in the prototype. */
static void the_dense_loss_is_the_reference_one(void **state)
{
    (void)state;
    if (getenv("SHOW"))
        printf("dense %.4f\n", dense);
    if (dense < 1.6995 || dense > 1.7015)
        fail_msg("dense loss of %d windows: %.4f instead of 1.7005", WINDOWS, dense);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_rise_as_the_prototype_says),
        cmocka_unit_test(the_dense_loss_is_the_reference_one),
    };
    mild_open(&mild);
    backend_open(&cpu, 1);
    measure();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    pipeline_clear(measured);
    mem_free(measured);
    backend_close(&cpu);
    mild_close(&mild);
    return failed;
}
