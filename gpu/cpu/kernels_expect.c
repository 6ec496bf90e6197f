/*
 * What a mask left out, expected from what it kept: one small symmetric system for each row, because each row has channels of
 * its own. Of the two forms of the same solution (Woodbury's identity) the smaller one is solved, which is also the one of fewer
 * operations:
 *
 *   keep ≤ rank   (FᵀF + N)·a = v,          z = F·a          keep²·(rank/2 + keep/6) multiplications
 *   else          (I + F·N⁻¹·Fᵀ)·z = F·N⁻¹·v                 rank²·(keep/2 + rank/6)
 *
 * F and N are those of the kept channels, scaled so that the diagonal of FᵀF + N is 1 or N is 1: channels of very different
 * size would make a system that fp64 cannot solve.
 */
#include <math.h>

#include "gpu/cpu/kernels.h"

#if defined(__AVX512F__)
enum { DOWN = 4, ACROSS = 16 }; /* of a sum that is held in registers */
#else
enum { DOWN = 4, ACROSS = 8 };
#endif

_Static_assert(EXPECT_PAD % ACROSS == 0 && EXPECT_PAD % DOWN == 0, "padded systems are whole tiles");

/* sum[i, j ≥ i] = Σ_d w[d, i]·w[d, j]; some of what is below the diagonal is written too. n is a multiple of EXPECT_PAD. */
static void gram(double *restrict sum, const double *restrict w, int64_t depth, int64_t n)
{
    for (int64_t i = 0; i < n; i += DOWN)
        for (int64_t j = i / ACROSS * ACROSS; j < n; j += ACROSS) {
            double tile[DOWN][ACROSS] = {0};
            for (int64_t d = 0; d < depth; d++) {
                const double *restrict left = w + d * n + i, *restrict right = w + d * n + j;
#pragma GCC unroll 4
                for (int a = 0; a < DOWN; a++)
#pragma GCC unroll 16
                    for (int b = 0; b < ACROSS; b++)
                        tile[a][b] += left[a] * right[b];
            }
            for (int a = 0; a < DOWN; a++)
                for (int b = 0; b < ACROSS; b++)
                    sum[(i + a) * n + j + b] = tile[a][b];
        }
}

/* b ← a⁻¹·b of the upper triangle of a positive definite a[n, n] with rows `stride` apart, which is used up. An unknown that the
 * others leave nothing of is 0. */
static void solve(double *restrict a, double *restrict b, int64_t n, int64_t stride)
{
    for (int64_t k = 0; k < n; k++) {
        double *restrict row = a + k * stride, pivot = row[k], inverse = pivot < 1e-13 ? 0 : 1 / pivot;
        for (int64_t i = k + 1; i < n; i++) {
            double factor = row[i] * inverse;
            double *restrict other = a + i * stride;
            for (int64_t j = i; j < n; j++)
                other[j] -= factor * row[j];
        }
        for (int64_t j = k + 1; j < n; j++)
            row[j] *= inverse;
        for (int64_t j = k + 1; j < n; j++)
            b[j] -= row[j] * b[k];
        b[k] *= inverse;
    }
    for (int64_t k = n - 1; k >= 0; k--) {
        double sum = b[k];
        for (int64_t j = k + 1; j < n; j++)
            sum -= a[k * stride + j] * b[j];
        b[k] = sum;
    }
}

static double product(const double *restrict a, const double *restrict b, int64_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static int64_t padded(int64_t n)
{
    return (n + EXPECT_PAD - 1) / EXPECT_PAD * EXPECT_PAD;
}

static void by_channels(float *restrict z, const float *values, const uint16_t *channels, const struct mask_law *law, int64_t keep,
                        double *scratch)
{
    int64_t n = padded(keep), rank = law->rank;
    double *restrict w = scratch, *sum = w + rank * n, *restrict v = sum + n * n;
    for (int64_t i = 0; i < n; i++) {
        const float *factors = law->factors + channels[i < keep ? i : 0] * rank;
        double noise = (double)law->noise[channels[i < keep ? i : 0]], variance = noise;
        for (int64_t r = 0; r < rank && i < keep; r++)
            variance += (double)factors[r] * (double)factors[r];
        double scale = i < keep ? 1 / sqrt(variance) : 0;
        for (int64_t r = 0; r < rank; r++)
            w[r * n + i] = (double)factors[r] * scale;
        v[i] = i < keep ? (double)values[i] * scale : 0;
        v[n + i] = noise * scale * scale;
    }
    gram(sum, w, rank, n);
    for (int64_t i = 0; i < keep; i++)
        sum[i * n + i] += v[n + i];
    solve(sum, v, keep, n);
    for (int64_t r = 0; r < rank; r++)
        z[r] = (float)product(w + r * n, v, keep);
}

static void by_factors(float *restrict z, const float *values, const uint16_t *channels, const struct mask_law *law, int64_t keep,
                       double *scratch)
{
    int64_t rank = law->rank, n = padded(rank);
    double *restrict w = scratch, *sum = w + keep * n, *restrict b = sum + n * n;
    for (int64_t r = 0; r < n; r++)
        b[r] = 0;
    for (int64_t i = 0; i < keep; i++) {
        const float *factors = law->factors + channels[i] * rank;
        double scale = 1 / sqrt((double)law->noise[channels[i]]), value = (double)values[i] * scale;
        for (int64_t r = 0; r < n; r++) {
            w[i * n + r] = r < rank ? (double)factors[r] * scale : 0;
            b[r] += w[i * n + r] * value;
        }
    }
    gram(sum, w, keep, n);
    for (int64_t r = 0; r < rank; r++)
        sum[r * n + r] += 1;
    solve(sum, b, rank, n);
    for (int64_t r = 0; r < rank; r++)
        z[r] = (float)b[r];
}

static void expect_rows(float *z, const float *values, const uint16_t *channels, const struct mask_law *law, int64_t rows,
                        int64_t keep, double *scratch)
{
    for (int64_t r = 0; r < rows; r++, z += law->rank, values += keep, channels += keep)
        (keep <= law->rank ? by_channels : by_factors)(z, values, channels, law, keep, scratch);
}

const struct expect_kernels KERNEL_TABLE(expect_kernels) = {.rows = expect_rows};
