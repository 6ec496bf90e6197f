/*
 * Few-bit codes and the choice of the largest channels: what travels is what the header says, for every backend; the error
 * of a normal
 * variable is the one in the table; nothing hides what is not finite.
 */
#include "gpu/math/levels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/math/half.h"
#include "tests/helpers/numbers.h"
#include "tests/helpers/rig.h"

enum { ROWS = 70, COLUMNS = 83 };

static size_t row_bytes(const uint8_t *bits, int64_t columns)
{
    size_t sum = 0;
    for (int64_t i = 0; i < columns; i++)
        sum += bits[i];
    return 2 + (sum + 7) / 8;
}

static uint32_t code_at(const uint8_t *codes, size_t bit, int count)
{
    uint32_t code = 0;
    for (int i = 0; i < count; i++)
        code |= (uint32_t)(codes[(bit + (size_t)i) / 8] >> ((bit + (size_t)i) % 8) & 1) << i;
    return code;
}

static void codes_are_those_of_the_header(struct rig *rig)
{
    float *z = rig_noise(rig, ROWS * COLUMNS, 1, 1), *back = rig_floats(rig, ROWS * COLUMNS),
          *deviation = rig_floats(rig, COLUMNS);
    uint8_t *bits = rig_take(rig, COLUMNS);
    for (int i = 0; i < COLUMNS; i++) {
        bits[i] = (uint8_t)(8 - i * 8 / COLUMNS);
        deviation[i] = 1 + 3.0f / (float)(i + 1);
    }
    size_t bytes = row_bytes(bits, COLUMNS);
    uint8_t *packed = rig_take(rig, (int64_t)(ROWS * bytes + 2));
    for (int i = 0; i < COLUMNS; i++)
        z[3 * COLUMNS + i] = 0;
    z[5 * COLUMNS + 80] = NAN;
    z[6 * COLUMNS] = -INFINITY;
    packed[1 + ROWS * bytes] = 0xa5;
    rig->ops->levels_pack(rig->device, packed + 1, z, deviation, bits, ROWS, COLUMNS, bytes);
    rig->ops->levels_unpack(rig->device, back, packed + 1, deviation, bits, ROWS, COLUMNS, bytes);
    assert_int_equal(packed[1 + ROWS * bytes], 0xa5);
    for (int r = 0; r < ROWS; r++) {
        const uint8_t *row = packed + 1 + (size_t)r * bytes;
        double scale = (double)half_to_float(half_get(row)), sum = 0;
        size_t bit = 0;
        for (int i = 0; i < COLUMNS; i++)
            sum += pow((double)z[r * COLUMNS + i] / (double)deviation[i], 2);
        if (r == 5 || r == 6)
            assert_true(isnan(scale));
        else if (fabs(scale - sqrt(sum / COLUMNS)) > 0x1p-8 * scale)
            fail_msg("row %d: scale %g instead of %g (%s)", r, scale, sqrt(sum / COLUMNS), rig->label);
        for (int i = 0; i < COLUMNS; bit += bits[i], i++) {
            double value = (double)z[r * COLUMNS + i], got = (double)back[r * COLUMNS + i];
            double step = (double)levels_spacing[bits[i]] * scale * (double)deviation[i], half = ldexp(1, bits[i] - 1);
            if (isnan(scale)) {
                assert_true(isnan(got));
                continue;
            }
            double level = ((double)code_at(row + 2, bit, bits[i]) - half + 0.5) * step;
            double limit = fabs(value) > half * step ? fabs(value) - (half - 0.5) * step : step / 2;
            if (fabs(got - level) > 1e-6 * fabs(level) || fabs(got - value) > limit * 1.0001 + 1e-30)
                fail_msg("row %d, column %d of %d bits: %g came as %g (%s)", r, i, bits[i], value, got, rig->label);
        }
    }
}

static void test_codes(void **state)
{
    (void)state;
    rig_each(codes_are_those_of_the_header);
}

/* The scale of a row is its own: the error is that of the table but for how much a row's mean square varies. */
static void errors_are_those_of_the_table(struct rig *rig)
{
    enum { MANY = 2000, WIDE = 100 };
    float *z = rig_noise(rig, MANY * WIDE, 1, 1), *back = rig_floats(rig, MANY * WIDE), *deviation = rig_floats(rig, WIDE);
    uint8_t *bits = rig_take(rig, WIDE), *packed = rig_take(rig, MANY * (WIDE + 2));
    for (int b = 1; b <= LEVELS_MOST_BITS; b++) {
        double error = 0, energy = 0;
        for (int i = 0; i < WIDE; i++) {
            bits[i] = (uint8_t)b;
            deviation[i] = 1;
        }
        rig->ops->levels_pack(rig->device, packed, z, deviation, bits, MANY, WIDE, row_bytes(bits, WIDE));
        rig->ops->levels_unpack(rig->device, back, packed, deviation, bits, MANY, WIDE, row_bytes(bits, WIDE));
        for (int64_t i = 0; i < MANY * WIDE; i++) {
            error += pow((double)back[i] - (double)z[i], 2);
            energy += pow((double)z[i], 2);
        }
        if (fabs(error / energy / levels_error[b] - 1) > 0.1)
            fail_msg("%d bits: error %.3g, the table says %.3g (%s)", b, error / energy, levels_error[b], rig->label);
    }
}

static void test_errors(void **state)
{
    (void)state;
    rig_each(errors_are_those_of_the_table);
}

static void largest_each(struct rig *rig)
{
    float *x = rig_noise(rig, ROWS * COLUMNS, 1, 1);
    uint16_t *channels = rig_take(rig, ROWS * COLUMNS * 2);
    for (int i = 0; i < COLUMNS; i++)
        x[2 * COLUMNS + i] = (float)(i % 3 == 0); /* many equal ones */
    x[4 * COLUMNS + 7] = NAN;
    for (int64_t keep = 1; keep <= COLUMNS; keep += 9) {
        rig->ops->mask_largest(rig->device, channels, x, ROWS, COLUMNS, keep);
        for (int r = 0; r < ROWS; r++) {
            bool taken[COLUMNS] = {0};
            double least = INFINITY, most_left = -1;
            for (int64_t i = 0; i < keep; i++) {
                uint16_t channel = channels[r * keep + i];
                assert_true(channel < COLUMNS && (i == 0 || channel > channels[r * keep + i - 1]));
                taken[channel] = true;
            }
            assert_true(r != 4 || taken[7]);
            for (int i = 0; i < COLUMNS; i++) {
                double size = fabs((double)x[r * COLUMNS + i]);
                if (taken[i] && size < least)
                    least = size;
                if (!taken[i] && size > most_left)
                    most_left = size;
            }
            assert_true(least >= most_left);
            for (int i = 0, equal = 1; i < COLUMNS && r == 2; i++) { /* of equal ones the first */
                equal &= taken[i] || fabs((double)x[r * COLUMNS + i]) < least;
                assert_true(equal || !taken[i] || fabs((double)x[r * COLUMNS + i]) > least);
            }
        }
    }
}

static void test_largest(void **state)
{
    (void)state;
    rig_each(largest_each);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
