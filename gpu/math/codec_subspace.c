/*
 * Transform codecs: what the reference leaves of an activation is turned into its principal directions, the
 * coefficients travel in few bits; the gradient likewise in directions of its own.
 *
 *   x̂ = r + Σ_i v_i · code(v_iᵀ(x − r))     dx = Σ_i w_i · code(w_iᵀ dx̂)     straight-through, r a constant of the graph
 *
 *   subspace    bits by reverse water-filling of the budget over the spectrum: one at a time to the direction that is
 *   worst off
 *   principal   the same number of bits for as many directions as the budget has room for
 *
 * Directions, spectrum and reference are the versioned state; without it (keep = 0, or version 0, which nobody stamps
 * with keep > 0) the exchange is dense. Codes: gpu/math/levels.h. One scale a token, a bf16, is part of the budget.
 */
#include "gpu/math/codec_kind.h"
#include "gpu/math/levels.h"
#include "gpu/math/statistics.h"

_Static_assert((int)LEVELS_MOST_BITS == (int)STATISTICS_MOST_BITS, "what is dealt can be coded");

enum { SCALE = 2, LEAST = SCALE + 1 }; /* bytes */

static int64_t subspace_keep(const struct codec_settings *s, double mask_rate)
{
    return codec_keep_bytes(s, mask_rate, LEAST);
}

static size_t subspace_memory(const struct codec_settings *s)
{
    return codec_aligned((size_t)s->max_rows * (size_t)codec_rank(s) * sizeof(float));
}

static float *coefficients(const struct codec *codec)
{
    return (float *)(void *)codec->block;
}

static size_t subspace_row_bytes(const struct codec_settings *s, const struct codec_use *use, enum codec_way way)
{
    int64_t codes = codec_budget(s, use->keep, way) - SCALE, most = codec_rank(s) * LEVELS_MOST_BITS / 8;
    return (size_t)(SCALE + (codes < most ? codes : most));
}

static int64_t subspace_deal(const struct codec_settings *s, const float *values, int64_t count, int64_t budget,
                             uint8_t *bits)
{
    (void)s;
    return statistics_deal(values, count, budget, LEVELS_MOST_BITS, bits);
}

static int64_t principal_count(const struct codec_settings *s, int64_t budget)
{
    int64_t count = budget / s->bits;
    return count < codec_rank(s) ? count : codec_rank(s);
}

static size_t principal_row_bytes(const struct codec_settings *s, const struct codec_use *use, enum codec_way way)
{
    int64_t bits = principal_count(s, 8 * (codec_budget(s, use->keep, way) - SCALE)) * s->bits;
    return (size_t)(SCALE + (bits + 7) / 8);
}

static int64_t principal_deal(const struct codec_settings *s, const float *values, int64_t count, int64_t budget,
                              uint8_t *bits)
{
    (void)values;
    int64_t dealt = principal_count(s, budget);
    for (int64_t i = 0; i < count; i++)
        bits[i] = i < dealt ? (uint8_t)s->bits : 0;
    return dealt * s->bits;
}

/* ---- both directions ---- */

static void encode(struct codec *codec, const struct codec_use *use, enum codec_way way, const float *e, uint8_t *out)
{
    const struct codec_part *part = codec_state_deal(codec, use, way);
    int64_t width = codec->settings.width;
    codec->ops->matmul(codec->device, coefficients(codec), e, codec_state_at(codec, way, use->version)->vectors, use->rows,
                       part->columns, width, width, width, part->columns, false, true, false);
    codec->ops->levels_pack(codec->device, out, coefficients(codec), part->device_deviation, part->device_bits, use->rows,
                            part->columns, codec->kind->row_bytes(&codec->settings, use, way));
}

static void decode(struct codec *codec, const struct codec_use *use, enum codec_way way, const uint8_t *bytes, float *out)
{
    const struct codec_part *part = codec_state_deal(codec, use, way);
    int64_t width = codec->settings.width;
    codec->ops->levels_unpack(codec->device, coefficients(codec), bytes, part->device_deviation, part->device_bits,
                              use->rows, part->columns, codec->kind->row_bytes(&codec->settings, use, way));
    codec->ops->matmul(codec->device, out, coefficients(codec), codec_state_at(codec, way, use->version)->vectors,
                       use->rows, width, part->columns, part->columns, width, width, false, false, false);
}

const struct codec_kind_row codec_subspace = {
    .name = "subspace",
    .bases = true,
    .keep = subspace_keep,
    .memory = subspace_memory,
    .row_bytes = subspace_row_bytes,
    .encode_rest = encode,
    .decode_rest = decode,
    .deal = subspace_deal,
};

const struct codec_kind_row codec_principal = {
    .name = "principal",
    .bases = true,
    .keep = subspace_keep,
    .memory = subspace_memory,
    .row_bytes = principal_row_bytes,
    .encode_rest = encode,
    .decode_rest = decode,
    .deal = principal_deal,
};
