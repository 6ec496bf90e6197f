/*
 * Eigenvalues and eigenvectors of a symmetric matrix. The whole matrix: Householder reflections to tridiagonal form, then
 * QL with
 * implicit shifts (Golub and Van Loan, Matrix Computations, 8.3); vectors are kept as rows, so that a rotation works on
 * two rows.
 * A few of many: iteration of a subspace that is a little larger than asked for, from a fixed random start, and the
 * whole-matrix
 * method on the small projected one.
 */
#include "gpu/math/statistics.h"

#include <math.h>

#include "gpu/math/philox.h"
#include "gpu/math/rows.h"
#include "ssh/base/mem.h"

enum { SWEEPS = 60, ITERATIONS = 6 };

/* v with (I − beta·v·vᵀ)x = (norm, 0, …), v[0] = 1, in place of x; *norm is the first element that results. */
static double reflector(double *x, int64_t count, double *norm)
{
    double tail = count > 1 ? rows_dot(x + 1, x + 1, count - 1) : 0, head = x[0];
    *norm = head;
    x[0] = 1;
    if (tail == 0)
        return 0;
    double length = sqrt(head * head + tail), first = head > 0 ? -tail / (head + length) : head - length;
    *norm = length;
    for (int64_t i = 1; i < count; i++)
        x[i] /= first;
    return 2 * first * first / (tail + first * first);
}

/* a → tridiagonal (d, e[i] between i and i + 1); q[n, n] rows with a = qᵀ·T·q. a is overwritten. */
static void tridiagonal(double *a, int64_t n, double *d, double *e, double *q, double *work)
{
    double *beta = work, *v = work + n, *w = work + 2 * n;
    for (int64_t k = 0; k + 2 < n; k++) {
        int64_t left = n - k - 1;
        for (int64_t i = 0; i < left; i++)
            v[i] = a[(k + 1 + i) * n + k];
        beta[k] = reflector(v, left, &e[k]);
        for (int64_t i = 0; i < left; i++)
            w[i] = beta[k] * rows_dot(a + (k + 1 + i) * n + k + 1, v, left);
        rows_add(w, -beta[k] / 2 * rows_dot(w, v, left), v, left);
        for (int64_t i = 0; i < left; i++) {
            double *row = a + (k + 1 + i) * n + k + 1;
            for (int64_t j = 0; j < left; j++)
                row[j] -= v[i] * w[j] + w[i] * v[j];
        }
        for (int64_t i = 0; i < left; i++)
            a[k * n + k + 1 + i] = v[i]; /* the upper triangle keeps the reflectors */
    }
    for (int64_t i = 0; i < n; i++)
        d[i] = a[i * n + i];
    if (n > 1)
        e[n - 2] = a[(n - 1) * n + n - 2];
    memset(q, 0, (size_t)(n * n) * sizeof *q);
    for (int64_t i = 0; i < n; i++)
        q[i * n + i] = 1;
    for (int64_t k = n - 3; k >= 0; k--) /* q ← q·H_k: the rows are those of the product of all reflections, transposed */
        for (int64_t i = k + 1; i < n; i++) {
            const double *reflect = a + k * n + k + 1;
            double *row = q + i * n + k + 1;
            rows_add(row, -beta[k] * rows_dot(row, reflect, n - k - 1), reflect, n - k - 1);
        }
}

static void rotate(double *above, double *below, double c, double s, int64_t count)
{
    for (int64_t k = 0; k < count; k++) {
        double old = below[k];
        below[k] = s * above[k] + c * old;
        above[k] = c * above[k] - s * old;
    }
}

/* Implicit QL on (d, e), turning the rows of q along. */
static int ql(double *d, double *e, double *q, int64_t n)
{
    double size = 0; /* what counts as nothing, counts beside the largest */
    for (int64_t i = 0; i < n; i++)
        size = fmax(size, fabs(d[i]) + fabs(e[i]));
    for (int64_t l = 0; l < n; l++) {
        for (int sweep = 0;; sweep++) {
            int64_t m = l;
            while (m + 1 < n && fabs(e[m]) > 0x1p-53 * size)
                m++;
            if (m == l)
                break;
            if (sweep == SWEEPS)
                return ERR_INVALID;
            double g = (d[l + 1] - d[l]) / (2 * e[l]), r = hypot(g, 1), s = 1, c = 1, p = 0;
            int64_t i = m - 1;
            g = d[m] - d[l] + e[l] / (g + copysign(r, g));
            for (; i >= l; i--) {
                double f = s * e[i], b = c * e[i];
                r = hypot(f, g);
                e[i + 1] = r;
                if (r == 0)
                    break;
                s = f / r;
                c = g / r;
                g = d[i + 1] - p;
                r = (d[i] - g) * s + 2 * c * b;
                p = s * r;
                d[i + 1] = g + p;
                g = c * r - b;
                rotate(q + i * n, q + (i + 1) * n, c, s, n);
            }
            if (r == 0 && i >= l) {
                d[i + 1] -= p;
                e[m] = 0;
                continue;
            }
            d[l] -= p;
            e[l] = g;
            e[m] = 0;
        }
    }
    return 0;
}

struct place {
    double value;
    int64_t at;
};

static int by_value(const void *a, const void *b)
{
    const struct place *one = a, *other = b;
    if (one->value != other->value)
        return one->value < other->value ? 1 : -1;
    return one->at < other->at ? -1 : one->at > other->at;
}

/* An eigenvector is one up to its sign: the largest element becomes positive. */
static void settle_sign(double *row, int64_t count)
{
    int64_t largest = 0;
    for (int64_t k = 1; k < count; k++)
        if (fabs(row[k]) > fabs(row[largest]))
            largest = k;
    double sign = row[largest] < 0 ? -1 : 1;
    for (int64_t k = 0; k < count; k++)
        row[k] *= sign;
}

/* Rows of q in falling order of d, signs settled. */
static void sort(const double *d, const double *q, int64_t n, int64_t count, double *values, double *vectors)
{
    struct place *places = mem_array((size_t)n, sizeof *places);
    for (int64_t i = 0; i < n; i++)
        places[i] = (struct place){d[i], i};
    qsort(places, (size_t)n, sizeof *places, by_value);
    for (int64_t i = 0; i < count; i++) {
        values[i] = places[i].value;
        memcpy(vectors + i * n, q + places[i].at * n, (size_t)n * sizeof *q);
        settle_sign(vectors + i * n, n);
    }
    mem_free(places);
}

static int eigen_whole(const double *a, int64_t n, int64_t count, double *values, double *vectors)
{
    double *copy = mem_array((size_t)(n * n), sizeof *copy), *q = mem_array((size_t)(n * n), sizeof *q),
           *d = mem_array((size_t)n, sizeof *d), *e = mem_array((size_t)n + 1, sizeof *e),
           *work = mem_array(3 * (size_t)n, sizeof *work);
    memcpy(copy, a, (size_t)(n * n) * sizeof *a);
    tridiagonal(copy, n, d, e, q, work);
    int err = ql(d, e, q, n);
    if (!err)
        sort(d, q, n, count, values, vectors);
    mem_free(copy);
    mem_free(q);
    mem_free(d);
    mem_free(e);
    mem_free(work);
    return err;
}

/* ---- a few of many ---- */

/* Rows of y become orthonormal: modified Gram-Schmidt, twice. What vanishes is replaced by a unit vector. */
static void orthonormal(double *y, int64_t rows, int64_t n)
{
    for (int64_t i = 0; i < rows; i++) {
        double *row = y + i * n, before = sqrt(rows_dot(row, row, n));
        for (int pass = 0; pass < 2; pass++)
            for (int64_t k = 0; k < i; k++)
                rows_add(row, -rows_dot(row, y + k * n, n), y + k * n, n);
        double length = sqrt(rows_dot(row, row, n));
        if (length <= 1e-14 * before || length == 0) {
            memset(row, 0, (size_t)n * sizeof *row);
            row[i % n] = 1;
            for (int64_t k = 0; k < i; k++)
                rows_add(row, -rows_dot(row, y + k * n, n), y + k * n, n);
            length = sqrt(rows_dot(row, row, n));
        }
        for (int64_t j = 0; j < n; j++)
            row[j] /= length > 0 ? length : 1;
    }
}

/* out[rows, n] = y[rows, n]·a for symmetric a. */
static void times(double *out, const double *y, const double *a, int64_t rows, int64_t n)
{
    memset(out, 0, (size_t)(rows * n) * sizeof *out);
    rows_multiply(out, 1, y, n, 1, a, rows, n, n, false);
}

static void random_start(double *y, int64_t count)
{
    for (int64_t i = 0; i < count; i += 4) {
        uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), 0, 0}, key[2] = {0x62617369, 0x73}, word[4];
        philox4x32(counter, key, word);
        for (int64_t k = 0; k < 4 && i + k < count; k++)
            y[i + k] = (double)word[k] * 0x1p-31 - 1;
    }
}

static int eigen_some(const double *a, int64_t n, int64_t count, int64_t block, double *values, double *vectors)
{
    double *y = mem_array((size_t)(block * n), sizeof *y), *z = mem_array((size_t)(block * n), sizeof *z),
           *small = mem_array((size_t)(block * block), sizeof *small), *turn = mem_array((size_t)(block * count), sizeof *turn);
    random_start(y, block * n);
    orthonormal(y, block, n);
    for (int i = 0; i < ITERATIONS; i++) {
        times(z, y, a, block, n);
        orthonormal(z, block, n);
        double *other = y;
        y = z;
        z = other;
    }
    times(z, y, a, block, n);
    for (int64_t i = 0; i < block; i++)
        for (int64_t k = 0; k < block; k++)
            small[i * block + k] = (rows_dot(y + i * n, z + k * n, n) + rows_dot(y + k * n, z + i * n, n)) / 2;
    int err = eigen_whole(small, block, count, values, turn);
    if (!err)
        memset(vectors, 0, (size_t)(count * n) * sizeof *vectors);
    for (int64_t i = 0; i < count && !err; i++) {
        double *row = vectors + i * n;
        for (int64_t k = 0; k < block; k++)
            rows_add(row, turn[i * block + k], y + k * n, n);
        settle_sign(row, n);
    }
    mem_free(y);
    mem_free(z);
    mem_free(small);
    mem_free(turn);
    return err;
}

/* Of the vectors that are worked with when `count` are wanted; n: the whole matrix is turned. */
static int64_t block_of(int64_t n, int64_t count)
{
    int64_t block = count + count / 4 + 8;
    return 2 * block > n ? n : block;
}

int64_t statistics_eigen_numbers(int64_t n, int64_t count)
{
    int64_t block = block_of(n, count);
    return block == n ? 2 * n * n : 2 * block * n + block * block + block * count + 2 * block * block;
}

int statistics_eigen(const double *a, int64_t n, int64_t count, double *values, double *vectors)
{
    BUG_IF(n < 1 || count < 1 || count > n);
    for (int64_t i = 0; i < n * n; i++)
        if (!isfinite(a[i]))
            return ERR_INVALID;
    int64_t block = block_of(n, count);
    return block == n ? eigen_whole(a, n, count, values, vectors) : eigen_some(a, n, count, block, values, vectors);
}
