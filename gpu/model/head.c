/*
 * Final norm, head and cross entropy, without ever holding [rows, vocabulary] logits: rows go in blocks, the vocabulary in
 * chunks. Per block, a first walk over the chunks finds each row's maximum and sum of exponentials; a second one, backwards,
 * makes the gradient. It begins with the chunk that the first ended with, whose logits are still there. A vocabulary of one
 * chunk, which is what stages ask for by themselves, is walked once, row by row.
 */
#include "gpu/model/inside.h"

#include <math.h>

struct block {
    int64_t first, rows;
    const float *normed;   /* [rows,H] */
    float *d_normed;       /* [rows,H] */
    const uint32_t *targets;
};

static int64_t chunk_columns(const struct stage *stage, int64_t first)
{
    int64_t left = stage->shape.model.vocabulary - first;
    return left < stage->work.head_columns ? left : stage->work.head_columns;
}

static void chunk_logits(struct stage *stage, const struct block *b, int64_t first, int64_t columns)
{
    int64_t hidden = stage->shape.model.hidden;
    linear_forward(stage, stage->scratch + stage->work.logits, b->normed, weight_at(stage, stage->at.head + (size_t)(first * hidden)),
                   b->rows, columns, hidden);
}

/* Running maximum and sum of every row; leaves the last chunk's logits in scratch. Returns where that chunk begins. */
static int64_t block_forward(struct stage *stage, const struct block *b)
{
    const struct ops *ops = stage->ops;
    float *maximum = stage->scratch + stage->work.maximum, *sum = stage->scratch + stage->work.sum;
    float *target = stage->scratch + stage->work.target, *logits = stage->scratch + stage->work.logits;
    int64_t first = 0, vocabulary = stage->shape.model.vocabulary;
    ops->fill(stage->device, maximum, -INFINITY, b->rows);
    ops->fill(stage->device, sum, 0, b->rows);
    ops->fill(stage->device, target, 0, b->rows);
    for (int64_t next = 0; next < vocabulary; next += stage->work.head_columns) {
        first = next;
        chunk_logits(stage, b, first, chunk_columns(stage, first));
        ops->softmax_chunk(stage->device, maximum, sum, target, logits, b->targets, b->rows, chunk_columns(stage, first),
                           first);
    }
    return first;
}

/* From the gradient of a chunk's logits, which is where they were, to that of the weights and d_normed. */
static void chunk_backward(struct stage *stage, const struct block *b, int64_t first, int64_t columns, bool accumulate)
{
    int64_t hidden = stage->shape.model.hidden;
    size_t offset = stage->at.head + (size_t)(first * hidden);
    struct weight weight = weight_at(stage, offset);
    float *gradient = stage_gradient_at(stage, offset), *logits = stage->scratch + stage->work.logits;
    if (!stage->shape.half_products) {
        linear_backward(stage, gradient, b->d_normed, logits, b->normed, weight, b->rows, columns, hidden, accumulate);
        return;
    }
    const uint16_t *x = gradient ? linear_x_words(stage, b->normed, b->rows * hidden) : NULL;
    linear_backward_words(stage, gradient, b->d_normed, (const uint16_t *)logits, 2 * columns, x, weight, b->rows, columns, hidden,
                          accumulate);
}

static void block_backward(struct stage *stage, const struct block *b, int64_t first, float scale)
{
    const struct ops *ops = stage->ops;
    const float *maximum = stage->scratch + stage->work.maximum, *sum = stage->scratch + stage->work.sum;
    float *logits = stage->scratch + stage->work.logits;
    for (bool fresh = true; first >= 0; first -= stage->work.head_columns, fresh = false) {
        int64_t columns = chunk_columns(stage, first);
        if (!fresh)
            chunk_logits(stage, b, first, columns);
        if (stage->shape.half_products)
            ops->softmax_backward_half(stage->device, logits, maximum, sum, b->targets, b->rows, columns, first, scale);
        else
            ops->softmax_backward_chunk(stage->device, logits, maximum, sum, b->targets, b->rows, columns, first, scale);
        chunk_backward(stage, b, first, columns, !fresh);
    }
}

/* Both ways of a vocabulary of one chunk. */
static void block_whole(struct stage *stage, const struct block *b, float scale)
{
    int64_t vocabulary = stage->shape.model.vocabulary;
    float *scratch = stage->scratch;
    chunk_logits(stage, b, 0, vocabulary);
    stage->ops->softmax_whole(stage->device, scratch + stage->work.maximum, scratch + stage->work.sum, scratch + stage->work.target,
                              scratch + stage->work.logits, b->targets, b->rows, vocabulary, scale, stage->shape.half_products);
    chunk_backward(stage, b, 0, vocabulary, false);
}

static const float *head_gain(const struct stage *stage)
{
    size_t place = stage->work.vectors;
    return vector_at(stage, stage->at.norm, stage->shape.model.hidden, &place);
}

static void head_norm(struct stage *stage, int64_t rows)
{
    const struct model_shape *m = &stage->shape.model;
    stage->ops->rmsnorm_forward(stage->device, stage->scratch + stage->work.normed, stage->scratch + stage->work.inverse,
                                stage->scratch + stage->work.output, head_gain(stage), rows, m->hidden,
                                m->norm_epsilon);
}

static struct block block_at(struct stage *stage, int64_t first, int64_t rows, const uint32_t *targets)
{
    int64_t hidden = stage->shape.model.hidden, left = rows - first;
    return (struct block){.first = first,
                          .rows = left < stage->work.head_rows ? left : stage->work.head_rows,
                          .normed = stage->scratch + stage->work.normed + first * hidden,
                          .d_normed = stage->scratch + stage->work.d_normed + first * hidden,
                          .targets = targets ? targets + first : NULL};
}

double head_loss(struct stage *stage, int64_t rows, const uint32_t *targets, float scale)
{
    const struct ops *ops = stage->ops;
    int64_t hidden = stage->shape.model.hidden;
    double loss = 0;
    head_norm(stage, rows);
    for (int64_t first = 0; first < rows; first += stage->work.head_rows) {
        struct block b = block_at(stage, first, rows, targets);
        if (scale != 0 && stage->work.head_columns == stage->shape.model.vocabulary)
            block_whole(stage, &b, scale);
        else if (scale != 0)
            block_backward(stage, &b, block_forward(stage, &b), scale);
        else
            block_forward(stage, &b);
        loss += ops->softmax_loss(stage->device, stage->scratch + stage->work.maximum, stage->scratch + stage->work.sum,
                                  stage->scratch + stage->work.target, b.targets, b.rows);
    }
    if (scale != 0) {
        float *gradient = stage->scratch + stage->work.gradient;
        ops->fill(stage->device, gradient, 0, rows * hidden);
        ops->rmsnorm_backward(stage->device, gradient, stage_gradient_at(stage, stage->at.norm),
                              stage->scratch + stage->work.d_normed, stage->scratch + stage->work.output,
                              head_gain(stage), stage->scratch + stage->work.inverse, rows, hidden);
    }
    return loss;
}

void head_logits(struct stage *stage, int64_t rows, float *out)
{
    int64_t vocabulary = stage->shape.model.vocabulary;
    head_norm(stage, rows);
    for (int64_t first = 0; first < rows; first += stage->work.head_rows) {
        struct block b = block_at(stage, first, rows, NULL);
        for (int64_t chunk = 0; chunk < vocabulary; chunk += stage->work.head_columns) {
            int64_t columns = chunk_columns(stage, chunk);
            const float *logits = stage->scratch + stage->work.logits;
            chunk_logits(stage, &b, chunk, columns);
            for (int64_t row = 0; row < b.rows; row++)
                stage->ops->copy_out(stage->device, out + (first + row) * vocabulary + chunk, logits + row * columns,
                                     (size_t)columns * sizeof(float));
            stage->ops->finish(stage->device);
        }
    }
}
