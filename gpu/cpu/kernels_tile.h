/*
 * A small matrix product for attention's tiles: c[rows, columns] (+)= a · b, with everything in the first-level caches.
 *
 * a may be walked in any two strides (so a transposed a costs nothing: its elements are broadcast one at a time); rows of b
 * and c are contiguous. rows is a multiple of TILE_ROWS and columns of TILE_COLUMNS: the callers pad with zeros. The inner
 * tile keeps its sums in registers: that needs vectors as a type, which gcc and clang offer for every instruction set.
 */
#ifndef KEDGE_CPU_KERNELS_TILE_H
#define KEDGE_CPU_KERNELS_TILE_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__AVX512F__)
enum { TILE_LANES = 16, TILE_ROWS = 8 };
#elif defined(__AVX2__)
enum { TILE_LANES = 8, TILE_ROWS = 4 };
#else
enum { TILE_LANES = 4, TILE_ROWS = 4 };
#endif
enum { TILE_COLUMNS = 2 * TILE_LANES };

typedef float tile_vector __attribute__((vector_size(TILE_LANES * 4), may_alias));

static inline __attribute__((always_inline)) void tile_step(float *c, int64_t c_row, const float *a, int64_t a_row,
                                                            int64_t a_step, const float *b, int64_t b_row, int64_t depth,
                                                            bool accumulate)
{
    tile_vector sum[TILE_ROWS][2];
#pragma GCC unroll 8
    for (int i = 0; i < TILE_ROWS; i++)
        for (int j = 0; j < 2; j++) {
            tile_vector *from = (tile_vector *)(c + i * c_row) + j;
            if (accumulate)
                sum[i][j] = *from;
            else
                sum[i][j] = (tile_vector){0};
        }
    for (int64_t k = 0; k < depth; k++) {
        tile_vector b0 = *(const tile_vector *)(b + k * b_row), b1 = *(const tile_vector *)(b + k * b_row + TILE_LANES);
#pragma GCC unroll 8
        for (int i = 0; i < TILE_ROWS; i++) {
            float one = a[i * a_row + k * a_step];
            sum[i][0] += one * b0;
            sum[i][1] += one * b1;
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < TILE_ROWS; i++) {
        tile_vector *to = (tile_vector *)(c + i * c_row);
        to[0] = sum[i][0];
        to[1] = sum[i][1];
    }
}

/* Which part of a product is wanted. On the diagonal of causal attention nearly half of a tile is nothing. */
enum tile_part {
    TILE_WHOLE,
    TILE_UPPER,      /* elements left of the diagonal are not wanted: not written, but for some beside it */
    TILE_DEPTH_TO,   /* a[i][k] is zero for k > i */
    TILE_DEPTH_FROM, /* a[i][k] is zero for k < i */
};

static inline void tile_product(float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_step, const float *b,
                                int64_t b_row, int64_t rows, int64_t columns, int64_t depth, bool accumulate,
                                enum tile_part part)
{
    for (int64_t i = 0; i < rows; i += TILE_ROWS) {
        int64_t from = part == TILE_DEPTH_FROM ? i : 0, to = part == TILE_DEPTH_TO ? i + TILE_ROWS : depth;
        int64_t left = part == TILE_UPPER ? i / TILE_COLUMNS * TILE_COLUMNS : 0;
        for (int64_t j = left; j < columns; j += TILE_COLUMNS)
            tile_step(c + i * c_row + j, c_row, a + i * a_row + from * a_step, a_row, a_step, b + from * b_row + j, b_row,
                      to - from, accumulate);
    }
}

#endif
