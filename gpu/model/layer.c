/*
 * One decoder layer:
 *
 *   mid = x + W_o · attention(rope(W_qkv · norm1(x)))
 *   out = mid + W_down · (silu(gate) · up),  [gate|up] = W_gate_up · norm2(mid)
 *
 * W is stored [out, in], so forward is x·Wᵀ, the gradient of x is dy·W and that of W is dyᵀ·x.
 */
#include "gpu/model/inside.h"

/* y[rows,out] = x[rows,in] · Wᵀ */
static void linear(struct stage *stage, float *y, const float *x, const float *weight, int64_t rows, int64_t out, int64_t in)
{
    stage->ops->matmul(stage->device, y, x, weight, rows, out, in, in, in, out, false, true, false);
}

/* dx[rows,in] = dy[rows,out] · W */
static void linear_dx(struct stage *stage, float *dx, const float *dy, const float *weight, int64_t rows, int64_t out,
                      int64_t in)
{
    stage->ops->matmul(stage->device, dx, dy, weight, rows, in, out, out, in, in, false, false, false);
}

/* dW[out,in] += dyᵀ · x */
static void linear_dw(struct stage *stage, float *dw, const float *dy, const float *x, int64_t rows, int64_t out, int64_t in)
{
    stage->ops->matmul(stage->device, dw, dy, x, out, in, rows, out, in, in, true, false, true);
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

static void rotate(struct stage *stage, float *qkv, int64_t sequences, int64_t tokens, bool backward)
{
    const struct model_shape *m = &stage->shape.model;
    stage->ops->rope(stage->device, qkv, stage->frequency, sequences, tokens, m->heads + m->kv_heads, m->head_width,
                     carve_qkv_width(m), backward); /* q and k lie side by side: heads + kv_heads heads in a row */
}

void layer_forward(struct stage *stage, const struct layer *l, int64_t sequences, int64_t tokens, float *out)
{
    const struct ops *ops = stage->ops;
    struct device *device = stage->device;
    const struct model_shape *m = &stage->shape.model;
    int64_t rows = sequences * tokens, query = carve_query_width(m), key = carve_key_width(m), qkv = carve_qkv_width(m);
    float *normed = stage->scratch + stage->work.normed, *wide = stage->scratch + stage->work.wide;

    norm(stage, l->x, l->norm1, rows);
    linear(stage, l->qkv, normed, l->qkv_weight, rows, qkv, m->hidden);
    rotate(stage, l->qkv, sequences, tokens, false);
    ops->attention_forward(device, l->o, l->log_sum, l->qkv, l->qkv + query, l->qkv + query + key, sequences, tokens,
                           m->heads, m->kv_heads, m->head_width, qkv, qkv);
    linear(stage, l->mid, l->o, l->o_weight, rows, m->hidden, query);
    ops->add(device, l->mid, l->x, rows * m->hidden);

    norm(stage, l->mid, l->norm2, rows);
    linear(stage, l->gate_up, normed, l->gate_up_weight, rows, 2 * m->ffn, m->hidden);
    ops->swiglu_forward(device, wide, l->gate_up, rows, m->ffn);
    linear(stage, out, wide, l->down_weight, rows, m->hidden, m->ffn);
    ops->add(device, out, l->mid, rows * m->hidden);
}

static void mlp_backward(struct stage *stage, const struct layer *l, int64_t rows)
{
    const struct ops *ops = stage->ops;
    const struct model_shape *m = &stage->shape.model;
    float *gradient = stage->scratch + stage->work.gradient, *normed = stage->scratch + stage->work.normed;
    float *wide = stage->scratch + stage->work.wide, *d_wide = stage->scratch + stage->work.d_wide;
    float *d_normed = stage->scratch + stage->work.d_normed;

    ops->swiglu_forward(stage->device, wide, l->gate_up, rows, m->ffn);
    linear_dw(stage, l->d_down_weight, gradient, wide, rows, m->hidden, m->ffn);
    linear_dx(stage, d_wide, gradient, l->down_weight, rows, m->hidden, m->ffn);
    ops->swiglu_backward(stage->device, l->gate_up, d_wide, l->gate_up, rows, m->ffn);
    norm(stage, l->mid, l->norm2, rows);
    linear_dw(stage, l->d_gate_up_weight, l->gate_up, normed, rows, 2 * m->ffn, m->hidden);
    linear_dx(stage, d_normed, l->gate_up, l->gate_up_weight, rows, 2 * m->ffn, m->hidden);
    norm_backward(stage, l->d_norm2, l->mid, l->norm2, rows);
}

static void attention_backward(struct stage *stage, const struct layer *l, int64_t sequences, int64_t tokens)
{
    const struct ops *ops = stage->ops;
    const struct model_shape *m = &stage->shape.model;
    int64_t rows = sequences * tokens, query = carve_query_width(m), key = carve_key_width(m), qkv = carve_qkv_width(m);
    float *gradient = stage->scratch + stage->work.gradient, *normed = stage->scratch + stage->work.normed;
    float *d_qkv = stage->scratch + stage->work.wide, *d_o = stage->scratch + stage->work.d_wide;
    float *d_normed = stage->scratch + stage->work.d_normed;

    linear_dw(stage, l->d_o_weight, gradient, l->o, rows, m->hidden, query);
    linear_dx(stage, d_o, gradient, l->o_weight, rows, m->hidden, query);
    ops->attention_backward(stage->device, d_qkv, d_qkv + query, d_qkv + query + key, d_o, l->o, l->log_sum, l->qkv,
                            l->qkv + query, l->qkv + query + key, sequences, tokens, m->heads, m->kv_heads,
                            m->head_width, qkv, qkv);
    rotate(stage, d_qkv, sequences, tokens, true);
    norm(stage, l->x, l->norm1, rows);
    linear_dw(stage, l->d_qkv_weight, d_qkv, normed, rows, qkv, m->hidden);
    linear_dx(stage, d_normed, d_qkv, l->qkv_weight, rows, qkv, m->hidden);
    norm_backward(stage, l->d_norm1, l->x, l->norm1, rows);
}

void layer_backward(struct stage *stage, const struct layer *l, int64_t sequences, int64_t tokens)
{
    mlp_backward(stage, l, sequences * tokens);
    attention_backward(stage, l, sequences, tokens);
}
