/* See payload.h. */
#include "gpu/math/payload.h"

#include <math.h>
#include <string.h>

#include "gpu/math/half.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian");

#define UNTOUCHED (1.0f / 256) /* of the table's largest value */
#define INFINITE 0x7F800000u

/* Bits of |v| of the largest value: bits of non-negative floats are ordered as the floats are, and what is not finite is above. */
static uint32_t largest_bits(const float *values, int64_t count)
{
    int32_t largest = 0; /* signed: SSE2 compares no other */
    for (int64_t i = 0; i < count; i++) {
        int32_t bits = (int32_t)(half_bits_of(values[i]) & 0x7FFFFFFFu);
        largest = bits > largest ? bits : largest;
    }
    return (uint32_t)largest;
}

bool payload_finite(const float *values, int64_t count)
{
    return largest_bits(values, count) < INFINITE;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- dense ---- */

static size_t encode_fp32(const float *values, int64_t rows, int64_t columns, uint8_t *out)
{
    memcpy(out, values, (size_t)(rows * columns) * sizeof *values);
    return (size_t)(rows * columns) * sizeof *values;
}

static void decode_fp32(const uint8_t *in, int64_t rows, int64_t columns, float *values)
{
    memcpy(values, in, (size_t)(rows * columns) * sizeof *values);
}

static size_t encode_bf16(const float *values, int64_t rows, int64_t columns, uint8_t *out)
{
    for (int64_t i = 0; i < rows * columns; i++)
        half_put(out + 2 * i, half_from_float(values[i]));
    return 2 * (size_t)(rows * columns);
}

static void decode_bf16(const uint8_t *in, int64_t rows, int64_t columns, float *values)
{
    for (int64_t i = 0; i < rows * columns; i++)
        values[i] = half_to_float(half_get(in + 2 * i));
}

/* ---- int8 and int4 ---- */

static uint16_t row_scale(const float *values, int64_t columns, float largest_code)
{
    uint32_t largest = largest_bits(values, columns);
    return largest >= INFINITE ? HALF_NAN : half_above(from_bits(largest) / largest_code);
}

/* Nearest, ties to even, of |value| < 2^22: adding 1.5·2^23 leaves the integer in the low bits. */
static int8_t code_of(float value, float scale)
{
    return (int8_t)(half_bits_of(value / scale + 12582912.0f) - 0x4B400000u);
}

static void codes_of(const float *values, int64_t count, float scale, uint8_t *codes)
{
    for (int64_t i = 0; i < count; i++)
        codes[i] = (uint8_t)code_of(values[i], scale);
}

static bool scale_is_empty(uint16_t scale)
{
    return scale == 0 || scale == HALF_NAN;
}

static uint8_t *encode_row8(const float *values, int64_t columns, uint8_t *out)
{
    uint16_t scale = row_scale(values, columns, 127);
    half_put(out, scale);
    out += 2;
    if (scale_is_empty(scale))
        memset(out, 0, (size_t)columns);
    else
        codes_of(values, columns, half_to_float(scale), out);
    return out + columns;
}

static void decode_row8(const uint8_t *in, int64_t columns, float *values)
{
    float scale = half_to_float(half_get(in));
    for (int64_t i = 0; i < columns; i++)
        values[i] = (float)(int8_t)in[2 + i] * scale;
}

static size_t encode_int8(const float *values, int64_t rows, int64_t columns, uint8_t *out)
{
    uint8_t *at = out;
    for (int64_t r = 0; r < rows; r++)
        at = encode_row8(values + r * columns, columns, at);
    return (size_t)(at - out);
}

static void decode_int8(const uint8_t *in, int64_t rows, int64_t columns, float *values)
{
    for (int64_t r = 0; r < rows; r++)
        decode_row8(in + r * (2 + columns), columns, values + r * columns);
}

static void put_nibble(uint8_t *out, int64_t index, unsigned code)
{
    if (index % 2)
        out[index / 2] = (uint8_t)(out[index / 2] | (code & 15) << 4);
    else
        out[index / 2] = (uint8_t)(code & 15);
}

static unsigned get_nibble(const uint8_t *in, int64_t index)
{
    return in[index / 2] >> (index % 2 ? 4 : 0) & 15;
}

/* By blocks whose codes lie in bytes between: loops over a block become vectors, nibbles alone do not. */
static void codes4_of(const float *values, int64_t columns, float scale, uint8_t *out)
{
    for (int64_t begin = 0; begin < columns; begin += PAYLOAD_BLOCK, out += PAYLOAD_BLOCK / 2) {
        uint8_t codes[PAYLOAD_BLOCK] = {0}; /* half a byte is left over by an odd row */
        int64_t count = columns - begin < PAYLOAD_BLOCK ? columns - begin : PAYLOAD_BLOCK;
        codes_of(values + begin, count, scale, codes);
        for (int64_t i = 0; i < (count + 1) / 2; i++)
            out[i] = (uint8_t)((codes[2 * i] & 15) | codes[2 * i + 1] << 4);
    }
}

static size_t encode_int4(const float *values, int64_t rows, int64_t columns, uint8_t *out)
{
    uint8_t *at = out;
    for (int64_t r = 0; r < rows; r++, values += columns) {
        uint16_t scale = row_scale(values, columns, 7);
        half_put(at, scale);
        at += 2;
        if (scale_is_empty(scale))
            memset(at, 0, (size_t)(columns + 1) / 2);
        else
            codes4_of(values, columns, half_to_float(scale), at);
        at += (columns + 1) / 2;
    }
    return (size_t)(at - out);
}

static float value4_of(int nibble, float scale)
{
    return (float)((nibble ^ 8) - 8) * scale;
}

static void decode_int4(const uint8_t *in, int64_t rows, int64_t columns, float *values)
{
    for (int64_t r = 0; r < rows; r++, values += columns) {
        float scale = half_to_float(half_get(in));
        in += 2;
        for (int64_t i = 0; i < columns / 2; i++) {
            values[2 * i] = value4_of(in[i] & 15, scale);
            values[2 * i + 1] = value4_of(in[i] >> 4, scale);
        }
        if (columns % 2)
            values[columns - 1] = value4_of(in[columns / 2] & 15, scale);
        in += (columns + 1) / 2;
    }
}

/* ---- e3m0 ---- */

/* Midway between two levels, counted up: |v|/scale ≥ 3·2^(k−9) rounds to exponent k or more, of k = 1: ≥ 2^−7. */
static unsigned e3m0_code(float value, float scale)
{
    float share = fabsf(value) / scale;
    int32_t exponent = (int32_t)((half_bits_of(share) + 0x400000u) >> 23) - 127 + 7; /* half the mantissa on top: rounded up from 1.5 */
    exponent = exponent > 7 ? 7 : exponent < 1 ? 1 : exponent;
    return share < 0x1p-7f ? 0 : (unsigned)exponent | (value < 0 ? 8u : 0);
}

static float e3m0_value(unsigned code, float scale)
{
    static const float levels[] = {0, 0x1p-6f, 0x1p-5f, 0x1p-4f, 0x1p-3f, 0x1p-2f, 0x1p-1f, 1};
    float value = levels[code & 7] * scale;
    return code & 8 ? -value : value;
}

static size_t encode_e3m0(const float *values, int64_t rows, int64_t columns, uint8_t *out)
{
    uint8_t *at = out;
    for (int64_t r = 0; r < rows; r++, values += columns)
        for (int64_t begin = 0; begin < columns; begin += PAYLOAD_BLOCK) {
            int64_t count = columns - begin < PAYLOAD_BLOCK ? columns - begin : PAYLOAD_BLOCK;
            uint16_t scale = row_scale(values + begin, count, 1);
            half_put(at, scale);
            at += 2;
            for (int64_t i = 0; i < count; i++)
                put_nibble(at, i, scale_is_empty(scale) ? 0 : e3m0_code(values[begin + i], half_to_float(scale)));
            at += (count + 1) / 2;
        }
    return (size_t)(at - out);
}

static void decode_e3m0(const uint8_t *in, int64_t rows, int64_t columns, float *values)
{
    for (int64_t r = 0; r < rows; r++, values += columns)
        for (int64_t begin = 0; begin < columns; begin += PAYLOAD_BLOCK) {
            int64_t count = columns - begin < PAYLOAD_BLOCK ? columns - begin : PAYLOAD_BLOCK;
            float scale = half_to_float(half_get(in));
            in += 2;
            for (int64_t i = 0; i < count; i++)
                values[begin + i] = e3m0_value(get_nibble(in, i), scale);
            in += (count + 1) / 2;
        }
}

/* ---- touched rows ---- */

static size_t encode_rows(const float *values, int64_t rows, int64_t columns, uint8_t *out)
{
    uint32_t most = largest_bits(values, rows * columns);
    float least = most >= INFINITE ? 0 : from_bits(most) * UNTOUCHED;
    uint8_t *at = out + (rows + 7) / 8;
    memset(out, 0, (size_t)((rows + 7) / 8));
    for (int64_t r = 0; r < rows; r++) {
        const float *row = values + r * columns;
        uint32_t largest = largest_bits(row, columns);
        if (largest == 0 || (largest < INFINITE && from_bits(largest) < least))
            continue;
        out[r / 8] = (uint8_t)(out[r / 8] | 1u << (r % 8));
        at = encode_row8(row, columns, at);
    }
    return (size_t)(at - out);
}

static int64_t decode_rows(const uint8_t *in, size_t most, int64_t rows, int64_t columns, float *values, struct why *why)
{
    size_t bits = (size_t)(rows + 7) / 8, used = bits, row_bytes = 2 + (size_t)columns;
    for (int64_t r = 0; r < rows; r++) {
        if (used <= most && !(in[r / 8] >> (r % 8) & 1)) {
            memset(values + r * columns, 0, (size_t)columns * sizeof *values);
            continue;
        }
        if (used > most || most - used < row_bytes)
            return why_set(why, ERR_INVALID, "a payload of touched rows ends after %zu bytes, in row %lld of %lld", most, (long long)r,
                           (long long)rows);
        decode_row8(in + used, columns, values + r * columns);
        used += row_bytes;
    }
    return (int64_t)used;
}

/* ---- all of them ---- */

static const struct {
    const char *name;
    size_t (*encode)(const float *values, int64_t rows, int64_t columns, uint8_t *out);
    void (*decode)(const uint8_t *in, int64_t rows, int64_t columns, float *values); /* NULL: its length is not known beforehand */
    float most_code; /* |code| at most, of kinds with one scale, in front, per row; 0: others */
} kinds[PAYLOAD_KINDS] = {
    [PAYLOAD_FP32] = {"fp32", encode_fp32, decode_fp32, 0}, [PAYLOAD_BF16] = {"bf16", encode_bf16, decode_bf16, 0},
    [PAYLOAD_INT8] = {"int8", encode_int8, decode_int8, 128}, [PAYLOAD_INT4] = {"int4", encode_int4, decode_int4, 8},
    [PAYLOAD_E3M0] = {"e3m0", encode_e3m0, decode_e3m0, 0}, [PAYLOAD_ROWS] = {"rows", encode_rows, NULL, 0},
};

const char *payload_name(enum payload_kind kind)
{
    return kinds[kind].name;
}

size_t payload_bytes(enum payload_kind kind, int64_t rows, int64_t columns)
{
    size_t n = (size_t)columns, whole = n / PAYLOAD_BLOCK, rest = n % PAYLOAD_BLOCK;
    const size_t row[PAYLOAD_KINDS] = {
        [PAYLOAD_FP32] = 4 * n,
        [PAYLOAD_BF16] = 2 * n,
        [PAYLOAD_INT8] = 2 + n,
        [PAYLOAD_INT4] = 2 + (n + 1) / 2,
        [PAYLOAD_E3M0] = whole * (2 + PAYLOAD_BLOCK / 2) + (rest ? 2 + (rest + 1) / 2 : 0),
        [PAYLOAD_ROWS] = 2 + n,
    };
    BUG_IF(rows < 1 || columns < 1 || kind >= PAYLOAD_KINDS);
    return (size_t)rows * row[kind] + (kind == PAYLOAD_ROWS ? (size_t)(rows + 7) / 8 : 0);
}

size_t payload_encode(enum payload_kind kind, const float *values, int64_t rows, int64_t columns, uint8_t *out)
{
    BUG_IF(rows < 1 || columns < 1 || kind >= PAYLOAD_KINDS);
    return kinds[kind].encode(values, rows, columns, out);
}

int64_t payload_decode(enum payload_kind kind, const uint8_t *in, size_t most, int64_t rows, int64_t columns, float *values,
                       struct why *why)
{
    size_t needs = payload_bytes(kind, rows, columns);
    if (!kinds[kind].decode)
        return decode_rows(in, most, rows, columns, values, why);
    if (most < needs)
        return why_set(why, ERR_INVALID, "%zu bytes of %s are too few for %lld × %lld values, which take %zu", most, kinds[kind].name,
                       (long long)rows, (long long)columns, needs);
    kinds[kind].decode(in, rows, columns, values);
    return (int64_t)needs;
}

static bool scales_are_finite(const uint8_t *in, int64_t rows, size_t row_bytes, float most_code)
{
    for (int64_t r = 0; r < rows; r++, in += row_bytes)
        if (!isfinite(half_to_float(half_get(in)) * most_code))
            return false;
    return true;
}

int64_t payload_check(enum payload_kind kind, const uint8_t *in, size_t most, int64_t rows, int64_t columns, float *scratch,
                      bool *finite, struct why *why)
{
    size_t needs = payload_bytes(kind, rows, columns);
    if (kinds[kind].most_code > 0 && most >= needs) {
        *finite = scales_are_finite(in, rows, needs / (size_t)rows, kinds[kind].most_code);
        return (int64_t)needs;
    }
    int64_t took = payload_decode(kind, in, most, rows, columns, scratch, why);
    *finite = took >= 0 && payload_finite(scratch, rows * columns);
    return took;
}
