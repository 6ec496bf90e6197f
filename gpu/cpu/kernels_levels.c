/* Few-bit codes (gpu/math/levels.h): values become codes in blocks that the compiler can vectorise, then bits are put side
 * by side. */
#include <math.h>
#include <string.h>

#include "gpu/cpu/kernels.h"
#include "gpu/cpu/kernels_math.h"
#include "gpu/math/half.h"
#include "gpu/math/levels.h"

enum { BLOCK = 64 };

struct bits {
    uint8_t *out;
    uint64_t word;
    int used;
};

static void put(struct bits *bits, uint32_t code, int count)
{
    bits->word |= (uint64_t)code << bits->used;
    bits->used += count;
    while (bits->used >= 8) {
        *bits->out++ = (uint8_t)bits->word;
        bits->word >>= 8;
        bits->used -= 8;
    }
}

/* Root mean square of the whitened row, as it travels. */
static uint16_t row_scale(const float *z, const float *deviation, int64_t columns)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < columns; i++) {
        float whitened = z[i] / deviation[i];
        sum += whitened * whitened;
    }
    float scale = sqrtf(sum / (float)columns);
    return (math_to_bits(scale) & 0x7FFFFFFFu) >= 0x7F800000u ? (uint16_t)HALF_NAN : half_from_float(scale);
}

static void encode_block(uint32_t *restrict codes, const float *restrict z, const float *restrict step,
                         const float *restrict half, int64_t count, float scale)
{
    for (int64_t i = 0; i < count; i++) {
        float code = floorf(z[i] / (step[i] * scale)) + half[i], most = 2 * half[i] - 1;
        code = code > 0 ? code : 0;
        code = code > most ? most : code;
        codes[i] = (uint32_t)(int32_t)code;
    }
}

static void levels_pack_rows(uint8_t *packed, const float *z, const float *deviation, const uint8_t *bits, int64_t rows,
                             int64_t columns, size_t row_bytes)
{
    for (int64_t r = 0; r < rows; r++, z += columns, packed += row_bytes) {
        uint16_t scale = row_scale(z, deviation, columns);
        memset(packed, 0, row_bytes);
        half_put(packed, scale);
        if (scale == 0 || scale == HALF_NAN)
            continue;
        struct bits to = {.out = packed + 2};
        for (int64_t begin = 0; begin < columns; begin += BLOCK) {
            int64_t count = columns - begin < BLOCK ? columns - begin : BLOCK;
            float step[BLOCK], half[BLOCK];
            uint32_t codes[BLOCK];
            for (int64_t i = 0; i < count; i++) {
                step[i] = deviation[begin + i] * levels_spacing[bits[begin + i]];
                half[i] = (float)(1u << bits[begin + i] >> 1);
            }
            encode_block(codes, z + begin, step, half, count, half_to_float(scale));
            for (int64_t i = 0; i < count; i++)
                put(&to, codes[i], bits[begin + i]);
        }
        if (to.used)
            *to.out = (uint8_t)to.word;
    }
}

static void levels_unpack_rows(float *z, const uint8_t *packed, const float *deviation, const uint8_t *bits, int64_t rows,
                               int64_t columns, size_t row_bytes)
{
    for (int64_t r = 0; r < rows; r++, z += columns, packed += row_bytes) {
        float scale = half_to_float(half_get(packed));
        const uint8_t *from = packed + 2;
        uint32_t word = 0;
        int have = 0;
        for (int64_t i = 0; i < columns; i++) {
            int count = bits[i];
            if (have < count) {
                word |= (uint32_t)*from++ << have;
                have += 8;
            }
            uint32_t code = word & ((1u << count) - 1);
            word >>= count;
            have -= count;
            float level = ((float)(int32_t)code - (float)(1u << count >> 1) + 0.5f) * levels_spacing[count];
            z[i] = level * scale * deviation[i];
        }
    }
}

const struct levels_kernels KERNEL_TABLE(levels_kernels) = {.pack = levels_pack_rows, .unpack = levels_unpack_rows};
