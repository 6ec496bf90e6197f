/*
 * A stage's life: all memory at once, forward into a slot, loss, backward from it, the optimiser step. Slots are
 * independent: what is shared lies in scratch and in the fields `resident` and `ready`, which say whose it is.
 */
#include "gpu/model/model.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "gpu/model/inside.h"
#include "ssh/base/hash.h"
#include "ssh/base/mem.h"

static int take_blocks(struct stage *stage)
{
    const struct stage_shape *shape = &stage->shape;
    size_t all = stage->learned.floats - stage->still, learned = shape->frozen ? 0 : all;
    size_t moment = shape->judges || shape->frozen ? 0 : carve_moment_bytes(shape->moments, all, stage->learned.tensors);
    const size_t bytes[] = {shape->words_only ? 0 : stage->at.block.floats * sizeof(float), learned * sizeof(float), moment, moment,
                            shape->corrects ? all * sizeof(float) : 0, stage->kept.floats * sizeof(float),
                            stage->work.floats * sizeof(float), carve_word_bytes(shape, &stage->at),
                            stage->adapters.block.floats * sizeof(float)};
    void *blocks[sizeof bytes / sizeof *bytes] = {NULL};
    bool whole = true;
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes && whole; i++)
        whole = !bytes[i] || (blocks[i] = stage->ops->alloc(stage->device, bytes[i]));
    stage->weights = blocks[0];
    stage->gradients = blocks[1];
    stage->moments[0] = blocks[2];
    stage->moments[1] = blocks[3];
    stage->corrections = blocks[4];
    stage->activations = blocks[5];
    stage->scratch = blocks[6];
    stage->words = blocks[7];
    stage->trained = shape->lora.rank ? blocks[8] : blocks[0];
    if (!whole)
        return ERR_MEMORY;
    if (stage->shape.first) {
        stage->ids = mem_large((size_t)(stage->shape.slots * stage->kept.rows) * sizeof(uint32_t));
        if (!stage->ids)
            return ERR_MEMORY;
    }
    if (stage->shape.apart) {
        stage->starts = mem_large((size_t)(stage->shape.slots * stage->kept.rows) * sizeof(int32_t));
        if (!stage->starts)
            return ERR_MEMORY;
    }
    return 0;
}

int stage_new(const struct ops *ops, struct device *device, const struct stage_shape *shape, struct stage **stage,
              struct why *why)
{
    int err = stage_check(shape, why);
    if (err)
        return err;
    struct stage *new = mem_new(sizeof *new);
    *new = (struct stage){.ops = ops, .device = device, .shape = *shape, .resident = -1, .ready = -1};
    carve_weights(shape, &new->at, NULL);
    carve_adapters(shape, &new->adapters, NULL);
    carve_activations(shape, &new->kept);
    carve_scratch(shape, &new->work);
    new->tensors = carve_trained(shape, &new->learned);
    new->still = carve_still(shape, &new->at, &new->adapters);
    new->corrected = mem_array((size_t)new->learned.tensors, sizeof *new->corrected);
    new->slots = mem_array((size_t)shape->slots, sizeof *new->slots);
    new->frequency = mem_array((size_t)shape->model.head_width / 2, sizeof(float));
    model_frequency(&shape->model, new->frequency);
    if (take_blocks(new) != 0) {
        struct stage_memory m = stage_memory(shape);
        stage_free(new);
        return why_set(why, ERR_MEMORY,
                       "layers %" PRId64 " to %" PRId64 " need %.2f GiB (weights %.2f, gradients %.2f, optimiser "
                       "%.2f, %" PRId64
                       " micro-batches %.2f, scratch %.2f) and this device has less; use more stages, a smaller "
                       "micro-batch or pipeline.recompute",
                       shape->first_layer, shape->first_layer + shape->layers - 1, (double)m.total / 0x1p30,
                       (double)m.weights / 0x1p30, (double)m.gradients / 0x1p30, (double)m.optimizer / 0x1p30, shape->slots,
                       (double)m.activations / 0x1p30, (double)m.scratch / 0x1p30);
    }
    for (int64_t i = 0; shape->first && i < shape->slots; i++)
        new->slots[i].ids = new->ids + i * new->kept.rows;
    for (int64_t i = 0; shape->apart && i < shape->slots; i++)
        new->slots[i].starts = new->starts + i * new->kept.rows;
    *stage = new;
    return 0;
}

void stage_free(struct stage *stage)
{
    if (!stage)
        return;
    void *blocks[] = {stage->weights,    stage->gradients,   stage->moments[0],
                      stage->moments[1], stage->activations, stage->scratch, stage->corrections, stage->words,
                      stage->shape.lora.rank ? stage->trained : NULL};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (blocks[i])
            stage->ops->free(stage->device, blocks[i]);
    mem_large_free(stage->ids);
    mem_large_free(stage->starts);
    mem_free(stage->tensors);
    mem_free(stage->corrected);
    mem_free(stage->slots);
    mem_free(stage->frequency);
    mem_free(stage);
}

/* ---- where a slot's things lie ---- */

static float *set_of(const struct stage *stage, int slot)
{
    return stage->activations + stage->kept.sets + (size_t)slot * stage->kept.sets_stride;
}

/* The input of layer i of the slot, i = 0: of the stage. With half_products those of others are kept in bf16: what runs through
 * layers is in `output`, and where one of them goes back, its input is made there. */
float *stage_x(const struct stage *stage, int slot, int64_t layer)
{
    const struct carve_activations *kept = &stage->kept;
    if (layer > 0 && stage->shape.half_products)
        return stage->scratch + stage->work.output;
    if (layer < kept->x_first)
        return stage->activations + kept->inputs + (size_t)slot * kept->inputs_stride;
    return set_of(stage, slot) + kept->x + (size_t)(layer - kept->x_first) * kept->x_stride;
}

float *stage_gradient_at(const struct stage *stage, size_t offset)
{
    bool has = !stage->shape.lora.rank && stage->gradients && offset >= stage->still;
    return has ? stage->gradients + (offset - stage->still) : NULL;
}

static struct adapter adapter_at(const struct stage *stage, int64_t layer, int target)
{
    const struct model_shape *m = &stage->shape.model;
    const struct carve_adapters *at = &stage->adapters;
    int64_t query = carve_query_width(m), key = carve_key_width(m);
    const int64_t in[LORA_TARGETS] = {m->hidden, m->hidden, m->hidden, query, m->hidden, m->hidden, m->ffn};
    const int64_t out[LORA_TARGETS] = {query, key, key, m->hidden, m->ffn, m->ffn, m->hidden};
    struct adapter adapter = {.in = in[target], .out = out[target]};
    if (at->a[target] == CARVE_NONE)
        return adapter;
    size_t a = (size_t)layer * at->layer_stride + at->a[target], b = (size_t)layer * at->layer_stride + at->b[target];
    adapter.a = stage->trained + a;
    adapter.b = stage->trained + b;
    if (stage->gradients && layer >= stage->shape.still) {
        adapter.d_a = stage->gradients + (a - stage->still);
        adapter.d_b = stage->gradients + (b - stage->still);
    }
    return adapter;
}

/* Where a layer's things in bf16 are kept; in fp32 they are in scratch while they are used. */
static void lay_words(const struct stage *stage, int slot, int64_t index, struct layer *layer)
{
    const struct carve_activations *kept = &stage->kept;
    float *set = set_of(stage, slot), *scratch = stage->scratch;
    layer->kept = (struct kept_words){.qkv = (uint16_t *)layer->qkv, .o = (uint16_t *)layer->o, .mid = (uint16_t *)layer->mid,
                                      .gate_up = (uint16_t *)layer->gate_up};
    float *x = index > 0 ? set + kept->half_x + (size_t)(index - 1) * kept->half_x_stride : scratch + stage->work.half_x;
    layer->kept.x = (uint16_t *)x;
    layer->qkv = scratch + stage->work.qkv;
    layer->o = scratch + stage->work.o;
    layer->mid = scratch + stage->work.output;
    layer->gate_up = scratch + stage->work.wide;
}

struct layer stage_layer(const struct stage *stage, int slot, int64_t index)
{
    const struct carve_weights *at = &stage->at;
    const struct carve_activations *kept = &stage->kept;
    size_t offset = at->first_layer + (size_t)index * at->layer_stride;
    const struct model_shape *m = &stage->shape.model;
    size_t place = stage->work.vectors;
    float *a = set_of(stage, slot) + kept->layer + (size_t)carve_place(&stage->shape, index) * kept->layer_stride;
    struct layer layer = {
        .norm1 = vector_at(stage, offset + at->norm1, m->hidden, &place), .norm2 = vector_at(stage, offset + at->norm2, m->hidden, &place),
        .qkv_weight = weight_at(stage, offset + at->qkv), .o_weight = weight_at(stage, offset + at->o),
        .gate_up_weight = weight_at(stage, offset + at->gate_up), .down_weight = weight_at(stage, offset + at->down),
        .d_norm1 = stage_gradient_at(stage, offset + at->norm1), .d_norm2 = stage_gradient_at(stage, offset + at->norm2),
        .d_qkv_weight = stage_gradient_at(stage, offset + at->qkv), .d_o_weight = stage_gradient_at(stage, offset + at->o),
        .d_gate_up_weight = stage_gradient_at(stage, offset + at->gate_up),
        .d_down_weight = stage_gradient_at(stage, offset + at->down),
        .x = stage_x(stage, slot, index), .qkv = a + kept->qkv, .o = a + kept->o,
        .log_sum = a + kept->log_sum, .mid = a + kept->mid, .gate_up = a + kept->gate_up,
        .starts = stage->slots[slot].starts,
    };
    if (stage->shape.half_products)
        lay_words(stage, slot, index, &layer);
    for (int target = 0; target < LORA_TARGETS; target++)
        layer.adapters[target] = adapter_at(stage, index, target);
    if (m->qkv_bias) {
        layer.qkv_bias = vector_at(stage, offset + at->qkv_bias, carve_qkv_width(m), &place);
        layer.d_qkv_bias = stage_gradient_at(stage, offset + at->qkv_bias);
    }
    if (m->qk_norm) {
        layer.q_norm = vector_at(stage, offset + at->q_norm, m->head_width, &place);
        layer.k_norm = vector_at(stage, offset + at->k_norm, m->head_width, &place);
        layer.d_q_norm = stage_gradient_at(stage, offset + at->q_norm);
        layer.d_k_norm = stage_gradient_at(stage, offset + at->k_norm);
        layer.raw = a + kept->raw;
        layer.inverse = a + kept->inverse;
    }
    return layer;
}

void stage_copy(struct stage *stage, float *to, const float *from, int64_t count)
{
    if (to == from)
        return;
    stage->ops->fill(stage->device, to, 0, count);
    stage->ops->add(stage->device, to, from, count);
}

static struct slot *slot_at(struct stage *stage, int slot)
{
    BUG_IF(slot < 0 || slot >= stage->shape.slots);
    return &stage->slots[slot];
}

float *stage_input(struct stage *stage, int slot)
{
    slot_at(stage, slot);
    return stage->shape.first ? NULL : stage_x(stage, slot, 0);
}

void stage_documents(struct stage *stage, int slot, const bool *begins, int64_t sequences, int64_t tokens)
{
    int32_t *starts = slot_at(stage, slot)->starts;
    BUG_IF(!starts || sequences < 1 || tokens < 1 || tokens > INT32_MAX || sequences * tokens > stage->kept.rows);
    for (int64_t i = 0; i < sequences * tokens; i++) {
        int32_t place = (int32_t)(i % tokens);
        starts[i] = place == 0 || begins[i] ? place : starts[i - 1];
    }
}

float *stage_gradient(struct stage *stage)
{
    return stage->shape.last ? NULL : stage->scratch + stage->work.gradient;
}

/* ---- forward, loss, backward ---- */

void stage_changed(struct stage *stage)
{
    stage->resident = -1;
    stage->stale = true;
}

void stage_moved(struct stage *stage)
{
    stage->resident = -1;
    stage->stale |= !stage->shape.lora.rank;
}

static void refresh(struct stage *stage)
{
    if (stage->words && stage->weights && stage->stale)
        stage->ops->halve(stage->device, stage->words, stage->weights + stage->at.words,
                          (int64_t)(stage->at.block.floats - stage->at.words));
    stage->stale = false;
}

/* From the slot's ids or input to `output`, filling the slot's set. */
static void run_forward(struct stage *stage, int slot)
{
    const struct slot *s = &stage->slots[slot];
    float *output = stage->scratch + stage->work.output;
    refresh(stage);
    if (stage->shape.first)
        linear_embed(stage, stage_x(stage, slot, 0), s->ids, s->sequences * s->tokens);
    for (int64_t i = 0; i < stage->shape.layers; i++) {
        struct layer layer = stage_layer(stage, slot, i);
        layer_forward(stage, &layer, s->sequences, s->tokens,
                      i + 1 < stage->shape.layers ? stage_x(stage, slot, i + 1) : output);
    }
    stage->resident = slot;
}

const float *stage_forward(struct stage *stage, int slot, const uint32_t *ids, const float *x, int64_t sequences,
                           int64_t tokens)
{
    struct slot *s = slot_at(stage, slot);
    int64_t rows = sequences * tokens;
    BUG_IF(sequences < 1 || tokens < 1 || rows > stage->kept.rows);
    s->sequences = sequences;
    s->tokens = tokens;
    stage->ready = -1;
    if (stage->shape.first) {
        BUG_IF(!ids || x || !model_ids_fit(&stage->shape.model, ids, rows));
        memcpy(s->ids, ids, (size_t)rows * sizeof *ids);
    } else {
        BUG_IF(!x);
        stage_copy(stage, stage_x(stage, slot, 0), x, rows * stage->shape.model.hidden);
    }
    run_forward(stage, slot);
    return stage->shape.last ? NULL : stage->scratch + stage->work.output;
}

double stage_loss(struct stage *stage, int slot, const uint32_t *targets, float scale)
{
    const struct slot *s = slot_at(stage, slot);
    BUG_IF(!stage->shape.last || stage->resident != slot || !s->tokens || (stage->shape.frozen && scale != 0));
    for (int64_t i = 0; i < s->sequences * s->tokens; i++)
        BUG_IF(targets[i] != UINT32_MAX && (int64_t)targets[i] >= stage->shape.model.vocabulary);
    double loss = head_loss(stage, s->sequences * s->tokens, targets, scale);
    stage->ready = scale != 0 ? slot : -1;
    return loss;
}

void stage_logits(struct stage *stage, float *out)
{
    BUG_IF(!stage->shape.last || stage->resident < 0);
    const struct slot *s = &stage->slots[stage->resident];
    head_logits(stage, s->sequences * s->tokens, out);
}

void stage_watch(struct stage *stage, void (*watch_cb)(int64_t layer, const float *x, const float *dx, void *arg),
                 void *arg)
{
    stage->watch_cb = watch_cb;
    stage->watch_arg = arg;
}

const float *stage_backward(struct stage *stage, int slot, const float *dy)
{
    struct slot *s = slot_at(stage, slot);
    int64_t rows = s->sequences * s->tokens, hidden = stage->shape.model.hidden;
    float *gradient = stage->scratch + stage->work.gradient;
    BUG_IF(stage->shape.frozen || !rows || stage->shape.last != !dy || (stage->shape.last && stage->ready != slot));
    int64_t still = stage->shape.still;
    bool learns = still < stage->shape.layers;
    if (dy && learns)
        stage_copy(stage, gradient, dy, rows * hidden);
    if (stage->shape.recompute && stage->resident != slot && learns)
        run_forward(stage, slot);
    for (int64_t i = stage->shape.layers - 1; i >= still; i--) {
        struct layer layer = stage_layer(stage, slot, i);
        layer_backward(stage, &layer, s->sequences, s->tokens);
        if (stage->watch_cb)
            stage->watch_cb(i, layer.x, gradient, stage->watch_arg);
    }
    if (stage->shape.first && !still && !stage->shape.lora.rank)
        stage->ops->embedding_backward(stage->device, stage->gradients + stage->at.embedding, gradient, s->ids, rows,
                                       hidden);
    if (stage->resident == slot)
        stage->resident = -1; /* gate|up is overwritten */
    stage->ready = -1;
    s->tokens = 0;
    return stage->shape.first || still ? NULL : gradient;
}

/* ---- the optimiser step ---- */

size_t stage_tied_copy(const struct stage *stage)
{
    bool copied = stage->shape.model.tied && stage->shape.last && !stage->shape.first && !stage->shape.lora.rank;
    return copied ? stage->at.head : CARVE_NONE;
}

bool stage_is_trained(const struct stage *stage, const struct carve_tensor *tensor)
{
    return tensor->offset >= stage->still;
}

double stage_gradient_squares(struct stage *stage)
{
    double squares = 0;
    for (int i = 0; i < stage->learned.tensors; i++) {
        const struct carve_tensor *t = &stage->tensors[i];
        const float *gradients = stage->corrected[i] ? stage->corrections : stage->gradients;
        if (t->offset != stage_tied_copy(stage) && stage_is_trained(stage, t))
            squares += stage->ops->sum_squares(stage->device, gradients + (t->offset - stage->still), t->rows * t->columns);
    }
    return squares;
}

void stage_zero_gradients(struct stage *stage)
{
    stage->ops->fill(stage->device, stage->gradients, 0, (int64_t)(stage->learned.floats - stage->still));
    memset(stage->corrected, 0, (size_t)stage->learned.tensors * sizeof *stage->corrected);
}

float *stage_gradient_of(struct stage *stage, int index)
{
    BUG_IF(index < 0 || index >= stage->learned.tensors || !stage_is_trained(stage, &stage->tensors[index]));
    return stage->gradients + (stage->tensors[index].offset - stage->still);
}

float *stage_correction(struct stage *stage, int index)
{
    BUG_IF(index < 0 || index >= stage->learned.tensors || !stage->corrections || !stage_is_trained(stage, &stage->tensors[index]));
    return stage->corrections + (stage->tensors[index].offset - stage->still);
}

void stage_corrected(struct stage *stage, int index)
{
    BUG_IF(index < 0 || index >= stage->learned.tensors || !stage->corrections);
    stage->corrected[index] = true;
}

/* AdamW is about to add (1 − β1)·g to β1·m, and to learn v from g: make m such that the sum has the corrected gradient in it. */
static void steer(struct stage *stage, const struct carve_tensor *tensor, const struct adamw *settings)
{
    const struct ops *ops = stage->ops;
    size_t at = tensor->offset - stage->still;
    float *difference = stage->corrections + at;
    int64_t count = tensor->rows * tensor->columns;
    ops->scale(stage->device, difference, -1, count);
    ops->add(stage->device, difference, stage->gradients + at, count);
    ops->scale(stage->device, difference, -settings->gradient_scale * (1 - settings->beta1) / settings->beta1, count);
    ops->add(stage->device, (float *)stage->moments[0] + at, difference, count);
}

/* Roundings are a pure function of (tensor's name, step, index), whatever stage it lies on. */
static uint32_t rounding_seed(const struct carve_tensor *tensor, int64_t t)
{
    return (uint32_t)hash_finish(hash_add(hash_add(HASH_START, tensor->name, strlen(tensor->name)), &t, sizeof t));
}

static void step_tensor(struct stage *stage, int index, const struct adamw *settings, int64_t t)
{
    const struct ops *ops = stage->ops;
    const struct carve_tensor *tensor = &stage->tensors[index];
    size_t at = tensor->offset - stage->still, bases = stage->learned.floats - stage->still + at / ADAMW_BLOCK + (size_t)index;
    float *weights = stage->trained + tensor->offset, *gradients = stage->gradients + at;
    void *m = stage->moments[0], *v = stage->moments[1];
    int64_t count = tensor->rows * tensor->columns;
    switch (stage->shape.moments) {
    case STAGE_MOMENTS_FP32:
        ops->adamw(stage->device, weights, gradients, (float *)m + at, (float *)v + at, count, settings);
        break;
    case STAGE_MOMENTS_BF16:
        ops->adamw_half(stage->device, weights, gradients, (uint16_t *)m + at, (uint16_t *)v + at, count, settings,
                        rounding_seed(tensor, t));
        break;
    case STAGE_MOMENTS_FP8:
        ops->adamw_byte(stage->device, weights, gradients, (uint8_t *)m + at, (uint8_t *)v + at, (uint8_t *)m + bases,
                        (uint8_t *)v + bases, count, settings, rounding_seed(tensor, t));
        break;
    }
}

void stage_step(struct stage *stage, const struct adamw *settings, int64_t t)
{
    BUG_IF(t < 1 || stage->shape.frozen || stage->shape.judges);
    struct adamw now = *settings;
    now.correction1 = (float)(1 - pow((double)settings->beta1, (double)t));
    now.correction2 = (float)(1 - pow((double)settings->beta2, (double)t));
    for (int i = 0; i < stage->learned.tensors; i++) {
        const struct carve_tensor *tensor = &stage->tensors[i];
        if (!stage_is_trained(stage, tensor))
            continue;
        now.weight_decay = tensor->dims == 2 ? settings->weight_decay : 0;
        if (stage->corrected[i])
            steer(stage, tensor, &now);
        step_tensor(stage, i, &now, t); /* uses up its gradient */
    }
    memset(stage->corrected, 0, (size_t)stage->learned.tensors * sizeof *stage->corrected);
    stage_moved(stage);
}

void stage_forget(struct stage *stage)
{
    static const uint8_t zeros[1 << 16];
    size_t all = carve_moment_bytes(stage->shape.moments, stage->learned.floats - stage->still, stage->learned.tensors);
    for (int i = 0; i < 2; i++)
        for (size_t at = 0; at < all; at += sizeof zeros)
            stage->ops->copy_in(stage->device, (uint8_t *)stage->moments[i] + at, zeros, all - at < sizeof zeros ? all - at : sizeof zeros);
    stage->ops->finish(stage->device);
}

/* ---- a tied head on another stage ---- */

static size_t tied_offset(const struct stage *stage)
{
    if (!stage->shape.model.tied || stage->shape.first == stage->shape.last || stage->shape.lora.rank)
        return CARVE_NONE;
    return stage->shape.first ? stage->at.embedding : stage->at.head;
}

int64_t stage_tied_count(const struct stage *stage)
{
    return tied_offset(stage) == CARVE_NONE ? 0 : stage->shape.model.vocabulary * stage->shape.model.hidden;
}

static float *tied_at(struct stage *stage, int64_t first, int64_t count)
{
    BUG_IF(first < 0 || count < 1 || first + count > stage_tied_count(stage));
    return stage->gradients + tied_offset(stage) + first;
}

void stage_tied_get(struct stage *stage, int64_t first, int64_t count, float *values)
{
    stage->ops->copy_out(stage->device, values, tied_at(stage, first, count), (size_t)count * sizeof *values);
    stage->ops->finish(stage->device);
}

void stage_tied_set(struct stage *stage, int64_t first, int64_t count, const float *values)
{
    stage->ops->copy_in(stage->device, tied_at(stage, first, count), values, (size_t)count * sizeof *values);
    stage->ops->finish(stage->device);
}

void stage_tied_add(struct stage *stage, int64_t first, int64_t count, const float *values)
{
    float *gradient = tied_at(stage, first, count), *staging = stage->scratch + stage->work.normed;
    int64_t most = stage->kept.rows * stage->shape.model.hidden;
    for (int64_t done = 0; done < count;) {
        int64_t part = count - done < most ? count - done : most;
        stage->ops->copy_in(stage->device, staging, values + done, (size_t)part * sizeof *values);
        stage->ops->add(stage->device, gradient + done, staging, part);
        done += part;
    }
    stage->ops->finish(stage->device);
}
