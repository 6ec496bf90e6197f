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

static void adamw(float *restrict parameter, float *restrict gradient, float *restrict m, float *restrict v,
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
        gradient[i] = 0;
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

static void adamw_half(float *restrict parameter, float *restrict gradient, uint16_t *restrict m, uint16_t *restrict v,
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
        gradient[i] = 0;
    }
}

/*
 * Moments in 8 bits are the upper bits of a float, from its third bit of mantissa on, less those of the smallest one that the block
 * keeps: an integer that rises with the float. Rounding by chance adds random bits below it.
 */
enum { KEPT = 20, M_BINADES = 16, V_BINADES = 32 }; /* bits below the third of mantissa; 7 and 8 bits of code */

/* The exponent from which codes of a block count, whose largest value has these bits. */
static uint8_t base_of(uint32_t largest, int binades)
{
    int top = (int)((largest + ((1u << KEPT) - 1)) >> 23), base = top - (binades - 1);
    return (uint8_t)(base > 0 ? base : 0);
}

static inline int32_t code_of(uint32_t bits, uint32_t random, int32_t base)
{
    return (int32_t)((bits + (random & ((1u << KEPT) - 1))) >> KEPT) - (base << 3);
}

static inline float value_of(int32_t code, int32_t base)
{
    return code ? math_from_bits((uint32_t)(code + (base << 3)) << KEPT) : 0;
}

/* One block: m and v as they are now, kept in m_new and v_new for the step. */
static void moments_of_block(float *restrict m_new, float *restrict v_new, const float *restrict gradient, const uint8_t *restrict m,
                             const uint8_t *restrict v, int32_t m_base, int32_t v_base, int64_t count, const struct adamw *settings)
{
    const float beta1 = settings->beta1, beta2 = settings->beta2, rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    const float gradient_scale = settings->gradient_scale;
    for (int64_t i = 0; i < count; i++) {
        float g = gradient[i] * gradient_scale, old = value_of(m[i] & 127, m_base);
        m_new[i] = beta1 * (m[i] & 128 ? -old : old) + rest1 * g;
        v_new[i] = beta2 * value_of(v[i], v_base) + rest2 * (g * g);
    }
}

static void keep_block(uint8_t *restrict m, uint8_t *restrict v, const float *restrict m_new, const float *restrict v_new, int32_t m_base,
                       int32_t v_base, int64_t count, uint32_t seed, uint32_t first)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t random = bits_of(first + (uint32_t)i, seed), m_bits = math_to_bits(m_new[i]), v_bits = math_to_bits(v_new[i]);
        int32_t m_code = code_of(m_bits & 0x7FFFFFFFu, random, m_base), v_code = code_of(v_bits, random >> 12, v_base);
        m_code = m_code < 0 ? 0 : m_code;
        v_code = v_code < 1 ? v_bits != 0 : v_code;
        m[i] = (uint8_t)(m_code > 127 ? 127 : m_code) | (uint8_t)(m_bits >> 24 & 128);
        v[i] = (uint8_t)(v_code > 255 ? 255 : v_code);
    }
}

static void adamw_byte(float *restrict parameter, float *restrict gradient, uint8_t *restrict m, uint8_t *restrict v,
                       uint8_t *restrict m_base, uint8_t *restrict v_base, int64_t count, const struct adamw *settings, uint32_t seed,
                       uint32_t first)
{
    const float rate = settings->learning_rate, epsilon = settings->epsilon, decay = settings->weight_decay;
    const float inverse1 = 1.0f / settings->correction1, inverse2 = 1.0f / settings->correction2;
    float m_new[ADAMW_BLOCK], v_new[ADAMW_BLOCK];
    for (int64_t at = 0; at < count; at += ADAMW_BLOCK) {
        int64_t block = at / ADAMW_BLOCK, used = count - at < ADAMW_BLOCK ? count - at : ADAMW_BLOCK;
        uint32_t m_largest = 0, v_largest = 0;
        moments_of_block(m_new, v_new, gradient + at, m + at, v + at, m_base[block], v_base[block], used, settings);
        for (int64_t i = 0; i < used; i++) {
            uint32_t m_bits = math_to_bits(m_new[i]) & 0x7FFFFFFFu, v_bits = math_to_bits(v_new[i]);
            m_largest = m_bits > m_largest ? m_bits : m_largest;
            v_largest = v_bits > v_largest ? v_bits : v_largest;
            float direction = m_new[i] * inverse1 / (sqrtf(v_new[i] * inverse2) + epsilon);
            parameter[at + i] -= rate * (decay * parameter[at + i] + direction);
            gradient[at + i] = 0;
        }
        m_base[block] = base_of(m_largest, M_BINADES);
        v_base[block] = base_of(v_largest, V_BINADES);
        keep_block(m + at, v + at, m_new, v_new, m_base[block], v_base[block], used, seed, first + (uint32_t)at);
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
    .adamw_byte = adamw_byte,
};
