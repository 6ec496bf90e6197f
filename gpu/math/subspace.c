/* See subspace.h. */
#include "gpu/math/subspace.h"

#include <math.h>
#include <string.h>

#include "gpu/math/powersgd.h"
#include "ssh/base/mem.h"

#define SWEEPS 30
#define TINY 1e-12 /* of the largest eigenvalue: below it there is no direction to speak of */

struct subspace {
    const struct ops *ops;
    struct device *device;
    int64_t rows, columns, width; /* the most */
    float *narrow, *tall;         /* device: [columns, width], [rows, width] */
    float *left, *right;          /* host, the same shapes */
    double *columns_scratch;      /* [longer side · width] */
    double *gram, *vectors, *values;
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t subspace_width(int64_t rows, int64_t columns, int64_t rank)
{
    return least(rank + SUBSPACE_SPARE, least(rows, columns));
}

uint64_t subspace_memory(int64_t rows, int64_t columns, int64_t rank)
{
    uint64_t width = (uint64_t)(rank + SUBSPACE_SPARE);
    return width * (8 * (uint64_t)(rows + columns) + 8 * (uint64_t)most(rows, columns)) + 8 * (2 * width * width + width);
}

/* ---- the small eigenproblem ---- */

static double off_diagonal(const double *a, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++)
            sum += a[i * n + j] * a[i * n + j];
    return sum;
}

/* Turn p and q so that a[p,q] becomes zero; `a` stays symmetric. */
static void rotate(double *a, double *vectors, int64_t n, int64_t p, int64_t q)
{
    double apq = a[p * n + q];
    if (fabs(apq) < 1e-300)
        return;
    double theta = (a[q * n + q] - a[p * n + p]) / (2 * apq);
    double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
    double c = 1 / sqrt(t * t + 1), s = t * c;
    for (int64_t i = 0; i < n; i++) {
        double ip = a[i * n + p], iq = a[i * n + q];
        a[i * n + p] = c * ip - s * iq;
        a[i * n + q] = s * ip + c * iq;
    }
    for (int64_t i = 0; i < n; i++) {
        double pi = a[p * n + i], qi = a[q * n + i], vp = vectors[i * n + p], vq = vectors[i * n + q];
        a[p * n + i] = c * pi - s * qi;
        a[q * n + i] = s * pi + c * qi;
        vectors[i * n + p] = c * vp - s * vq;
        vectors[i * n + q] = s * vp + c * vq;
    }
}

static void swap_columns(double *vectors, int64_t n, int64_t i, int64_t j)
{
    for (int64_t r = 0; r < n; r++) {
        double kept = vectors[r * n + i];
        vectors[r * n + i] = vectors[r * n + j];
        vectors[r * n + j] = kept;
    }
}

void subspace_eigen(double *a, int64_t n, double *values, double *vectors)
{
    memset(vectors, 0, (size_t)(n * n) * sizeof *vectors);
    double scale = 0;
    for (int64_t i = 0; i < n; i++) {
        vectors[i * n + i] = 1;
        scale += fabs(a[i * n + i]);
    }
    for (int sweep = 0; sweep < SWEEPS && off_diagonal(a, n) > 1e-25 * scale * scale; sweep++)
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++)
                rotate(a, vectors, n, p, q);
    for (int64_t i = 0; i < n; i++)
        values[i] = a[i * n + i];
    for (int64_t i = 0; i < n; i++) {
        int64_t best = i;
        for (int64_t j = i + 1; j < n; j++)
            best = values[j] > values[best] ? j : best;
        double kept = values[i];
        values[i] = values[best];
        values[best] = kept;
        if (best != i)
            swap_columns(vectors, n, i, best);
    }
}

/* ---- life ---- */

struct subspace *subspace_new(const struct ops *ops, struct device *device, int64_t most_rows, int64_t most_columns,
                              int64_t most_rank, struct why *why)
{
    struct subspace *made = mem_new(sizeof *made);
    size_t width = (size_t)(most_rank + SUBSPACE_SPARE), rows = (size_t)most_rows, columns = (size_t)most_columns;
    *made = (struct subspace){
        .ops = ops, .device = device, .rows = most_rows, .columns = most_columns, .width = (int64_t)width};
    made->narrow = ops->alloc(device, columns * width * sizeof(float));
    made->tall = ops->alloc(device, rows * width * sizeof(float));
    made->left = mem_large(rows * width * sizeof(float));
    made->right = mem_large(columns * width * sizeof(float));
    made->columns_scratch = mem_large((rows > columns ? rows : columns) * width * sizeof(double));
    made->gram = mem_array(width * width, sizeof(double));
    made->vectors = mem_array(width * width, sizeof(double));
    made->values = mem_array(width, sizeof(double));
    if (made->narrow && made->tall && made->left && made->right && made->columns_scratch)
        return made;
    subspace_free(made);
    why_set(why, ERR_MEMORY, "no memory for %zu directions of matrices of %zu × %zu", width, rows, columns);
    return NULL;
}

void subspace_free(struct subspace *subspace)
{
    if (!subspace)
        return;
    if (subspace->narrow)
        subspace->ops->free(subspace->device, subspace->narrow);
    if (subspace->tall)
        subspace->ops->free(subspace->device, subspace->tall);
    mem_large_free(subspace->left);
    mem_large_free(subspace->right);
    mem_large_free(subspace->columns_scratch);
    mem_free(subspace->gram);
    mem_free(subspace->vectors);
    mem_free(subspace->values);
    mem_free(subspace);
}

/* ---- the iteration ---- */

static void orthonormalize(struct subspace *s, float *a, int64_t rows, int64_t width, uint64_t seed, uint64_t stream)
{
    powersgd_orthonormalize(a, rows, width, seed, stream, s->columns_scratch);
}

/* s->left ← orth(M·start), s->right ← Mᵀ·s->left */
static void one_pass(struct subspace *s, const float *matrix, int64_t m, int64_t n, int64_t width, uint64_t seed,
                     const float *start)
{
    const struct ops *ops = s->ops;
    size_t tall = (size_t)(m * width) * sizeof(float), narrow = (size_t)(n * width) * sizeof(float);
    ops->copy_in(s->device, s->narrow, start, narrow);
    ops->matmul(s->device, s->tall, matrix, s->narrow, m, width, n, n, width, width, false, false, false);
    ops->copy_out(s->device, s->left, s->tall, tall);
    ops->finish(s->device);
    orthonormalize(s, s->left, m, width, seed, 2);
    ops->copy_in(s->device, s->tall, s->left, tall);
    ops->matmul(s->device, s->narrow, matrix, s->tall, n, width, m, n, width, width, true, false, false);
    ops->copy_out(s->device, s->right, s->narrow, narrow);
    ops->finish(s->device);
}

static void decompose_gram(struct subspace *s, int64_t n, int64_t width)
{
    memset(s->gram, 0, (size_t)(width * width) * sizeof *s->gram);
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < width; i++)
            for (int64_t j = 0; j <= i; j++)
                s->gram[i * width + j] += (double)s->right[r * width + i] * (double)s->right[r * width + j];
    for (int64_t i = 0; i < width; i++)
        for (int64_t j = 0; j < i; j++)
            s->gram[j * width + i] = s->gram[i * width + j];
    subspace_eigen(s->gram, width, s->values, s->vectors);
}

/* out[rows, count] = a[rows, width] · W, every column divided by `divide` (NULL: by 1); what is below TINY becomes zero. */
static void turn(const struct subspace *s, const float *a, int64_t rows, int64_t width, int64_t count, bool divide,
                 float *out)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < count; k++) {
            double sum = 0;
            for (int64_t i = 0; i < width; i++)
                sum += (double)a[r * width + i] * s->vectors[i * width + k];
            bool nothing = !(s->values[k] > TINY * s->values[0]);
            out[r * count + k] = !divide ? (float)sum : nothing ? 0 : (float)(sum / sqrt(s->values[k]));
        }
}

static void fix_signs(float *left, float *right, int64_t m, int64_t n, int64_t rank)
{
    for (int64_t k = 0; k < rank; k++) {
        float largest = 0;
        for (int64_t r = 0; r < m; r++)
            largest = fabsf(left[r * rank + k]) > fabsf(largest) ? left[r * rank + k] : largest;
        for (int64_t r = 0; largest < 0 && r < m; r++)
            left[r * rank + k] = -left[r * rank + k];
        for (int64_t r = 0; largest < 0 && r < n; r++)
            right[r * rank + k] = -right[r * rank + k];
    }
}

void subspace_find(struct subspace *s, const float *matrix, int64_t rows, int64_t columns, int64_t rank, int passes,
                   uint64_t seed, float *start, const struct subspace_result *result)
{
    int64_t width = subspace_width(rows, columns, rank);
    BUG_IF(rank < 1 || rank > least(rows, columns) || rows > s->rows || columns > s->columns || width > s->width ||
           passes < 1);
    orthonormalize(s, start, columns, width, seed, 1);
    for (int pass = 0; pass < passes; pass++) {
        one_pass(s, matrix, rows, columns, width, seed, start);
        if (pass + 1 < passes) {
            memcpy(start, s->right, (size_t)(columns * width) * sizeof *start);
            orthonormalize(s, start, columns, width, seed, 1);
        }
    }
    decompose_gram(s, columns, width);
    turn(s, s->left, rows, width, rank, false, result->left);
    turn(s, s->right, columns, width, width, true, start); /* where the next call begins */
    for (int64_t r = 0; r < columns; r++)
        memcpy(result->right + r * rank, start + r * width, (size_t)rank * sizeof *start);
    orthonormalize(s, result->right, columns, rank, seed, 3);
    for (int64_t k = 0; k < rank; k++)
        result->singular[k] = s->values[k] > TINY * s->values[0] ? (float)sqrt(s->values[k]) : 0;
    fix_signs(result->left, result->right, rows, columns, rank);
}
