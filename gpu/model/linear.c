/*
 * Products with weights. W is stored [out, in], so forward is x·Wᵀ, the gradient of x is dy·W and that of W is dyᵀ·x.
 *
 * With half_products both sides of each are rounded to bf16 and added up in fp32: weights once after they changed
 * (stage_refresh), activations and their gradients each time, into scratch or where they are kept (layer.c). Weights, gradients of
 * weights and what products make stay fp32.
 *
 * With words_only there are no weights in fp32: matrices are read as they lie, vectors and rows of the embedding made fp32 where they
 * are used.
 */
#include "gpu/model/inside.h"

struct weight weight_at(const struct stage *stage, size_t offset)
{
    return (struct weight){stage->weights ? stage->weights + offset : NULL,
                           stage->words ? stage->words + (offset - stage->at.words) : NULL};
}

struct weight weight_part(struct weight weight, int64_t first)
{
    return (struct weight){weight.full ? weight.full + first : NULL, weight.words ? weight.words + first : NULL};
}

const float *vector_at(const struct stage *stage, size_t offset, int64_t count, size_t *place)
{
    if (stage->weights)
        return stage->weights + offset;
    float *vector = stage->scratch + *place;
    stage->ops->widen(stage->device, vector, stage->words + offset, count);
    *place += (size_t)count;
    return vector;
}

void linear_embed(struct stage *stage, float *y, const uint32_t *ids, int64_t rows)
{
    const struct ops *ops = stage->ops;
    int64_t hidden = stage->shape.model.hidden;
    if (stage->weights)
        ops->embedding_forward(stage->device, y, stage->weights + stage->at.embedding, ids, rows, hidden);
    for (int64_t r = 0; r < rows && !stage->weights; r++)
        ops->widen(stage->device, y + r * hidden, stage->words + stage->at.embedding + (size_t)ids[r] * (size_t)hidden, hidden);
}

static uint16_t *halved(struct stage *stage, size_t place, const float *x, int64_t count)
{
    uint16_t *words = (uint16_t *)(stage->scratch + place);
    stage->ops->halve(stage->device, words, x, count);
    return words;
}

uint16_t *linear_x_words(struct stage *stage, const float *x, int64_t count)
{
    return halved(stage, stage->work.half_x, x, count);
}

uint16_t *linear_dy_words(struct stage *stage, const float *dy, int64_t count)
{
    return halved(stage, stage->work.half_dy, dy, count);
}

void linear_forward(struct stage *stage, float *y, const float *x, struct weight weight, int64_t rows, int64_t out, int64_t in)
{
    const struct ops *ops = stage->ops;
    if (stage->shape.half_products)
        linear_forward_words(stage, y, linear_x_words(stage, x, rows * in), weight, rows, out, in);
    else if (!weight.full)
        ops->matmul_words(stage->device, y, x, weight.words, rows, out, in, in, in, out, false, true, false);
    else
        ops->matmul(stage->device, y, x, weight.full, rows, out, in, in, in, out, false, true, false);
}

void linear_forward_words(struct stage *stage, float *y, const uint16_t *x, struct weight weight, int64_t rows, int64_t out,
                          int64_t in)
{
    stage->ops->matmul_half(stage->device, y, x, weight.words, rows, out, in, in, in, out, false, true, false);
}

void linear_backward(struct stage *stage, float *dw, float *dx, const float *dy, const float *x, struct weight weight, int64_t rows,
                     int64_t out, int64_t in, bool accumulate)
{
    const struct ops *ops = stage->ops;
    if (stage->shape.half_products) {
        const uint16_t *half_x = dw ? linear_x_words(stage, x, rows * in) : NULL;
        const uint16_t *half_dy = linear_dy_words(stage, dy, rows * out);
        linear_backward_words(stage, dw, dx, half_dy, out, half_x, weight, rows, out, in, accumulate);
        return;
    }
    if (dw)
        ops->matmul(stage->device, dw, dy, x, out, in, rows, out, in, in, true, false, true);
    if (dx && !weight.full)
        ops->matmul_words(stage->device, dx, dy, weight.words, rows, in, out, out, in, in, false, false, accumulate);
    else if (dx)
        ops->matmul(stage->device, dx, dy, weight.full, rows, in, out, out, in, in, false, false, accumulate);
}

void linear_backward_words(struct stage *stage, float *dw, float *dx, const uint16_t *dy, int64_t stride, const uint16_t *x,
                           struct weight weight, int64_t rows, int64_t out, int64_t in, bool accumulate)
{
    const struct ops *ops = stage->ops;
    if (dw)
        ops->matmul_half(stage->device, dw, dy, x, out, in, rows, stride, in, in, true, false, true);
    if (dx)
        ops->matmul_half(stage->device, dx, dy, weight.words, rows, in, out, stride, in, in, false, false, accumulate);
}
