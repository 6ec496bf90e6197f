/* See statistics.h. Here: the ridge regression, bits. The eigenvectors are in statistics_eigen.c. */
#include "gpu/math/statistics.h"

#include <math.h>

#include "gpu/math/rows.h"
#include "ssh/base/mem.h"

/* ---- ridge regression ---- */

/* The lower triangle of a becomes L with a = L·Lᵀ. */
static int factor(double *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double *row = a + i * n;
        for (int64_t j = 0; j <= i; j++) {
            const double *other = a + j * n;
            double sum = row[j] - rows_dot(row, other, j);
            if (j < i)
                row[j] = sum / other[j];
            else if (sum > 0 && isfinite(sum))
                row[i] = sqrt(sum);
            else
                return ERR_INVALID;
        }
    }
    return 0;
}

static void divide(double *y, double by, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        y[i] /= by;
}

int statistics_solve(double *a, double *b, int64_t n, int64_t columns)
{
    int err = factor(a, n);
    if (err)
        return err;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < i; k++)
            rows_add(b + i * columns, -a[i * n + k], b + k * columns, columns);
        divide(b + i * columns, a[i * n + i], columns);
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        for (int64_t k = i + 1; k < n; k++)
            rows_add(b + i * columns, -a[k * n + i], b + k * columns, columns);
        divide(b + i * columns, a[i * n + i], columns);
    }
    return 0;
}

/* With t = FᵀF·B − FᵀX the residual is XᵀX + Bᵀt − XᵀF·B. */
void statistics_residual(double *out, const double *xx, const double *ff, const double *fx, const float *b, int64_t n,
                         int64_t width)
{
    double *wide = mem_array((size_t)(n * width) + 1, sizeof *wide), *t = mem_array((size_t)(n * width) + 1, sizeof *t);
    for (int64_t i = 0; i < n * width; i++) {
        wide[i] = (double)b[i];
        t[i] = -fx[i];
    }
    for (int64_t i = 0; i < width * width; i++)
        out[i] = xx[i];
    rows_multiply(t, 1, ff, n, 1, wide, n, n, width, false);
    rows_multiply(out, 1, wide, 1, width, t, width, n, width, false);
    rows_multiply(out, -1, fx, 1, width, wide, width, n, width, false);
    for (int64_t i = 0; i < width; i++)
        for (int64_t j = 0; j < i; j++)
            out[i * width + j] = out[j * width + i] = (out[i * width + j] + out[j * width + i]) / 2;
    mem_free(wide);
    mem_free(t);
}

/* ---- weighing ---- */

/* The lower half of out[n, n] += lᵀ·h for a lower triangular l, and the upper one like it: symmetric when the product is. */
static void multiply_lower_transposed(double *out, const double *l, const double *h, int64_t n)
{
    for (int64_t first = 0; first < n; first += ROWS_TILE)
        for (int64_t k = first; k < n; k += ROWS_GROUP) {
            int64_t group = n - k < ROWS_GROUP ? n - k : ROWS_GROUP;
            for (int64_t i = first; i < k + group && i < first + ROWS_TILE; i++) {
                double factors[ROWS_GROUP];
                for (int64_t j = 0; j < group; j++)
                    factors[j] = l[(k + j) * n + i];
                rows_add_group(out + i * n, factors, h + k * n, n, group, i + 1);
            }
        }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++)
            out[j * n + i] = out[i * n + j];
}

int statistics_weigh(double *covariance, double *weight, int64_t n)
{
    int err = factor(weight, n);
    double *half = mem_array((size_t)(n * n), sizeof *half);
    for (int64_t i = 0; i < n; i++)
        memset(weight + i * n + i + 1, 0, (size_t)(n - i - 1) * sizeof *weight);
    if (!err) {
        rows_multiply(half, 1, covariance, n, 1, weight, n, n, n, true);
        memset(covariance, 0, (size_t)(n * n) * sizeof *covariance);
        multiply_lower_transposed(covariance, weight, half, n);
    }
    mem_free(half);
    return err;
}

void statistics_unweigh(const double *lower, int64_t n, int64_t count, double *vectors, double *projections)
{
    for (int64_t r = 0; r < count; r++) {
        double *u = vectors + r * n, *v = projections + r * n;
        for (int64_t i = 0; i < n; i++) {
            v[i] = 0;
            for (int64_t k = 0; k <= i; k++)
                v[i] += lower[i * n + k] * u[k]; /* a row of L and q itself */
        }
        for (int64_t i = n - 1; i >= 0; i--) { /* Lᵀ·u = q, from below */
            u[i] /= lower[i * n + i];
            rows_add(u, -u[i], lower + i * n, i);
        }
    }
}

/* ---- bits ---- */

int64_t statistics_deal(const float *values, int64_t count, int64_t budget, int most, uint8_t *bits)
{
    int64_t dealt = 0;
    memset(bits, 0, (size_t)count);
    for (; dealt < budget; dealt++) {
        int64_t best = -1;
        double largest = 0;
        for (int64_t i = 0; i < count; i++) {
            double left = ldexp((double)values[i], -2 * bits[i]);
            if (bits[i] < most && left > largest) {
                largest = left;
                best = i;
            }
            if (bits[i] == 0)
                break; /* values fall: none behind it can be larger */
        }
        if (best < 0)
            break;
        bits[best]++;
    }
    return dealt;
}

double statistics_bound(const double *values, int64_t count, double bits)
{
    double low = -1100, high = 1100, distortion = 0; /* log2 of the water level */
    for (int step = 0; step < 200; step++) {
        double level = (low + high) / 2, rate = 0;
        for (int64_t i = 0; i < count; i++)
            if (values[i] > 0 && log2(values[i]) > level)
                rate += (log2(values[i]) - level) / 2;
        if (rate > bits)
            low = level;
        else
            high = level;
    }
    for (int64_t i = 0; i < count; i++)
        distortion += values[i] > exp2(high) ? exp2(high) : values[i] > 0 ? values[i] : 0;
    return distortion;
}
