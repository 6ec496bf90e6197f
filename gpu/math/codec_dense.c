/*
 * The dense codec: every channel travels, in the format of the settings. It is what all others are compared with, and
 * what evaluation uses whatever the run's codec is.
 */
#include "gpu/math/codec_kind.h"

static size_t dense_memory(const struct codec_settings *settings)
{
    (void)settings;
    return 0;
}

static size_t dense_row_bytes(const struct codec_settings *settings, const struct codec_use *use, enum codec_way way)
{
    (void)way;
    return ops_packed_row_bytes(codec_format(settings, use), settings->width);
}

static void dense_encode(struct codec *codec, const struct codec_use *use, const float *x, uint8_t *out)
{
    codec->ops->pack(codec->device, out, x, use->rows, codec->settings.width, codec_format(&codec->settings, use));
}

static void dense_decode(struct codec *codec, const struct codec_use *use, const uint8_t *bytes, float *x)
{
    codec->ops->unpack(codec->device, x, bytes, use->rows, codec->settings.width, codec_format(&codec->settings, use));
}

const struct codec_kind_row codec_dense = {
    .name = "dense",
    .memory = dense_memory,
    .row_bytes = dense_row_bytes,
    .encode = dense_encode,
    .decode = dense_decode,
    .encode_gradient = dense_encode, /* the graph is the identity; rounding is straight-through */
    .decode_gradient = dense_decode,
};
