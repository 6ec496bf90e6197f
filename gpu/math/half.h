/*
 * bf16 on the host, for what must have the same bits everywhere: nearest, ties to even; NaN stays NaN (its top bit is set, or
 * rounding could make an infinity of it). The same rules as `pack` of the op table.
 */
#ifndef KEDGE_MATH_HALF_H
#define KEDGE_MATH_HALF_H

#include <stdint.h>
#include <string.h>

#define HALF_NAN 0x7FC0u

static inline uint32_t half_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float half_to_float(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t half_from_float(float value)
{
    uint32_t bits = half_bits_of(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

/* The smallest bf16 that is not below a value that is not negative. */
static inline uint16_t half_above(float value)
{
    return (uint16_t)((half_bits_of(value) + 0xFFFFu) >> 16);
}

static inline void half_put(uint8_t *out, uint16_t half)
{
    out[0] = (uint8_t)half;
    out[1] = (uint8_t)(half >> 8);
}

static inline uint16_t half_get(const uint8_t *in)
{
    return (uint16_t)(in[0] | in[1] << 8);
}

#endif
