/*
 * A codec's state on disk, for a run that goes on from there with the same bits: of each part that has a state both versions, as they are
 * used (fp32), and the settled sums (fp64) that the next version joins. What has been measured and is not settled yet is not in it: who
 * saves has settled first.
 */
#include <math.h>
#include <string.h>

#include "gpu/math/codec_kind.h"
#include "ssh/base/mem.h"

#define WAYS 2

struct sizes { /* numbers of a part */
    int64_t values, vectors, weights;     /* of a version */
    int64_t sum_ff, sum_fx, sum_products; /* of the sums */
};

static struct sizes sizes_of(const struct codec_settings *s, enum codec_way way)
{
    bool bases = codec_has_bases(s, way), coded = s->kind != CODEC_KIND_DENSE && way == CODEC_FORWARD;
    int64_t features = coded ? codec_features(s) : 0, all = way == CODEC_FORWARD ? codec_features(s) : 0;
    return (struct sizes){
        .values = bases ? codec_rank(s) : 0,
        .vectors = bases ? codec_lines(s) * s->width : 0,
        .weights = features * s->width,
        .sum_ff = all * all,
        .sum_fx = all * s->width,
        .sum_products = bases ? s->width * s->width : 0,
    };
}

static size_t part_bytes(const struct codec_settings *s, enum codec_way way)
{
    struct sizes z = sizes_of(s, way);
    if (!codec_has_state(s, way))
        return 0;
    size_t version = sizeof(uint64_t) + (size_t)(z.values + z.vectors + z.weights) * sizeof(float);
    return 2 * version + sizeof(uint64_t) + (size_t)(1 + z.sum_ff + z.sum_fx + z.sum_products) * sizeof(double);
}

size_t codec_save_bytes(const struct codec_settings *s)
{
    return part_bytes(s, CODEC_FORWARD) + part_bytes(s, CODEC_BACKWARD);
}

/* ---- out ---- */

static uint8_t *put(uint8_t *at, const void *from, size_t bytes)
{
    if (bytes)
        memcpy(at, from, bytes);
    return at + bytes;
}

static uint8_t *put_device(const struct codec *codec, uint8_t *at, const float *from, int64_t count)
{
    float *values = mem_array((size_t)count + 1, sizeof *values);
    if (count) {
        codec->ops->copy_out(codec->device, values, from, (size_t)count * sizeof *values);
        codec->ops->finish(codec->device);
    }
    at = put(at, values, (size_t)count * sizeof *values);
    mem_free(values);
    return at;
}

static uint8_t *put_part(const struct codec *codec, enum codec_way way, uint8_t *at)
{
    const struct codec_part *part = &codec->part[way];
    const struct codec_moments *moments = &part->moments;
    struct sizes z = sizes_of(&codec->settings, way);
    uint64_t settled = moments->settled;
    for (int i = 0; i < 2; i++) {
        uint64_t version = part->held[i].version;
        at = put(at, &version, sizeof version);
        at = put(at, part->held[i].values, (size_t)z.values * sizeof(float));
        at = put_device(codec, at, part->held[i].vectors, z.vectors);
        at = put_device(codec, at, part->held[i].weights, z.weights);
    }
    at = put(at, &settled, sizeof settled);
    at = put(at, &moments->sum_rows, sizeof moments->sum_rows);
    at = put(at, moments->sum_ff, (size_t)z.sum_ff * sizeof(double));
    at = put(at, moments->sum_fx, (size_t)z.sum_fx * sizeof(double));
    return put(at, moments->sum_products, (size_t)z.sum_products * sizeof(double));
}

void codec_save(const struct codec *codec, uint8_t *out)
{
    uint8_t *at = out;
    for (int way = 0; way < WAYS; way++)
        if (codec_has_state(&codec->settings, (enum codec_way)way))
            at = put_part(codec, (enum codec_way)way, at);
    BUG_IF(at != out + codec_save_bytes(&codec->settings));
}

/* ---- in ---- */

static const uint8_t *get(const uint8_t *at, void *to, size_t bytes)
{
    if (bytes)
        memcpy(to, at, bytes);
    return at + bytes;
}

static const uint8_t *get_device(struct codec *codec, const uint8_t *at, float *to, int64_t count)
{
    if (count) {
        codec->ops->copy_in(codec->device, to, at, (size_t)count * sizeof *to);
        codec->ops->finish(codec->device);
    }
    return at + (size_t)count * sizeof *to;
}

/* Bits are dealt by them. */
static bool values_fall(const float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!(values[i] > 0) || !isfinite(values[i]) || (i && values[i] > values[i - 1]))
            return false;
    return true;
}

static int get_part(struct codec *codec, enum codec_way way, const uint8_t **at, struct why *why)
{
    struct codec_part *part = &codec->part[way];
    struct codec_moments *moments = &part->moments;
    struct sizes z = sizes_of(&codec->settings, way);
    uint64_t settled;
    for (int i = 0; i < 2; i++) {
        uint64_t version;
        *at = get(*at, &version, sizeof version);
        *at = get(*at, part->held[i].values, (size_t)z.values * sizeof(float));
        *at = get_device(codec, *at, part->held[i].vectors, z.vectors);
        *at = get_device(codec, *at, part->held[i].weights, z.weights);
        if (version > UINT32_MAX || (version && !values_fall(part->held[i].values, z.values)))
            return why_set(why, ERR_INVALID, "boundary %u: what is saved of its statistics makes no sense", codec->settings.boundary);
        part->held[i].version = (uint32_t)version;
    }
    if (part->held[0].version && part->held[0].version == part->held[1].version)
        return why_set(why, ERR_INVALID, "boundary %u: version %u of its statistics is saved twice", codec->settings.boundary,
                       part->held[0].version);
    *at = get(*at, &settled, sizeof settled);
    *at = get(*at, &moments->sum_rows, sizeof moments->sum_rows);
    *at = get(*at, moments->sum_ff, (size_t)z.sum_ff * sizeof(double));
    *at = get(*at, moments->sum_fx, (size_t)z.sum_fx * sizeof(double));
    *at = get(*at, moments->sum_products, (size_t)z.sum_products * sizeof(double));
    moments->settled = settled != 0;
    return 0;
}

int codec_restore(struct codec *codec, const uint8_t *bytes, size_t count, struct why *why)
{
    const uint8_t *at = bytes;
    int err = 0;
    if (count != codec_save_bytes(&codec->settings))
        return why_set(why, ERR_INVALID, "boundary %u: %zu bytes of statistics are saved, %zu are right", codec->settings.boundary, count,
                       codec_save_bytes(&codec->settings));
    for (int way = 0; way < WAYS && !err; way++)
        if (codec_has_state(&codec->settings, (enum codec_way)way))
            err = get_part(codec, (enum codec_way)way, &at, why);
    return err;
}
