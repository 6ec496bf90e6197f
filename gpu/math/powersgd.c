/* See powersgd.h. */
#include "gpu/math/powersgd.h"

#include <math.h>
#include <string.h>

#include "gpu/math/philox.h"
#include "ssh/base/mem.h"
#include "ssh/base/why.h"

#define DEPENDENT 1e-6 /* of the longest column: what is left of a column after projection is rounding */
#define ATTEMPTS 16

struct powersgd {
    struct powersgd_settings settings; /* with the rank that is used */
    int64_t most_rank;
    uint64_t rounds; /* committed; alternating: even ones know the right side, odd ones the left */
    float *basis;    /* of the side that is known, [columns or rows, rank] */
    float *left;     /* two-sided: U of the round under way, [rows, rank] */
    float *error;    /* [rows, columns] */
    float *matrix;   /* [rows, columns], M of the round under way */
    float *transposed; /* [rank, longer side], of the factor that is walked by columns */
    double *scratch; /* [longer side · rank] */
    bool begun;
};

/* ---- orthonormal columns ---- */

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Take the earlier columns out of column k, twice; the norm that is left. */
static double reduce(double *columns, int64_t rows, int64_t k)
{
    double *column = columns + k * rows;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < k; i++) {
            const double *earlier = columns + i * rows;
            double share = dot(earlier, column, rows);
            for (int64_t j = 0; j < rows; j++)
                column[j] -= share * earlier[j];
        }
    return sqrt(dot(column, column, rows));
}

static void philox_column(double *column, int64_t rows, uint64_t seed, uint64_t stream, uint32_t index, uint32_t attempt)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32) ^ (uint32_t)(stream >> 32)};
    for (int64_t i = 0; i < rows; i += 4) {
        const uint32_t counter[4] = {(uint32_t)(i / 4), index, attempt, (uint32_t)stream};
        uint32_t draw[4];
        philox4x32(counter, key, draw);
        for (int64_t j = i; j < rows && j < i + 4; j++)
            column[j] = (double)draw[j - i] * 0x1p-31 - 1;
    }
}

void powersgd_orthonormalize(float *a, int64_t rows, int64_t rank, uint64_t seed, uint64_t stream, double *columns)
{
    double longest = 0;
    BUG_IF(rank < 1 || rank > rows);
    for (int64_t k = 0; k < rank; k++) {
        for (int64_t i = 0; i < rows; i++)
            columns[k * rows + i] = (double)a[i * rank + k];
        double norm = sqrt(dot(columns + k * rows, columns + k * rows, rows));
        longest = norm > longest ? norm : longest;
    }
    for (int64_t k = 0; k < rank; k++) {
        double *column = columns + k * rows, norm = reduce(columns, rows, k), least = DEPENDENT * longest;
        for (uint32_t attempt = 0; !(norm > least); attempt++) {
            BUG_IF(attempt == ATTEMPTS);
            philox_column(column, rows, seed, stream, (uint32_t)k, attempt);
            least = DEPENDENT * sqrt(dot(column, column, rows));
            norm = reduce(columns, rows, k);
        }
        for (int64_t i = 0; i < rows; i++)
            column[i] /= norm;
    }
    for (int64_t k = 0; k < rank; k++)
        for (int64_t i = 0; i < rows; i++)
            a[i * rank + k] = (float)columns[k * rows + i];
}

/* ---- products, every sum in one order ---- */

/* out[rows, rank] = m · b[columns, rank] */
static void multiply(const struct powersgd *p, const float *restrict b, float *restrict out)
{
    int64_t rows = p->settings.rows, columns = p->settings.columns, rank = p->settings.rank;
    memset(out, 0, (size_t)(rows * rank) * sizeof *out);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            for (int64_t k = 0; k < rank; k++)
                out[i * rank + k] += p->matrix[i * columns + j] * b[j * rank + k];
}

/* out[columns, rank] = mᵀ · b[rows, rank] */
static void multiply_transposed(const struct powersgd *p, const float *restrict b, float *restrict out)
{
    int64_t rows = p->settings.rows, columns = p->settings.columns, rank = p->settings.rank;
    memset(out, 0, (size_t)(columns * rank) * sizeof *out);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            for (int64_t k = 0; k < rank; k++)
                out[j * rank + k] += p->matrix[i * columns + j] * b[i * rank + k];
}

/* A row of left[rows, rank] · right[columns, rank]ᵀ, of which p->transposed has right. */
static void outer_row(const struct powersgd *p, const float *left, float *restrict out)
{
    int64_t columns = p->settings.columns;
    memset(out, 0, (size_t)columns * sizeof *out);
    for (int64_t k = 0; k < p->settings.rank; k++) {
        const float *right = p->transposed + k * columns;
        for (int64_t j = 0; j < columns; j++)
            out[j] += left[k] * right[j];
    }
}

static void transpose(struct powersgd *p, const float *right)
{
    int64_t columns = p->settings.columns, rank = p->settings.rank;
    for (int64_t j = 0; j < columns; j++)
        for (int64_t k = 0; k < rank; k++)
            p->transposed[k * columns + j] = right[j * rank + k];
}

static void outer_product(struct powersgd *p, const float *left, const float *right, float *out)
{
    transpose(p, right);
    for (int64_t i = 0; i < p->settings.rows; i++)
        outer_row(p, left + i * p->settings.rank, out + i * p->settings.columns);
}

/* ---- life ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t longer(const struct powersgd_settings *settings)
{
    return settings->rows > settings->columns ? settings->rows : settings->columns;
}

bool powersgd_pays(int64_t rows, int64_t columns, int64_t rank, bool two_sided)
{
    int64_t sends = two_sided ? rank * (rows + columns) : rank * (rows > columns ? rows : columns);
    return rank >= 1 && rank <= least(rows, columns) && sends < rows * columns;
}

uint64_t powersgd_memory(const struct powersgd_settings *settings)
{
    uint64_t side = (uint64_t)(longer(settings) * settings->rank), all = (uint64_t)(settings->rows * settings->columns);
    return 4 * (2 * all + 2 * side + (uint64_t)(settings->rows * settings->rank)) + 8 * side;
}

struct powersgd *powersgd_new(const struct powersgd_settings *settings)
{
    int64_t side = longer(settings) * settings->rank, all = settings->rows * settings->columns;
    BUG_IF(settings->rank < 1 || settings->rank > POWERSGD_RANK_MOST || settings->rank > least(settings->rows, settings->columns));
    struct powersgd *made = mem_new(sizeof *made);
    made->settings = *settings;
    made->most_rank = settings->rank;
    made->basis = mem_large((size_t)side * sizeof(float));
    made->left = mem_large((size_t)(settings->rows * settings->rank) * sizeof(float));
    made->error = mem_large((size_t)all * sizeof(float));
    made->matrix = mem_large((size_t)all * sizeof(float));
    made->transposed = mem_large((size_t)side * sizeof(float));
    made->scratch = mem_large((size_t)side * sizeof(double));
    if (!made->basis || !made->left || !made->error || !made->matrix || !made->transposed || !made->scratch) {
        powersgd_free(made);
        return NULL;
    }
    /* Columns of zeros are all replaced: a random basis. */
    powersgd_orthonormalize(made->basis, settings->columns, settings->rank, settings->seed, 0, made->scratch);
    return made;
}

void powersgd_free(struct powersgd *p)
{
    if (!p)
        return;
    mem_large_free(p->basis);
    mem_large_free(p->left);
    mem_large_free(p->error);
    mem_large_free(p->matrix);
    mem_large_free(p->transposed);
    mem_large_free(p->scratch);
    mem_free(p);
}

/* ---- a round ---- */

/* Is the left factor the basis and C of the columns? */
static bool knows_left(const struct powersgd *p)
{
    return !p->settings.two_sided && p->rounds % 2;
}

int powersgd_exchanges(const struct powersgd *p)
{
    return p->settings.two_sided ? 2 : 1;
}

int64_t powersgd_count(const struct powersgd *p, int exchange)
{
    bool of_columns = p->settings.two_sided ? exchange == 1 : knows_left(p);
    return (of_columns ? p->settings.columns : p->settings.rows) * p->settings.rank;
}

int64_t powersgd_most_count(const struct powersgd *p, int exchange)
{
    int64_t side = !p->settings.two_sided ? longer(&p->settings) : exchange == 1 ? p->settings.columns : p->settings.rows;
    return side * p->most_rank;
}

void powersgd_set_rank(struct powersgd *p, int64_t rank)
{
    int64_t side = knows_left(p) ? p->settings.rows : p->settings.columns, had = p->settings.rank;
    BUG_IF(p->begun || rank < 1 || rank > p->most_rank);
    for (int64_t row = 0; row < side && rank < had; row++)
        memmove(p->basis + row * rank, p->basis + row * had, (size_t)rank * sizeof *p->basis);
    for (int64_t row = side - 1; row >= 0 && rank > had; row--) {
        memmove(p->basis + row * rank, p->basis + row * had, (size_t)had * sizeof *p->basis);
        memset(p->basis + row * rank + had, 0, (size_t)(rank - had) * sizeof *p->basis);
    }
    p->settings.rank = rank;
    if (rank > had) /* columns of zeros are replaced */
        powersgd_orthonormalize(p->basis, side, rank, p->settings.seed, 2 * p->rounds, p->scratch);
}

void powersgd_begin(struct powersgd *p, const float *given)
{
    BUG_IF(p->begun);
    p->begun = true;
    for (int64_t i = 0; i < p->settings.rows * p->settings.columns; i++)
        p->matrix[i] = given[i] + p->error[i];
}

void powersgd_contribute(struct powersgd *p, int exchange, float *values)
{
    BUG_IF(!p->begun || exchange < 0 || exchange >= powersgd_exchanges(p));
    if (exchange == 1)
        multiply_transposed(p, p->left, values);
    else if (knows_left(p))
        multiply_transposed(p, p->basis, values);
    else
        multiply(p, p->basis, values);
}

void powersgd_turn(struct powersgd *p, const float *mean)
{
    BUG_IF(!p->begun || !p->settings.two_sided);
    memcpy(p->left, mean, (size_t)(p->settings.rows * p->settings.rank) * sizeof *mean);
    powersgd_orthonormalize(p->left, p->settings.rows, p->settings.rank, p->settings.seed, 2 * p->rounds + 1, p->scratch);
}

void powersgd_commit(struct powersgd *p, const float *own, const float *mean, float kept, float *decoded)
{
    int64_t all = p->settings.rows * p->settings.columns;
    BUG_IF(!p->begun);
    bool of_columns = p->settings.two_sided || knows_left(p);
    const float *left = p->settings.two_sided ? p->left : p->basis;
    /* The own part first, through `decoded`; then the agreed one. */
    outer_product(p, of_columns ? left : own, of_columns ? own : p->basis, decoded);
    for (int64_t i = 0; i < all; i++)
        p->error[i] = kept * (p->matrix[i] - decoded[i]);
    outer_product(p, of_columns ? left : mean, of_columns ? mean : p->basis, decoded);
    int64_t side = of_columns ? p->settings.columns : p->settings.rows;
    memcpy(p->basis, mean, (size_t)(side * p->settings.rank) * sizeof *mean);
    p->rounds++;
    powersgd_orthonormalize(p->basis, side, p->settings.rank, p->settings.seed, 2 * p->rounds, p->scratch);
    p->begun = false;
}

void powersgd_drop(struct powersgd *p)
{
    p->begun = false;
}

void powersgd_set_error(struct powersgd *p, const float *error)
{
    BUG_IF(p->begun);
    memcpy(p->error, error, (size_t)(p->settings.rows * p->settings.columns) * sizeof *error);
}

const float *powersgd_error(const struct powersgd *p)
{
    return p->error;
}

int64_t powersgd_basis_count(const struct powersgd *p)
{
    return (knows_left(p) ? p->settings.rows : p->settings.columns) * p->settings.rank;
}

int64_t powersgd_rank(const struct powersgd *p)
{
    return p->settings.rank;
}

const float *powersgd_basis(const struct powersgd *p, uint64_t *rounds)
{
    *rounds = p->rounds;
    return p->basis;
}

void powersgd_join(struct powersgd *p, const float *basis, uint64_t rounds)
{
    BUG_IF(p->begun);
    p->rounds = rounds;
    memcpy(p->basis, basis, (size_t)powersgd_basis_count(p) * sizeof *basis);
    memset(p->error, 0, (size_t)(p->settings.rows * p->settings.columns) * sizeof *p->error);
}
