/*
 * Inner loops of the mask codec. The channels are computed for 32 (token, draw block) pairs at a time: Philox is a plain
 * function of each lane, so the compiler turns the loop over lanes into vectors, and short rows (a small keep) fill them as
 * well as long ones.
 */
#include "gpu/cpu/kernels.h"

#include <math.h>
#include <string.h>

enum { LANES = 32 };

struct lanes {
    uint32_t word[4][LANES];
};

/* Philox4x32-10 of gpu/math/philox.h, in every lane. */
static void philox_lanes(struct lanes *at, const uint32_t key[2])
{
    for (int lane = 0; lane < LANES; lane++) {
        uint32_t c0 = at->word[0][lane], c1 = at->word[1][lane], c2 = at->word[2][lane], c3 = at->word[3][lane];
        uint32_t k0 = key[0], k1 = key[1];
#pragma GCC unroll 10
        for (int round = 0; round < 10; round++) {
            uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
            c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
            c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
            c1 = (uint32_t)b;
            c3 = (uint32_t)a;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        at->word[0][lane] = c0;
        at->word[1][lane] = c1;
        at->word[2][lane] = c2;
        at->word[3][lane] = c3;
    }
}

static void channels(uint16_t *out, const struct mask_strata *strata, uint32_t first_token, int64_t rows)
{
    const int64_t keep = strata->keep, blocks = (keep + 3) / 4, pairs = rows * blocks;
    int64_t row = 0, block = 0;
    for (int64_t begin = 0; begin < pairs; begin += LANES) {
        struct lanes at;
        int64_t at_row[LANES], at_stratum[LANES], used = pairs - begin < LANES ? pairs - begin : LANES;
        for (int lane = 0; lane < LANES; lane++) {
            at_row[lane] = row;
            at_stratum[lane] = 4 * block;
            at.word[0][lane] = (uint32_t)block;
            at.word[1][lane] = first_token + (uint32_t)row;
            at.word[2][lane] = strata->counter[2];
            at.word[3][lane] = strata->counter[3];
            if (++block == blocks) {
                block = 0;
                row++;
            }
        }
        philox_lanes(&at, strata->key);
        for (int64_t lane = 0; lane < used; lane++) {
            uint16_t *to = out + at_row[lane] * keep;
            int64_t from = at_stratum[lane], last = from + 4 < keep ? from + 4 : keep;
            for (int64_t i = from; i < last; i++)
                to[i] =
                    (uint16_t)(strata->first[i] + (uint32_t)((uint64_t)at.word[i - from][lane] * strata->width[i] >> 32));
        }
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

const struct mask_kernels KERNEL_TABLE(mask_kernels) = {
    .channels = channels,
    .gather = gather,
    .scatter = scatter,
    .scatter_gradient = scatter_gradient,
};
