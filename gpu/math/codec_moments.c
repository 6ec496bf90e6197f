/*
 * What the owner of a tensor measures of it, and the state that is made of that. Second moments of a micro-batch are
 * summed on the device (fp32), joined with what was measured before on the host (fp64, decayed), and solved there
 * (gpu/math/statistics.h):
 *
 *   forward    FᵀF, FᵀX, XᵀX of features and activations → reference, then directions of what it leaves
 *   backward   GᵀG, divided by its mean diagonal: gradients shrink as training goes on, and only their shape counts
 *
 * Where the reference is a mean and there are no directions, only sums of columns are needed, and each version forgets
 * the one before.
 */
#include "gpu/math/codec_kind.h"

#include <float.h>
#include <math.h>

#include "gpu/math/half.h"
#include "gpu/math/levels.h"
#include "gpu/math/statistics.h"
#include "ssh/base/mem.h"

#define RIDGE 1e-3      /* of the mean diagonal of FᵀF */
#define WEIGHT_RIDGE 0.2 /* of the mean diagonal of what errors are weighed by */
#define SMALLEST 1e-9   /* eigenvalue, of the largest */

/* Features without the one. */
static int64_t token_features(const struct codec_settings *s)
{
    return s->reference == CODEC_REFERENCE_TOKENS ? codec_features(s) - 1 : 0;
}

static bool means_only(const struct codec_settings *s)
{
    return !codec_kind_of(s)->bases && s->reference == CODEC_REFERENCE_MEAN;
}

static size_t floats(int64_t count)
{
    return codec_aligned((size_t)count * sizeof(float));
}

size_t codec_moments_memory(const struct codec_settings *s, enum codec_way way)
{
    int64_t m = way == CODEC_FORWARD ? token_features(s) : 0;
    size_t products = codec_has_bases(s, way) ? floats(s->width * s->width) : 0;
    size_t columns = way == CODEC_FORWARD ? floats(s->width) : 0;
    return floats(m * m) + floats(m * s->width) + floats(m) + columns + products;
}

/* ---- memory of the owner ---- */

static int64_t features_of(const struct codec_settings *s, enum codec_way way)
{
    return way == CODEC_FORWARD ? codec_features(s) : 0;
}

static int64_t larger(int64_t one, int64_t other)
{
    return one > other ? one : other;
}

size_t codec_measured_bytes(const struct codec_settings *s, enum codec_way way)
{
    int64_t n = features_of(s, way), width = s->width;
    if (!codec_has_state(s, way))
        return 0;
    int64_t products = codec_has_bases(s, way) ? width * width : 0;
    return sizeof(double) * (size_t)(n * n + n * width + products);
}

size_t codec_export_bytes(const struct codec_settings *s, enum codec_way way)
{
    int64_t n = codec_weighs(s) ? codec_features(s) : features_of(s, way), width = s->width, rank = codec_rank(s);
    int64_t most = n * n + n * width; /* solve_weights */
    int64_t directions = rank * width + statistics_eigen_numbers(width, rank), cells = width * width;
    if (codec_weighs(s)) /* the weight and projections beside them, or one matrix while it is applied */
        directions = cells + 2 * rank * width + larger(cells, statistics_eigen_numbers(width, rank));
    if (!codec_has_state(s, way))
        return 0;
    if (codec_has_bases(s, way)) /* statistics_residual, put_directions; the covariance beside both, and a weight */
        most = cells + larger((codec_weighs(s) ? cells : 0) + larger(most, 2 * n * width), directions);
    return sizeof(double) * (size_t)most + sizeof(float) * (size_t)(n * width) + codec_made_bytes(s, way);
}

size_t codec_owner_bytes(const struct codec_settings *s, enum codec_way way)
{
    enum codec_way other = way == CODEC_FORWARD ? CODEC_BACKWARD : CODEC_FORWARD;
    size_t weights = codec_weighs(s) ? codec_measured_bytes(s, other) : 0;
    return codec_has_state(s, way) ? codec_measured_bytes(s, way) + weights + codec_export_bytes(s, way) : 0;
}

void codec_moments_place(struct codec *codec, enum codec_way way, float *block)
{
    const struct codec_settings *s = &codec->settings;
    struct codec_moments *moments = &codec->part[way].moments;
    int64_t m = way == CODEC_FORWARD ? token_features(s) : 0, features = way == CODEC_FORWARD ? codec_features(s) : 0;
    moments->block = block;
    moments->ff = block;
    moments->fx = moments->ff + floats(m * m) / sizeof(float);
    moments->f = moments->fx + floats(m * s->width) / sizeof(float);
    moments->x = moments->f + floats(m) / sizeof(float);
    moments->products = moments->x + (way == CODEC_FORWARD ? floats(s->width) / sizeof(float) : 0);
    moments->fresh_f = mem_array((size_t)m + 1, sizeof(double));
    moments->fresh_x = mem_array((size_t)s->width, sizeof(double));
    moments->sum_ff = mem_array((size_t)(features * features) + 1, sizeof(double));
    moments->sum_fx = mem_array((size_t)(features * s->width) + 1, sizeof(double));
    if (codec_has_bases(s, way))
        moments->sum_products = mem_array((size_t)(s->width * s->width), sizeof(double));
}

void codec_moments_free(struct codec_moments *moments)
{
    mem_free(moments->fresh_f);
    mem_free(moments->fresh_x);
    mem_free(moments->sum_ff);
    mem_free(moments->sum_fx);
    mem_free(moments->sum_products);
}

/* ---- measuring ---- */

/* sum += rows · column means, which the op accumulates in fp64 */
static void add_columns(struct codec *codec, double *sum, float *device_mean, const float *x, int64_t rows, int64_t width)
{
    float *mean = mem_array((size_t)width, sizeof *mean);
    codec->ops->column_mean(codec->device, device_mean, x, rows, width);
    codec->ops->copy_out(codec->device, mean, device_mean, (size_t)width * sizeof *mean);
    codec->ops->finish(codec->device);
    for (int64_t i = 0; i < width; i++)
        sum[i] += (double)rows * (double)mean[i];
    mem_free(mean);
}

void codec_measure(struct codec *codec, const struct codec_use *use, const float *x)
{
    const struct codec_settings *s = &codec->settings;
    struct codec_moments *moments = &codec->part[CODEC_FORWARD].moments;
    int64_t m = token_features(s), rank = codec_rank(s), width = s->width, rows = use->rows;
    if (!codec_has_state(s, CODEC_FORWARD))
        return;
    BUG_IF(rows < 1 || rows > s->max_rows);
    codec_reference_features(codec, use);
    for (int64_t i = 0; i < m / rank; i++) {
        const float *f = codec->features + i * s->max_rows * rank;
        for (int64_t j = 0; j < m / rank; j++)
            codec->ops->matmul(codec->device, moments->ff + i * rank * m + j * rank, f,
                               codec->features + j * s->max_rows * rank,
                               rank, rank, rows, rank, rank, m, true, false, true);
        codec->ops->matmul(codec->device, moments->fx + i * rank * width, f, x, rank, width, rows, rank, width, width,
                           true, false, true);
        add_columns(codec, moments->fresh_f + i * rank, moments->f, f, rows, rank);
    }
    add_columns(codec, moments->fresh_x, moments->x, x, rows, width);
    if (codec_has_bases(s, CODEC_FORWARD))
        codec->ops->matmul(codec->device, moments->products, x, x, width, width, rows, width, width, width, true, false,
                           true);
    moments->rows += (double)rows;
}

void codec_measure_gradient(struct codec *codec, const struct codec_use *use, const float *dx)
{
    const struct codec_settings *s = &codec->settings;
    struct codec_moments *moments = &codec->part[CODEC_BACKWARD].moments;
    if (!codec_has_state(s, CODEC_BACKWARD))
        return;
    codec->ops->matmul(codec->device, moments->products, dx, dx, s->width, s->width, use->rows, s->width, s->width,
                       s->width, true, false, true);
    moments->rows += (double)use->rows;
}

void codec_forget(struct codec *codec, enum codec_way way)
{
    const struct codec_settings *s = &codec->settings;
    struct codec_moments *moments = &codec->part[way].moments;
    if (!codec_has_state(s, way))
        return;
    int64_t m = way == CODEC_FORWARD ? token_features(s) : 0;
    codec->ops->fill(codec->device, moments->block, 0, (int64_t)(codec_moments_memory(s, way) / sizeof(float)));
    memset(moments->fresh_f, 0, (size_t)m * sizeof(double));
    memset(moments->fresh_x, 0, (size_t)s->width * sizeof(double));
    moments->rows = 0;
}

/* ---- joining ---- */

static bool all_finite(const double *values, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += values[i] * 0;
    return sum == 0;
}

static float *fetch(struct codec *codec, const float *from, int64_t count)
{
    float *values = mem_array((size_t)count + 1, sizeof *values);
    codec->ops->copy_out(codec->device, values, from, (size_t)count * sizeof *values);
    codec->ops->finish(codec->device);
    return values;
}

/* Old sums fade, new ones come in: the weights of statistics_decay, for sums that are here already. */
struct fading {
    double old, new;
};

static void join(double *sum, double fresh, const struct fading *fading)
{
    *sum = fading->old * *sum + fading->new *fresh;
}

/* The one is the last feature: its row and column are plain sums. */
static void join_forward(struct codec *codec, const struct fading *fading)
{
    const struct codec_settings *s = &codec->settings;
    struct codec_moments *moments = &codec->part[CODEC_FORWARD].moments;
    int64_t m = token_features(s), features = codec_features(s), width = s->width;
    float *ff = fetch(codec, moments->ff, m * m), *fx = fetch(codec, moments->fx, m * width);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < m; j++)
            join(&moments->sum_ff[i * features + j], (double)ff[i * m + j], fading);
        join(&moments->sum_ff[i * features + m], moments->fresh_f[i], fading);
        join(&moments->sum_ff[m * features + i], moments->fresh_f[i], fading);
        for (int64_t j = 0; j < width; j++)
            join(&moments->sum_fx[i * width + j], (double)fx[i * width + j], fading);
    }
    if (features) {
        join(&moments->sum_ff[m * features + m], moments->rows, fading);
        for (int64_t j = 0; j < width; j++)
            join(&moments->sum_fx[m * width + j], moments->fresh_x[j], fading);
    }
    mem_free(ff);
    mem_free(fx);
}

/* Gradients by their mean diagonal. */
static void join_products(struct codec *codec, enum codec_way way, const struct fading *fading)
{
    const struct codec_settings *s = &codec->settings;
    struct codec_moments *moments = &codec->part[way].moments;
    float *products = fetch(codec, moments->products, s->width * s->width);
    double trace = 0;
    for (int64_t i = 0; i < s->width; i++)
        trace += (double)products[i * s->width + i];
    struct fading scaled = *fading;
    if (way == CODEC_BACKWARD)
        scaled.new = trace > 0 ? fading->new *(double)s->width / trace : 0;
    for (int64_t i = 0; i < s->width * s->width; i++)
        join(&moments->sum_products[i], (double)products[i], &scaled);
    mem_free(products);
}

static bool measured_is_finite(struct codec *codec, enum codec_way way)
{
    const struct codec_settings *s = &codec->settings;
    const struct codec_moments *moments = &codec->part[way].moments;
    int64_t m = way == CODEC_FORWARD ? token_features(s) : 0;
    int64_t cells = (int64_t)(codec_moments_memory(s, way) / sizeof(float));
    return codec->ops->all_finite(codec->device, moments->block, cells) && all_finite(moments->fresh_f, m) &&
           all_finite(moments->fresh_x, s->width);
}

int codec_settle(struct codec *codec, enum codec_way way)
{
    const struct codec_settings *s = &codec->settings;
    if (!codec_has_state(s, way))
        return ERR_ABSENT;
    struct codec_moments *moments = &codec->part[way].moments;
    bool usable = moments->rows > 0 && measured_is_finite(codec, way);
    double decay = moments->settled && !means_only(s) ? s->decay : 0;
    struct fading fading = {decay, 1 - decay};
    if (usable) {
        if (way == CODEC_FORWARD)
            join_forward(codec, &fading);
        if (codec_has_bases(s, way))
            join_products(codec, way, &fading);
        join(&moments->sum_rows, moments->rows, &fading);
        moments->settled = true;
    }
    codec_forget(codec, way);
    return usable ? 0 : ERR_ABSENT;
}

/* ---- solving ---- */

/* B of the settled sums: as it will travel, and the numbers that are made of that. */
static int solve_weights(const struct codec_settings *s, const struct codec_moments *moments, uint8_t *out, float *weights)
{
    int64_t n = codec_features(s), width = s->width;
    double *a = mem_array((size_t)(n * n), sizeof *a), *b = mem_array((size_t)(n * width), sizeof *b), trace = 0;
    memcpy(a, moments->sum_ff, (size_t)(n * n) * sizeof *a);
    memcpy(b, moments->sum_fx, (size_t)(n * width) * sizeof *b);
    for (int64_t i = 0; i < n; i++)
        trace += a[i * n + i];
    for (int64_t i = 0; i < n && n > 1; i++)
        a[i * n + i] += RIDGE * trace / (double)n;
    int err = statistics_solve(a, b, n, width);
    for (int64_t i = 0; i < n * width && !err; i++)
        weights[i] = (float)b[i];
    if (!err)
        codec_weights_put(s, weights, out);
    if (!err)
        codec_weights_get(s, out, weights);
    mem_free(a);
    mem_free(b);
    return err;
}

/* What of each channel's variance is not in the directions, as they travel. */
static void put_spread(const struct codec_settings *s, const double *covariance, uint8_t *out)
{
    int64_t rank = codec_rank(s), width = s->width;
    uint8_t *vectors = out + 4 * rank, *spread = vectors + 2 * rank * width;
    for (int64_t c = 0; c < width; c++) {
        double left = covariance[c * width + c];
        for (int64_t i = 0; i < rank; i++) {
            float value, part = half_to_float(half_get(vectors + 2 * (i * width + c)));
            memcpy(&value, out + 4 * i, sizeof value);
            left -= (double)value * (double)part * (double)part;
        }
        half_put(spread + 2 * c, half_from_float((float)(left > 0 ? left : 0)));
    }
}

/* Of all that was settled of activations: the reference as it will travel, and what it leaves (NULL: not asked for). */
static int solve_residual(const struct codec *codec, uint8_t *reference, double *covariance)
{
    const struct codec_settings *s = &codec->settings;
    const struct codec_moments *moments = &codec->part[CODEC_FORWARD].moments;
    int64_t n = codec_features(s), cells = s->width * s->width;
    float *weights = mem_array((size_t)(n * s->width) + 1, sizeof *weights);
    int err = n ? solve_weights(s, moments, reference, weights) : 0;
    if (!err && covariance)
        statistics_residual(covariance, moments->sum_products, moments->sum_ff, moments->sum_fx, weights, n, s->width);
    for (int64_t i = 0; i < cells && !err && covariance; i++)
        covariance[i] /= moments->sum_rows;
    mem_free(weights);
    return err;
}

/* What errors of this way count: second moments of the other, of a mean diagonal of one, and a ridge; I while nothing is known. */
static int put_weight(const struct codec *codec, enum codec_way way, double *weight)
{
    const struct codec_settings *s = &codec->settings;
    enum codec_way other = way == CODEC_FORWARD ? CODEC_BACKWARD : CODEC_FORWARD;
    const struct codec_moments *moments = &codec->part[other].moments;
    int64_t width = s->width, cells = width * width;
    uint8_t *reference = mem_new(codec_weights_bytes(s) + 1);
    double trace = 0;
    int err = 0;
    memset(weight, 0, (size_t)cells * sizeof *weight);
    if (moments->settled && other == CODEC_FORWARD)
        err = solve_residual(codec, reference, weight);
    else if (moments->settled)
        memcpy(weight, moments->sum_products, (size_t)cells * sizeof *weight);
    mem_free(reference);
    for (int64_t i = 0; i < width; i++)
        trace += weight[i * width + i];
    for (int64_t i = 0; i < cells && trace > 0; i++)
        weight[i] *= (double)width / trace;
    for (int64_t i = 0; i < width; i++)
        weight[i * width + i] += trace > 0 ? WEIGHT_RIDGE : 1;
    return err;
}

/* Directions of a covariance, largest first; no eigenvalue below a small share of the largest. With `weight` (used up) those of errors
 * that are weighed so, and their projections behind them. */
static int put_directions(const struct codec_settings *s, double *covariance, double *weight, uint8_t *out)
{
    int64_t rank = codec_rank(s), width = s->width;
    double *values = mem_array((size_t)rank, sizeof *values), *vectors = mem_array((size_t)(rank * width), sizeof *vectors);
    double *projections = weight ? mem_array((size_t)(rank * width), sizeof *projections) : NULL;
    int err = weight ? statistics_weigh(covariance, weight, width) : 0;
    err = err ? err : statistics_eigen(covariance, width, rank, values, vectors);
    if (weight && !err)
        statistics_unweigh(weight, width, rank, vectors, projections);
    for (int64_t i = 0; i < rank && !err; i++) {
        double least = values[0] * SMALLEST > FLT_MIN ? values[0] * SMALLEST : FLT_MIN;
        float value = (float)(values[i] > least ? values[i] : least);
        memcpy(out + 4 * i, &value, sizeof value);
    }
    for (int64_t i = 0; i < rank * width && !err; i++)
        half_put(out + 4 * rank + 2 * i, half_from_float((float)vectors[i]));
    if (!err && codec_kind_of(s)->spread)
        put_spread(s, covariance, out);
    for (int64_t i = 0; i < rank * width && weight && !err; i++)
        half_put(out + 4 * rank + 2 * (rank * width + i), half_from_float((float)projections[i]));
    mem_free(values);
    mem_free(vectors);
    mem_free(projections);
    return err;
}

int codec_export(struct codec *codec, enum codec_way way, uint8_t **state, size_t *bytes)
{
    const struct codec_settings *s = &codec->settings;
    const struct codec_moments *moments = &codec->part[way].moments;
    if (!codec_has_state(s, way) || !moments->settled)
        return ERR_ABSENT;
    size_t cells = codec_has_bases(s, way) ? (size_t)(s->width * s->width) : 0;
    double *covariance = cells ? mem_array(cells, sizeof *covariance) : NULL, *weight = NULL;
    uint8_t *out = mem_new(codec_made_bytes(s, way)), *directions = out + (way == CODEC_FORWARD ? codec_weights_bytes(s) : 0);
    int err = 0;
    if (way == CODEC_FORWARD)
        err = solve_residual(codec, out, covariance);
    else if (cells)
        memcpy(covariance, moments->sum_products, cells * sizeof *covariance);
    if (!err && codec_weighs(s)) {
        weight = mem_array(cells, sizeof *weight);
        err = put_weight(codec, way, weight);
    }
    if (!err && covariance)
        err = put_directions(s, covariance, weight, directions);
    mem_free(weight);
    mem_free(covariance);
    if (err) {
        mem_free(out);
        return ERR_ABSENT;
    }
    *state = out;
    *bytes = codec_made_bytes(s, way);
    return 0;
}

bool codec_distortion(const struct codec *codec, enum codec_way way, int64_t keep, double *expected, double *bound)
{
    const struct codec_settings *s = &codec->settings;
    const struct codec_part *part = &codec->part[way];
    const struct codec_version *state = &part->held[part->held[0].version > part->held[1].version ? 0 : 1];
    if (!codec_has_bases(s, way) || !state->version || !codec->kind->deal)
        return false;
    int64_t rank = codec_rank(s), budget = codec_budget(s, keep, way);
    double *values = mem_array((size_t)rank, sizeof *values);
    uint8_t *bits = mem_array((size_t)rank, 1);
    codec->kind->deal(s, state->values, rank, 8 * (budget - 2), bits);
    *expected = codec->kind->error ? codec->kind->error(state->values, rank, 8 * budget) : 0;
    for (int64_t i = 0; i < rank; i++) {
        values[i] = (double)state->values[i];
        *expected += codec->kind->error ? 0 : values[i] * levels_error[bits[i]];
    }
    *bound = statistics_bound(values, rank, 8 * (double)budget);
    mem_free(values);
    mem_free(bits);
    return true;
}
