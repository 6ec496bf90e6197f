/*
 * Half of the bytes for the principal directions in few-bit codes, the rest for channels of what those leave, chosen by
 * the shared random mask: what no direction covers has a chance too. In both directions alike, each with its own
 * directions.
 *
 *   e = x − r,  a = Σ v_i·code(v_iᵀe),  x̂ = r + a + m ⊙ (e − a)     straight-through
 *
 *   bytes of a token   few-bit codes with their scale (gpu/math/levels.h), then K values in the number format of the
 *   settings
 */
#include "gpu/math/codec_kind.h"
#include "gpu/math/levels.h"
#include "gpu/math/statistics.h"

enum { SCALE = 2, LEAST = 4 }; /* bytes */

static int64_t hybrid_keep(const struct codec_settings *s, double mask_rate)
{
    return codec_keep_bytes(s, mask_rate, LEAST);
}

/* Where things lie in codec->block. */
struct hybrid_layout {
    size_t coded, values, channels, bytes; /* after coefficients [max_rows, rank] */
};

static struct hybrid_layout hybrid_layout(const struct codec_settings *s)
{
    size_t cells = (size_t)s->max_rows * (size_t)s->width;
    struct hybrid_layout at = {.coded = codec_aligned((size_t)s->max_rows * (size_t)codec_rank(s) * sizeof(float))};
    at.values = at.coded + codec_aligned(cells * sizeof(float));
    at.channels = at.values + codec_aligned(cells * sizeof(float));
    at.bytes = at.channels + codec_aligned(cells * sizeof(uint16_t));
    return at;
}

static size_t hybrid_memory(const struct codec_settings *s)
{
    return hybrid_layout(s).bytes;
}

static float *floats_at(const struct codec *codec, size_t offset)
{
    return (float *)(void *)(codec->block + offset);
}

static int64_t coded_bytes(const struct codec_settings *s, int64_t budget)
{
    int64_t codes = (budget - SCALE) / 2, most = codec_rank(s) * LEVELS_MOST_BITS / 8;
    return SCALE + (codes < 1 ? 1 : codes < most ? codes : most);
}

static int64_t hybrid_channels(const struct codec_settings *s, const struct codec_use *use, enum codec_way way)
{
    int64_t budget = codec_budget(s, use->keep, way), left = budget - coded_bytes(s, budget), low = 0, high = s->width;
    while (low < high) { /* the most whose row fits */
        int64_t count = (low + high + 1) / 2;
        if ((int64_t)ops_packed_row_bytes(codec_format(s, use), count) <= left)
            low = count;
        else
            high = count - 1;
    }
    return low;
}

static size_t values_bytes(const struct codec_settings *s, const struct codec_use *use, int64_t channels)
{
    return channels ? ops_packed_row_bytes(codec_format(s, use), channels) : 0;
}

static size_t hybrid_row_bytes(const struct codec_settings *s, const struct codec_use *use, enum codec_way way)
{
    return (size_t)coded_bytes(s, codec_budget(s, use->keep, way)) + values_bytes(s, use, hybrid_channels(s, use, way));
}

static int64_t hybrid_deal(const struct codec_settings *s, const float *values, int64_t count, int64_t budget, uint8_t *bits)
{
    return statistics_deal(values, count, 8 * (coded_bytes(s, budget / 8 + SCALE) - SCALE), LEVELS_MOST_BITS, bits);
}

/* The channels of this use, [rows, count]; those of the two directions are the same where they are as many. */
static const uint16_t *choose(struct codec *codec, const struct codec_use *use, int64_t count)
{
    const struct codec_settings *s = &codec->settings;
    uint16_t *channels = (uint16_t *)(void *)(codec->block + hybrid_layout(s).channels);
    struct mask_key key = {.seed = s->seed, .step = use->step, .micro_batch = use->micro_batch, .boundary = s->boundary};
    codec->ops->mask_channels(codec->device, channels, &key, use->rows, s->width, count, 0);
    return channels;
}

/* a[rows, H] of the coded bytes. */
static void decode_codes(struct codec *codec, const struct codec_use *use, enum codec_way way, const uint8_t *bytes,
                         float *a)
{
    const struct codec_part *part = codec_state_deal(codec, use, way);
    int64_t width = codec->settings.width;
    size_t row = (size_t)coded_bytes(&codec->settings, codec_budget(&codec->settings, use->keep, way));
    float *z = floats_at(codec, 0);
    codec->ops->levels_unpack(codec->device, z, bytes, part->device_deviation, part->device_bits, use->rows,
                              part->columns, row);
    codec->ops->matmul(codec->device, a, z, codec_state_at(codec, way, use->version)->vectors, use->rows, width,
                       part->columns, part->columns, width, width, false, false, false);
}

static void encode(struct codec *codec, const struct codec_use *use, enum codec_way way, const float *e, uint8_t *out)
{
    const struct codec_settings *s = &codec->settings;
    const struct ops *ops = codec->ops;
    const struct codec_part *part = codec_state_deal(codec, use, way);
    struct hybrid_layout at = hybrid_layout(s);
    int64_t width = s->width, count = hybrid_channels(s, use, way), cells = use->rows * width;
    size_t row = (size_t)coded_bytes(s, codec_budget(s, use->keep, way));
    float *z = floats_at(codec, 0), *left = floats_at(codec, at.coded), *values = floats_at(codec, at.values);
    ops->matmul(codec->device, z, e, codec_state_at(codec, way, use->version)->vectors, use->rows, part->columns, width,
                width, width, part->columns, false, true, false);
    ops->levels_pack(codec->device, out, z, part->device_deviation, part->device_bits, use->rows, part->columns, row);
    if (!count)
        return;
    ops->finish(codec->device);
    decode_codes(codec, use, way, out, left);
    ops->scale(codec->device, left, -1, cells);
    ops->add(codec->device, left, e, cells);
    ops->mask_gather(codec->device, values, NULL, left, NULL, choose(codec, use, count), use->rows, width, count,
                     CODEC_GAIN_ONE);
    ops->pack(codec->device, out + (size_t)use->rows * row, values, use->rows, count, codec_format(s, use));
}

static void decode(struct codec *codec, const struct codec_use *use, enum codec_way way, const uint8_t *bytes, float *out)
{
    const struct codec_settings *s = &codec->settings;
    const struct ops *ops = codec->ops;
    struct hybrid_layout at = hybrid_layout(s);
    int64_t count = hybrid_channels(s, use, way);
    size_t row = (size_t)coded_bytes(s, codec_budget(s, use->keep, way));
    float *rest = floats_at(codec, at.coded), *values = floats_at(codec, at.values);
    decode_codes(codec, use, way, bytes, out);
    if (!count)
        return;
    ops->unpack(codec->device, values, bytes + (size_t)use->rows * row, use->rows, count, codec_format(s, use));
    ops->mask_scatter(codec->device, rest, values, NULL, choose(codec, use, count), use->rows, s->width, count);
    ops->add(codec->device, out, rest, use->rows * s->width);
}

const struct codec_kind_row codec_hybrid = {
    .name = "hybrid",
    .bases = true,
    .keep = hybrid_keep,
    .memory = hybrid_memory,
    .row_bytes = hybrid_row_bytes,
    .encode_rest = encode,
    .decode_rest = decode,
    .deal = hybrid_deal,
};
