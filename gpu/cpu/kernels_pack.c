/*
 * Number formats on the wire. The wire is little-endian and so are all machines this file is compiled for.
 *
 * A row of int8 or int4 begins with its scale as bf16. The scale that is sent is the one that is coded with, and it is
 * rounded up, so that the largest value of the row never clips. A row with an infinity or NaN gets the scale NaN and decodes
 * to NaN: news, not zeros.
 */
#include "gpu/cpu/kernels.h"

#include <math.h>
#include <string.h>

#include "gpu/cpu/kernels_math.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian");

typedef uint16_t wire_half __attribute__((aligned(1), may_alias)); /* `packed` has no alignment */

static const uint16_t half_nan = 0x7FC0;

static void pack_fp32(uint8_t *packed, const float *values, int64_t rows, int64_t columns)
{
    memcpy(packed, values, (size_t)(rows * columns) * sizeof *values);
}

static void unpack_fp32(float *values, const uint8_t *packed, int64_t rows, int64_t columns)
{
    memcpy(values, packed, (size_t)(rows * columns) * sizeof *values);
}

static void pack_bf16(uint8_t *packed, const float *values, int64_t rows, int64_t columns)
{
    wire_half *to = (wire_half *)packed;
    for (int64_t i = 0; i < rows * columns; i++)
        to[i] = math_to_half(values[i]);
}

static void unpack_bf16(float *values, const uint8_t *packed, int64_t rows, int64_t columns)
{
    const wire_half *from = (const wire_half *)packed;
    for (int64_t i = 0; i < rows * columns; i++)
        values[i] = math_from_half(from[i]);
}

/* The smallest bf16 ≥ max|v| / largest_code; NaN when a value is not finite. */
static uint16_t row_scale(const float *values, int64_t columns, float largest_code)
{
    uint32_t largest = 0; /* bits of non-negative floats are ordered as the floats are, and NaN is above infinity */
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < columns; i++) {
        uint32_t bits = math_to_bits(values[i]) & 0x7FFFFFFFu;
        largest = bits > largest ? bits : largest;
    }
    if (largest >= 0x7F800000u)
        return half_nan;
    return (uint16_t)((math_to_bits(math_from_bits(largest) / largest_code) + 0xFFFFu) >> 16);
}

/* Codes of up to 64 values, rounded to nearest; a scale of 0 or NaN has codes 0. */
static void encode_values(int8_t *restrict codes, const float *restrict values, int64_t count, float scale, bool empty)
{
    const float round_to_integer = 12582912.0f;
    if (empty) {
        memset(codes, 0, (size_t)count);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        float shifted = values[i] / scale + round_to_integer;
        codes[i] = (int8_t)(math_to_bits(shifted) - 0x4B400000u);
    }
}

static void pack_int8(uint8_t *packed, const float *values, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++, packed += 2 + columns, values += columns) {
        uint16_t scale = row_scale(values, columns, 127);
        memcpy(packed, &scale, 2);
        encode_values((int8_t *)packed + 2, values, columns, math_from_half(scale), scale == 0 || scale == half_nan);
    }
}

static void unpack_int8(float *values, const uint8_t *packed, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++, packed += 2 + columns, values += columns) {
        float scale = math_from_half((uint16_t)(packed[0] | packed[1] << 8));
        const int8_t *codes = (const int8_t *)packed + 2;
        for (int64_t i = 0; i < columns; i++)
            values[i] = (float)codes[i] * scale;
    }
}

static void pack_int4(uint8_t *packed, const float *values, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++, values += columns) {
        uint16_t scale = row_scale(values, columns, 7);
        memcpy(packed, &scale, 2);
        packed += 2;
        for (int64_t begin = 0; begin < columns; begin += 64) {
            int8_t codes[64] = {0};
            int64_t count = columns - begin < 64 ? columns - begin : 64, bytes = (count + 1) / 2;
            encode_values(codes, values + begin, count, math_from_half(scale), scale == 0 || scale == half_nan);
            for (int64_t i = 0; i < bytes; i++)
                packed[i] = (uint8_t)((codes[2 * i] & 15) | (codes[2 * i + 1] & 15) << 4);
            packed += bytes;
        }
    }
}

static void unpack_int4(float *values, const uint8_t *packed, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++, values += columns) {
        float scale = math_from_half((uint16_t)(packed[0] | packed[1] << 8));
        packed += 2;
        for (int64_t i = 0; i < columns / 2; i++) {
            values[2 * i] = (float)((int8_t)(packed[i] << 4) >> 4) * scale;
            values[2 * i + 1] = (float)((int8_t)packed[i] >> 4) * scale;
        }
        if (columns % 2)
            values[columns - 1] = (float)((int8_t)(packed[columns / 2] << 4) >> 4) * scale;
        packed += (columns + 1) / 2;
    }
}

const struct pack_kernels KERNEL_TABLE(pack_kernels) = {
    .pack = {[FORMAT_FP32] = pack_fp32, [FORMAT_BF16] = pack_bf16, [FORMAT_INT8] = pack_int8, [FORMAT_INT4] = pack_int4},
    .unpack =
        {[FORMAT_FP32] = unpack_fp32, [FORMAT_BF16] = unpack_bf16, [FORMAT_INT8] = unpack_int8, [FORMAT_INT4] = unpack_int4},
};
