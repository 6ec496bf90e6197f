/*
 * An exponential that the compiler can vectorise: no table, no branch, no call.
 *
 * e^x = 2^n · e^r, n = round(x / ln 2), |r| ≤ ln(2)/2; e^r by a polynomial of degree 7; 2^n in two factors,
 * so that results below 2^-126 are rounded once more and still right. Error ≤ 2 units in the last place (measured: 1.1) over
 * the whole range where the result is normal; +inf above 88.72, 0 below −103.97, NaN stays NaN. tests/ops/exp.c holds it to
 * that.
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

static inline float math_exp(float x)
{
    const float round_to_integer = 12582912.0f; /* 1.5 · 2^23: adding it leaves n in the low bits */
    float inside = x < -104.0f ? -104.0f : x;
    inside = inside > 89.0f ? 89.0f : inside;
    float shifted = inside * 1.44269504f + round_to_integer;
    float n = shifted - round_to_integer;
    float r = inside - n * 0.693145752f; /* exact: the constant has 9 zero bits at its end */
    r = r - n * 1.42860682e-6f;
    float p = 1.9875691500e-4f; /* coefficients of Cephes' expf */
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    int32_t power = (int32_t)(math_to_bits(shifted) - 0x4B400000u);
    int32_t half = power >> 1, rest = power - half;
    float y = p * math_from_bits((uint32_t)(half + 127) << 23) * math_from_bits((uint32_t)(rest + 127) << 23);
    y = x < -103.97f ? 0.0f : y;
    return x > 88.7228394f ? INFINITY : y;
}

#endif
