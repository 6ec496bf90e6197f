/*
 * The reference: what stands in for an activation before anything of it has travelled. Only the difference to it is
 * coded.
 *
 *   mean     r = b                                    measured means of the channels
 *   tokens   r_t = Σ_j B_j·f(id of token t − j) + b   ridge regression on features of the position's own token and those
 *   before it, whose
 *                                                     ids travel anyway; before a sequence begins f = 0
 *
 * B and b are a part of the codec's state (gpu/math/codec_moments.c makes them). r is a constant of the graph.
 */
#include "gpu/math/codec_kind.h"

int64_t codec_features(const struct codec_settings *settings)
{
    if (settings->reference == CODEC_REFERENCE_NONE)
        return 0;
    return settings->reference == CODEC_REFERENCE_MEAN ? 1 : settings->context * codec_rank(settings) + 1;
}

/* Ids of the tokens that lie `back` before each position. */
static void ids_before(const struct codec *codec, const struct codec_use *use, int64_t back)
{
    for (int64_t s = 0; s < use->rows / use->tokens; s++)
        for (int64_t t = 0; t < use->tokens; t++)
            codec->ids[s * use->tokens + t] =
                t < back ? (uint32_t)codec->settings.vocabulary : use->windows[s * (use->tokens + 1) + t - back];
}

void codec_reference_features(struct codec *codec, const struct codec_use *use)
{
    const struct codec_settings *s = &codec->settings;
    int64_t rank = codec_rank(s);
    for (int64_t j = 0; s->reference == CODEC_REFERENCE_TOKENS && j < s->context; j++) {
        ids_before(codec, use, j);
        codec->ops->embedding_forward(codec->device, codec->features + j * s->max_rows * rank, s->table, codec->ids,
                                      use->rows, rank);
        codec->ops->finish(codec->device); /* the ids are host memory */
    }
}

void codec_reference_add(struct codec *codec, const struct codec_use *use, float *x)
{
    const struct codec_settings *s = &codec->settings;
    const struct codec_version *state = codec_state_at(codec, CODEC_FORWARD, use->version);
    if (!state || !state->weights)
        return;
    int64_t rank = codec_rank(s), features = codec_features(s);
    codec_reference_features(codec, use);
    for (int64_t j = 0; j < features / rank && s->reference == CODEC_REFERENCE_TOKENS; j++)
        codec->ops->matmul(codec->device, x, codec->features + j * s->max_rows * rank, state->weights + j * rank * s->width,
                           use->rows, s->width, rank, rank, s->width, s->width, false, false, true);
    codec->ops->add_rows(codec->device, x, state->weights + (features - 1) * s->width, use->rows, s->width);
}

const float *codec_reference_residual(struct codec *codec, const struct codec_use *use, const float *x)
{
    const struct codec_version *state = codec_state_at(codec, CODEC_FORWARD, use->version);
    if (!state || !state->weights)
        return x;
    int64_t cells = use->rows * codec->settings.width;
    codec->ops->fill(codec->device, codec->residual, 0, cells);
    codec_reference_add(codec, use, codec->residual);
    codec->ops->scale(codec->device, codec->residual, -1, cells);
    codec->ops->add(codec->device, codec->residual, x, cells);
    return codec->residual;
}

const float *codec_reference_row(const struct codec *codec, const struct codec_use *use)
{
    const struct codec_version *state = codec_state_at(codec, CODEC_FORWARD, use->version);
    return state && codec->settings.reference == CODEC_REFERENCE_MEAN ? state->weights : NULL;
}
