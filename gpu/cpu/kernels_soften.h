/*
 * The softmax of causal attention in blocks of 64 keys × 64 queries, for the kernels of fp32 and of bf16: which blocks a query sees, what
 * is masked in them, and the running sums. Scores lie transposed, s[key][query] (kernels_attention.c says why).
 */
#ifndef KEDGE_CPU_KERNELS_SOFTEN_H
#define KEDGE_CPU_KERNELS_SOFTEN_H

#include <math.h>

#include "gpu/cpu/kernels.h"
#include "gpu/cpu/kernels_math.h"
#include "gpu/cpu/kernels_tile.h"

enum { BLOCK = ATTENTION_BLOCK };

static inline int64_t rows_of_block(int64_t tokens, int64_t block)
{
    int64_t left = tokens - block * BLOCK;
    return left < BLOCK ? left : BLOCK;
}

/* Scores of the diagonal tile: a key after the query becomes `value`. */
static inline void mask_future(float *s, float value)
{
    for (int64_t key = 1; key < BLOCK; key++)
        for (int64_t query = 0; query < key; query++)
            s[key * BLOCK + query] = value;
}

/* Scores of keys `first` and on that lie before what a query sees become −∞. */
static inline void mask_past(float *s, int64_t first, const int32_t *starts, int64_t rows)
{
    for (int64_t query = 0; query < rows; query++)
        for (int64_t key = 0; key < BLOCK && first + key < starts[query]; key++)
            s[key * BLOCK + query] = -INFINITY;
}

/* What the queries of one block see: the first block of keys, and from which one on nothing needs a mask. */
struct sight {
    const int32_t *starts; /* of the block's queries; NULL: all */
    int64_t rows, from, open;
};

static inline struct sight sight_of(const struct attention *a, int64_t sequence, int64_t block, int64_t rows)
{
    if (!a->starts)
        return (struct sight){.rows = rows};
    const int32_t *starts = a->starts + sequence * a->tokens + block * BLOCK;
    return (struct sight){starts, rows, starts[0] / BLOCK, (starts[rows - 1] + BLOCK - 1) / BLOCK};
}

/* The first query of a row of scores that anyone reads, whole vectors. */
static inline int first_query(int key, bool diagonal)
{
    return diagonal ? key / TILE_COLUMNS * TILE_COLUMNS : 0;
}

/* One tile of online softmax: s becomes probabilities relative to the new maximum; `shrink` is what older sums must be
 * multiplied by. */
static inline void soften(float *restrict s, float *restrict maximum, float *restrict sum, float *restrict shrink, bool diagonal)
{
    float largest[BLOCK], total[BLOCK];
    for (int i = 0; i < BLOCK; i++)
        largest[i] = maximum[i];
    for (int key = 0; key < BLOCK; key++)
        for (int i = first_query(key, diagonal); i < BLOCK; i++)
            largest[i] = s[key * BLOCK + i] > largest[i] ? s[key * BLOCK + i] : largest[i];
    for (int i = 0; i < BLOCK; i++) {
        shrink[i] = math_exp(maximum[i] - largest[i]);
        total[i] = sum[i] * shrink[i];
        maximum[i] = largest[i];
    }
    for (int key = 0; key < BLOCK; key++)
        for (int i = first_query(key, diagonal); i < BLOCK; i++) {
            float p = math_exp(s[key * BLOCK + i] - largest[i]);
            s[key * BLOCK + i] = p;
            total[i] += p;
        }
    for (int i = 0; i < BLOCK; i++)
        sum[i] = total[i];
}

/* s and ds hold scores and d_o·v; they become probabilities and gradients of the scores. */
static inline void soften_backward(float *restrict s, float *restrict ds, const float *restrict log_sum,
                            const float *restrict along, bool diagonal)
{
    for (int key = 0; key < BLOCK; key++, s += BLOCK, ds += BLOCK)
        for (int i = first_query(key, diagonal); i < BLOCK; i++) {
            float p = math_exp(s[i] - log_sum[i]);
            s[i] = p;
            ds[i] = p * (ds[i] - along[i]);
        }
}

#endif
