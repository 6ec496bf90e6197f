/* Registers of AVX-512 as lines of a block of 16 × 16, for files that are compiled for it: amx_pack.c and avx512_panels.c. */
#ifndef KEDGE_CPU_LINES_H
#define KEDGE_CPU_LINES_H

#include <immintrin.h>
#include <stdint.h>

#ifdef __AVX512F__ /* elsewhere there are no such registers */

static inline __m512 lines_widen(__m256i words)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}

/* The first `count` lanes of `most`. */
static inline uint32_t lines_mask(int64_t count, int most)
{
    return count >= most ? (uint32_t)((1ull << most) - 1) : count <= 0 ? 0 : (uint32_t)((1ull << count) - 1);
}

/* 16 × 16 of 32 bits: within lanes by pairs of lines, by fours, then the lanes themselves. */
static inline void lines_turn(__m512i x[16])
{
    __m512i t[16], u[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            u[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
            u[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
        }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        __m512i a = _mm512_shuffle_i32x4(u[j], u[j + 4], 0x88), b = _mm512_shuffle_i32x4(u[j], u[j + 4], 0xDD);
        __m512i c = _mm512_shuffle_i32x4(u[j + 8], u[j + 12], 0x88), d = _mm512_shuffle_i32x4(u[j + 8], u[j + 12], 0xDD);
        x[j] = _mm512_shuffle_i32x4(a, c, 0x88);
        x[j + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
        x[j + 8] = _mm512_shuffle_i32x4(a, c, 0xDD);
        x[j + 12] = _mm512_shuffle_i32x4(b, d, 0xDD);
    }
}

#endif

#endif
