/*
 * The mask codec: K of a token's H channels travel, one of each of K strata, chosen by Philox from (seed, boundary,
 * step, micro-batch, token). Both ends choose the same, so no indices travel.
 *
 *   x̂ = r + g ⊙ m ⊙ (x − r)     r: the reference of the stamped version (none: 0); m: the chosen channels; g: the gain
 *   dx = g ⊙ m ⊙ dx̂             r and g are constants of the graph; rounding is straight-through
 *
 * With MMSE decoding (codec_mask_mmse) the channels that do not travel are not 0 but what is expected of them, given those that
 * do and the covariance C of the residual: Σ √λᵢvᵢ·(√λᵢvᵢ)ᵀ of its principal directions, and a variance N of each channel beside
 * them:
 *
 *   x̂_kept = x_kept,  x̂_rest = r + C_rest,kept·(C_kept,kept + N)⁻¹·(x − r)_kept
 *
 * For a Gaussian no decoder errs less. Its gradient is that of the plain mask all the same: straight-through for what is expected.
 *
 * The receiver returns dx̂ at the chosen channels without gain, the sender multiplies: only it has the gains of the RMS
 * rule, one per token, kept per slot from encode until the gradient is back.
 */
#include <math.h>

#include "gpu/math/codec_kind.h"
#include "ssh/base/hash.h"

/* Where things lie in codec->block, for the worst case keep = H. */
struct mask_layout {
    size_t values, row_gain, channels, coefficients, bytes; /* coefficients [max_rows, rank]: MMSE */
};

static struct mask_layout mask_layout(const struct codec_settings *s)
{
    struct mask_layout at = {0};
    size_t cells = (size_t)s->max_rows * (size_t)s->width;
    at.row_gain = at.values + codec_aligned(cells * sizeof(float));
    at.channels = at.row_gain + codec_aligned((size_t)s->slots * (size_t)s->max_rows * sizeof(float));
    at.coefficients = at.channels + codec_aligned(cells * sizeof(uint16_t));
    at.bytes = at.coefficients;
    if (codec_kind_of(s)->spread)
        at.bytes += codec_aligned((size_t)s->max_rows * (size_t)codec_rank(s) * sizeof(float));
    return at;
}

static size_t mask_memory(const struct codec_settings *settings)
{
    return mask_layout(settings).bytes;
}

static int64_t mask_keep(const struct codec_settings *settings, double mask_rate)
{
    double keep = floor((1.0 - mask_rate) * (double)settings->width + 0.5);
    if (!(keep >= 1.0))
        return 1;
    return keep > (double)settings->width ? settings->width : (int64_t)keep;
}

static size_t mask_row_bytes(const struct codec_settings *settings, const struct codec_use *use, enum codec_way way)
{
    (void)way;
    return ops_packed_row_bytes(codec_format(settings, use), use->keep);
}

static float *mask_values(const struct codec *codec)
{
    return (float *)(void *)(codec->block + mask_layout(&codec->settings).values);
}

static float *mask_row_gain(const struct codec *codec, int slot)
{
    float *gains = (float *)(void *)(codec->block + mask_layout(&codec->settings).row_gain);
    return gains + (size_t)slot * (size_t)codec->settings.max_rows;
}

/* Fills and returns channels[rows, keep] of this use. */
static uint16_t *mask_choose(const struct codec *codec, const struct codec_use *use)
{
    uint16_t *channels = (uint16_t *)(void *)(codec->block + mask_layout(&codec->settings).channels);
    struct mask_key key = {.seed = codec->settings.seed,
                           .step = use->step,
                           .micro_batch = use->micro_batch,
                           .boundary = codec->settings.boundary};
    codec->ops->mask_channels(codec->device, channels, &key, use->rows, codec->settings.width, use->keep, 0);
    return channels;
}

static void mask_encode(struct codec *codec, const struct codec_use *use, const float *x, uint8_t *out)
{
    const struct ops *ops = codec->ops;
    bool tokens = codec->settings.reference == CODEC_REFERENCE_TOKENS;
    const float *e = tokens ? codec_reference_residual(codec, use, x) : x;
    float *values = mask_values(codec);
    ops->mask_gather(codec->device, values, mask_row_gain(codec, use->slot), e, codec_reference_row(codec, use),
                     mask_choose(codec, use), use->rows, codec->settings.width, use->keep, codec->settings.gain);
    ops->pack(codec->device, out, values, use->rows, use->keep, codec_format(&codec->settings, use));
}

static void mask_decode(struct codec *codec, const struct codec_use *use, const uint8_t *bytes, float *x)
{
    const struct ops *ops = codec->ops;
    float *values = mask_values(codec);
    ops->unpack(codec->device, values, bytes, use->rows, use->keep, codec_format(&codec->settings, use));
    ops->mask_scatter(codec->device, x, values, codec_reference_row(codec, use), mask_choose(codec, use), use->rows,
                      codec->settings.width, use->keep);
    if (codec->settings.reference == CODEC_REFERENCE_TOKENS)
        codec_reference_add(codec, use, x);
}

static void mask_encode_gradient(struct codec *codec, const struct codec_use *use, const float *dx, uint8_t *out)
{
    const struct ops *ops = codec->ops;
    float *values = mask_values(codec);
    ops->mask_gather(codec->device, values, NULL, dx, NULL, mask_choose(codec, use), use->rows, codec->settings.width,
                     use->keep, CODEC_GAIN_ONE);
    ops->pack(codec->device, out, values, use->rows, use->keep, codec_format(&codec->settings, use));
}

static void mask_decode_gradient(struct codec *codec, const struct codec_use *use, const uint8_t *bytes, float *dx)
{
    const struct ops *ops = codec->ops;
    float *values = mask_values(codec);
    ops->unpack(codec->device, values, bytes, use->rows, use->keep, codec_format(&codec->settings, use));
    ops->mask_scatter_gradient(codec->device, dx, values, mask_row_gain(codec, use->slot), mask_choose(codec, use),
                               use->rows, codec->settings.width, use->keep, codec->settings.gain);
}

static uint32_t mask_checksum(struct codec *codec, const struct codec_use *use)
{
    const uint16_t *channels = mask_choose(codec, use);
    size_t left = (size_t)use->rows * (size_t)use->keep;
    uint64_t hash = HASH_START;
    while (left) {
        uint16_t part[1024];
        size_t count = left < 1024 ? left : 1024;
        codec->ops->copy_out(codec->device, part, channels, count * sizeof *part);
        codec->ops->finish(codec->device);
        hash = hash_add(hash, part, count * sizeof *part);
        channels += count;
        left -= count;
    }
    uint32_t word = (uint32_t)hash_finish(hash);
    return word ? word : 1; /* 0 says "not in debug mode" on the wire */
}

const struct codec_kind_row codec_mask = {
    .name = "mask",
    .memory = mask_memory,
    .keep = mask_keep,
    .row_bytes = mask_row_bytes,
    .encode = mask_encode,
    .decode = mask_decode,
    .encode_gradient = mask_encode_gradient,
    .decode_gradient = mask_decode_gradient,
    .checksum = mask_checksum,
};

/* ---- MMSE ---- */

/* What is expected of all channels, then the values themselves where they belong. */
static void mmse_decode(struct codec *codec, const struct codec_use *use, const uint8_t *bytes, float *x)
{
    const struct codec_settings *s = &codec->settings;
    const struct ops *ops = codec->ops;
    const float *factors = codec_state_at(codec, CODEC_FORWARD, use->version)->vectors;
    int64_t rank = codec_rank(s), width = s->width;
    float *values = mask_values(codec), *z = (float *)(void *)(codec->block + mask_layout(s).coefficients);
    const uint16_t *channels = mask_choose(codec, use);
    ops->unpack(codec->device, values, bytes, use->rows, use->keep, codec_format(s, use));
    ops->mask_expect(codec->device, z, values, channels, factors, factors + rank * width, use->rows, rank, width, use->keep);
    ops->matmul(codec->device, x, z, factors, use->rows, width, rank, rank, rank, width, false, true, false);
    ops->mask_put(codec->device, x, values, channels, use->rows, width, use->keep);
    codec_reference_add(codec, use, x);
}

const struct codec_kind_row codec_mask_mmse = {
    .name = "mask",
    .bases = true,
    .spread = true,
    .memory = mask_memory,
    .keep = mask_keep,
    .row_bytes = mask_row_bytes,
    .encode = mask_encode,
    .decode = mmse_decode,
    .encode_gradient = mask_encode_gradient,
    .decode_gradient = mask_decode_gradient,
    .checksum = mask_checksum,
};
