/*
 * Inner loops of the mask codec.
 *
 * Channels: a vector holds one number of 32 bits per 64-bit lane, whose upper half is ignored, because that is what the
 * multiply instruction of every x86 vector set takes: no shuffling between the ten rounds of Philox. A lane is a draw block
 * of a token; its four channels of 16 bits fill the lane at the end and are stored as they are.
 */
#include "gpu/cpu/kernels.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "gpu/cpu/kernels_math.h"

#if defined(__AVX512F__)
enum { LANES = 8 };
#elif defined(__AVX2__)
enum { LANES = 4 };
#else
enum { LANES = 2 };
#endif

enum { TOKENS = 2 }; /* at a time, so that one multiplies while the other waits for its product */

_Static_assert(MASK_PAD % LANES == 0, "padded strata fill vectors");

typedef uint64_t wide __attribute__((vector_size(LANES * 8), aligned(8), may_alias));

/* The product of the lower halves of each lane. */
static inline wide multiply(wide a, wide b)
{
#if defined(__AVX512F__)
    return (wide)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (wide)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#else
    return (wide)_mm_mul_epu32((__m128i)a, (__m128i)b);
#endif
}

static inline wide same(uint64_t value)
{
    return (wide){0} + value;
}

/* Philox4x32-10 of gpu/math/philox.h, in every lane of both tokens; keys are those of the rounds. */
static inline __attribute__((always_inline)) void philox(wide c[TOKENS][4], const wide keys[10][2])
{
    for (int round = 0; round < 10; round++) {
#pragma GCC unroll 2
        for (int t = 0; t < TOKENS; t++) {
            wide a = multiply(same(0xD2511F53u), c[t][0]), b = multiply(same(0xCD9E8D57u), c[t][2]);
            c[t][0] = b >> 32 ^ c[t][1] ^ keys[round][0];
            c[t][2] = a >> 32 ^ c[t][3] ^ keys[round][1];
            c[t][1] = b;
            c[t][3] = a;
        }
    }
}

/* The channels of LANES blocks, four to a lane, from their draws. */
static inline wide choose(const wide draw[4], const struct mask_strata *strata, int64_t block)
{
    wide all = same(0);
#pragma GCC unroll 4
    for (int word = 0; word < 4; word++) {
        const int64_t at = word * strata->padded + block;
        wide channel =
            (multiply(draw[word], *(const wide *)(strata->width + at)) >> 32) + *(const wide *)(strata->first + at);
        all |= channel << (16 * word);
    }
    return all;
}

/* Blocks [block, block + LANES) of one token, as far as the row goes. */
static void store(uint16_t *row, wide channels_of, int64_t block, int64_t keep)
{
    int64_t left = keep - 4 * block;
    memcpy(row + 4 * block, &channels_of, left < 4 * LANES ? (size_t)left * sizeof *row : sizeof channels_of);
}

static void channels(uint16_t *out, const struct mask_strata *strata, uint32_t first_token, int64_t rows)
{
    const int64_t keep = strata->keep;
    wide step = same(0), keys[10][2];
    for (int i = 0; i < LANES; i++)
        step[i] = (uint64_t)i;
    for (uint32_t round = 0; round < 10; round++) {
        keys[round][0] = same(strata->key[0] + round * 0x9E3779B9u);
        keys[round][1] = same(strata->key[1] + round * 0xBB67AE85u);
    }
    for (int64_t row = 0; row < rows; row += TOKENS)
        for (int64_t block = 0; 4 * block < keep; block += LANES) {
            wide c[TOKENS][4];
            for (int t = 0; t < TOKENS; t++) {
                c[t][0] = step + (uint64_t)block;
                c[t][1] = same(first_token + (uint32_t)row + (uint32_t)t);
                c[t][2] = same(strata->counter[2]);
                c[t][3] = same(strata->counter[3]);
            }
            philox(c, keys);
            store(out + row * keep, choose(c[0], strata, block), block, keep);
            if (row + 1 < rows)
                store(out + (row + 1) * keep, choose(c[1], strata, block), block, keep);
        }
}

/* The gain that gives the kept values of a row the norm of the whole residual x − reference. */
static float matching_gain(const float *values, const float *x, const float *reference, int64_t width, int64_t keep)
{
    float whole = 0, kept = 0;
    if (reference) {
#pragma omp simd reduction(+ : whole)
        for (int64_t h = 0; h < width; h++)
            whole += (x[h] - reference[h]) * (x[h] - reference[h]);
    } else {
#pragma omp simd reduction(+ : whole)
        for (int64_t h = 0; h < width; h++)
            whole += x[h] * x[h];
    }
#pragma omp simd reduction(+ : kept)
    for (int64_t i = 0; i < keep; i++)
        kept += values[i] * values[i];
    return kept == 0 ? 1.0f : sqrtf(whole / kept);
}

static void gather(float *restrict values, float *restrict row_gain, const float *restrict x,
                   const float *restrict reference, const uint16_t *restrict channels_of, const float *restrict stratum_gain,
                   int64_t rows, int64_t width, int64_t keep)
{
    for (int64_t r = 0; r < rows; r++, x += width, values += keep, channels_of += keep) {
        if (reference)
            for (int64_t i = 0; i < keep; i++)
                values[i] = x[channels_of[i]] - reference[channels_of[i]];
        else
            for (int64_t i = 0; i < keep; i++)
                values[i] = x[channels_of[i]];
        if (row_gain) {
            row_gain[r] = matching_gain(values, x, reference, width, keep);
            for (int64_t i = 0; i < keep; i++)
                values[i] *= row_gain[r];
        } else if (stratum_gain)
            for (int64_t i = 0; i < keep; i++)
                values[i] *= stratum_gain[i];
    }
}

static void scatter(float *restrict x, const float *restrict values, const float *restrict reference,
                    const uint16_t *restrict channels_of, int64_t rows, int64_t width, int64_t keep)
{
    for (int64_t r = 0; r < rows; r++, x += width, values += keep, channels_of += keep) {
        if (reference)
            memcpy(x, reference, (size_t)width * sizeof *x);
        else
            memset(x, 0, (size_t)width * sizeof *x);
        for (int64_t i = 0; i < keep; i++)
            x[channels_of[i]] += values[i];
    }
}

static void scatter_gradient(float *restrict dx, const float *restrict values, const float *restrict row_gain,
                             const uint16_t *restrict channels_of, const float *restrict stratum_gain, int64_t rows,
                             int64_t width, int64_t keep)
{
    for (int64_t r = 0; r < rows; r++, dx += width, values += keep, channels_of += keep) {
        memset(dx, 0, (size_t)width * sizeof *dx);
        if (row_gain)
            for (int64_t i = 0; i < keep; i++)
                dx[channels_of[i]] = values[i] * row_gain[r];
        else if (stratum_gain)
            for (int64_t i = 0; i < keep; i++)
                dx[channels_of[i]] = values[i] * stratum_gain[i];
        else
            for (int64_t i = 0; i < keep; i++)
                dx[channels_of[i]] = values[i];
    }
}

/* The keep-th largest key by halving: bits of non-negative floats are ordered as the floats are. */
static uint32_t threshold(const uint32_t *keys, int64_t width, int64_t keep)
{
    uint32_t least = 0; /* at least `keep` keys are ≥ least */
    for (int bit = 30; bit >= 0; bit--) {
        uint32_t tried = least | 1u << bit;
        int64_t count = 0;
        for (int64_t i = 0; i < width; i++)
            count += keys[i] >= tried;
        least = count >= keep ? tried : least;
    }
    return least;
}

static void mask_largest_rows(uint16_t *channels, const float *x, int64_t rows, int64_t width, int64_t keep, uint32_t *scratch)
{
    for (int64_t r = 0; r < rows; r++, x += width, channels += keep) {
        for (int64_t i = 0; i < width; i++)
            scratch[i] = math_to_bits(x[i]) & 0x7FFFFFFFu;
        uint32_t least = threshold(scratch, width, keep);
        int64_t above = 0, taken = 0;
        for (int64_t i = 0; i < width; i++)
            above += scratch[i] > least;
        for (int64_t i = 0, equal = keep - above; i < width && taken < keep; i++) {
            bool same = scratch[i] == least;
            if (scratch[i] < least || (same && equal == 0))
                continue;
            equal -= same;
            channels[taken++] = (uint16_t)i;
        }
    }
}

const struct mask_kernels KERNEL_TABLE(mask_kernels) = {
    .largest = mask_largest_rows,
    .channels = channels,
    .gather = gather,
    .scatter = scatter,
    .scatter_gradient = scatter_gradient,
};
