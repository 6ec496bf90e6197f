/*
 * An exponential that the compiler can vectorise: no table, no branch, no call, about twenty operations.
 *
 * e^x = 2^n · e^r, n = round(x / ln 2), |r| ≤ ln(2)/2; e^r by a polynomial, 2^n by adding n to the exponent bits. Error ≤ 2
 * units in the last place for −87 ≤ x ≤ 88.72 (tests/ops/exp.c); above it is +inf and below 0: results under 1.7e−38 would
 * need denormals and nobody here can tell them from 0. NaN stays NaN.
 */
#ifndef KEDGE_CPU_KERNELS_MATH_H
#define KEDGE_CPU_KERNELS_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float math_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t math_to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* To the nearest bf16, ties to even; NaN stays NaN (gpu/math/half.h). */
static inline uint16_t math_to_half(float value)
{
    uint32_t bits = math_to_bits(value), rounded = bits + 0x7FFFu + (bits >> 16 & 1);
    return (uint16_t)(((bits & 0x7FFFFFFFu) > 0x7F800000u ? bits | 0x400000u : rounded) >> 16);
}

static inline float math_from_half(uint16_t half)
{
    return math_from_bits((uint32_t)half << 16);
}

static inline float math_exp(float x)
{
    float shifted = x * 1.44269504f + 12582912.0f; /* + 1.5 · 2^23 leaves n in the low bits */
    float n = shifted - 12582912.0f;
    float r = x - n * 0.693145752f; /* exact: the constant has 9 zero bits at its end */
    r = r - n * 1.42860682e-6f;
    float p = 1.9875691500e-4f; /* coefficients of Cephes' expf */
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    float y = math_from_bits(math_to_bits(p) + (math_to_bits(shifted) << 23));
    y = x < 88.7228394f ? y : x * INFINITY; /* NaN takes this way too; at that very number the exponent of p overflows */
    return x < -87.0f ? 0.0f : y;
}

#endif
