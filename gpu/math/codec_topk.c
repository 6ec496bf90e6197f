/*
 * Top-k: of what the reference leaves of an activation, the K channels with the largest magnitude travel, with their
 * indices. The gradient comes back at the same channels, which both ends keep per slot. A baseline of the literature:
 * the choice depends on the values, so its error is a bias that nothing downstream can average away.
 *
 *   bytes of a token   forward: values of K channels, then K indices of ⌈log2 H⌉ bits, filled up to a byte; backward:
 *   values only
 *   K                  the largest for which both together fit into twice the budget
 */
#include "gpu/math/codec_kind.h"

#include "ssh/base/mem.h"

static int index_bits(const struct codec_settings *s)
{
    int bits = 1;
    while ((INT64_C(1) << bits) < s->width)
        bits++;
    return bits;
}

static size_t index_bytes(const struct codec_settings *s, int64_t count)
{
    return ((size_t)count * (size_t)index_bits(s) + 7) / 8;
}

static size_t value_bytes(const struct codec_settings *s, const struct codec_use *use, int64_t count)
{
    return ops_packed_row_bytes(codec_format(s, use), count);
}

static int64_t count_of(const struct codec_settings *s, const struct codec_use *use)
{
    int64_t low = 1, high = s->width;
    while (low < high) {
        int64_t count = (low + high + 1) / 2;
        if (2 * value_bytes(s, use, count) + index_bytes(s, count) <= (size_t)use->keep)
            low = count;
        else
            high = count - 1;
    }
    return low;
}

static int64_t topk_keep(const struct codec_settings *s, double mask_rate)
{
    return codec_keep_bytes(s, mask_rate, 4);
}

static size_t topk_row_bytes(const struct codec_settings *s, const struct codec_use *use, enum codec_way way)
{
    int64_t count = count_of(s, use);
    return value_bytes(s, use, count) + (way == CODEC_FORWARD ? index_bytes(s, count) : 0);
}

/* Values of a micro-batch, then the channels of every slot. */
static size_t topk_memory(const struct codec_settings *s)
{
    size_t cells = (size_t)s->max_rows * (size_t)s->width;
    return codec_aligned(cells * sizeof(float)) + codec_aligned((size_t)s->slots * cells * sizeof(uint16_t));
}

static float *values_of(const struct codec *codec)
{
    return (float *)(void *)codec->block;
}

static uint16_t *channels_of(const struct codec *codec, int slot)
{
    size_t cells = (size_t)codec->settings.max_rows * (size_t)codec->settings.width;
    return (uint16_t *)(void *)(codec->block + codec_aligned(cells * sizeof(float))) + (size_t)slot * cells;
}

/* ---- indices ---- */

static void put_indices(uint8_t *out, const uint16_t *channels, int64_t rows, int64_t count, int bits)
{
    for (int64_t r = 0; r < rows; r++) {
        uint32_t word = 0;
        int used = 0;
        for (int64_t i = 0; i < count; i++) {
            word |= (uint32_t)channels[r * count + i] << used;
            for (used += bits; used >= 8; used -= 8, word >>= 8)
                *out++ = (uint8_t)word;
        }
        if (used)
            *out++ = (uint8_t)word;
    }
}

/* What is beyond the width becomes the last channel, and rising order is not asked for: a stranger may send what he likes,
 * but nothing is
 * written outside a row. */
static void get_indices(uint16_t *channels, const uint8_t *in, int64_t rows, int64_t count, int bits, int64_t width)
{
    for (int64_t r = 0; r < rows; r++) {
        uint32_t word = 0;
        int have = 0;
        for (int64_t i = 0; i < count; i++) {
            for (; have < bits; have += 8)
                word |= (uint32_t)*in++ << have;
            uint32_t channel = word & ((1u << bits) - 1);
            channels[r * count + i] = (uint16_t)((int64_t)channel < width ? channel : (uint32_t)width - 1);
            word >>= bits;
            have -= bits;
        }
    }
}

/* ---- the codec ---- */

static void topk_encode(struct codec *codec, const struct codec_use *use, const float *x, uint8_t *out)
{
    const struct codec_settings *s = &codec->settings;
    const struct ops *ops = codec->ops;
    const float *e = codec_reference_residual(codec, use, x);
    uint16_t *channels = channels_of(codec, use->slot);
    int64_t count = count_of(s, use), cells = use->rows * count;
    ops->mask_largest(codec->device, channels, e, use->rows, s->width, count);
    ops->mask_gather(codec->device, values_of(codec), NULL, e, NULL, channels, use->rows, s->width, count, CODEC_GAIN_ONE);
    ops->pack(codec->device, out, values_of(codec), use->rows, count, codec_format(s, use));
    uint16_t *host = mem_array((size_t)cells, sizeof *host);
    ops->copy_out(codec->device, host, channels, (size_t)cells * sizeof *host);
    ops->finish(codec->device);
    put_indices(out + (size_t)use->rows * value_bytes(s, use, count), host, use->rows, count, index_bits(s));
    mem_free(host);
}

static void topk_decode(struct codec *codec, const struct codec_use *use, const uint8_t *bytes, float *x)
{
    const struct codec_settings *s = &codec->settings;
    const struct ops *ops = codec->ops;
    uint16_t *channels = channels_of(codec, use->slot);
    int64_t count = count_of(s, use), cells = use->rows * count;
    uint16_t *host = mem_array((size_t)cells, sizeof *host);
    get_indices(host, bytes + (size_t)use->rows * value_bytes(s, use, count), use->rows, count, index_bits(s), s->width);
    ops->copy_in(codec->device, channels, host, (size_t)cells * sizeof *host);
    ops->finish(codec->device);
    mem_free(host);
    ops->unpack(codec->device, values_of(codec), bytes, use->rows, count, codec_format(s, use));
    ops->mask_scatter(codec->device, x, values_of(codec), NULL, channels, use->rows, s->width, count);
    codec_reference_add(codec, use, x);
}

static void topk_encode_gradient(struct codec *codec, const struct codec_use *use, const float *dx, uint8_t *out)
{
    const struct codec_settings *s = &codec->settings;
    int64_t count = count_of(s, use);
    codec->ops->mask_gather(codec->device, values_of(codec), NULL, dx, NULL, channels_of(codec, use->slot), use->rows,
                            s->width, count, CODEC_GAIN_ONE);
    codec->ops->pack(codec->device, out, values_of(codec), use->rows, count, codec_format(s, use));
}

static void topk_decode_gradient(struct codec *codec, const struct codec_use *use, const uint8_t *bytes, float *dx)
{
    const struct codec_settings *s = &codec->settings;
    int64_t count = count_of(s, use);
    codec->ops->unpack(codec->device, values_of(codec), bytes, use->rows, count, codec_format(s, use));
    codec->ops->mask_scatter_gradient(codec->device, dx, values_of(codec), NULL, channels_of(codec, use->slot), use->rows,
                                      s->width, count, CODEC_GAIN_ONE);
}

const struct codec_kind_row codec_topk = {
    .name = "topk",
    .keep = topk_keep,
    .memory = topk_memory,
    .row_bytes = topk_row_bytes,
    .encode = topk_encode,
    .decode = topk_decode,
    .encode_gradient = topk_encode_gradient,
    .decode_gradient = topk_decode_gradient,
};
