/* Number formats: exact where they are exact, within half a code where they are not, and never hiding what is not finite. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/helpers/numbers.h"
#include "tests/helpers/rig.h"

static const int64_t shapes[][2] = {{1, 1}, {3, 1}, {1, 2}, {5, 13}, {16, 64}, {17, 65}, {40, 102}, {200, 129}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static uint16_t half_at(const uint8_t *packed)
{
    return (uint16_t)(packed[0] | packed[1] << 8);
}

static void test_row_bytes(void **state)
{
    (void)state;
    assert_int_equal(ops_packed_row_bytes(FORMAT_FP32, 13), 52);
    assert_int_equal(ops_packed_row_bytes(FORMAT_BF16, 13), 26);
    assert_int_equal(ops_packed_row_bytes(FORMAT_INT8, 13), 15);
    assert_int_equal(ops_packed_row_bytes(FORMAT_INT4, 13), 9);
    assert_int_equal(ops_packed_row_bytes(FORMAT_INT4, 12), 8);
}

static void fp32_each(struct rig *rig)
{
    for (int n = 0; n < SHAPES; n++) {
        int64_t rows = shapes[n][0], columns = shapes[n][1];
        float *x = rig_noise(rig, rows * columns, 1, 1), *back = rig_floats(rig, rows * columns);
        uint8_t *packed = rig_take(rig, rows * columns * 4 + 1);
        x[0] = NAN;
        rig->ops->pack(rig->device, packed + 1, x, rows, columns, FORMAT_FP32); /* not aligned, as behind a header */
        rig->ops->unpack(rig->device, back, packed + 1, rows, columns, FORMAT_FP32);
        numbers_same(packed + 1, x, rows * columns * 4, "fp32 (%s)", rig->label);
        numbers_same(back, x, rows * columns * 4, "fp32 back (%s)", rig->label);
    }
}

static void test_fp32(void **state)
{
    (void)state;
    rig_each(fp32_each);
}

/* Chosen bit patterns and what nearest-even makes of them. */
static const struct {
    uint32_t from;
    uint16_t to;
} roundings[] = {
    {0x3F800000, 0x3F80}, {0x3F807FFF, 0x3F80}, {0x3F808000, 0x3F80}, {0x3F808001, 0x3F81}, {0x3F818000, 0x3F82},
    {0xBF818000, 0xBF82}, {0x00000000, 0x0000}, {0x80000000, 0x8000}, {0x00008001, 0x0001}, {0x7F7FFFFF, 0x7F80},
    {0x7F7F7FFF, 0x7F7F}, {0x7F800000, 0x7F80}, {0xFF800000, 0xFF80}, {0x7FC00000, 0x7FC0},
};

static void bf16_each(struct rig *rig)
{
    enum { COUNT = sizeof roundings / sizeof *roundings };
    float x[COUNT + 2], back[COUNT + 2];
    uint8_t packed[2 * (COUNT + 2) + 1];
    for (int i = 0; i < COUNT; i++)
        x[i] = from_bits(roundings[i].from);
    x[COUNT] = from_bits(0x7F800001); /* NaNs whose payload is in the bits that go away */
    x[COUNT + 1] = from_bits(0xFF800001);
    rig->ops->pack(rig->device, packed + 1, x, 1, COUNT + 2, FORMAT_BF16);
    rig->ops->unpack(rig->device, back, packed + 1, 1, COUNT + 2, FORMAT_BF16);
    for (int i = 0; i < COUNT; i++) {
        if (half_at(packed + 1 + 2 * i) != roundings[i].to)
            fail_msg("bf16 of %08x is %04x and should be %04x (%s)", roundings[i].from, half_at(packed + 1 + 2 * i),
                     roundings[i].to, rig->label);
        float want = from_bits((uint32_t)roundings[i].to << 16);
        assert_memory_equal(back + i, &want, 4);
    }
    assert_true(isnan(back[COUNT]) && isnan(back[COUNT + 1]));
    for (int n = 0; n < SHAPES; n++) { /* and all of many */
        int64_t count = shapes[n][0] * shapes[n][1];
        float *values = rig_noise(rig, count, 1, 1), *again = rig_floats(rig, count);
        uint8_t *bytes = rig_take(rig, 2 * count);
        rig->ops->pack(rig->device, bytes, values, shapes[n][0], shapes[n][1], FORMAT_BF16);
        rig->ops->unpack(rig->device, again, bytes, shapes[n][0], shapes[n][1], FORMAT_BF16);
        for (int64_t i = 0; i < count; i++)
            assert_true(fabsf(again[i] - values[i]) <= fabsf(values[i]) * 0x1p-8f);
    }
}

static void test_bf16(void **state)
{
    (void)state;
    rig_each(bf16_each);
}

/* The scale is the smallest bf16 that clips nothing; decoding is code · scale exactly; codes are the nearest ones. */
static void integer_case(struct rig *rig, int format, int64_t rows, int64_t columns, double spread)
{
    int64_t largest_code = format == FORMAT_INT8 ? 127 : 7, bytes = (int64_t)ops_packed_row_bytes(format, columns);
    float *x = rig_noise(rig, rows * columns, 1, spread), *back = rig_floats(rig, rows * columns);
    uint8_t *packed = rig_take(rig, rows * bytes);
    rig->ops->pack(rig->device, packed, x, rows, columns, format);
    rig->ops->unpack(rig->device, back, packed, rows, columns, format);
    for (int64_t r = 0; r < rows; r++) {
        uint16_t half = half_at(packed + r * bytes);
        double scale = (double)from_bits((uint32_t)half << 16), below = (double)from_bits((uint32_t)(half - 1) << 16),
               largest = 0;
        for (int64_t c = 0; c < columns; c++)
            largest = fmax(largest, fabs((double)x[r * columns + c]));
        if (scale * (1 + 0x1p-22) < largest / (double)largest_code || below >= largest / (double)largest_code)
            fail_msg("scale %g of a row with maximum %g (%s)", scale, largest, rig->label);
        for (int64_t c = 0; c < columns; c++) {
            const uint8_t *codes = packed + r * bytes + 2;
            int code = format == FORMAT_INT8 ? (int8_t)codes[c] : (int)((codes[c / 2] >> (c % 2 * 4) & 15) ^ 8) - 8;
            double value = (double)x[r * columns + c], got = (double)back[r * columns + c];
            if (got != (double)(float)(code * scale) || fabs(value - got) > scale * (0.5 + 1e-5) || code < -largest_code)
                fail_msg("format %d (%s): %g became code %d, %g; scale %g", format, rig->label, value, code, got, scale);
        }
    }
}

static void integer_each(struct rig *rig)
{
    for (int n = 0; n < SHAPES; n++)
        for (int format = FORMAT_INT8; format <= FORMAT_INT4; format++) {
            integer_case(rig, format, shapes[n][0], shapes[n][1], 1);
            integer_case(rig, format, shapes[n][0], shapes[n][1], 1e-30);
            integer_case(rig, format, shapes[n][0], shapes[n][1], 1e36);
        }
}

static void test_integer(void **state)
{
    (void)state;
    rig_each(integer_each);
}

/* A row of zeros is zeros; a row with a NaN or an infinity is NaN; its neighbours are not touched. */
static void special_each(struct rig *rig)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int format = FORMAT_INT8; format <= FORMAT_INT4; format++)
        for (int i = 0; i < 3; i++) {
            float x[4 * 5] = {0, 0, 0, 0, 0, 1, 2, 3, 4, -7, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1}, back[4 * 5];
            uint8_t packed[4 * 7];
            x[10 + i] = bad[i];
            rig->ops->pack(rig->device, packed, x, 4, 5, format);
            rig->ops->unpack(rig->device, back, packed, 4, 5, format);
            for (int c = 0; c < 5; c++)
                assert_true(back[c] == 0 && fabsf(back[5 + c] - x[5 + c]) < 0.6f && isnan(back[10 + c]) &&
                            fabsf(back[15 + c] - 1) < 0.01f);
        }
}

static void test_special(void **state)
{
    (void)state;
    rig_each(special_each);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_row_bytes), cmocka_unit_test(test_fp32),
                                       cmocka_unit_test(test_bf16), cmocka_unit_test(test_integer),
                                       cmocka_unit_test(test_special)};
    cmocka_set_message_output(CM_OUTPUT_STDOUT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
