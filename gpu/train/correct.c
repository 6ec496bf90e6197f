/*
 * Correction of a stage's gradients by the anchor's directions, on the compute thread. Which version, and how much of it,
 * the stamp says; a version is unpacked at the boundary of the step that first uses it, and the anchor's statistics of the
 * stage's cuts with it.
 *
 * The gradient itself stays as it is; the corrected one lies beside it (stage_correction), where the first half of the batch
 * lay before when the filter needs two halves. Without a version, and with mix 0, nothing here touches anything.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "gpu/math/filter.h"
#include "gpu/train/bases.h"
#include "gpu/train/inside.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"

#define REPORT_NS CLOCK_SECOND

struct corrected {
    struct matrix is;
    int64_t rank; /* 0: the gradient comes whole, into `left` */
    struct filter_state *state;
    struct filter_basis basis; /* all zero: none in use */
    float *left, *right, *singular;
};

struct correct {
    struct filter *filter;
    struct filter_settings settings;
    struct corrected *matrices;
    int count;
    uint64_t reported_ns;
    uint64_t floats; /* of the device blocks of all bases */
    struct filter_meters meters[MATRIX_CLASSES];
    int of_class[MATRIX_CLASSES];
    bool filled; /* meters are of this step */
};

_Static_assert(PROFILE_GRADIENT_BYTES == WIRE_BASIS_BYTES && (int)ANCHOR_GRADIENT == (int)FILTER_GRADIENT && (int)TAU_NOISE == (int)FILTER_NOISE &&
                   (int)NORM_SIGNAL == (int)FILTER_NORM_SIGNAL,
               "the table of settings and the filters have one order");

static struct filter_settings settings_of(const struct profile *profile)
{
    return (struct filter_settings){.kind = profile->anchor_filter,
                                    .scale = profile->anchor_scale,
                                    .norm = profile->anchor_norm,
                                    .tau = profile->anchor_tau,
                                    .rank = profile->anchor_rank,
                                    .seed = (uint64_t)profile->seed};
}

static int take_basis(struct compute *compute, struct corrected *matrix)
{
    const struct ops *ops = compute->ops;
    size_t left = (size_t)(matrix->is.rows * (matrix->rank ? matrix->rank : matrix->is.columns)),
           right = (size_t)(matrix->is.columns * matrix->rank);
    matrix->left = ops->alloc(compute->device, left * sizeof(float));
    matrix->right = right ? ops->alloc(compute->device, right * sizeof(float)) : NULL;
    matrix->singular = mem_array((size_t)matrix->rank + 1, sizeof(float));
    compute->memory_bytes += (left + right) * sizeof(float);
    return matrix->left && (matrix->right || !right) ? 0 : ERR_MEMORY;
}

int correct_load(struct compute *compute, const struct stage_shape *shape, struct why *why)
{
    const struct profile *profile = &compute->settings.profile;
    if (!profile_corrects(profile))
        return 0;
    struct correct *made = compute->correct = mem_new(sizeof *made);
    struct matrix *matrices;
    int64_t rows = 0, columns = 0;
    int err = 0;
    made->settings = settings_of(profile);
    made->count = matrices_count(shape);
    made->matrices = mem_array((size_t)made->count, sizeof *made->matrices);
    matrices = mem_array((size_t)made->count, sizeof *matrices);
    matrices_list(shape, matrices);
    for (int i = 0; i < made->count; i++) {
        made->matrices[i].is = matrices[i];
        made->matrices[i].rank = matrices_rank(&matrices[i], profile_anchor_rank(profile));
        rows = matrices[i].rows > rows ? matrices[i].rows : rows;
        columns = matrices[i].columns > columns ? matrices[i].columns : columns;
        made->of_class[matrices[i].matrix_class]++;
    }
    mem_free(matrices);
    made->filter = filter_new(compute->ops, compute->device, &made->settings, rows, columns, why);
    if (!made->filter)
        return why->err;
    compute->memory_bytes += filter_memory(&made->settings, rows, columns);
    for (int i = 0; i < made->count && !err; i++) {
        made->matrices[i].state = filter_state_new(made->filter, made->matrices[i].is.rows, made->matrices[i].is.columns);
        if (made->settings.kind != FILTER_SHRINK)
            err = take_basis(compute, &made->matrices[i]);
    }
    return err ? why_set(why, err, "no memory for the anchor's directions; lower anchor.rank") : 0;
}

void correct_free(struct compute *compute)
{
    struct correct *correct = compute->correct;
    if (!correct)
        return;
    for (int i = 0; i < correct->count; i++) {
        struct corrected *matrix = &correct->matrices[i];
        filter_state_free(matrix->state);
        mem_free(matrix->singular);
        if (matrix->left)
            compute->ops->free(compute->device, matrix->left);
        if (matrix->right)
            compute->ops->free(compute->device, matrix->right);
    }
    filter_free(correct->filter);
    mem_free(correct->matrices);
    mem_free(correct);
    compute->correct = NULL;
}

/* ---- versions ---- */

static void unpack(struct compute *compute, struct corrected *matrix, const struct bases_matrix *from)
{
    const struct ops *ops = compute->ops;
    const uint8_t *at = from->body;
    if (from->rank == 0) {
        ops->unpack(compute->device, matrix->left, at, matrix->is.rows, matrix->is.columns, FORMAT_BF16);
        ops->finish(compute->device);
        matrix->basis = (struct filter_basis){.whole = matrix->left, .energy = from->energy};
        return;
    }
    memcpy(matrix->singular, at, (size_t)from->rank * sizeof(float));
    at += (size_t)from->rank * sizeof(float);
    ops->unpack(compute->device, matrix->left, at, matrix->is.rows, from->rank, FORMAT_BF16);
    at += 2 * (size_t)(matrix->is.rows * from->rank);
    ops->unpack(compute->device, matrix->right, at, matrix->is.columns, from->rank, FORMAT_BF16);
    ops->finish(compute->device);
    matrix->basis = (struct filter_basis){.rank = from->rank, .left = matrix->left, .right = matrix->right,
                                          .singular = matrix->singular, .energy = from->energy};
}

int correct_switch(struct compute *compute)
{
    struct correct *correct = compute->correct;
    const struct wire_stamp *stamp = &compute->pass.stamp;
    struct bases_set set;
    if (stamp->kind != STAMP_TRAIN || stamp->basis == 0 || stamp->basis == compute->basis)
        return 0;
    if (!compute->settings.bases || !bases_take(compute->settings.bases, stamp->basis, &set))
        return compute_halt(compute, compute->pass.step,
                            "step %" PRIu64 " is to use version %" PRIu64 " of the anchor's directions, which this stage does not have",
                            compute->pass.step, stamp->basis);
    for (int i = 0; i < set.count; i++)
        unpack(compute, &correct->matrices[i], &set.matrices[i]);
    measures_adopt(compute, &set);
    compute->basis = stamp->basis;
    bases_set_clear(&set);
    return 0;
}

/* ---- in a step ---- */

/* What is not trained has no gradient. */
static bool is_trained(const struct compute *compute, const struct matrix *is)
{
    return is->layer >= compute->settings.profile.frozen;
}

static bool applies(const struct compute *compute)
{
    const struct wire_stamp *stamp = &compute->pass.stamp;
    if (!compute->correct || stamp->kind != STAMP_TRAIN || !(stamp->mix > 0))
        return false;
    return compute->basis || compute->correct->settings.kind == FILTER_SHRINK;
}

void correct_half(struct compute *compute)
{
    struct correct *correct = compute->correct;
    const struct ops *ops = compute->ops;
    if (!applies(compute) || !filter_needs_half(&correct->settings) ||
        compute->pass.schedule.backwarded + 1 != compute->pass.schedule.micro_batches / 2)
        return;
    for (int i = 0; i < correct->count; i++) {
        const struct matrix *is = &correct->matrices[i].is;
        if (!is_trained(compute, is))
            continue;
        float *half = stage_correction(compute->model, is->tensor);
        ops->fill(compute->device, half, 0, is->rows * is->columns);
        ops->add(compute->device, half, stage_gradient_of(compute->model, is->tensor), is->rows * is->columns);
    }
}

static void add_meters(struct filter_meters *sum, const struct filter_meters *one)
{
    sum->gradient += one->gradient;
    sum->corrected += one->corrected;
    sum->changed += one->changed;
    sum->anchor += one->anchor;
    sum->aligned += one->aligned;
    sum->inside += one->inside;
    sum->signal += one->signal;
    sum->noise += one->noise;
}

/* The plain gradient is kept for the second moment, or replaced. */
static void put_back(struct compute *compute, const struct matrix *is)
{
    const struct ops *ops = compute->ops;
    float *gradient = stage_gradient_of(compute->model, is->tensor);
    if (compute->settings.profile.anchor_moment == MOMENT_RAW) {
        stage_corrected(compute->model, is->tensor);
        return;
    }
    ops->fill(compute->device, gradient, 0, is->rows * is->columns);
    ops->add(compute->device, gradient, stage_correction(compute->model, is->tensor), is->rows * is->columns);
}

void correct_gradients(struct compute *compute)
{
    struct correct *correct = compute->correct;
    if (!applies(compute))
        return;
    memset(correct->meters, 0, sizeof correct->meters);
    for (int i = 0; i < correct->count; i++) {
        struct corrected *matrix = &correct->matrices[i];
        struct filter_meters meters;
        if (!is_trained(compute, &matrix->is))
            continue;
        float *out = stage_correction(compute->model, matrix->is.tensor);
        filter_apply(correct->filter, matrix->state, matrix->basis.rank || matrix->basis.whole ? &matrix->basis : NULL,
                     stage_gradient_of(compute->model, matrix->is.tensor),
                     filter_needs_half(&correct->settings) ? out : NULL, (double)compute->pass.stamp.mix, out, &meters);
        add_meters(&correct->meters[matrix->is.matrix_class], &meters);
        put_back(compute, &matrix->is);
    }
    correct->filled = true;
}

void correct_report(struct compute *compute)
{
    struct correct *correct = compute->correct;
    if (!correct || !correct->filled || clock_now_ns() - correct->reported_ns < REPORT_NS)
        return;
    correct->filled = false;
    correct->reported_ns = clock_now_ns();
    for (int i = 0; i < MATRIX_CLASSES; i++) {
        const struct filter_meters *m = &correct->meters[i];
        struct wire_meter meter = {.step = compute->pass.step,
                                   .version = compute->basis,
                                   .matrix_class = (uint8_t)i,
                                   .matrices = (uint16_t)correct->of_class[i],
                                   .mix = compute->pass.stamp.mix,
                                   .gradient = m->gradient,
                                   .corrected = m->corrected,
                                   .changed = m->changed,
                                   .anchor = m->anchor,
                                   .aligned = m->aligned,
                                   .inside = m->inside,
                                   .signal = m->signal,
                                   .noise = m->noise};
        compute_tell(compute, WIRE_METER, &meter, compute->pass.step);
    }
}
