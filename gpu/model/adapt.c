/*
 * What an adapter adds to a product, and back. x·Aᵀ is computed again in backward like other things that cost little; A and B are
 * small beside the matrix, so an adapter costs about rank·(in + out) / (in·out) of its product.
 */
#include "gpu/model/inside.h"

static float scale_of(const struct stage *stage)
{
    return stage->shape.lora.alpha / (float)stage->shape.lora.rank;
}

/* low[rows,rank] = alpha/rank · x · Aᵀ */
static float *into_low(struct stage *stage, const struct adapter *adapter, const float *x, int64_t rows)
{
    int64_t rank = stage->shape.lora.rank;
    float *low = stage->scratch + stage->work.low;
    stage->ops->matmul(stage->device, low, x, adapter->a, rows, rank, adapter->in, adapter->in, adapter->in, rank, false, true, false);
    stage->ops->scale(stage->device, low, scale_of(stage), rows * rank);
    return low;
}

void adapt_forward(struct stage *stage, const struct adapter *adapter, float *y, int64_t stride, const float *x, int64_t rows)
{
    int64_t rank = stage->shape.lora.rank;
    if (!adapter->a)
        return;
    const float *low = into_low(stage, adapter, x, rows);
    stage->ops->matmul(stage->device, y, low, adapter->b, rows, adapter->out, rank, rank, rank, stride, false, true, true);
}

void adapt_backward(struct stage *stage, const struct adapter *adapter, float *dx, const float *dy, int64_t stride, const float *x,
                    int64_t rows)
{
    const struct ops *ops = stage->ops;
    int64_t rank = stage->shape.lora.rank, in = adapter->in, out = adapter->out;
    if (!adapter->a)
        return;
    float *low = into_low(stage, adapter, x, rows);
    ops->matmul(stage->device, adapter->d_b, dy, low, out, rank, rows, stride, rank, rank, true, false, true);
    ops->matmul(stage->device, low, dy, adapter->b, rows, rank, out, stride, rank, rank, false, false, false);
    ops->scale(stage->device, low, scale_of(stage), rows * rank);
    ops->matmul(stage->device, adapter->d_a, low, x, rank, in, rows, rank, in, in, true, false, true);
    ops->matmul(stage->device, dx, low, adapter->a, rows, in, rank, rank, in, in, false, false, true);
}
