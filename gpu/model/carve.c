/*
 * The tables of named tensors and the arithmetic of the blocks. stage_check (check.c) bounds every number before it is multiplied, so
 * that no product here can overflow.
 */
#include "gpu/model/carve.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "ssh/base/mem.h"

#define LINE 16 /* floats of a 64-byte line */

int64_t carve_query_width(const struct model_shape *shape)
{
    return shape->heads * shape->head_width;
}

int64_t carve_key_width(const struct model_shape *shape)
{
    return shape->kv_heads * shape->head_width;
}

int64_t carve_qkv_width(const struct model_shape *shape)
{
    return carve_query_width(shape) + 2 * carve_key_width(shape);
}

/* ---- weights ---- */

enum side { SIDE_ONE, SIDE_HIDDEN, SIDE_QUERY, SIDE_KEY, SIDE_HEAD, SIDE_FFN, SIDE_VOCABULARY };

/* How fresh weights spread. Linear layers keep the variance of what goes in; what is added to the residual stream is divided
 * by √(2·layers), so that the stream's variance does not grow with depth. The embedding is large beside what the first
 * layers add, so that the identity of a token is not drowned; a head begins near the uniform guess. A tied table is a
 * compromise of the two. */
enum spread { SPREAD_ONES, SPREAD_ZEROS, SPREAD_LINEAR, SPREAD_RESIDUAL, SPREAD_EMBEDDING, SPREAD_HEAD };

struct tensor_row {
    const char *name; /* behind "model.layers.N." for a layer's rows */
    enum side rows, columns;
    enum spread spread;
    bool joined;      /* follows the row before without a gap: a part of a fused tensor */
    size_t only;      /* 0, or where struct model_shape says (bool) that the model has it */
};

#define ONLY(member) offsetof(struct model_shape, member)

/* `at`: where struct carve_weights wants to know the beginning of a row, 0 = nowhere. */
#define AT(member) offsetof(struct carve_weights, member)

static const struct layer_row {
    struct tensor_row tensor;
    size_t at;
} layer_rows[] = {
    {{"input_layernorm.weight", SIDE_HIDDEN, SIDE_ONE, SPREAD_ONES, false, 0}, AT(norm1)},
    {{"self_attn.q_proj.weight", SIDE_QUERY, SIDE_HIDDEN, SPREAD_LINEAR, false, 0}, AT(qkv)},
    {{"self_attn.k_proj.weight", SIDE_KEY, SIDE_HIDDEN, SPREAD_LINEAR, true, 0}, 0},
    {{"self_attn.v_proj.weight", SIDE_KEY, SIDE_HIDDEN, SPREAD_LINEAR, true, 0}, 0},
    {{"self_attn.q_proj.bias", SIDE_QUERY, SIDE_ONE, SPREAD_ZEROS, false, ONLY(qkv_bias)}, AT(qkv_bias)},
    {{"self_attn.k_proj.bias", SIDE_KEY, SIDE_ONE, SPREAD_ZEROS, true, ONLY(qkv_bias)}, 0},
    {{"self_attn.v_proj.bias", SIDE_KEY, SIDE_ONE, SPREAD_ZEROS, true, ONLY(qkv_bias)}, 0},
    {{"self_attn.q_norm.weight", SIDE_HEAD, SIDE_ONE, SPREAD_ONES, false, ONLY(qk_norm)}, AT(q_norm)},
    {{"self_attn.k_norm.weight", SIDE_HEAD, SIDE_ONE, SPREAD_ONES, false, ONLY(qk_norm)}, AT(k_norm)},
    {{"self_attn.o_proj.weight", SIDE_HIDDEN, SIDE_QUERY, SPREAD_RESIDUAL, false, 0}, AT(o)},
    {{"post_attention_layernorm.weight", SIDE_HIDDEN, SIDE_ONE, SPREAD_ONES, false, 0}, AT(norm2)},
    {{"mlp.gate_proj.weight", SIDE_FFN, SIDE_HIDDEN, SPREAD_LINEAR, false, 0}, AT(gate_up)},
    {{"mlp.up_proj.weight", SIDE_FFN, SIDE_HIDDEN, SPREAD_LINEAR, true, 0}, 0},
    {{"mlp.down_proj.weight", SIDE_HIDDEN, SIDE_FFN, SPREAD_RESIDUAL, false, 0}, AT(down)},
};
static const struct tensor_row embedding_row = {CARVE_EMBEDDING, SIDE_VOCABULARY, SIDE_HIDDEN, SPREAD_EMBEDDING, false, 0};
static const struct tensor_row norm_row = {"model.norm.weight", SIDE_HIDDEN, SIDE_ONE, SPREAD_ONES, false, 0};
static const struct tensor_row head_row = {"lm_head.weight", SIDE_VOCABULARY, SIDE_HIDDEN, SPREAD_HEAD, false, 0};

static int64_t side_length(const struct model_shape *shape, enum side side)
{
    switch (side) {
    case SIDE_HIDDEN: return shape->hidden;
    case SIDE_QUERY: return carve_query_width(shape);
    case SIDE_KEY: return carve_key_width(shape);
    case SIDE_HEAD: return shape->head_width;
    case SIDE_FFN: return shape->ffn;
    case SIDE_VOCABULARY: return shape->vocabulary;
    case SIDE_ONE: break;
    }
    return 1;
}

static float spread_deviation(const struct model_shape *shape, enum spread spread, int64_t fan_in)
{
    switch (spread) {
    case SPREAD_LINEAR: return (float)(1 / sqrt((double)fan_in));
    case SPREAD_RESIDUAL: return (float)(1 / sqrt((double)fan_in * 2 * (double)shape->layers));
    case SPREAD_EMBEDDING: return shape->tied ? 0.05f : 0.5f;
    case SPREAD_HEAD: return 0.02f;
    case SPREAD_ZEROS: return CARVE_ZEROS;
    case SPREAD_ONES: break;
    }
    return CARVE_ONES;
}

float carve_embedding_deviation(const struct model_shape *shape)
{
    return spread_deviation(shape, SPREAD_EMBEDDING, shape->hidden);
}

struct carving {
    const struct model_shape *shape;
    struct carve_block *block;
    struct carve_tensor *tensors; /* or NULL */
};

static size_t aligned(size_t floats)
{
    return (floats + LINE - 1) / LINE * LINE;
}

/* Adds one tensor at the end; returns its offset. */
static size_t put(struct carving *c, const struct carve_tensor *tensor, bool joined)
{
    size_t offset = joined ? c->block->floats : aligned(c->block->floats);
    c->block->floats = offset + (size_t)(tensor->rows * tensor->columns);
    c->block->parameters += (uint64_t)(tensor->rows * tensor->columns);
    if (c->tensors) {
        c->tensors[c->block->tensors] = *tensor;
        c->tensors[c->block->tensors].offset = offset;
    }
    c->block->tensors++;
    return offset;
}

/* layer < 0: not of a layer. */
static size_t put_row(struct carving *c, const struct tensor_row *row, int64_t layer)
{
    int64_t columns = side_length(c->shape, row->columns);
    struct carve_tensor tensor = {.dims = row->columns == SIDE_ONE ? 1 : 2,
                                  .rows = side_length(c->shape, row->rows),
                                  .columns = columns,
                                  .deviation = spread_deviation(c->shape, row->spread, columns)};
    if (layer < 0)
        snprintf(tensor.name, sizeof tensor.name, "%s", row->name);
    else
        snprintf(tensor.name, sizeof tensor.name, "model.layers.%" PRId64 ".%s", layer, row->name);
    return put(c, &tensor, row->joined);
}

/* Every layer has the same places; those of what the model has not stay CARVE_NONE. */
static void put_layer(struct carving *c, struct carve_weights *w, int64_t layer)
{
    size_t start = aligned(w->block.floats);
    w->qkv_bias = w->q_norm = w->k_norm = CARVE_NONE;
    for (size_t i = 0; i < sizeof layer_rows / sizeof *layer_rows; i++) {
        const struct layer_row *row = &layer_rows[i];
        if (row->tensor.only && !*((const bool *)((const char *)c->shape + row->tensor.only)))
            continue;
        size_t offset = put_row(c, &row->tensor, layer) - start;
        if (row->at)
            memcpy((char *)w + row->at, &offset, sizeof offset);
    }
    w->layer_stride = aligned(w->block.floats) - start;
}

void carve_weights(const struct stage_shape *shape, struct carve_weights *weights, struct carve_tensor *tensors)
{
    *weights = (struct carve_weights){.embedding = CARVE_NONE, .norm = CARVE_NONE, .head = CARVE_NONE};
    struct carving c = {&shape->model, &weights->block, tensors};
    if (shape->first)
        weights->embedding = put_row(&c, &embedding_row, -1);
    weights->first_layer = aligned(weights->block.floats);
    for (int64_t i = 0; i < shape->layers; i++)
        put_layer(&c, weights, shape->first_layer + i);
    if (shape->last) {
        weights->norm = put_row(&c, &norm_row, -1);
        if (!shape->model.tied)
            weights->head = put_row(&c, &head_row, -1);
        else
            weights->head = shape->first ? weights->embedding : put_row(&c, &embedding_row, -1);
    }
    weights->block.floats = aligned(weights->block.floats);
    bool looked_up = shape->first && (!shape->last || !shape->model.tied); /* an embedding that is no matrix of a product */
    weights->words = looked_up && !shape->words_only ? weights->first_layer : 0;
}

/* ---- adapters ---- */

/* The rows of a layer that can be targets, in the order of enum lora_target. */
static const struct tensor_row *target_row(int target)
{
    for (size_t i = 0; i < sizeof layer_rows / sizeof *layer_rows; i++)
        if (layer_rows[i].tensor.columns != SIDE_ONE && target-- == 0)
            return &layer_rows[i].tensor;
    BUG("a layer has no matrix for this target");
}

/* PEFT's name of one of the two, from that of the matrix, which ends in ".weight". */
static void adapter_name(char name[96], const char *of_matrix, int64_t layer, char letter)
{
    int stem = (int)(strrchr(of_matrix, '.') - of_matrix);
    snprintf(name, 96, CARVE_ADAPTER "model.layers.%" PRId64 ".%.*s.lora_%c.weight", layer, stem, of_matrix, letter);
}

/* A spreads as PEFT's uniform one does: within ±1/√in. */
static void put_adapter(struct carving *c, struct carve_adapters *adapters, const struct stage_shape *shape, int64_t layer, int target)
{
    const struct tensor_row *row = target_row(target);
    int64_t in = side_length(c->shape, row->columns), out = side_length(c->shape, row->rows), rank = shape->lora.rank;
    struct carve_tensor a = {.dims = 2, .rows = rank, .columns = in, .deviation = (float)(1 / sqrt(3 * (double)in))};
    struct carve_tensor b = {.dims = 2, .rows = out, .columns = rank, .deviation = CARVE_ZEROS};
    size_t start = (size_t)layer * adapters->layer_stride;
    adapter_name(a.name, row->name, shape->first_layer + layer, 'A');
    adapter_name(b.name, row->name, shape->first_layer + layer, 'B');
    adapters->a[target] = put(c, &a, false) - start;
    adapters->b[target] = put(c, &b, false) - start;
}

void carve_adapters(const struct stage_shape *shape, struct carve_adapters *adapters, struct carve_tensor *tensors)
{
    struct carving c = {&shape->model, &adapters->block, tensors};
    *adapters = (struct carve_adapters){.layer_stride = 0};
    for (int target = 0; target < LORA_TARGETS; target++)
        adapters->a[target] = adapters->b[target] = CARVE_NONE;
    for (int64_t layer = 0; layer < shape->layers && shape->lora.rank; layer++) {
        for (int target = 0; target < LORA_TARGETS; target++)
            if (shape->lora.targets & 1u << target)
                put_adapter(&c, adapters, shape, layer, target);
        adapters->block.floats = aligned(adapters->block.floats);
        adapters->layer_stride = layer ? adapters->layer_stride : adapters->block.floats;
    }
}

struct carve_tensor *carve_trained(const struct stage_shape *shape, struct carve_block *block)
{
    struct carve_weights weights;
    struct carve_adapters adapters;
    carve_weights(shape, &weights, NULL);
    carve_adapters(shape, &adapters, NULL);
    *block = shape->lora.rank ? adapters.block : weights.block;
    struct carve_tensor *tensors = mem_array((size_t)block->tensors, sizeof *tensors);
    if (shape->lora.rank)
        carve_adapters(shape, &adapters, tensors);
    else
        carve_weights(shape, &weights, tensors);
    return tensors;
}

size_t carve_still(const struct stage_shape *shape, const struct carve_weights *weights, const struct carve_adapters *adapters)
{
    size_t still = (size_t)shape->still;
    if (shape->lora.rank)
        return still * adapters->layer_stride;
    return still ? weights->first_layer + still * weights->layer_stride : 0;
}

void carve_entry(const struct carve_tensor *tensor, struct safetensors_entry *entry)
{
    *entry = (struct safetensors_entry){.dims = tensor->dims, .shape = {tensor->rows, tensor->columns}};
    memcpy(entry->name, tensor->name, sizeof entry->name);
}

/* ---- activations and scratch ---- */

static size_t take(size_t *end, int64_t floats)
{
    size_t offset = *end;
    *end += aligned((size_t)floats);
    return offset;
}

/* So many numbers, of which as many share a float. */
static int64_t floats_for(int64_t count, int64_t share)
{
    return (count + share - 1) / share;
}

int64_t carve_place(const struct stage_shape *shape, int64_t layer)
{
    return layer < shape->still ? 0 : layer - shape->still + (shape->still > 0);
}

void carve_activations(const struct stage_shape *shape, struct carve_activations *a)
{
    const struct model_shape *m = &shape->model;
    int64_t rows = shape->sequences * shape->tokens;
    *a = (struct carve_activations){.rows = rows};
    size_t x_bytes = aligned((size_t)(rows * m->hidden)), end = 0;
    bool apart = shape->recompute && !shape->first; /* the shared set must not be where inputs wait */
    a->inputs = 0;
    a->inputs_stride = apart ? x_bytes : 0;
    a->sets = apart ? (size_t)shape->slots * x_bytes : 0;

    a->x_first = apart ? 1 : 0;
    a->x = 0;
    a->x_stride = x_bytes;
    int64_t whole = shape->half_products ? 1 : shape->layers, halves = shape->half_products ? 2 : 1;
    a->layer = (size_t)(whole - a->x_first) * x_bytes;
    a->half_x = a->layer;
    a->half_x_stride = aligned((size_t)floats_for(rows * m->hidden, halves));
    a->layer += (size_t)(shape->layers - whole) * a->half_x_stride;
    a->qkv = take(&end, floats_for(rows * carve_qkv_width(m), halves));
    a->o = take(&end, floats_for(rows * carve_query_width(m), halves));
    a->log_sum = take(&end, rows * m->heads);
    a->mid = take(&end, floats_for(rows * m->hidden, halves));
    a->gate_up = take(&end, floats_for(rows * 2 * m->ffn, halves));
    a->raw = m->qk_norm ? take(&end, rows * (carve_query_width(m) + carve_key_width(m))) : CARVE_NONE;
    a->inverse = m->qk_norm ? take(&end, rows * (m->heads + m->kv_heads)) : CARVE_NONE;
    a->layer_stride = shape->frozen ? 0 : end; /* without a backward nobody asks for a layer's things again */

    size_t set = a->layer + (shape->frozen ? end : (size_t)(carve_place(shape, shape->layers - 1) + 1) * end);
    a->sets_stride = shape->recompute ? 0 : set;
    a->floats = a->sets + (shape->recompute ? set : (size_t)shape->slots * set);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* So many that logits take 64 MiB, but enough for a product at full speed. */
static int64_t head_rows(int64_t vocabulary)
{
    return larger(128, smaller(2048, ((int64_t)1 << 24) / vocabulary));
}

/* What only layers need, the feed-forward and attention one after the other. */
static void carve_layer_scratch(const struct stage_shape *shape, int64_t rows, struct carve_scratch *s)
{
    const struct model_shape *m = &shape->model;
    int64_t query = carve_query_width(m), all = carve_qkv_width(m);
    size_t start = s->floats, end = start;
    s->wide = take(&s->floats, rows * m->ffn);
    s->d_wide = shape->lora.rank || shape->half_products ? take(&s->floats, rows * m->ffn) : s->wide;
    s->d_qkv = take(&end, rows * all);
    s->d_o = take(&end, rows * query);
    if (shape->half_products) {
        s->qkv = take(&end, rows * all);
        s->o = take(&end, rows * query);
        s->d_raw = s->qkv; /* needed when q and k as they were no longer are */
    } else {
        s->d_raw = s->d_o; /* the same */
    }
    s->floats = end > s->floats ? end : s->floats;
    if (shape->half_products)
        s->half_dy = take(&s->floats, floats_for(rows * larger(m->hidden, all), 2));
}

void carve_scratch(const struct stage_shape *shape, struct carve_scratch *s)
{
    const struct model_shape *m = &shape->model;
    int64_t rows = shape->sequences * shape->tokens;
    *s = (struct carve_scratch){0};
    s->output = take(&s->floats, rows * m->hidden);
    s->gradient = take(&s->floats, rows * m->hidden);
    s->normed = take(&s->floats, rows * m->hidden);
    s->d_normed = take(&s->floats, rows * m->hidden);
    s->inverse = take(&s->floats, rows);
    s->vectors = take(&s->floats, shape->words_only ? 2 * m->hidden + carve_qkv_width(m) + 2 * m->head_width : 0);
    s->low = take(&s->floats, rows * shape->lora.rank);
    if (shape->half_products)
        s->half_x = take(&s->floats, floats_for(rows * larger(m->hidden, larger(m->ffn, carve_query_width(m))), 2));
    if (shape->last) {
        s->head_rows = smaller(rows, shape->head_rows ? shape->head_rows : head_rows(m->vocabulary));
        s->head_columns = smaller(m->vocabulary, shape->head_columns ? shape->head_columns : m->vocabulary);
        s->maximum = take(&s->floats, s->head_rows);
        s->sum = take(&s->floats, s->head_rows);
        s->target = take(&s->floats, s->head_rows);
    }
    size_t start = s->floats;
    carve_layer_scratch(shape, rows, s);
    s->logits = start;
    start += aligned((size_t)(s->head_rows * s->head_columns));
    s->floats = start > s->floats ? start : s->floats;
}

int64_t model_parameters(const struct stage_shape *shape)
{
    struct stage_memory memory = stage_memory(shape);
    return (int64_t)memory.parameters;
}

size_t carve_word_bytes(const struct stage_shape *shape, const struct carve_weights *weights)
{
    return shape->half_products || shape->words_only ? (weights->block.floats - weights->words) * sizeof(uint16_t) : 0;
}

size_t carve_moment_bytes(enum stage_moments moments, size_t floats, int tensors)
{
    switch (moments) {
    case STAGE_MOMENTS_BF16: return floats * sizeof(uint16_t);
    case STAGE_MOMENTS_FP8: return floats ? floats + floats / ADAMW_BLOCK + (size_t)tensors : 0;
    case STAGE_MOMENTS_FP32: break;
    }
    return floats * sizeof(float);
}

struct stage_memory stage_memory(const struct stage_shape *shape)
{
    struct carve_weights weights;
    struct carve_adapters adapters;
    struct carve_activations activations;
    struct carve_scratch scratch;
    carve_weights(shape, &weights, NULL);
    carve_adapters(shape, &adapters, NULL);
    carve_activations(shape, &activations);
    carve_scratch(shape, &scratch);
    const struct carve_block *trained = shape->lora.rank ? &adapters.block : &weights.block;
    size_t learned = trained->floats - carve_still(shape, &weights, &adapters);
    struct stage_memory memory = {
        .weights = (shape->words_only ? 0 : weights.block.floats * sizeof(float)) + carve_word_bytes(shape, &weights) +
                   adapters.block.floats * sizeof(float),
        .gradients = shape->frozen ? 0 : learned * sizeof(float),
        .optimizer = shape->frozen || shape->judges ? 0 : 2 * carve_moment_bytes(shape->moments, learned, trained->tensors),
        .corrections = shape->corrects ? learned * sizeof(float) : 0,
        .activations = activations.floats * sizeof(float),
        .scratch = scratch.floats * sizeof(float),
        .host = (uint64_t)(shape->slots * shape->sequences * shape->tokens) * sizeof(uint32_t) * (shape->first + shape->apart),
        .parameters = weights.block.parameters + adapters.block.parameters,
        .trained = trained->parameters,
    };
    memory.total = memory.weights + memory.gradients + memory.optimizer + memory.corrections + memory.activations + memory.scratch + memory.host;
    return memory;
}
