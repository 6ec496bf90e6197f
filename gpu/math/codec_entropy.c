/*
 * The transform codec that pays for information and not for bits: what the reference leaves of an activation, in directions
 * of its own, in steps that are the same for all coefficients of a token, entropy-coded (gpu/math/entropy.h). The gradient
 * likewise, in its directions.
 *
 *   x̂ = r + Σ_i u_i · code(v_iᵀ(x − r))     dx = Σ_i w_i · code(w_iᵀ dx̂)     straight-through, r a constant of the graph
 *
 * Directions of activations are the principal ones of errors as the loss feels them: with W the second moment of the
 * gradients, an error e costs eᵀWe (gpu/math/statistics.h, weighing). The sender measures W of the gradients that it gets
 * back. That is worth as much again as the entropy coder. Gradients likewise, with W what the reference leaves of
 * activations, as the receiver gets them: what a gradient changes is a weight, by its product with what comes along the
 * same channels.
 *
 * A micro-batch has a fixed number of bytes; the step is what makes it fit. So a token gets as many bits as it is worth
 * beside its neighbours of the same message.
 */
#include <math.h>

#include "gpu/math/codec_kind.h"
#include "gpu/math/entropy.h"
#include "ssh/base/mem.h"

enum { LEAST = 3 };

static int64_t entropy_keep(const struct codec_settings *s, double mask_rate)
{
    return codec_keep_bytes(s, mask_rate, LEAST);
}

static size_t entropy_memory(const struct codec_settings *s)
{
    return codec_aligned((size_t)s->max_rows * (size_t)codec_rank(s) * sizeof(float));
}

static size_t entropy_row_bytes(const struct codec_settings *s, const struct codec_use *use, enum codec_way way)
{
    return (size_t)codec_budget(s, use->keep, way);
}

static float *deviations(const float *values, int64_t count)
{
    float *deviation = mem_array((size_t)count, sizeof *deviation);
    for (int64_t i = 0; i < count; i++)
        deviation[i] = sqrtf(values[i]);
    return deviation;
}

/* Columns that may get a code have "a bit". */
static int64_t entropy_deal(const struct codec_settings *s, const float *values, int64_t count, int64_t budget, uint8_t *bits)
{
    (void)s;
    float *deviation = deviations(values, count);
    int64_t columns = entropy_columns(deviation, count, (double)budget);
    for (int64_t i = 0; i < count; i++)
        bits[i] = i < columns;
    mem_free(deviation);
    return columns;
}

static double expected_error(const float *values, int64_t count, int64_t budget)
{
    float *deviation = deviations(values, count);
    double error = entropy_error(deviation, count, (double)budget);
    mem_free(deviation);
    return error;
}

/* ---- both directions ---- */

static void encode(struct codec *codec, const struct codec_use *use, enum codec_way way, const float *e, uint8_t *out)
{
    const struct codec_part *part = codec_state_deal(codec, use, way);
    const struct codec_version *state = codec_state_at(codec, way, use->version);
    int64_t width = codec->settings.width, columns = part->columns;
    float *device = (float *)(void *)codec->block, *host = (float *)(void *)codec->staging;
    float *deviation = deviations(state->values, columns);
    const float *projections = state->vectors + codec_rank(&codec->settings) * width;
    codec->ops->matmul(codec->device, device, e, projections, use->rows, columns, width, width, width, columns, false, true,
                       false);
    codec->ops->copy_out(codec->device, host, device, (size_t)(use->rows * columns) * sizeof *host);
    codec->ops->finish(codec->device);
    entropy_encode(host, deviation, use->rows, columns, out, codec_bytes(&codec->settings, use, way));
    mem_free(deviation);
}

static void decode(struct codec *codec, const struct codec_use *use, enum codec_way way, const uint8_t *bytes, float *out)
{
    const struct codec_version *state = codec_state_at(codec, way, use->version);
    int64_t width = codec->settings.width, rank = codec_rank(&codec->settings), columns;
    size_t count = codec_bytes(&codec->settings, use, way);
    float *device = (float *)(void *)codec->block, *host = (float *)(void *)codec->staging;
    columns = entropy_told(bytes, count);
    columns = columns < 1 ? 1 : columns > rank ? rank : columns;
    float *deviation = deviations(state->values, columns);
    entropy_decode(bytes, count, deviation, use->rows, columns, host);
    codec->ops->copy_in(codec->device, device, host, (size_t)(use->rows * columns) * sizeof *host);
    codec->ops->matmul(codec->device, out, device, state->vectors, use->rows, width, columns, columns, width, width, false, false,
                       false);
    codec->ops->finish(codec->device); /* staging is free again */
    mem_free(deviation);
}

const struct codec_kind_row codec_entropy = {
    .name = "entropy",
    .bases = true,
    .weighs = true,
    .keep = entropy_keep,
    .memory = entropy_memory,
    .staging = entropy_memory,
    .row_bytes = entropy_row_bytes,
    .encode_rest = encode,
    .decode_rest = decode,
    .deal = entropy_deal,
    .error = expected_error,
};
