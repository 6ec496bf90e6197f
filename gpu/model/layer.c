/*
 * One decoder layer:
 *
 *   mid = x + W_o · attention(rope(W_qkv · norm1(x) + bias))
 *   out = mid + W_down · (silu(gate) · up),  [gate|up] = W_gate_up · norm2(mid)
 *
 * q|k|v is one product with rows of q+2kv channels. Where every head of q and k is normed first, q, k and v are three dense blocks
 * instead, so that a head is a row of the norm.
 */
#include "gpu/model/inside.h"

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

/* From the gradient of q|k|v before rotation to d_normed and dW; `normed` is norm1(x). Scratch d_wide is used. */
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
    float *d_raw = stage->scratch + stage->work.d_wide;
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

/* From attention's output in l->o to the layer's. */
static void forward_rest(struct stage *stage, const struct layer *l, int64_t rows, float *out)
{
    const struct ops *ops = stage->ops;
    struct device *device = stage->device;
    const struct model_shape *m = &stage->shape.model;
    float *normed = stage->scratch + stage->work.normed, *wide = stage->scratch + stage->work.wide;

    linear_forward(stage, l->mid, l->o, l->o_weight, rows, m->hidden, carve_query_width(m));
    adapt_forward(stage, &l->adapters[LORA_O], l->mid, m->hidden, l->o, rows);
    ops->add(device, l->mid, l->x, rows * m->hidden);
    norm(stage, l->mid, l->norm2, rows);
    linear_forward(stage, l->gate_up, normed, l->gate_up_weight, rows, 2 * m->ffn, m->hidden);
    adapt_forward(stage, &l->adapters[LORA_GATE], l->gate_up, 2 * m->ffn, normed, rows);
    adapt_forward(stage, &l->adapters[LORA_UP], l->gate_up + m->ffn, 2 * m->ffn, normed, rows);
    ops->swiglu_forward(device, wide, l->gate_up, rows, m->ffn);
    linear_forward(stage, out, wide, l->down_weight, rows, m->hidden, m->ffn);
    adapt_forward(stage, &l->adapters[LORA_DOWN], out, m->hidden, wide, rows);
    ops->add(device, out, l->mid, rows * m->hidden);
}

void layer_forward(struct stage *stage, const struct layer *l, int64_t sequences, int64_t tokens, float *out)
{
    const struct model_shape *m = &stage->shape.model;
    int64_t rows = sequences * tokens;
    struct qkv p = parts_of(m, l->qkv, rows);
    norm(stage, l->x, l->norm1, rows);
    project_qkv(stage, l, stage->scratch + stage->work.normed, rows);
    rotate(stage, &p, sequences, tokens, 0, false);
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

static void mlp_backward(struct stage *stage, const struct layer *l, int64_t rows)
{
    const struct ops *ops = stage->ops;
    const struct model_shape *m = &stage->shape.model;
    float *gradient = stage->scratch + stage->work.gradient, *normed = stage->scratch + stage->work.normed;
    float *wide = stage->scratch + stage->work.wide, *d_wide = stage->scratch + stage->work.d_wide;
    float *d_normed = stage->scratch + stage->work.d_normed;

    ops->swiglu_forward(stage->device, wide, l->gate_up, rows, m->ffn);
    linear_backward(stage, l->d_down_weight, d_wide, gradient, wide, l->down_weight, rows, m->hidden, m->ffn, false);
    adapt_backward(stage, &l->adapters[LORA_DOWN], d_wide, gradient, m->hidden, wide, rows);
    ops->swiglu_backward(stage->device, l->gate_up, d_wide, l->gate_up, rows, m->ffn);
    norm(stage, l->mid, l->norm2, rows);
    linear_backward(stage, l->d_gate_up_weight, d_normed, l->gate_up, normed, l->gate_up_weight, rows, 2 * m->ffn, m->hidden, false);
    adapt_backward(stage, &l->adapters[LORA_GATE], d_normed, l->gate_up, 2 * m->ffn, normed, rows);
    adapt_backward(stage, &l->adapters[LORA_UP], d_normed, l->gate_up + m->ffn, 2 * m->ffn, normed, rows);
    norm_backward(stage, l->d_norm2, l->mid, l->norm2, rows);
}

static void attention_backward(struct stage *stage, const struct layer *l, int64_t sequences, int64_t tokens)
{
    const struct ops *ops = stage->ops;
    const struct model_shape *m = &stage->shape.model;
    int64_t rows = sequences * tokens, query = carve_query_width(m);
    float *gradient = stage->scratch + stage->work.gradient, *normed = stage->scratch + stage->work.normed;
    float *d_qkv = stage->scratch + stage->work.wide, *d_o = stage->scratch + stage->work.d_wide;
    struct qkv p = parts_of(m, l->qkv, rows), d = parts_of(m, d_qkv, rows);

    linear_backward(stage, l->d_o_weight, d_o, gradient, l->o, l->o_weight, rows, m->hidden, query, false);
    adapt_backward(stage, &l->adapters[LORA_O], d_o, gradient, m->hidden, l->o, rows);
    ops->attention_backward(stage->device, d.q, d.k, d.v, d_o, l->o, l->log_sum, p.q, p.k, p.v, sequences, tokens, m->heads,
                            m->kv_heads, m->head_width, p.q_stride, p.kv_stride, l->starts, stage->shape.half_products);
    rotate(stage, &d, sequences, tokens, 0, true);
    norm(stage, l->x, l->norm1, rows);
    project_qkv_backward(stage, l, d_qkv, normed, rows);
    norm_backward(stage, l->d_norm1, l->x, l->norm1, rows);
}

void layer_backward(struct stage *stage, const struct layer *l, int64_t sequences, int64_t tokens)
{
    mlp_backward(stage, l, sequences * tokens);
    attention_backward(stage, l, sequences, tokens);
}
