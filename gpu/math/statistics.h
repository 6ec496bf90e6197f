/*
 * The mathematics of boundary statistics: second moments in, what a boundary codec needs out. Pure, fp64, one thread, always
 * in the same order: the same moments give the same bits on one kind of processor. Only the owner of a tensor computes here;
 * what the result is for the other end is what travelled.
 *
 *   reference    B = (FᵀF + ridge·I)⁻¹ FᵀX             by Cholesky
 *   residual     S = (XᵀX − XᵀF·B − BᵀFᵀX + BᵀFᵀF·B)/n
 *   directions   eigenvectors of S, largest first       Householder tridiagonal form, then implicit QL; where only a few
 *   of many are
 *                                                       asked for, subspace iteration with a Rayleigh-Ritz step
 *   weighing     S → LᵀSL with W + ridge·I = L·Lᵀ: an error e of x counts eᵀWe. A coefficient y = vᵀx with v = L·q of an
 *                eigenvector q stands for u = L⁻ᵀ·q: x = Σ y_i·u_i
 *   bits         reverse water-filling: one at a time to the largest eigenvalue · 4^(−bits it has)
 *
 * All matrices are dense and row-major; symmetric ones are full.
 */
#ifndef KEDGE_MATH_STATISTICS_H
#define KEDGE_MATH_STATISTICS_H

#include <stdbool.h>
#include <stdint.h>

#include "ssh/base/why.h"

enum { STATISTICS_MOST_BITS = 8 }; /* of one coefficient */

/* x[n, columns] with a·x = b for a symmetric positive definite a[n, n]. Both are overwritten: a by its factor, b by x.
 * ERR_INVALID: a is not positive definite, or not finite. */
int statistics_solve(double *a, double *b, int64_t n, int64_t columns);
/* out[width, width] from xx[width, width], ff[n, n], fx[n, width] and the B that is really used, [n, width]. Symmetric. */
void statistics_residual(double *out, const double *xx, const double *ff, const double *fx, const float *b, int64_t n,
                         int64_t width);
/* The `count` largest eigenvalues of a symmetric a[n, n], falling, and their vectors as rows of vectors[count, n], each
 * with its
 * largest element positive. ERR_INVALID when a is not finite or QL does not converge. */
int statistics_eigen(const double *a, int64_t n, int64_t count, double *values, double *vectors);
int64_t statistics_eigen_numbers(int64_t n, int64_t count); /* fp64 that it takes while it runs, but for some rows */
/* covariance[n, n] ← LᵀSL, weight[n, n] ← L (below the diagonal, zeros above). ERR_INVALID: the weight is not positive
 * definite. */
int statistics_weigh(double *covariance, double *weight, int64_t n);
/* From q, rows of vectors[count, n]: projections v[count, n], and the vectors become u. */
void statistics_unweigh(const double *factor, int64_t n, int64_t count, double *vectors, double *projections);
/* bits[count] for a budget; at most `most` each, 0 only at the end when `values` fall. Returns how many were dealt: fewer
 * than the
 * budget only when every coefficient has the most. Integer arithmetic and powers of two: the same on every machine. */
int64_t statistics_deal(const float *values, int64_t count, int64_t budget, int most, uint8_t *bits);
/* Mean square error per token that no code of so many bits can beat for a Gaussian source with these variances (Cover and
 * Thomas, Elements
 * of Information Theory, 10.3.3): Σ min(value, θ) with Σ ½·log2(value/θ) = bits over the larger ones. */
double statistics_bound(const double *values, int64_t count, double bits);

#endif
