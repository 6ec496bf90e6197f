/*
 * The versioned state that codecs share: column means of the boundary's activation. The sender averages over the
 * micro-batches of a step, exports bf16 (little-endian, H of them), and both ends import those bytes, so both use the very
 * same numbers.
 *
 * Two versions are held, because the micro-batches of a step that is still under way need the one before.
 */
#include "gpu/math/codec_kind.h"

#include <math.h>

#include "ssh/base/mem.h"

static size_t vector_bytes(const struct codec_settings *settings)
{
    return codec_aligned((size_t)settings->width * sizeof(float));
}

static float *vector_at(const struct codec *codec, int index)
{
    return codec->reference.block + (size_t)index * vector_bytes(&codec->settings) / sizeof(float);
}

size_t codec_reference_memory(const struct codec_settings *settings)
{
    return settings->reference == CODEC_REFERENCE_NONE ? 0 : 3 * vector_bytes(settings);
}

size_t codec_state_bytes(const struct codec_settings *settings)
{
    return settings->reference == CODEC_REFERENCE_NONE ? 0 : ops_packed_row_bytes(FORMAT_BF16, settings->width);
}

int codec_reference_new(struct codec *codec)
{
    size_t bytes = codec_reference_memory(&codec->settings);
    if (!bytes)
        return 0;
    codec->reference.block = codec->ops->alloc(codec->device, bytes);
    if (!codec->reference.block)
        return ERR_MEMORY;
    codec->reference.sum = mem_array((size_t)codec->settings.width, sizeof(double));
    codec->reference.mean = mem_array((size_t)codec->settings.width, sizeof(float));
    return 0;
}

void codec_reference_free(struct codec *codec)
{
    if (codec->reference.block)
        codec->ops->free(codec->device, codec->reference.block);
    mem_free(codec->reference.sum);
    mem_free(codec->reference.mean);
}

const float *codec_reference_at(const struct codec *codec, uint32_t version)
{
    if (version == 0)
        return NULL;
    BUG_IF(!codec_holds(codec, version));
    return vector_at(codec, codec->reference.version[0] == version ? 0 : 1);
}

bool codec_holds(const struct codec *codec, uint32_t version)
{
    return version == 0 || version == codec->reference.version[0] || version == codec->reference.version[1];
}

uint32_t codec_newest(const struct codec *codec)
{
    const uint32_t *version = codec->reference.version;
    return version[0] > version[1] ? version[0] : version[1];
}

void codec_measure(struct codec *codec, const float *x, int64_t rows)
{
    struct codec_means *reference = &codec->reference;
    size_t width = (size_t)codec->settings.width;
    if (!reference->sum)
        return;
    BUG_IF(rows < 1);
    float *device_mean = vector_at(codec, 2);
    codec->ops->column_mean(codec->device, device_mean, x, rows, codec->settings.width);
    codec->ops->copy_out(codec->device, reference->mean, device_mean, width * sizeof(float));
    codec->ops->finish(codec->device);
    for (size_t i = 0; i < width; i++)
        reference->sum[i] += (double)rows * (double)reference->mean[i];
    reference->rows += (double)rows;
}

int codec_export(struct codec *codec, uint32_t version, uint8_t **state, size_t *bytes)
{
    struct codec_means *reference = &codec->reference;
    size_t width = (size_t)codec->settings.width;
    BUG_IF(version == 0);
    if (!reference->sum || reference->rows == 0)
        return ERR_ABSENT;
    bool finite = true;
    for (size_t i = 0; i < width; i++) {
        reference->mean[i] = (float)(reference->sum[i] / reference->rows);
        reference->sum[i] = 0;
        finite = finite && isfinite(reference->mean[i]);
    }
    reference->rows = 0;
    if (!finite)
        return ERR_ABSENT;
    float *device_mean = vector_at(codec, 2);
    *bytes = codec_state_bytes(&codec->settings);
    *state = mem_new(*bytes);
    codec->ops->copy_in(codec->device, device_mean, reference->mean, width * sizeof(float));
    codec->ops->pack(codec->device, *state, device_mean, 1, codec->settings.width, FORMAT_BF16);
    codec->ops->finish(codec->device);
    return 0;
}

int codec_import(struct codec *codec, uint32_t version, const uint8_t *state, size_t bytes, struct why *why)
{
    struct codec_means *reference = &codec->reference;
    const struct codec_settings *s = &codec->settings;
    if (!reference->sum)
        return why_set(why, ERR_INVALID, "boundary %u: a reference came, but boundary.reference is none", s->boundary);
    if (bytes != codec_state_bytes(s))
        return why_set(why, ERR_INVALID, "boundary %u: reference version %u has %zu bytes, %zu are right for %lld channels",
                       s->boundary, version, bytes, codec_state_bytes(s), (long long)s->width);
    if (version <= codec_newest(codec))
        return why_set(why, ERR_INVALID, "boundary %u: reference version %u came after version %u", s->boundary, version,
                       codec_newest(codec));
    for (size_t i = 0; i < (size_t)s->width; i++)
        if ((state[2 * i + 1] & 0x7f) == 0x7f && (state[2 * i] & 0x80))
            return why_set(why, ERR_INVALID, "boundary %u: reference version %u is not finite in channel %zu", s->boundary,
                           version, i);
    int oldest = reference->version[0] <= reference->version[1] ? 0 : 1;
    codec->ops->unpack(codec->device, vector_at(codec, oldest), state, 1, s->width, FORMAT_BF16);
    reference->version[oldest] = version;
    return 0;
}
