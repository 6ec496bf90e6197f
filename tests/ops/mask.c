/*
 * The mask: Philox against the published vectors of the Random123 distribution, channels against golden ones made by a
 * separate program, one channel in every stratum, evenly drawn, and the same integers from every instruction set. Then
 * gather and scatter.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/math/mask.h"
#include "tests/helpers/numbers.h"
#include "tests/helpers/reference.h"
#include "tests/helpers/rig.h"

static void test_philox(void **state)
{
    static const uint32_t vectors[][10] = {
        /* counter[4], key[2], out[4] */
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420,
         0x24126ea1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        uint32_t out[4];
        philox4x32(vectors[i], vectors[i] + 4, out);
        assert_memory_equal(out, vectors[i] + 6, sizeof out);
    }
}

/* Made by a program in another language from the definition in gpu/math/mask.h. A change here is a change of the wire. */
static const struct {
    struct mask_key key;
    int64_t token, width, keep;
    uint16_t channels[13];
} golden[] = {
    {{.seed = 1, .step = 1}, 0, 256, 13, {1, 21, 44, 59, 79, 111, 123, 155, 161, 188, 212, 219, 253}},
    {{.seed = 0x0123456789abcdef, .step = (5ull << 32) + 77, .micro_batch = 1048575, .boundary = 4095},
     1000,
     200,
     10,
     {6, 38, 50, 75, 86, 113, 127, 156, 174, 183}},
    {{.seed = 42, .step = 12, .micro_batch = 3, .boundary = 1}, 7, 10, 10, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
    {{.seed = 42, .step = 12, .micro_batch = 3, .boundary = 1}, 7, 65535, 5, {3448, 13784, 35001, 42865, 62114}},
    {{.seed = 42, .step = 12, .micro_batch = 3, .boundary = 1}, 8, 65535, 5, {3776, 13383, 39152, 43084, 53461}},
};

static void golden_each(struct rig *rig)
{
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        uint16_t channels[13];
        rig->ops->mask_channels(rig->device, channels, &golden[i].key, 1, golden[i].width, golden[i].keep, golden[i].token);
        numbers_same(channels, golden[i].channels, golden[i].keep * 2, "golden channels %d (%s)", (int)i, rig->label);
    }
}

static void test_golden(void **state)
{
    (void)state;
    rig_each(golden_each);
}

/* rows, width, keep, first row: every keep mod 4, one row, all channels, one channel, rows that begin in the middle. */
static const int64_t shapes[][4] = {{1, 1, 1, 0},      {1, 256, 13, 5},    {7, 256, 13, 0},    {65, 100, 7, 9},
                                    {300, 192, 10, 1}, {40, 2048, 102, 0}, {3, 4096, 205, 70}, {5, 64, 64, 0},
                                    {33, 50, 1, 2},    {2, 65535, 3277, 0}};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static const struct mask_key some_key = {.seed = 0xfeedfacecafebeef, .step = 123456, .micro_batch = 7, .boundary = 2};

static void channels_each(struct rig *rig)
{
    for (int n = 0; n < SHAPES; n++) {
        int64_t rows = shapes[n][0], width = shapes[n][1], keep = shapes[n][2], first = shapes[n][3];
        uint16_t *channels = rig_take(rig, rows * keep * 2);
        rig->ops->mask_channels(rig->device, channels, &some_key, rows, width, keep, first);
        for (int64_t i = 0; i < rows * keep; i++) {
            int64_t row = i / keep, stratum = i % keep, channel = channels[i];
            assert_true(channel >= stratum * width / keep && channel < (stratum + 1) * width / keep);
            if (channel != reference_mask_channel(&some_key, first + row, stratum, width, keep))
                fail_msg("channel of row %lld, stratum %lld of %lld/%lld (%s) is %lld", (long long)row, (long long)stratum,
                         (long long)keep, (long long)width, rig->label, (long long)channel);
        }
    }
}

static void test_channels(void **state)
{
    (void)state;
    rig_each(channels_each);
}

/* Every channel of a stratum is equally likely: χ² of each stratum over 20000 tokens, and of all of them together. */
static void test_even(void **state)
{
    enum { ROWS = 20000, WIDTH = 256, KEEP = 13 };
    (void)state;
    struct rig rig;
    rig_open(&rig, "base", 1);
    uint16_t *channels = rig_take(&rig, ROWS * KEEP * 2);
    double all = 0, freedom = 0;
    rig.ops->mask_channels(rig.device, channels, &some_key, ROWS, WIDTH, KEEP, 0);
    for (int64_t i = 0; i < KEEP; i++) {
        double counts[32] = {0}, sum = 0;
        int64_t first = mask_stratum_first(i, WIDTH, KEEP), width = mask_stratum_width(i, WIDTH, KEEP);
        for (int64_t r = 0; r < ROWS; r++)
            counts[channels[r * KEEP + i] - first] += 1;
        for (int64_t c = 0; c < width; c++)
            sum += pow(counts[c] - (double)ROWS / (double)width, 2) / ((double)ROWS / (double)width);
        double limit = (double)(width - 1) + 4.5 * sqrt(2 * (double)(width - 1));
        if (sum > limit)
            fail_msg("stratum %lld is not evenly drawn: chi square %.1f, limit %.1f", (long long)i, sum, limit);
        all += sum;
        freedom += (double)(width - 1);
    }
    if (fabs(all - freedom) > 4 * sqrt(2 * freedom))
        fail_msg("channels are not evenly drawn: chi square %.1f of %.0f", all, freedom);
    rig_close(&rig);
}

/* Every part of the key matters. */
static void test_key_parts(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, "base", 1);
    struct mask_key keys[6] = {some_key, some_key, some_key, some_key, some_key, some_key};
    uint16_t channels[7][16];
    keys[1].seed ^= 1;
    keys[2].seed ^= 1ull << 63;
    keys[3].step ^= 1ull << 40;
    keys[4].micro_batch ^= 1;
    keys[5].boundary ^= 1;
    for (int i = 0; i < 7; i++)
        rig.ops->mask_channels(rig.device, channels[i], &keys[i % 6], 1, 512, 16, i == 6);
    for (int i = 0; i < 7; i++)
        for (int j = 0; j < i; j++)
            assert_true(memcmp(channels[i], channels[j], sizeof channels[i]) != 0);
    rig_close(&rig);
}

/* gather and scatter make x̂ together; the gradient goes back through the same channels and gains. */
static void through_case(struct rig *rig, int n, int rule, bool with_reference)
{
    int64_t rows = shapes[n][0], width = shapes[n][1], keep = shapes[n][2], count = rows * width;
    float *x = rig_noise(rig, count, 1, 2), *reference = with_reference ? rig_noise(rig, width, 2, 1) : NULL;
    float *values = rig_floats(rig, rows * keep), *row_gain = rig_floats(rig, rows), *out = rig_floats(rig, count);
    uint16_t *channels = rig_take(rig, rows * keep * 2);
    rig->ops->mask_channels(rig->device, channels, &some_key, rows, width, keep, 0);
    double *x_wide = rig_wide(rig, x, count), *reference_wide = reference ? rig_wide(rig, reference, width) : NULL;
    double *gain = rig_doubles(rig, rows * keep), *want = rig_doubles(rig, count);
    reference_mask_gain(gain, x_wide, reference_wide, channels, rows, width, keep, rule);
    reference_mask(want, x_wide, reference_wide, gain, channels, rows, width, keep);
    double tolerance = (rule == 2 ? 4 + sqrt((double)width) : 4) * NUMBERS_EPS;
    rig->ops->mask_gather(rig->device, values, rule == 2 ? row_gain : NULL, x, reference, channels, rows, width, keep, rule);
    rig->ops->mask_scatter(rig->device, out, values, reference, channels, rows, width, keep);
    numbers_near(out, want, count, tolerance, "mask %lld×%lld keep %lld rule %d reference %d (%s)", (long long)rows,
                 (long long)width, (long long)keep, rule, with_reference, rig->label);
    /* The other way: dx̂ gathered without gain, scattered with it. */
    float *dy = rig_noise(rig, count, 3, 1), *dx = rig_floats(rig, count);
    double *dx_want = rig_doubles(rig, count);
    for (int64_t i = 0; i < rows * keep; i++) {
        int64_t at = i / keep * width + channels[i];
        dx_want[at] = gain[i] * (double)dy[at];
    }
    rig->ops->mask_gather(rig->device, values, NULL, dy, NULL, channels, rows, width, keep, 0);
    rig->ops->mask_scatter_gradient(rig->device, dx, values, rule == 2 ? row_gain : NULL, channels, rows, width, keep, rule);
    numbers_near(dx, dx_want, count, tolerance, "mask gradient %lld×%lld keep %lld rule %d (%s)", (long long)rows,
                 (long long)width, (long long)keep, rule, rig->label);
}

static void through_each(struct rig *rig)
{
    for (int n = 0; n < SHAPES; n++)
        for (int rule = 0; rule < 3; rule++)
            for (int with_reference = 0; with_reference < 2; with_reference++)
                through_case(rig, n, rule, with_reference);
}

static void test_through(void **state)
{
    (void)state;
    rig_each(through_each);
}

/* Rule 2 where nothing was kept has no gain to give: 1, not infinity. What is not finite stays so. */
static void zero_each(struct rig *rig)
{
    float x[8] = {0, 0, 0, 0, 0, INFINITY, 0, 0}, values[2], gain[2];
    uint16_t channels[2] = {1, 2};
    rig->ops->mask_gather(rig->device, values, gain, x, NULL, channels, 2, 4, 1, 2);
    assert_true(values[0] == 0 && gain[0] == 1 && values[1] == 0 && gain[1] == 1);
    channels[1] = 1;
    rig->ops->mask_gather(rig->device, values, gain, x, NULL, channels, 2, 4, 1, 2);
    assert_false(isfinite(values[1]));
}

static void test_zero(void **state)
{
    (void)state;
    rig_each(zero_each);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_philox),    cmocka_unit_test(test_golden),
                                       cmocka_unit_test(test_channels),  cmocka_unit_test(test_even),
                                       cmocka_unit_test(test_key_parts), cmocka_unit_test(test_through),
                                       cmocka_unit_test(test_zero)};
    cmocka_set_message_output(CM_OUTPUT_STDOUT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
