/*
 * The strongest singular directions of a matrix M[m,n] on a device, by randomised block iteration (Halko, Martinsson, Tropp
 * 2011):
 *
 *   Q ← orthonormal [n, k'];  `passes` times:  P ← orth(M·Q),  Z ← Mᵀ·P,  Q ← orth(Z);   M ≈ P·Zᵀ
 *   ZᵀZ = W·Λ·Wᵀ (Jacobi, fp64)  →  U = P·W,  s = √Λ,  V = Z·W / s
 *
 * with k' = rank + SUBSPACE_SPARE columns where the matrix has so many. Q is kept between calls by the caller, so that a
 * matrix that changes slowly (a mean of gradients) needs one pass. Without gaps in the spectrum single directions are not
 * determined; the energy that U and V hold is.
 *
 * Products are the backend's; orthonormalisation and the small eigenproblem run in fp64 in a fixed order, so the same input
 * gives the same bits wherever the products do. Signs are fixed: the largest entry of every column of U is positive.
 */
#ifndef KEDGE_MATH_SUBSPACE_H
#define KEDGE_MATH_SUBSPACE_H

#include "gpu/math/ops.h"

#define SUBSPACE_SPARE 8

struct subspace; /* buffers for matrices up to a size */

int64_t subspace_width(int64_t rows, int64_t columns, int64_t rank);   /* k' */
uint64_t subspace_memory(int64_t rows, int64_t columns, int64_t rank); /* device and host bytes of subspace_new */
struct subspace *subspace_new(const struct ops *ops, struct device *device, int64_t most_rows, int64_t most_columns,
                              int64_t most_rank, struct why *why);
void subspace_free(struct subspace *subspace);

struct subspace_result { /* host memory of the caller */
    float *left;         /* [rows, rank] */
    float *right;        /* [columns, rank] */
    float *singular;     /* [rank], descending */
};

/* rank ≤ min(rows, columns). `start` [columns, subspace_width] is Q, in and out; all zeros begin with random directions of
 * `seed`. */
void subspace_find(struct subspace *subspace, const float *matrix, int64_t rows, int64_t columns, int64_t rank, int passes,
                   uint64_t seed, float *start, const struct subspace_result *result);

/* Eigenvalues, descending, and eigenvectors (columns) of the symmetric a[n,n], which is destroyed: cyclic Jacobi. */
void subspace_eigen(double *a, int64_t n, double *values, double *vectors);

#endif
