/*
 * One decoder layer:
 *
 *   mid = x + W_o · attention(rope(W_qkv · norm1(x) + bias))
 *   out = mid + W_down · (silu(gate) · up),  [gate|up] = W_gate_up · norm2(mid)
 *
 * q|k|v is one product with rows of q+2kv channels. Where every head of q and k is normed first, q, k and v are three dense blocks
 * instead, so that a head is a row of the norm.
 *
 * With half_products what a layer keeps is rounded to bf16, half the bytes: x, q|k|v, attention's output, mid and gate|up. What
 * backward reads of them is what forward went on with: the rounded numbers. Only the sum that runs through layers is never
 * rounded; it is in `output`, which is x, then mid, then out.
 */
#include "gpu/model/inside.h"

static bool is_half(const struct stage *stage)
{
    return stage->shape.half_products;
}

/* Kept in bf16; x becomes the rounded numbers. */
static void keep(struct stage *stage, uint16_t *words, float *x, int64_t count)
{
    stage->ops->halve(stage->device, words, x, count);
    stage->ops->widen(stage->device, x, words, count);
}

/* The same with the rounded numbers elsewhere, where there are words to keep; else x itself. */
static const float *kept_apart(struct stage *stage, uint16_t *words, const float *x, float *rounded, int64_t count)
{
    if (!words)
        return x;
    stage->ops->halve(stage->device, words, x, count);
    stage->ops->widen(stage->device, rounded, words, count);
    return rounded;
}

/* What was kept in bf16, if it was, in fp32 in its place of scratch. */
static void unpack(struct stage *stage, float *x, const uint16_t *words, int64_t count)
{
    if (words)
        stage->ops->widen(stage->device, x, words, count);
}

static void norm(struct stage *stage, const float *x, const float *gain, int64_t rows)
{
    float *normed = stage->scratch + stage->work.normed, *inverse = stage->scratch + stage->work.inverse;
    stage->ops->rmsnorm_forward(stage->device, normed, inverse, x, gain, rows, stage->shape.model.hidden,
                                stage->shape.model.norm_epsilon);
}

/* Adds to the running gradient what came back through the norm; `inverse` is still that of norm(x). */
static void norm_backward(struct stage *stage, float *dgain, const float *x, const float *gain, int64_t rows)
{
    const struct carve_scratch *work = &stage->work;
    stage->ops->rmsnorm_backward(stage->device, stage->scratch + work->gradient, dgain, stage->scratch + work->d_normed, x,
                                 gain, stage->scratch + work->inverse, rows, stage->shape.model.hidden);
}

/* Where q, k and v of a block [rows, q+2kv] begin, and how far apart their rows are. */
struct qkv {
    float *q, *k, *v;
    int64_t q_stride, kv_stride;
};

static struct qkv parts_of(const struct model_shape *m, float *block, int64_t rows)
{
    int64_t query = carve_query_width(m), key = carve_key_width(m), all = carve_qkv_width(m);
    if (m->qk_norm)
        return (struct qkv){block, block + rows * query, block + rows * (query + key), query, key};
    return (struct qkv){block, block + query, block + query + key, all, all};
}

static void rotate(struct stage *stage, const struct qkv *p, int64_t sequences, int64_t tokens, int64_t first, bool backward)
{
    const struct ops *ops = stage->ops;
    const struct model_shape *m = &stage->shape.model;
    if (!m->qk_norm) { /* q and k lie side by side: heads + kv_heads heads in a row */
        ops->rope(stage->device, p->q, stage->frequency, sequences, tokens, first, m->heads + m->kv_heads, m->head_width,
                  p->q_stride, backward);
        return;
    }
    ops->rope(stage->device, p->q, stage->frequency, sequences, tokens, first, m->heads, m->head_width, p->q_stride, backward);
    ops->rope(stage->device, p->k, stage->frequency, sequences, tokens, first, m->kv_heads, m->head_width, p->kv_stride,
              backward);
}

/* What their adapters add to q, k and v of the normed input. */
static void adapt_qkv(struct stage *stage, const struct layer *l, const struct qkv *p, const float *normed, int64_t rows)
{
    adapt_forward(stage, &l->adapters[LORA_Q], p->q, p->q_stride, normed, rows);
    adapt_forward(stage, &l->adapters[LORA_K], p->k, p->kv_stride, normed, rows);
    adapt_forward(stage, &l->adapters[LORA_V], p->v, p->kv_stride, normed, rows);
}

/* l->qkv from the normed input, before it is rotated. */
static void project_qkv(struct stage *stage, const struct layer *l, const float *normed, int64_t rows)
{
    const struct ops *ops = stage->ops;
    const struct model_shape *m = &stage->shape.model;
    int64_t query = carve_query_width(m), key = carve_key_width(m), all = carve_qkv_width(m);
    struct qkv p = parts_of(m, l->qkv, rows);
    if (!m->qk_norm) {
        linear_forward(stage, l->qkv, normed, l->qkv_weight, rows, all, m->hidden);
        if (m->qkv_bias)
            ops->add_rows(stage->device, l->qkv, l->qkv_bias, rows, all);
        adapt_qkv(stage, l, &p, normed, rows);
        return;
    }
    float *raw_k = l->raw + rows * query;
    const struct qkv raw = {l->raw, raw_k, p.v, query, key};
    linear_forward(stage, l->raw, normed, l->qkv_weight, rows, query, m->hidden);
    linear_forward(stage, raw_k, normed, weight_part(l->qkv_weight, query * m->hidden), rows, key, m->hidden);
    linear_forward(stage, p.v, normed, weight_part(l->qkv_weight, (query + key) * m->hidden), rows, key, m->hidden);
    adapt_qkv(stage, l, &raw, normed, rows);
    ops->rmsnorm_forward(stage->device, p.q, l->inverse, l->raw, l->q_norm, rows * m->heads, m->head_width, m->norm_epsilon);
    ops->rmsnorm_forward(stage->device, p.k, l->inverse + rows * m->heads, raw_k, l->k_norm, rows * m->kv_heads, m->head_width,
                         m->norm_epsilon);
}

/* One of q, k, v: dW and its part of the gradient of the normed input; `part` is the first row of W. */
static void part_backward(struct stage *stage, const struct layer *l, const float *dy, const float *normed, int64_t rows,
                          int64_t part, int64_t width)
{
    int64_t hidden = stage->shape.model.hidden;
    float *d_weight = l->d_qkv_weight ? l->d_qkv_weight + part * hidden : NULL;
    linear_backward(stage, d_weight, stage->scratch + stage->work.d_normed, dy, normed,
                    weight_part(l->qkv_weight, part * hidden), rows, width, hidden, part > 0);
}

/* Of q, k or v: their input is the normed one. */
static void adapter_backward(struct stage *stage, const struct adapter *adapter, const float *dy, int64_t stride, const float *normed,
                             int64_t rows)
{
    adapt_backward(stage, adapter, stage->scratch + stage->work.d_normed, dy, stride, normed, rows);
}

/* From the gradient of q|k|v before rotation to d_normed and dW; `normed` is norm1(x). Scratch d_raw is used. */
static void project_qkv_backward(struct stage *stage, const struct layer *l, float *d_qkv, const float *normed, int64_t rows)
{
    const struct ops *ops = stage->ops;
    const struct model_shape *m = &stage->shape.model;
    int64_t query = carve_query_width(m), key = carve_key_width(m), all = carve_qkv_width(m);
    struct qkv p = parts_of(m, d_qkv, rows);
    if (!m->qk_norm) {
        if (l->d_qkv_bias)
            ops->sum_rows(stage->device, l->d_qkv_bias, d_qkv, rows, all);
        part_backward(stage, l, d_qkv, normed, rows, 0, all);
        adapter_backward(stage, &l->adapters[LORA_Q], p.q, p.q_stride, normed, rows);
        adapter_backward(stage, &l->adapters[LORA_K], p.k, p.kv_stride, normed, rows);
        adapter_backward(stage, &l->adapters[LORA_V], p.v, p.kv_stride, normed, rows);
        return;
    }
    float *d_raw = stage->scratch + stage->work.d_raw;
    ops->fill(stage->device, d_raw, 0, rows * query);
    ops->rmsnorm_backward(stage->device, d_raw, l->d_q_norm, p.q, l->raw, l->q_norm, l->inverse, rows * m->heads, m->head_width);
    part_backward(stage, l, d_raw, normed, rows, 0, query);
    adapter_backward(stage, &l->adapters[LORA_Q], d_raw, query, normed, rows);
    ops->fill(stage->device, d_raw, 0, rows * key);
    ops->rmsnorm_backward(stage->device, d_raw, l->d_k_norm, p.k, l->raw + rows * query, l->k_norm, l->inverse + rows * m->heads,
                          rows * m->kv_heads, m->head_width);
    part_backward(stage, l, d_raw, normed, rows, query, key);
    adapter_backward(stage, &l->adapters[LORA_K], d_raw, key, normed, rows);
    part_backward(stage, l, p.v, normed, rows, query + key, key);
    adapter_backward(stage, &l->adapters[LORA_V], p.v, key, normed, rows);
}

/* y = x + more, where y may be either of them. */
static void sum_of(struct stage *stage, float *y, const float *x, const float *more, int64_t count)
{
    if (y != more)
        stage_copy(stage, y, x, count);
    stage->ops->add(stage->device, y, y == more ? x : more, count);
}

/* y = W_o · attention's output */
static void project_o(struct stage *stage, const struct layer *l, int64_t rows, float *y)
{
    int64_t query = carve_query_width(&stage->shape.model), hidden = stage->shape.model.hidden;
    if (is_half(stage)) {
        keep(stage, l->kept.o, l->o, rows * query);
        linear_forward_words(stage, y, l->kept.o, l->o_weight, rows, hidden, query);
    } else {
        linear_forward(stage, y, l->o, l->o_weight, rows, hidden, query);
    }
    adapt_forward(stage, &l->adapters[LORA_O], y, hidden, l->o, rows);
}

/* y = W_down · silu(gate)·up; scratch `wide` becomes what W_down gets, but with half_products only where an adapter asks for it. */
static void project_down(struct stage *stage, const struct layer *l, int64_t rows, float *y)
{
    const struct model_shape *m = &stage->shape.model;
    const struct adapter *adapter = &l->adapters[LORA_DOWN];
    float *wide = stage->scratch + stage->work.wide;
    if (is_half(stage)) {
        uint16_t *words = (uint16_t *)(stage->scratch + stage->work.half_x);
        stage->ops->halve(stage->device, l->kept.gate_up, l->gate_up, rows * 2 * m->ffn);
        stage->ops->swiglu_forward_half(stage->device, words, l->kept.gate_up, rows, m->ffn);
        linear_forward_words(stage, y, words, l->down_weight, rows, m->hidden, m->ffn);
        unpack(stage, wide, adapter->a ? words : NULL, rows * m->ffn);
    } else {
        stage->ops->swiglu_forward(stage->device, wide, l->gate_up, rows, m->ffn);
        linear_forward(stage, y, wide, l->down_weight, rows, m->hidden, m->ffn);
    }
    adapt_forward(stage, adapter, y, m->hidden, wide, rows);
}

/* From attention's output in l->o to the layer's. */
static void forward_rest(struct stage *stage, const struct layer *l, int64_t rows, float *out)
{
    const struct model_shape *m = &stage->shape.model;
    int64_t count = rows * m->hidden;
    float *normed = stage->scratch + stage->work.normed, *spare = stage->scratch + stage->work.d_normed;
    float *added = is_half(stage) ? spare : l->mid;

    project_o(stage, l, rows, added);
    sum_of(stage, l->mid, l->x, added, count);
    norm(stage, kept_apart(stage, l->kept.mid, l->mid, spare, count), l->norm2, rows);
    linear_forward(stage, l->gate_up, normed, l->gate_up_weight, rows, 2 * m->ffn, m->hidden);
    adapt_forward(stage, &l->adapters[LORA_GATE], l->gate_up, 2 * m->ffn, normed, rows);
    adapt_forward(stage, &l->adapters[LORA_UP], l->gate_up + m->ffn, 2 * m->ffn, normed, rows);
    added = is_half(stage) ? spare : out;
    project_down(stage, l, rows, added);
    sum_of(stage, out, l->mid, added, count);
}

void layer_forward(struct stage *stage, const struct layer *l, int64_t sequences, int64_t tokens, float *out)
{
    const struct model_shape *m = &stage->shape.model;
    int64_t rows = sequences * tokens;
    struct qkv p = parts_of(m, l->qkv, rows);
    norm(stage, kept_apart(stage, l->kept.x, l->x, stage->scratch + stage->work.d_normed, rows * m->hidden), l->norm1, rows);
    project_qkv(stage, l, stage->scratch + stage->work.normed, rows);
    rotate(stage, &p, sequences, tokens, 0, false);
    if (is_half(stage))
        keep(stage, l->kept.qkv, l->qkv, rows * carve_qkv_width(m));
    stage->ops->attention_forward(stage->device, l->o, l->log_sum, p.q, p.k, p.v, sequences, tokens, m->heads, m->kv_heads,
                                  m->head_width, p.q_stride, p.kv_stride, l->starts, stage->shape.half_products);
    forward_rest(stage, l, rows, out);
}

/* Rows of device memory with a stride, made dense. */
static void gather(struct stage *stage, float *to, const float *from, int64_t rows, int64_t width, int64_t stride)
{
    stage->ops->fill(stage->device, to, 0, rows * width);
    for (int64_t r = 0; r < rows; r++)
        stage->ops->add(stage->device, to + r * width, from + r * stride, width);
}

void layer_forward_cached(struct stage *stage, const struct layer *l, int64_t tokens, int64_t first, float *keys, float *values,
                          float *out)
{
    const struct model_shape *m = &stage->shape.model;
    int64_t key = carve_key_width(m);
    struct qkv p = parts_of(m, l->qkv, tokens);
    norm(stage, l->x, l->norm1, tokens);
    project_qkv(stage, l, stage->scratch + stage->work.normed, tokens);
    rotate(stage, &p, 1, tokens, first, false);
    gather(stage, keys + first * key, p.k, tokens, key, p.kv_stride);
    gather(stage, values + first * key, p.v, tokens, key, p.kv_stride);
    stage->ops->attention_cached(stage->device, l->o, p.q, keys, values, tokens, first, m->heads, m->kv_heads, m->head_width,
                                 p.q_stride, key);
    forward_rest(stage, l, tokens, out);
}

/* From `gradient` to that of gate|up, which it overwrites, and dW_down. */
static void down_backward(struct stage *stage, const struct layer *l, int64_t rows)
{
    const struct ops *ops = stage->ops;
    const struct model_shape *m = &stage->shape.model;
    const struct adapter *adapter = &l->adapters[LORA_DOWN];
    float *gradient = stage->scratch + stage->work.gradient;
    float *wide = stage->scratch + stage->work.wide, *d_wide = stage->scratch + stage->work.d_wide;
    if (is_half(stage)) {
        uint16_t *words = (uint16_t *)(stage->scratch + stage->work.half_x), *gate_up = l->kept.gate_up;
        const uint16_t *dy = linear_dy_words(stage, gradient, rows * m->hidden);
        linear_backward_words(stage, NULL, d_wide, dy, m->hidden, NULL, l->down_weight, rows, m->hidden, m->ffn, false);
        if (adapter->a)
            ops->swiglu_forward_half(stage->device, words, gate_up, rows, m->ffn);
        unpack(stage, wide, adapter->a ? words : NULL, rows * m->ffn);
        adapt_backward(stage, adapter, d_wide, gradient, m->hidden, wide, rows);
        ops->swiglu_backward_half(stage->device, gate_up, words, d_wide, gate_up, rows, m->ffn);
        linear_backward_words(stage, l->d_down_weight, NULL, dy, m->hidden, words, l->down_weight, rows, m->hidden, m->ffn, false);
    } else {
        linear_backward(stage, NULL, d_wide, gradient, NULL, l->down_weight, rows, m->hidden, m->ffn, false);
        if (adapter->a)
            ops->swiglu_forward(stage->device, wide, l->gate_up, rows, m->ffn);
        adapt_backward(stage, adapter, d_wide, gradient, m->hidden, wide, rows);
        ops->swiglu_backward(stage->device, l->gate_up, d_wide, d_wide, l->gate_up, rows, m->ffn);
        linear_backward(stage, l->d_down_weight, NULL, gradient, d_wide, l->down_weight, rows, m->hidden, m->ffn, false);
    }
}

/* From the gradient of gate|up to d_normed and dW_gate_up. */
static void gate_up_backward(struct stage *stage, const struct layer *l, int64_t rows)
{
    const struct model_shape *m = &stage->shape.model;
    float *normed = stage->scratch + stage->work.normed, *d_normed = stage->scratch + stage->work.d_normed;
    if (is_half(stage)) {
        const uint16_t *d_gate_up = l->kept.gate_up;
        const uint16_t *x = l->d_gate_up_weight ? linear_x_words(stage, normed, rows * m->hidden) : NULL;
        linear_backward_words(stage, l->d_gate_up_weight, d_normed, d_gate_up, 2 * m->ffn, x, l->gate_up_weight, rows, 2 * m->ffn,
                              m->hidden, false);
        bool adapted = l->adapters[LORA_GATE].a || l->adapters[LORA_UP].a;
        unpack(stage, l->gate_up, adapted ? d_gate_up : NULL, rows * 2 * m->ffn);
    } else {
        linear_backward(stage, l->d_gate_up_weight, d_normed, l->gate_up, normed, l->gate_up_weight, rows, 2 * m->ffn, m->hidden,
                        false);
    }
    adapt_backward(stage, &l->adapters[LORA_GATE], d_normed, l->gate_up, 2 * m->ffn, normed, rows);
    adapt_backward(stage, &l->adapters[LORA_UP], d_normed, l->gate_up + m->ffn, 2 * m->ffn, normed, rows);
}

static void mlp_backward(struct stage *stage, const struct layer *l, int64_t rows)
{
    down_backward(stage, l, rows);
    unpack(stage, l->mid, l->kept.mid, rows * stage->shape.model.hidden);
    norm(stage, l->mid, l->norm2, rows);
    gate_up_backward(stage, l, rows);
    norm_backward(stage, l->d_norm2, l->mid, l->norm2, rows);
}

/* From `gradient` to d_o, the gradient of attention's output, and dW_o. */
static void o_backward(struct stage *stage, const struct layer *l, float *d_o, int64_t rows)
{
    int64_t query = carve_query_width(&stage->shape.model), hidden = stage->shape.model.hidden;
    float *gradient = stage->scratch + stage->work.gradient;
    if (is_half(stage))
        linear_backward_words(stage, l->d_o_weight, d_o, linear_dy_words(stage, gradient, rows * hidden), hidden, l->kept.o,
                              l->o_weight, rows, hidden, query, false);
    else
        linear_backward(stage, l->d_o_weight, d_o, gradient, l->o, l->o_weight, rows, hidden, query, false);
    adapt_backward(stage, &l->adapters[LORA_O], d_o, gradient, hidden, l->o, rows);
}

/* The layer's input as forward's norm got it, so that a layer does the same wherever a stage begins. */
static const float *input_as_normed(struct stage *stage, const struct layer *l, int64_t count)
{
    float *x = stage->scratch + stage->work.output;
    if (!is_half(stage))
        return l->x;
    if (l->x != x)
        stage->ops->halve(stage->device, l->kept.x, l->x, count);
    stage->ops->widen(stage->device, x, l->kept.x, count);
    return x;
}

static void attention_backward(struct stage *stage, const struct layer *l, int64_t sequences, int64_t tokens)
{
    const struct ops *ops = stage->ops;
    const struct model_shape *m = &stage->shape.model;
    int64_t rows = sequences * tokens;
    float *d_qkv = stage->scratch + stage->work.d_qkv, *d_o = stage->scratch + stage->work.d_o;
    struct qkv p = parts_of(m, l->qkv, rows), d = parts_of(m, d_qkv, rows);

    unpack(stage, l->qkv, l->kept.qkv, rows * carve_qkv_width(m));
    unpack(stage, l->o, l->kept.o, rows * carve_query_width(m));
    o_backward(stage, l, d_o, rows);
    ops->attention_backward(stage->device, d.q, d.k, d.v, d_o, l->o, l->log_sum, p.q, p.k, p.v, sequences, tokens, m->heads,
                            m->kv_heads, m->head_width, p.q_stride, p.kv_stride, l->starts, stage->shape.half_products);
    rotate(stage, &d, sequences, tokens, 0, true);
    const float *x = input_as_normed(stage, l, rows * m->hidden);
    norm(stage, x, l->norm1, rows);
    project_qkv_backward(stage, l, d_qkv, stage->scratch + stage->work.normed, rows);
    norm_backward(stage, l->d_norm1, x, l->norm1, rows);
}

void layer_backward(struct stage *stage, const struct layer *l, int64_t sequences, int64_t tokens)
{
    mlp_backward(stage, l, sequences * tokens);
    attention_backward(stage, l, sequences, tokens);
}
