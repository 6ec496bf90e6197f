/*
 * The weights of a stage by their Hugging Face names: fresh, from a checkpoint, in and out for tests and hashes. Large
 * tensors pass through a small host buffer in pieces.
 */
#include "gpu/model/model.h"

#include <inttypes.h>

#include "gpu/model/adapter.h"
#include "gpu/model/checkpoint.h"
#include "gpu/model/fresh.h"
#include "gpu/model/inside.h"
#include "ssh/base/hash.h"
#include "ssh/base/mem.h"

#define PIECE ((int64_t)1 << 20) /* floats of the host buffer, at least the longest row (carve.c): 4 MiB */

/* The model's own weights, trained or not; mem_free. */
static struct carve_tensor *list_weights(const struct stage *stage)
{
    struct carve_weights at;
    struct carve_tensor *tensors = mem_array((size_t)stage->at.block.tensors, sizeof *tensors);
    carve_weights(&stage->shape, &at, tensors);
    return tensors;
}

/* Into a block of floats, or, where it is NULL, into the words. */
static void put_floats(struct stage *stage, float *block, size_t offset, const float *piece, int64_t count)
{
    float *staging = stage->scratch + stage->work.normed;
    int64_t most = stage->kept.rows * stage->shape.model.hidden;
    for (int64_t done = 0; done < count; done += most) {
        int64_t part = count - done < most ? count - done : most;
        float *to = block ? block + offset + done : staging;
        stage->ops->copy_in(stage->device, to, piece + done, (size_t)part * sizeof *piece);
        if (!block)
            stage->ops->halve(stage->device, stage->words + offset + done, staging, part);
    }
    stage->ops->finish(stage->device);
}

static void fresh_tensor(struct stage *stage, float *block, const struct carve_tensor *t, uint64_t seed, float *piece)
{
    int64_t total = t->rows * t->columns;
    for (int64_t done = 0, count; done < total; done += count) {
        count = total - done < PIECE ? total - done : PIECE;
        if (t->deviation > 0)
            fresh_normal(seed, t->name, (uint64_t)done, count, t->deviation, piece);
        for (int64_t i = 0; i < count && t->deviation <= 0; i++)
            piece[i] = t->deviation < 0 ? 0 : 1;
        put_floats(stage, block, t->offset + (size_t)done, piece, count);
    }
}

static void fresh_block(struct stage *stage, float *block, const struct carve_tensor *tensors, int count, uint64_t seed)
{
    float *piece = mem_array((size_t)PIECE, sizeof *piece);
    for (int i = 0; i < count; i++)
        fresh_tensor(stage, block, &tensors[i], seed, piece);
    stage_changed(stage);
    mem_free(piece);
}

void stage_fresh(struct stage *stage, uint64_t seed)
{
    struct carve_tensor *tensors = list_weights(stage);
    fresh_block(stage, stage->weights, tensors, stage->at.block.tensors, seed);
    mem_free(tensors);
}

void stage_fresh_adapters(struct stage *stage, uint64_t seed)
{
    BUG_IF(!stage->shape.lora.rank);
    fresh_block(stage, stage->trained, stage->tensors, stage->learned.tensors, seed);
}

/* `name`: whose values it starts with, mostly its own. */
static int load_tensor(struct stage *stage, float *block, struct checkpoint *checkpoint, const struct carve_tensor *t,
                       const char *name, float *piece, struct why *why)
{
    int64_t rows_at_once = PIECE / t->columns;
    BUG_IF(rows_at_once < 1);
    for (int64_t row = 0; row < t->rows; row += rows_at_once) {
        int64_t rows = t->rows - row < rows_at_once ? t->rows - row : rows_at_once;
        int err = checkpoint_get_rows(checkpoint, name, t->dims, t->rows, t->columns, row, rows, piece, why);
        if (err)
            return err;
        put_floats(stage, block, t->offset + (size_t)(row * t->columns), piece, rows * t->columns);
    }
    return 0;
}

static int same_model(const struct model_shape *ours, const struct model_shape *theirs, const char *folder, struct why *why)
{
    const struct {
        const char *name;
        double ours, theirs;
    } sides[] = {
        {"hidden", (double)ours->hidden, (double)theirs->hidden},
        {"layers", (double)ours->layers, (double)theirs->layers},
        {"heads", (double)ours->heads, (double)theirs->heads},
        {"kv_heads", (double)ours->kv_heads, (double)theirs->kv_heads},
        {"head_width", (double)ours->head_width, (double)theirs->head_width},
        {"ffn", (double)ours->ffn, (double)theirs->ffn},
        {"vocabulary", (double)ours->vocabulary, (double)theirs->vocabulary},
        {"attention window", (double)ours->window, (double)theirs->window},
        {"q/k/v biases", ours->qkv_bias, theirs->qkv_bias},
        {"q/k norms", ours->qk_norm, theirs->qk_norm},
        {"rope_theta", (double)ours->rope_theta, (double)theirs->rope_theta},
        {"rope_scaling kind", ours->scaling, theirs->scaling},
        {"rope_scaling factor", (double)ours->scaling_factor, (double)theirs->scaling_factor},
        {"rope_scaling low_freq_factor", (double)ours->scaling_low, (double)theirs->scaling_low},
        {"rope_scaling high_freq_factor", (double)ours->scaling_high, (double)theirs->scaling_high},
        {"rope_scaling original context", (double)ours->scaling_context, (double)theirs->scaling_context},
        {"norm_epsilon", (double)ours->norm_epsilon, (double)theirs->norm_epsilon},
    };
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        if (sides[i].ours < sides[i].theirs || sides[i].ours > sides[i].theirs)
            return why_set(why, ERR_INVALID, "%s/config.json has %s = %.9g, this run was planned with %.9g", folder,
                           sides[i].name, sides[i].theirs, sides[i].ours);
    if (ours->tied && !theirs->tied)
        return why_set(why, ERR_INVALID, "%s/config.json has a head of its own, this run was planned with a tied one; remove "
                       "model.head = tied", folder);
    return 0;
}

int stage_load(struct stage *stage, const char *folder, struct why *why)
{
    struct model_shape shape;
    struct checkpoint *checkpoint = NULL;
    int err = checkpoint_shape(folder, &shape, why);
    if (err == 0)
        err = same_model(&stage->shape.model, &shape, folder, why);
    if (err == 0)
        err = checkpoint_open(folder, &checkpoint, why);
    if (err)
        return err;
    float *piece = mem_array((size_t)PIECE, sizeof *piece);
    struct carve_tensor *tensors = list_weights(stage);
    for (int i = 0; i < stage->at.block.tensors && err == 0; i++) {
        const struct carve_tensor *t = &tensors[i];
        bool own_now = shape.tied && !stage->shape.model.tied && t->offset == stage->at.head;
        err = load_tensor(stage, stage->weights, checkpoint, t, own_now ? CARVE_EMBEDDING : t->name, piece, why);
    }
    stage_changed(stage);
    mem_free(tensors);
    mem_free(piece);
    checkpoint_close(checkpoint);
    return err;
}

int stage_load_adapters(struct stage *stage, const char *folder, struct why *why)
{
    struct checkpoint *checkpoint = NULL;
    BUG_IF(!stage->shape.lora.rank);
    int err = adapter_open(folder, &stage->shape.model, &stage->shape.lora, &checkpoint, why);
    if (err)
        return err;
    float *piece = mem_array((size_t)PIECE, sizeof *piece);
    for (int i = 0; i < stage->learned.tensors && !err; i++)
        err = load_tensor(stage, stage->trained, checkpoint, &stage->tensors[i], stage->tensors[i].name, piece, why);
    stage_moved(stage);
    mem_free(piece);
    checkpoint_close(checkpoint);
    return err;
}

/* Weights that nobody trains need no more bits than their file has. */
static int find_words(const char *folder, bool *half, struct why *why)
{
    struct checkpoint *checkpoint = NULL;
    int err = checkpoint_open(folder, &checkpoint, why);
    *half = !err && checkpoint_is_half(checkpoint);
    checkpoint_close(checkpoint);
    return err;
}

int stage_open(const struct ops *ops, struct device *device, const struct stage_shape *shape, const char *folder, const char *adapter,
               struct stage **stage, struct why *why)
{
    struct stage_shape whole = *shape;
    struct stage *opened = NULL;
    int err = checkpoint_shape(folder, &whole.model, why);
    whole.layers = whole.model.layers;
    whole.first = whole.last = true;
    if (!err && adapter)
        err = adapter_read(adapter, &whole.lora, why);
    if (!err && shape->frozen)
        err = find_words(folder, &whole.words_only, why);
    if (!err)
        err = stage_new(ops, device, &whole, &opened, why);
    if (!err)
        err = stage_load(opened, folder, why);
    if (!err && adapter)
        err = stage_load_adapters(opened, adapter, why);
    if (err)
        stage_free(opened);
    else
        *stage = opened;
    return err;
}

int stage_tensor_count(const struct stage *stage)
{
    return stage->learned.tensors;
}

static const struct carve_tensor *tensor_at(const struct stage *stage, int index)
{
    BUG_IF(index < 0 || index >= stage->learned.tensors);
    return &stage->tensors[index];
}

void stage_tensor(const struct stage *stage, int index, struct tensor_info *info)
{
    const struct carve_tensor *t = tensor_at(stage, index);
    *info = (struct tensor_info){.dims = t->dims, .shape = {t->rows, t->columns}};
    memcpy(info->name, t->name, sizeof info->name);
}

void stage_tensor_get(struct stage *stage, int index, float *out, bool gradient)
{
    const struct carve_tensor *t = tensor_at(stage, index);
    size_t bytes = (size_t)(t->rows * t->columns) * sizeof *out;
    if (gradient && !stage_is_trained(stage, t))
        memset(out, 0, bytes);
    else
        stage->ops->copy_out(stage->device, out,
                             gradient ? stage->gradients + (t->offset - stage->still) : stage->trained + t->offset, bytes);
    stage->ops->finish(stage->device);
}

void stage_tensor_set(struct stage *stage, int index, const float *in)
{
    const struct carve_tensor *t = tensor_at(stage, index);
    stage->ops->copy_in(stage->device, stage->trained + t->offset, in, (size_t)(t->rows * t->columns) * sizeof *in);
    stage->ops->finish(stage->device);
    stage_moved(stage);
}

void stage_gradient_set(struct stage *stage, int index, const float *in)
{
    const struct carve_tensor *t = tensor_at(stage, index);
    if (!stage_is_trained(stage, t))
        return;
    stage->ops->copy_in(stage->device, stage->gradients + (t->offset - stage->still), in,
                        (size_t)(t->rows * t->columns) * sizeof *in);
    stage->ops->finish(stage->device);
}

uint64_t stage_hash(struct stage *stage)
{
    float *piece = mem_array((size_t)PIECE, sizeof *piece);
    uint64_t hash = HASH_START;
    for (int i = 0; i < stage->learned.tensors; i++) {
        const struct carve_tensor *t = &stage->tensors[i];
        int64_t total = t->rows * t->columns;
        hash = hash_add(hash, t->name, strlen(t->name));
        for (int64_t done = 0; done < total;) {
            int64_t count = total - done < PIECE ? total - done : PIECE;
            stage->ops->copy_out(stage->device, piece, stage->trained + t->offset + done, (size_t)count * sizeof *piece);
            stage->ops->finish(stage->device);
            hash = hash_add(hash, piece, (size_t)count * sizeof *piece);
            done += count;
        }
    }
    mem_free(piece);
    return hash_finish(hash);
}

/* ---- as words ---- */

int64_t stage_word_count(const struct stage_shape *shape)
{
    bool copy = shape->model.tied && shape->last && !shape->first && !shape->lora.rank;
    return (int64_t)stage_memory(shape).trained - (copy ? shape->model.vocabulary * shape->model.hidden : 0);
}

void stage_words_get(struct stage *stage, uint16_t *words)
{
    for (int i = 0; i < stage->learned.tensors; i++) {
        const struct carve_tensor *t = &stage->tensors[i];
        if (t->offset == stage_tied_copy(stage))
            continue;
        if (stage->trained)
            stage->ops->pack(stage->device, (uint8_t *)words, stage->trained + t->offset, t->rows, t->columns, FORMAT_BF16);
        else
            stage->ops->copy_out(stage->device, words, stage->words + t->offset, (size_t)(t->rows * t->columns) * sizeof *words);
        words += t->rows * t->columns;
    }
    stage->ops->finish(stage->device);
}

void stage_words_set(struct stage *stage, const uint16_t *words)
{
    for (int i = 0; i < stage->learned.tensors; i++) {
        const struct carve_tensor *t = &stage->tensors[i];
        if (t->offset == stage_tied_copy(stage))
            continue;
        if (stage->trained)
            stage->ops->unpack(stage->device, stage->trained + t->offset, (const uint8_t *)words, t->rows, t->columns, FORMAT_BF16);
        else
            stage->ops->copy_in(stage->device, stage->words + t->offset, words, (size_t)(t->rows * t->columns) * sizeof *words);
        words += t->rows * t->columns;
    }
    stage->ops->finish(stage->device);
    stage_moved(stage);
}
