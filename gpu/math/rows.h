/*
 * The loops over fp64 rows that the statistics are made of. Sums are in a fixed order, whatever the compiler makes of them.
 */
#ifndef KEDGE_MATH_ROWS_H
#define KEDGE_MATH_ROWS_H

#include <stdbool.h>
#include <stdint.h>

enum { ROWS_TILE = 16, ROWS_GROUP = 4 }; /* rows that stay in the cache while another matrix passes; of it that pass at once */

static inline double rows_dot(const double *a, const double *b, int64_t count)
{
    double sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += a[i + k] * b[i + k];
    for (; i < count; i++)
        sum[0] += a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* y += factor·x */
static inline void rows_add(double *y, double factor, const double *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        y[i] += factor * x[i];
}

/* y += Σ factors[j]·x_j for `rows` ≤ ROWS_GROUP rows x_j that are `stride` apart: y comes and goes once for all of them. */
static inline void rows_add_group(double *y, const double factors[ROWS_GROUP], const double *x, int64_t stride, int64_t rows,
                                  int64_t count)
{
    const double *second = x + stride, *third = second + stride, *fourth = third + stride;
    if (rows == ROWS_GROUP)
        for (int64_t i = 0; i < count; i++)
            y[i] += (factors[0] * x[i] + factors[1] * second[i]) + (factors[2] * third[i] + factors[3] * fourth[i]);
    else
        for (int64_t j = 0; j < rows; j++)
            rows_add(y, factors[j], x + j * stride, count);
}

/* out[rows, columns] += factor·op(a)·b for b[n, columns]; op(a)[i, k] = a[i·down + k·right]. With `lower` b is square and has zeros above
 * its diagonal. */
static inline void rows_multiply(double *out, double factor, const double *a, int64_t down, int64_t right, const double *b, int64_t rows,
                                 int64_t n, int64_t columns, bool lower)
{
    for (int64_t first = 0; first < rows; first += ROWS_TILE)
        for (int64_t k = 0; k < n; k += ROWS_GROUP) {
            int64_t group = n - k < ROWS_GROUP ? n - k : ROWS_GROUP, count = lower ? k + group : columns;
            for (int64_t i = first; i < rows && i < first + ROWS_TILE; i++) {
                double factors[ROWS_GROUP];
                for (int64_t j = 0; j < group; j++)
                    factors[j] = factor * a[i * down + (k + j) * right];
                rows_add_group(out + i * columns, factors, b + k * columns, columns, group, count);
            }
        }
}

#endif
