/* Inner loops over plain arrays. Sums run in as many lanes as the compiler likes, so they are fixed for one instruction set.
 */
#include "gpu/cpu/kernels.h"

#include <math.h>

#include "gpu/cpu/kernels_math.h"

static void halve(uint16_t *restrict to, const float *restrict from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = math_to_half(from[i]);
}

static void widen(float *restrict to, const uint16_t *restrict from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = math_from_half(from[i]);
}

static void fill(float *x, float value, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = value;
}

static void add(float *restrict y, const float *restrict x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        y[i] += x[i];
}

static void scale(float *x, float factor, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] *= factor;
}

static double sum_squares(const float *x, int64_t count)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

static bool all_finite(const float *x, int64_t count)
{
    uint32_t bad = 0;
    for (int64_t i = 0; i < count; i++)
        bad |= (math_to_bits(x[i]) & 0x7F800000u) == 0x7F800000u;
    return !bad;
}

static void add_wide(double *restrict sum, const float *restrict x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sum[i] += (double)x[i];
}

static void adamw(float *restrict parameter, const float *restrict gradient, float *restrict m, float *restrict v,
                  int64_t count, const struct adamw *settings)
{
    const float beta1 = settings->beta1, beta2 = settings->beta2, rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    const float rate = settings->learning_rate, epsilon = settings->epsilon, decay = settings->weight_decay;
    const float inverse1 = 1.0f / settings->correction1, inverse2 = 1.0f / settings->correction2;
    const float gradient_scale = settings->gradient_scale;
    for (int64_t i = 0; i < count; i++) {
        float g = gradient[i] * gradient_scale;
        float m_new = beta1 * m[i] + rest1 * g;
        float v_new = beta2 * v[i] + rest2 * (g * g);
        m[i] = m_new;
        v[i] = v_new;
        float direction = m_new * inverse1 / (sqrtf(v_new * inverse2) + epsilon);
        parameter[i] -= rate * (decay * parameter[i] + direction);
    }
}

/* 32 random bits of an index: a finish of MurmurHash3. */
static inline uint32_t bits_of(uint32_t index, uint32_t seed)
{
    uint32_t x = index * 0x9E3779B1u ^ seed;
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    return x ^ x >> 16;
}

static void adamw_half(float *restrict parameter, const float *restrict gradient, uint16_t *restrict m, uint16_t *restrict v,
                       int64_t count, const struct adamw *settings, uint32_t seed, uint32_t first)
{
    const float beta1 = settings->beta1, beta2 = settings->beta2, rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    const float rate = settings->learning_rate, epsilon = settings->epsilon, decay = settings->weight_decay;
    const float inverse1 = 1.0f / settings->correction1, inverse2 = 1.0f / settings->correction2;
    const float gradient_scale = settings->gradient_scale;
    for (int64_t i = 0; i < count; i++) {
        uint32_t random = bits_of(first + (uint32_t)i, seed);
        float g = gradient[i] * gradient_scale;
        float m_new = beta1 * math_from_half(m[i]) + rest1 * g;
        float v_new = beta2 * math_from_half(v[i]) + rest2 * (g * g);
        m[i] = (uint16_t)((math_to_bits(m_new) + (random & 0xFFFF)) >> 16);
        v[i] = (uint16_t)((math_to_bits(v_new) + (random >> 16)) >> 16);
        float direction = m_new * inverse1 / (sqrtf(v_new * inverse2) + epsilon);
        parameter[i] -= rate * (decay * parameter[i] + direction);
    }
}

const struct vector_kernels KERNEL_TABLE(vector_kernels) = {
    .halve = halve,
    .widen = widen,
    .fill = fill,
    .add = add,
    .scale = scale,
    .sum_squares = sum_squares,
    .all_finite = all_finite,
    .add_wide = add_wide,
    .adamw = adamw,
    .adamw_half = adamw_half,
};
