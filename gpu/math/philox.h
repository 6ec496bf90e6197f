/*
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011): a counter-based generator, a pure
 * function of (key, counter), so both ends of a boundary compute the same mask in any order.
 */
#ifndef KEDGE_MATH_PHILOX_H
#define KEDGE_MATH_PHILOX_H

#include <stdint.h>

static inline void philox_round(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t c0 = (uint32_t)(b >> 32) ^ c[1] ^ k0, c2 = (uint32_t)(a >> 32) ^ c[3] ^ k1;
    c[1] = (uint32_t)b;
    c[3] = (uint32_t)a;
    c[0] = c0;
    c[2] = c2;
}

/* out[4] from counter[4] and key[2]. */
static inline void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    for (int i = 0; i < 4; i++)
        out[i] = counter[i];
    for (int round = 0; round < 10; round++) {
        philox_round(out, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

#endif
