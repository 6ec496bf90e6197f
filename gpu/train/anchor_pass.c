/*
 * What the anchor computes of a version, on its compute thread. Directions first, since somebody may be waiting for them at
 * a certain step; then the validation loss; then the lifeboat.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gpu/math/half.h"
#include "gpu/model/carve.h"
#include "gpu/train/anchor_inside.h"
#include "gpu/train/disk.h"
#include "gpu/train/inside.h"
#include "gpu/train/shape.h"
#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"

#define OWN_ORDER UINT64_C(0x616e63686f72) /* of the seed: windows that the run does not see in the same step */
#define PASSES_FIRST 4
#define PASSES 1 /* the search goes on where it was for the last version */

void pass_tell(struct anchor *anchor, enum wire_type type, const void *payload, uint64_t step)
{
    struct letter letter = compute_letter(type, payload, 0, MAIL_CONTROL, step, 0);
    mail_send(anchor->mail, &letter, NULL);
}

static void say(struct anchor *anchor, enum event_level level, uint64_t step, const char *code, const char *text)
{
    struct wire_event event = {.level = (uint8_t)level, .step = step};
    snprintf(event.code, sizeof event.code, "%s", code);
    snprintf(event.text, sizeof event.text, "%.*s", WIRE_TEXT - 1, text);
    pass_tell(anchor, WIRE_EVENT, &event, step);
}

/* ---- loading ---- */

static void tell_data(const char *text, void *arg)
{
    say(arg, EVENT_WARN, 0, "data", text);
}

static int load_model(struct anchor *anchor, const struct stage_shape *shape, struct why *why)
{
    char folder[1024];
    int err = file_program_folder(folder, sizeof folder, why);
    if (err)
        return err;
    anchor->ops = ops_load(folder, "cpu", why);
    err = anchor->ops ? anchor->ops->open(&anchor->device, anchor->settings.assign.threads, why) : why->err;
    if (!err)
        err = stage_new(anchor->ops, anchor->device, shape, &anchor->model, why);
    anchor->memory_bytes = stage_memory(shape).total + assembly_memory(shape);
    if (anchor->replay)
        anchor->memory_bytes += replay_memory(&anchor->settings.profile, shape);
    return err;
}

static int load_matrices(struct anchor *anchor, const struct stage_shape *shape, struct why *why)
{
    const struct profile *profile = &anchor->settings.profile;
    int64_t rows = 0, columns = 0;
    anchor->count = profile_corrects(profile) ? matrices_count(shape) : 0;
    if (!anchor->count)
        return 0;
    anchor->matrices = mem_array((size_t)anchor->count, sizeof *anchor->matrices);
    struct matrix *matrices = mem_array((size_t)anchor->count, sizeof *matrices);
    matrices_list(shape, matrices);
    for (int i = 0; i < anchor->count; i++) {
        struct anchor_matrix *matrix = &anchor->matrices[i];
        size_t cells = (size_t)(matrices[i].rows * matrices[i].columns),
               basis = matrices_basis_bytes(&matrices[i], profile_anchor_rank(profile));
        matrix->is = matrices[i];
        matrix->rank = matrices_rank(&matrices[i], profile_anchor_rank(profile));
        if (matrix->rank)
            matrix->start = mem_array(
                (size_t)(matrices[i].columns * subspace_width(matrices[i].rows, matrices[i].columns, matrix->rank)),
                sizeof(float));
        matrix->mean = anchor->ops->alloc(anchor->device, cells * sizeof(float));
        anchor->memory_bytes += cells * sizeof(float);
        rows = matrices[i].rows > rows ? matrices[i].rows : rows;
        columns = matrices[i].columns > columns ? matrices[i].columns : columns;
        anchor->body_bytes = basis > anchor->body_bytes ? basis : anchor->body_bytes;
        if (!matrix->mean) {
            mem_free(matrices);
            return why_set(why, ERR_MEMORY, "no memory for the anchor's mean gradients");
        }
    }
    mem_free(matrices);
    anchor->body = mem_large(anchor->body_bytes);
    if (profile->anchor_returns == RETURNS_GRADIENT) {
        anchor->left = mem_large((size_t)(rows * columns) * sizeof(float));
        return anchor->left && anchor->body ? 0 : why_set(why, ERR_MEMORY, "no memory to send whole gradients; use anchor.returns = "
                                                          "directions");
    }
    anchor->subspace = subspace_new(anchor->ops, anchor->device, rows, columns, profile->anchor_rank, why);
    anchor->memory_bytes += subspace_memory(rows, columns, profile->anchor_rank);
    anchor->left = mem_large((size_t)(rows * profile->anchor_rank) * sizeof(float));
    anchor->right = mem_large((size_t)(columns * profile->anchor_rank) * sizeof(float));
    anchor->singular = mem_array((size_t)profile->anchor_rank, sizeof(float));
    if (!anchor->subspace || !anchor->left || !anchor->right || !anchor->body)
        return why_set(why, ERR_MEMORY, "no memory for the anchor's directions; lower anchor.rank");
    return 0;
}

struct stage_shape pass_shape(const struct profile *profile)
{
    return (struct stage_shape){.model = shape_of_profile(profile),
                                .lora = shape_lora(profile),
                                .layers = profile->layers,
                                .first = true,
                                .last = true,
                                .sequences = profile->micro_batch,
                                .tokens = profile->sequence,
                                .slots = 1,
                                .judges = true,
                                .words_only = !profile->lora_rank || shape_words_only(profile), /* snapshots come in bf16 */
                                .half_products = profile->precision == PRECISION_BF16,
                                .apart = profile->data_documents == DOCUMENTS_APART};
}

/* Snapshots bring all weights, or, with LoRA, the adapters alone: the rest stays what it was. */
static int load_frozen(struct anchor *anchor, struct why *why)
{
    const struct profile *profile = &anchor->settings.profile;
    return profile->lora_rank ? shape_begin(anchor->model, profile, why) : 0;
}

int pass_load(struct anchor *anchor, struct why *why)
{
    const struct profile *profile = &anchor->settings.profile;
    struct stage_shape shape = pass_shape(profile);
    size_t windows = (size_t)(profile->micro_batch * (profile->sequence + 1));
    int err = load_model(anchor, &shape, why);
    if (!err)
        err = load_frozen(anchor, why);
    if (!err)
        err = load_matrices(anchor, &shape, why);
    if (!err)
        err = cuts_load(anchor, why);
    if (!err)
        err = compute_open_data(profile, anchor->settings.assign.threads, tell_data, anchor, &anchor->data, why);
    anchor->windows = mem_array(windows, sizeof *anchor->windows);
    anchor->inputs = mem_array(windows, sizeof *anchor->inputs);
    anchor->targets = mem_array(windows, sizeof *anchor->targets);
    anchor->marks = mem_array(windows, 1);
    anchor->begins = mem_array(windows, sizeof *anchor->begins);
    if (!err && profile->anchor_lifeboat) {
        size_t bytes = 2 * (size_t)stage_word_count(&shape);
        anchor->words = mem_large(bytes);
        anchor->memory_bytes += bytes;
        err = anchor->words ? 0 : why_set(why, ERR_MEMORY, "no memory for the lifeboat; set anchor.lifeboat = no");
    }
    return err;
}

void pass_free(struct anchor *anchor)
{
    for (int i = 0; anchor->matrices && i < anchor->count; i++) {
        mem_free(anchor->matrices[i].start);
        if (anchor->matrices[i].mean)
            anchor->ops->free(anchor->device, anchor->matrices[i].mean);
    }
    subspace_free(anchor->subspace);
    cuts_free(anchor);
    data_close(anchor->data);
    stage_free(anchor->model);
    if (anchor->device)
        anchor->ops->close(anchor->device);
    mem_free(anchor->matrices);
    mem_free(anchor->windows);
    mem_free(anchor->inputs);
    mem_free(anchor->targets);
    mem_free(anchor->marks);
    mem_free(anchor->begins);
    mem_free(anchor->singular);
    mem_large_free(anchor->left);
    mem_large_free(anchor->right);
    mem_large_free(anchor->body);
    mem_large_free(anchor->words);
}

/* ---- forward and backward ---- */

/* Inputs and targets of one window that was read; how many tokens of it are learned. */
static uint64_t split(struct anchor *anchor, int64_t sequence)
{
    int64_t tokens = anchor->settings.profile.sequence;
    const uint32_t *window = anchor->windows + sequence * (tokens + 1);
    const uint8_t *marks = anchor->marks + sequence * (tokens + 1);
    bool apart = anchor->settings.profile.data_documents == DOCUMENTS_APART;
    uint64_t learned = 0;
    for (int64_t t = 0; t < tokens; t++) {
        bool counts = marks[t + 1] & TOKEN_LEARNED && !(apart && marks[t + 1] & TOKEN_BEGINS);
        anchor->begins[sequence * tokens + t] = apart && marks[t] & TOKEN_BEGINS;
        anchor->inputs[sequence * tokens + t] = window[t];
        anchor->targets[sequence * tokens + t] = counts ? window[t + 1] : UINT32_MAX;
        learned += counts;
    }
    return learned;
}

static void forward(struct anchor *anchor, int64_t sequences)
{
    const struct profile *profile = &anchor->settings.profile;
    if (profile->data_documents == DOCUMENTS_APART)
        stage_documents(anchor->model, 0, anchor->begins, sequences, profile->sequence);
    stage_forward(anchor->model, 0, anchor->inputs, NULL, sequences, profile->sequence);
}

static int read_training(struct anchor *anchor, uint64_t version, uint32_t micro_batch, uint64_t *learned, struct why *why)
{
    const struct profile *profile = &anchor->settings.profile;
    uint64_t seed = (uint64_t)profile->seed ^ (profile->anchor_data == ANCHOR_OWN ? OWN_ORDER : 0);
    int err = 0;
    for (int64_t s = 0; s < profile->micro_batch && !err; s++) {
        int64_t at = s * (profile->sequence + 1);
        err = data_train_window(anchor->data, seed, version, micro_batch, (uint32_t)s, profile->sequence,
                                anchor->windows + at, anchor->marks + at, why);
        *learned += err ? 0 : split(anchor, s);
    }
    return err;
}

static int64_t micro_batches(const struct profile *profile)
{
    return profile->anchor_micro_batches ? profile->anchor_micro_batches : profile->micro_batches;
}

/* The gradient of the mean loss over what is learned of all windows. */
static int compute_gradient(struct anchor *anchor, uint64_t version, uint64_t *learned, struct why *why)
{
    const struct profile *profile = &anchor->settings.profile;
    int64_t count = micro_batches(profile);
    float scale = 1.0f / (float)(count * profile->micro_batch * profile->sequence);
    stage_zero_gradients(anchor->model);
    *learned = 0;
    for (int64_t i = 0; i < count; i++) {
        if (mail_orders(anchor->mail))
            return ERR_GONE;
        int err = read_training(anchor, version, (uint32_t)i, learned, why);
        if (err)
            return err;
        forward(anchor, profile->micro_batch);
        stage_loss(anchor->model, 0, anchor->targets, scale);
        cuts_watch(anchor);
        stage_backward(anchor->model, 0, NULL);
    }
    return 0;
}

static int evaluate(struct anchor *anchor, uint64_t version, struct why *why)
{
    const struct profile *profile = &anchor->settings.profile;
    double loss = 0;
    uint64_t learned = 0;
    for (int64_t first = 0; first < profile->validation_windows; first += profile->micro_batch) {
        int64_t left = profile->validation_windows - first,
                sequences = left < profile->micro_batch ? left : profile->micro_batch;
        int err = mail_orders(anchor->mail) ? ERR_GONE : 0;
        for (int64_t s = 0; s < sequences && !err; s++) {
            int64_t at = s * (profile->sequence + 1);
            err = data_validation_window(anchor->data, first + s, profile->validation_windows, profile->sequence,
                                         anchor->windows + at, anchor->marks + at, why);
            learned += err ? 0 : split(anchor, s);
        }
        if (err)
            return err;
        forward(anchor, sequences);
        loss += stage_loss(anchor->model, 0, anchor->targets, 0);
    }
    struct wire_sample sample = {.step = version - 1,
                                 .kind = STAMP_EVALUATE,
                                 .loss = learned ? loss / (double)learned : (double)NAN,
                                 .gradient_norm = (double)NAN,
                                 .tokens = learned};
    pass_tell(anchor, WIRE_SAMPLE, &sample, sample.step);
    return 0;
}

/* ---- directions ---- */

/* mean ← β·mean + (1 − β)·gradient; the factor that makes up for the versions that were not. */
static double remember(struct anchor *anchor, double to_mean)
{
    const struct ops *ops = anchor->ops;
    double beta = anchor->settings.profile.anchor_beta;
    for (int i = 0; i < anchor->count; i++) {
        struct anchor_matrix *matrix = &anchor->matrices[i];
        float *gradient = stage_gradient_of(anchor->model, matrix->is.tensor);
        int64_t cells = matrix->is.rows * matrix->is.columns;
        ops->scale(anchor->device, gradient, (float)(to_mean * (1 - beta)), cells);
        ops->scale(anchor->device, matrix->mean, (float)beta, cells);
        ops->add(anchor->device, matrix->mean, gradient, cells);
    }
    anchor->versions++;
    return 1 / (1 - pow(beta, (double)anchor->versions));
}

static uint8_t *put_half(uint8_t *out, const float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++, out += 2)
        half_put(out, half_from_float(values[i]));
    return out;
}

/* The mean gradient itself. */
static uint8_t *put_whole(struct anchor *anchor, const struct anchor_matrix *matrix, double factor)
{
    int64_t cells = matrix->is.rows * matrix->is.columns;
    anchor->ops->copy_out(anchor->device, anchor->left, matrix->mean, (size_t)cells * sizeof(float));
    anchor->ops->finish(anchor->device);
    for (int64_t i = 0; i < cells; i++)
        anchor->left[i] *= (float)factor;
    return put_half(anchor->body, anchor->left, cells);
}

static uint8_t *put_directions(struct anchor *anchor, struct anchor_matrix *matrix, double factor)
{
    const struct matrix *is = &matrix->is;
    struct subspace_result found = {anchor->left, anchor->right, anchor->singular};
    subspace_find(anchor->subspace, matrix->mean, is->rows, is->columns, matrix->rank,
                  anchor->versions == 1 ? PASSES_FIRST : PASSES,
                  (uint64_t)anchor->settings.profile.seed + (uint64_t)is->tensor, matrix->start, &found);
    for (int64_t k = 0; k < matrix->rank; k++)
        anchor->singular[k] *= (float)factor;
    memcpy(anchor->body, anchor->singular, (size_t)matrix->rank * sizeof(float));
    uint8_t *end = put_half(anchor->body + (size_t)matrix->rank * sizeof(float), anchor->left, is->rows * matrix->rank);
    return put_half(end, anchor->right, is->columns * matrix->rank);
}

/* The wire's form of what is told of a matrix. */
static void describe(struct anchor *anchor, struct anchor_matrix *matrix, double factor, struct wire_basis *basis)
{
    const struct matrix *is = &matrix->is;
    const uint8_t *end = matrix->rank ? put_directions(anchor, matrix, factor) : put_whole(anchor, matrix, factor);
    basis->rows = (uint32_t)is->rows;
    basis->columns = (uint32_t)is->columns;
    basis->rank = (uint16_t)matrix->rank;
    basis->energy = factor * factor * anchor->ops->sum_squares(anchor->device, matrix->mean, is->rows * is->columns);
    basis->body = (struct wire_bytes){anchor->body, (uint32_t)(end - anchor->body)};
}

static void tell_spectrum(struct anchor *anchor, const struct anchor_matrix *matrix, const struct wire_basis *basis)
{
    struct wire_spectrum spectrum = {.version = basis->version,
                                     .layer = (uint16_t)matrix->is.layer,
                                     .matrix_class = (uint8_t)matrix->is.matrix_class,
                                     .rank = basis->rank,
                                     .rows = basis->rows,
                                     .columns = basis->columns,
                                     .energy = basis->energy};
    int used = 0;
    for (int64_t k = 0; k < matrix->rank && k < WIRE_SPECTRUM_VALUES; k++)
        used += snprintf(spectrum.values + used, sizeof spectrum.values - (size_t)used, "%s%.3g", k ? " " : "", (double)anchor->singular[k]);
    pass_tell(anchor, WIRE_SPECTRUM, &spectrum, basis->version);
}

static int stage_of_layer(const struct anchor *anchor, int layer, int *first, int *layers)
{
    int stage = 0;
    assembly_layers(anchor->assembly, stage, first, layers);
    while (layer >= *first + *layers)
        assembly_layers(anchor->assembly, ++stage, first, layers);
    return stage;
}

static int send_directions(struct anchor *anchor, uint64_t version, double factor, uint64_t learned)
{
    const struct wire_assign *assign = &anchor->settings.assign;
    const struct stage_shape shape = pass_shape(&anchor->settings.profile);
    int err = 0, first, layers, of_layer = matrices_of_layer(&shape);
    for (int i = 0; i < anchor->count && !err; i++) {
        struct anchor_matrix *matrix = &anchor->matrices[i];
        int stage = stage_of_layer(anchor, matrix->is.layer, &first, &layers);
        struct wire_basis basis = {.version = version,
                                   .tokens = learned,
                                   .matrix = (uint16_t)(i - first * of_layer),
                                   .matrices = (uint16_t)(layers * of_layer)};
        describe(anchor, matrix, factor, &basis);
        if (matrix->rank)
            tell_spectrum(anchor, matrix, &basis);
        for (int replica = 0; replica < assign->replicas && !err; replica++) {
            struct letter letter = compute_letter(WIRE_BASIS, &basis, basis.body.bytes,
                                                  (enum mail_road)(MAIL_STAGES + replica * assign->stages + stage), version,
                                                  0);
            err = mail_send(anchor->mail, &letter, NULL);
        }
        if (mail_orders(anchor->mail))
            err = ERR_GONE;
    }
    return err;
}

/* ---- the lifeboat ---- */

/* All tensors of one version, in their order, as the file that a checkpoint's reader knows. */
static int write_lifeboat(struct anchor *anchor, uint64_t version, struct why *why)
{
    char path[sizeof anchor->settings.folder + 40], step[24];
    const char *const metadata[] = {"format", "pt", "kedge_step", step, NULL};
    struct safetensors_out *out = NULL;
    int used = snprintf(path, sizeof path, "%s/lifeboat", anchor->settings.folder),
        count = stage_tensor_count(anchor->model);
    struct stage_shape shape = pass_shape(&anchor->settings.profile);
    int err = disk_check(&anchor->settings.profile, anchor->settings.host, anchor->settings.folder,
                         2 * (uint64_t)stage_word_count(&shape), why);
    if (!err)
        err = file_make_folders(path, 0700, why);
    snprintf(step, sizeof step, "%" PRIu64, version - 1);
    snprintf(path + used, sizeof path - (size_t)used, "/model.safetensors");
    struct safetensors_entry *entries = mem_array((size_t)count, sizeof *entries);
    int64_t largest = 0;
    for (int i = 0; i < count; i++) {
        struct tensor_info info;
        stage_tensor(anchor->model, i, &info);
        entries[i] = (struct safetensors_entry){.dims = info.dims, .shape = {info.shape[0], info.shape[1]}};
        memcpy(entries[i].name, info.name, sizeof entries[i].name);
        int64_t values = safetensors_entry_count(&entries[i]);
        largest = values > largest ? values : largest;
    }
    float *values = mem_large((size_t)largest * sizeof *values);
    if (!err)
        err = values ? safetensors_create(path, entries, (size_t)count, WEIGHTS_BF16, metadata, &out, why)
                     : why_set(why, ERR_MEMORY, "no memory to write the lifeboat");
    const uint16_t *word = anchor->words;
    for (int i = 0; i < count && !err; i++) {
        int64_t left = safetensors_entry_count(&entries[i]);
        for (int64_t k = 0; k < left; k++)
            values[k] = half_to_float(*word++);
        err = safetensors_add(out, values, left, why);
    }
    uint64_t bytes, hash;
    if (!err)
        err = safetensors_finish(out, &bytes, &hash, why);
    else
        safetensors_abandon(out);
    mem_large_free(values);
    mem_free(entries);
    return err;
}

/* ---- all of it ---- */

static uint64_t take_version(struct anchor *anchor)
{
    struct stage_shape shape = pass_shape(&anchor->settings.profile);
    uint64_t version;
    const uint16_t *words = assembly_lock(anchor->assembly, &version);
    stage_words_set(anchor->model, words);
    if (anchor->words)
        memcpy(anchor->words, words, 2 * (size_t)stage_word_count(&shape));
    assembly_unlock(anchor->assembly);
    return version;
}

static void tell_failed(struct anchor *anchor, uint64_t version, const char *what, const struct why *why)
{
    char text[WIRE_TEXT];
    snprintf(text, sizeof text, "%s of version %" PRIu64 ": %.300s", what, version, why->text);
    say(anchor, EVENT_WARN, version, "anchor", text);
}

int pass_run(struct anchor *anchor)
{
    const struct profile *profile = &anchor->settings.profile;
    uint64_t began_ns = clock_now_ns(), version = take_version(anchor), learned;
    struct why why = {0};
    anchor->done = version;
    int err = compute_gradient(anchor, version, &learned, &why);
    double positions = (double)(micro_batches(profile) * profile->micro_batch * profile->sequence);
    double to_mean = learned ? positions / (double)learned : 0, norm = 0;
    if (!err)
        norm = sqrt(stage_gradient_squares(anchor->model)) * to_mean;
    if (!err && !isfinite(norm))
        err = why_set(&why, ERR_INVALID, "it is not finite");
    if (!err && (err = cuts_send(anchor, version)) == ERR_ABSENT)
        why_set(&why, err, "the statistics of a cut are not finite or have no solution");
    if (!err)
        err = send_directions(anchor, version, remember(anchor, to_mean), learned);
    if (err && err != ERR_GONE) {
        tell_failed(anchor, version, "no directions come of the gradient", &why);
        err = 0;
    } else if (!err) {
        struct wire_mark mark = {.mark = MARK_COMPUTED,
                                 .version = version,
                                 .step = version,
                                 .elapsed_ns = clock_now_ns() - began_ns,
                                 .value = norm};
        pass_tell(anchor, WIRE_MARK, &mark, version);
    }
    why = (struct why){0};
    if (!err && profile->anchor_evaluate && (err = evaluate(anchor, version, &why)) != 0 && err != ERR_GONE) {
        tell_failed(anchor, version, "no validation loss", &why);
        err = 0;
    }
    why = (struct why){0};
    if (!err && anchor->words && write_lifeboat(anchor, version, &why) != 0)
        tell_failed(anchor, version, "no lifeboat", &why);
    return err;
}
