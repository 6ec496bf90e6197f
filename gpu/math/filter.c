/* See filter.h. */
#include "gpu/math/filter.h"

#include <math.h>
#include <string.h>

#include "gpu/math/subspace.h"
#include "ssh/base/mem.h"

#define BINS 12         /* index groups of 512 directions, and the outside */
#define MEMORY 0.9      /* of the bins' energies, from step to step */
#define NEGLIGIBLE 1e-9 /* of ‖G‖²: a bin with less has no share to estimate */

struct filter_state {
    int64_t rows, columns;
    double signal[BINS][BINS], total[BINS][BINS];
    float *start; /* shrink: where the subspace iteration begins */
};

struct filter {
    const struct ops *ops;
    struct device *device;
    struct filter_settings settings;
    int64_t rows, columns;                     /* the most */
    float *wide, *tall, *small, *turned;       /* device: [rank, columns], [rows, rank], [rank, rank], [rank, columns] */
    float *host_wide, *host_tall, *host_small; /* of G; and of the first half: */
    float *half_wide, *half_tall, *half_small;
    float *left, *right, *singular; /* shrink, device and host */
    struct subspace *subspace;
};

/* A basis, the matrix in it, and its shape. */
struct view {
    int64_t m, n, k;
    const float *u, *v, *g, *half;
    double gg, inner, noise; /* ‖G‖², ⟨G_first, G_second⟩, ‖G_first − G_second‖² */
};

bool filter_needs_half(const struct filter_settings *settings)
{
    bool has_tau = settings->kind == FILTER_TIKHONOV || settings->kind == FILTER_ALIGN;
    if (settings->kind == FILTER_NONE)
        return false;
    return settings->kind == FILTER_WIENER || settings->kind == FILTER_SHRINK || settings->norm == FILTER_NORM_SIGNAL ||
           (has_tau && settings->scale == FILTER_NOISE);
}

double filter_fade(uint64_t age_steps, uint64_t limit_steps)
{
    if (age_steps <= limit_steps)
        return 1;
    if (age_steps >= 2 * limit_steps)
        return 0;
    return (double)(2 * limit_steps - age_steps) / (double)limit_steps;
}

/* ---- life ---- */

static bool has_bins(const struct filter_settings *settings)
{
    return settings->kind == FILTER_WIENER;
}

uint64_t filter_memory(const struct filter_settings *settings, int64_t most_rows, int64_t most_columns)
{
    uint64_t m = (uint64_t)most_rows, n = (uint64_t)most_columns, k = (uint64_t)settings->rank;
    uint64_t device = k * (2 * n + m + k), host = (has_bins(settings) ? 2 : 1) * k * (n + m + k);
    uint64_t shrink = settings->kind == FILTER_SHRINK
                          ? subspace_memory(most_rows, most_columns, settings->rank) + 4 * k * (m + n + 1)
                          : 0;
    return 4 * (device + host) + shrink;
}

static int take_host(struct filter *filter)
{
    size_t m = (size_t)filter->rows, n = (size_t)filter->columns, k = (size_t)filter->settings.rank;
    struct {
        float **at;
        size_t floats;
        bool wanted;
    } blocks[] = {
        {&filter->host_wide, k * n, true},
        {&filter->host_tall, k * m, true},
        {&filter->host_small, k * k, true},
        {&filter->half_wide, k * n, has_bins(&filter->settings)},
        {&filter->half_tall, k * m, has_bins(&filter->settings)},
        {&filter->half_small, k * k, has_bins(&filter->settings)},
        {&filter->left, k * m, filter->settings.kind == FILTER_SHRINK},
        {&filter->right, k * n, filter->settings.kind == FILTER_SHRINK},
        {&filter->singular, k, filter->settings.kind == FILTER_SHRINK},
    };
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (blocks[i].wanted && !(*blocks[i].at = mem_large(blocks[i].floats * sizeof(float))))
            return ERR_MEMORY;
    return 0;
}

static int take_device(struct filter *filter)
{
    const struct ops *ops = filter->ops;
    size_t m = (size_t)filter->rows, n = (size_t)filter->columns, k = (size_t)filter->settings.rank;
    filter->wide = ops->alloc(filter->device, k * n * sizeof(float));
    filter->turned = ops->alloc(filter->device, k * n * sizeof(float));
    filter->tall = ops->alloc(filter->device, k * m * sizeof(float));
    filter->small = ops->alloc(filter->device, k * k * sizeof(float));
    return filter->wide && filter->turned && filter->tall && filter->small ? 0 : ERR_MEMORY;
}

struct filter *filter_new(const struct ops *ops, struct device *device, const struct filter_settings *settings,
                          int64_t most_rows, int64_t most_columns, struct why *why)
{
    struct filter *made = mem_new(sizeof *made);
    *made = (struct filter){.ops = ops, .device = device, .settings = *settings, .rows = most_rows, .columns = most_columns};
    int err = take_device(made);
    if (!err)
        err = take_host(made);
    if (!err && settings->kind == FILTER_SHRINK) {
        made->subspace = subspace_new(ops, device, most_rows, most_columns, settings->rank, why);
        err = made->subspace ? 0 : ERR_MEMORY;
    }
    if (!err)
        return made;
    filter_free(made);
    why_set(why, err, "no memory to correct gradients of %lld × %lld in %lld directions; lower anchor.rank",
            (long long)most_rows, (long long)most_columns, (long long)settings->rank);
    return NULL;
}

void filter_free(struct filter *filter)
{
    if (!filter)
        return;
    float *device[] = {filter->wide, filter->turned, filter->tall, filter->small};
    float *host[] = {filter->host_wide,  filter->host_tall, filter->host_small, filter->half_wide, filter->half_tall,
                     filter->half_small, filter->left,      filter->right,      filter->singular};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        if (device[i])
            filter->ops->free(filter->device, device[i]);
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        mem_large_free(host[i]);
    subspace_free(filter->subspace);
    mem_free(filter);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

struct filter_state *filter_state_new(const struct filter *filter, int64_t rows, int64_t columns)
{
    struct filter_state *state = mem_new(sizeof *state);
    int64_t rank = least(filter->settings.rank, least(rows, columns));
    *state = (struct filter_state){.rows = rows, .columns = columns};
    if (filter->settings.kind == FILTER_SHRINK)
        state->start = mem_array((size_t)(columns * subspace_width(rows, columns, rank)), sizeof *state->start);
    return state;
}

void filter_state_free(struct filter_state *state)
{
    if (!state)
        return;
    mem_free(state->start);
    mem_free(state);
}

/* ---- products ---- */

static void copy(const struct filter *f, float *to, const float *from, int64_t count)
{
    f->ops->fill(f->device, to, -0.0f, count); /* −0 + x is x for every x */
    f->ops->add(f->device, to, from, count);
}

static void get(const struct filter *f, float *host, const float *device, int64_t count)
{
    f->ops->copy_out(f->device, host, device, (size_t)count * sizeof *host);
    f->ops->finish(f->device);
}

static void put(const struct filter *f, float *device, const float *host, int64_t count)
{
    f->ops->copy_in(f->device, device, host, (size_t)count * sizeof *host);
    f->ops->finish(f->device);
}

/* A = Uᵀ·G and X = A·V on the host; with `tall` also B = G·V. */
static void project(const struct filter *f, const struct view *w, const float *g, float *wide, float *tall, float *small)
{
    const struct ops *ops = f->ops;
    ops->matmul(f->device, f->wide, w->u, g, w->k, w->n, w->m, w->k, w->n, w->n, true, false, false);
    ops->matmul(f->device, f->small, f->wide, w->v, w->k, w->k, w->n, w->n, w->k, w->k, false, false, false);
    get(f, small, f->small, w->k * w->k);
    if (!tall)
        return;
    ops->matmul(f->device, f->tall, g, w->v, w->m, w->k, w->n, w->n, w->k, w->k, false, false, false);
    get(f, tall, f->tall, w->m * w->k);
    get(f, wide, f->wide, w->k * w->n);
}

/* out (+)= U·(Y·Vᵀ) with Y [k, k] on the host. */
static void rebuild(const struct filter *f, const struct view *w, const float *y, bool accumulate, float *out)
{
    const struct ops *ops = f->ops;
    put(f, f->small, y, w->k * w->k);
    ops->matmul(f->device, f->turned, f->small, w->v, w->k, w->n, w->k, w->k, w->k, w->n, false, true, false);
    ops->matmul(f->device, out, w->u, f->turned, w->m, w->n, w->k, w->k, w->n, w->n, false, false, accumulate);
}

/* ‖G_first‖², ‖G_second‖² → what the halves say. `out` is scratch and may be the half itself. */
static void split(const struct filter *f, struct view *w, float *out)
{
    int64_t count = w->m * w->n;
    double first = f->ops->sum_squares(f->device, w->half, count);
    if (out != w->half)
        copy(f, out, w->half, count);
    f->ops->scale(f->device, out, -1, count);
    f->ops->add(f->device, out, w->g, count);
    double second = f->ops->sum_squares(f->device, out, count);
    w->inner = (w->gg - first - second) / 2;
    w->noise = first + second - 2 * w->inner;
}

/* ---- tikhonov ---- */

static double tau_of(const struct filter *f, const struct filter_basis *basis, const struct view *w)
{
    double tau = f->settings.tau;
    if (f->settings.scale == FILTER_SPECTRUM)
        return tau * sqrt(basis->energy / (double)least(w->m, w->n));
    if (f->settings.scale == FILTER_NOISE)
        return tau * sqrt(w->noise / (double)(w->m * w->n));
    return tau;
}

/* ⟨C, G⟩; C goes to `out`. */
static double tikhonov(const struct filter *f, const struct filter_basis *basis, const struct view *w, float *out)
{
    double tau = tau_of(f, basis, w), product = 0;
    for (int64_t i = 0; i < w->k; i++)
        for (int64_t j = 0; j < w->k; j++) {
            double si = (double)basis->singular[i], sj = (double)basis->singular[j];
            double weight = si > 0 && sj > 0 ? si / (si + tau) * (sj / (sj + tau)) : 0;
            double x = (double)f->host_small[i * w->k + j];
            f->host_small[i * w->k + j] = (float)(weight * x);
            product += weight * x * x;
        }
    rebuild(f, w, f->host_small, false, out);
    return product;
}

/* ---- align, gradient ---- */

/* Of each direction by itself. */
static double diagonal(const struct filter *f, const struct filter_basis *basis, const struct view *w, float *out)
{
    double tau = tau_of(f, basis, w), product = 0;
    for (int64_t i = 0; i < w->k * w->k; i++) {
        double s = (double)basis->singular[i % w->k], x = (double)f->host_small[i], y = s;
        if (f->settings.kind == FILTER_ALIGN)
            y = x > 0 && s > 0 ? x * s * s / (s * s + tau * tau) : 0;
        y = i % (w->k + 1) == 0 ? y : 0;
        f->host_small[i] = (float)y;
        product += y * x;
    }
    rebuild(f, w, f->host_small, false, out);
    return product;
}

/* M whole, and ⟨M, G⟩ from ‖M + G‖². */
static double whole(const struct filter *f, const struct filter_basis *basis, const struct view *w, float *out,
                    struct filter_meters *meters)
{
    int64_t count = w->m * w->n;
    copy(f, out, basis->whole, count);
    f->ops->add(f->device, out, w->g, count);
    meters->anchor = basis->energy;
    meters->inside = w->gg;
    meters->aligned = (f->ops->sum_squares(f->device, out, count) - w->gg - basis->energy) / 2;
    copy(f, out, basis->whole, count);
    return meters->aligned;
}

/* ---- wiener ---- */

static int bin_of(int64_t index)
{
    int bin = 0;
    for (; index; index >>= 1)
        bin++;
    return bin; /* 0 → 0, 1 → 1, 2–3 → 2, 4–7 → 3, … */
}

struct energies {
    double signal[BINS][BINS], total[BINS][BINS];
};

#define OUTSIDE (BINS - 1)

/* Both halves in the same unit as G: each times two. `whole` and `half` are the sums over the step's and the half's
 * micro-batches. */
static void add_energy(struct energies *e, int row, int column, double whole, double half, double sign)
{
    e->signal[row][column] += sign * 4 * half * (whole - half);
    e->total[row][column] += sign * whole * whole;
}

static void measure(const struct filter *f, const struct view *w, struct energies *e)
{
    memset(e, 0, sizeof *e);
    e->signal[OUTSIDE][OUTSIDE] = 4 * w->inner;
    e->total[OUTSIDE][OUTSIDE] = w->gg;
    for (int64_t i = 0; i < w->k; i++)
        for (int64_t j = 0; j < w->n; j++) { /* U·A: inside on the left */
            double whole = (double)f->host_wide[i * w->n + j], half = (double)f->half_wide[i * w->n + j];
            add_energy(e, bin_of(i), OUTSIDE, whole, half, 1);
            add_energy(e, OUTSIDE, OUTSIDE, whole, half, -1);
        }
    for (int64_t i = 0; i < w->m; i++)
        for (int64_t j = 0; j < w->k; j++) {
            double whole = (double)f->host_tall[i * w->k + j], half = (double)f->half_tall[i * w->k + j];
            add_energy(e, OUTSIDE, bin_of(j), whole, half, 1);
            add_energy(e, OUTSIDE, OUTSIDE, whole, half, -1);
        }
    for (int64_t i = 0; i < w->k; i++)
        for (int64_t j = 0; j < w->k; j++) {
            double whole = (double)f->host_small[i * w->k + j], half = (double)f->half_small[i * w->k + j];
            add_energy(e, bin_of(i), bin_of(j), whole, half, 1);
            add_energy(e, bin_of(i), OUTSIDE, whole, half, -1);
            add_energy(e, OUTSIDE, bin_of(j), whole, half, -1);
            add_energy(e, OUTSIDE, OUTSIDE, whole, half, 1);
        }
}

static void remember(struct filter_state *state, const struct energies *e)
{
    for (int i = 0; i < BINS; i++)
        for (int j = 0; j < BINS; j++) {
            state->signal[i][j] = MEMORY * state->signal[i][j] + (1 - MEMORY) * e->signal[i][j];
            state->total[i][j] = MEMORY * state->total[i][j] + (1 - MEMORY) * e->total[i][j];
        }
}

static double share(const struct filter_state *state, int row, int column, double gg)
{
    double total = state->total[row][column];
    if (!(total > NEGLIGIBLE * gg))
        return 0;
    double share = state->signal[row][column] / total;
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

/* The weights of the four parts of G, composed: out = d·G + U·(diag(r − d)·A + Y·Vᵀ) + B·diag(l − d)·Vᵀ with
 * Y = (W − l − r + d)∘X; l of what is outside on the left, r on the right, d on both. */
static void compose(const struct filter *f, const struct filter_state *state, const struct view *w, float *out)
{
    const struct ops *ops = f->ops;
    double both = share(state, OUTSIDE, OUTSIDE, w->gg);
    for (int64_t i = 0; i < w->k; i++)
        for (int64_t j = 0; j < w->n; j++)
            f->host_wide[i * w->n + j] *= (float)(share(state, bin_of(i), OUTSIDE, w->gg) - both);
    for (int64_t j = 0; j < w->k; j++) {
        float weight = (float)(share(state, OUTSIDE, bin_of(j), w->gg) - both);
        for (int64_t i = 0; i < w->m; i++)
            f->host_tall[i * w->k + j] *= weight;
        for (int64_t i = 0; i < w->k; i++)
            f->host_small[i * w->k + j] *= (float)(share(state, bin_of(i), bin_of(j), w->gg) -
                                                   share(state, OUTSIDE, bin_of(j), w->gg) -
                                                   share(state, bin_of(i), OUTSIDE, w->gg) + both);
    }
    copy(f, out, w->g, w->m * w->n);
    ops->scale(f->device, out, (float)both, w->m * w->n);
    rebuild(f, w, f->host_small, true, out);
    put(f, f->turned, f->host_wide, w->k * w->n);
    ops->matmul(f->device, out, w->u, f->turned, w->m, w->n, w->k, w->k, w->n, w->n, false, false, true);
    put(f, f->tall, f->host_tall, w->m * w->k);
    ops->matmul(f->device, out, f->tall, w->v, w->m, w->n, w->k, w->k, w->k, w->n, false, true, true);
}

static double wiener(const struct filter *f, struct filter_state *state, const struct view *w, float *out)
{
    struct energies energies;
    double product = 0;
    measure(f, w, &energies);
    remember(state, &energies);
    for (int i = 0; i < BINS; i++)
        for (int j = 0; j < BINS; j++)
            product += share(state, i, j, w->gg) * energies.total[i][j];
    compose(f, state, w, out);
    return product;
}

/* ---- shrink ---- */

/* Gavish and Donoho 2017 for the Frobenius norm; y in units of σ·√longer, beta = shorter / longer. */
static double shrunk(double y, double beta)
{
    double inner = (y * y - beta - 1) * (y * y - beta - 1) - 4 * beta;
    return y > 1 + sqrt(beta) && inner > 0 ? sqrt(inner) / y : 0;
}

static double shrink(struct filter *f, struct filter_state *state, struct view *w, float *out)
{
    int64_t longer = w->m > w->n ? w->m : w->n;
    double unit = sqrt(w->noise / (double)(w->m * w->n)) * sqrt((double)longer), product = 0;
    double beta = (double)least(w->m, w->n) / (double)longer;
    struct subspace_result found = {f->left, f->right, f->singular};
    subspace_find(f->subspace, w->g, w->m, w->n, w->k, 2, f->settings.seed, state->start, &found);
    for (int64_t i = 0; i < w->m; i++)
        for (int64_t k = 0; k < w->k; k++) {
            double y = (double)f->singular[k];
            double eta = unit > 0 ? shrunk(y / unit, beta) * unit : y;
            product += i == 0 ? eta * y : 0;
            f->left[i * w->k + k] *= (float)eta;
        }
    put(f, f->tall, f->left, w->m * w->k);
    put(f, f->turned, f->right, w->n * w->k);
    f->ops->matmul(f->device, out, f->tall, f->turned, w->m, w->n, w->k, w->k, w->k, w->n, false, true, false);
    return product;
}

/* ---- all of them ---- */

static void meter_anchor(const struct filter *f, const struct filter_basis *basis, const struct view *w,
                         struct filter_meters *meters)
{
    for (int64_t i = 0; i < w->k; i++) {
        double s = (double)basis->singular[i];
        meters->anchor += s * s;
        meters->aligned += s * (double)f->host_small[i * w->k + i];
        for (int64_t j = 0; j < w->k; j++)
            meters->inside += (double)f->host_small[i * w->k + j] * (double)f->host_small[i * w->k + j];
    }
}

/* out: C → Ĝ. The norm that is asked for is that of the mixture. */
static void mix_in(const struct filter *f, const struct view *w, double mix, double product, float *out,
                   struct filter_meters *meters)
{
    const struct ops *ops = f->ops;
    int64_t count = w->m * w->n;
    double both = (1 - mix) * w->gg + mix * product, wanted = w->gg, factor = 1; /* both: ⟨Ĝ, G⟩ */
    if (mix < 1) {
        ops->scale(f->device, out, (float)(mix / (1 - mix)), count);
        ops->add(f->device, out, w->g, count);
        ops->scale(f->device, out, (float)(1 - mix), count);
    }
    double squares = ops->sum_squares(f->device, out, count);
    if (f->settings.norm == FILTER_NORM_SIGNAL)
        wanted = w->gg > w->noise ? w->gg - w->noise : 0;
    if (f->settings.norm != FILTER_NORM_FREE && squares > 0) {
        factor = sqrt(wanted / squares);
        ops->scale(f->device, out, (float)factor, count);
    }
    meters->corrected = factor * factor * squares;
    meters->changed = factor * factor * (squares - (1 - mix) * both);
}

static bool has_anchor(const struct filter *f, const struct filter_basis *basis)
{
    bool whole = basis && basis->whole && basis->energy > 0;
    return f->settings.kind == FILTER_SHRINK || whole || (basis && basis->rank > 0 && basis->singular[0] > 0);
}

void filter_apply(struct filter *f, struct filter_state *state, const struct filter_basis *basis, const float *gradient,
                  const float *half, double mix, float *out, struct filter_meters *meters)
{
    struct view w = {.m = state->rows, .n = state->columns, .g = gradient, .half = half};
    bool directions = f->settings.kind != FILTER_SHRINK && !(basis && basis->whole), halves = filter_needs_half(&f->settings);
    BUG_IF(w.m > f->rows || w.n > f->columns || (halves && !half) ||
           (basis && basis->whole && f->settings.kind != FILTER_GRADIENT && f->settings.kind != FILTER_NONE));
    w.gg = f->ops->sum_squares(f->device, gradient, w.m * w.n);
    *meters = (struct filter_meters){.gradient = w.gg, .corrected = w.gg};
    if (f->settings.kind == FILTER_NONE || !(mix > 0) || !has_anchor(f, basis) || !isfinite(w.gg)) {
        copy(f, out, gradient, w.m * w.n);
        return;
    }
    w.k = directions ? basis->rank : least(f->settings.rank, least(w.m, w.n));
    BUG_IF(w.k > f->settings.rank);
    if (directions) {
        w.u = basis->left;
        w.v = basis->right;
        if (has_bins(&f->settings))
            project(f, &w, half, f->half_wide, f->half_tall, f->half_small);
        project(f, &w, gradient, f->host_wide, has_bins(&f->settings) ? f->host_tall : NULL, f->host_small);
        meter_anchor(f, basis, &w, meters);
    }
    if (halves) {
        split(f, &w, out);
        meters->noise = w.noise < w.gg ? w.noise : w.gg;
        meters->signal = w.gg - meters->noise;
    }
    double product = f->settings.kind == FILTER_TIKHONOV ? tikhonov(f, basis, &w, out)
                     : f->settings.kind == FILTER_WIENER ? wiener(f, state, &w, out)
                     : f->settings.kind == FILTER_SHRINK ? shrink(f, state, &w, out)
                     : basis->whole                      ? whole(f, basis, &w, out, meters)
                                                         : diagonal(f, basis, &w, out);
    mix_in(f, &w, mix, product, out, meters);
}
