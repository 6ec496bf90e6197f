/*
 * The versioned state that codecs share. What travels of a part (codec_state_bytes long), little-endian:
 *
 *   forward, with a reference   weights [features, H]: codec_weights.c
 *   with directions             eigenvalues [rank] fp32, falling; eigenvectors [rank, H] bf16
 *   with spread                 variance of each channel that they leave [H] bf16, not negative
 *
 * Where the kind weighs, the end that encodes has projections [rank, H] bf16 behind that: who decodes has no use for them.
 * Both ends import the same bytes, so both use the very same numbers. Two versions of each part are held, because the
 * micro-batches of a step that is still under way need the one before.
 */
#include "gpu/math/codec_kind.h"

#include <float.h>
#include <math.h>

#include "gpu/math/half.h"
#include "ssh/base/mem.h"

#define WAYS 2

static int64_t weights_count(const struct codec_settings *s, enum codec_way way)
{
    bool coded = s->kind != CODEC_KIND_DENSE;
    return way == CODEC_FORWARD && coded ? codec_features(s) * s->width : 0;
}

static int64_t vectors_count(const struct codec_settings *s, enum codec_way way)
{
    return codec_has_bases(s, way) ? codec_lines(s) * s->width : 0;
}

bool codec_weighs(const struct codec_settings *settings)
{
    return codec_kind_of(settings)->weighs;
}

bool codec_has_state(const struct codec_settings *settings, enum codec_way way)
{
    return codec_state_bytes(settings, way) > 0;
}

bool codec_needs_state(const struct codec_settings *settings)
{
    return codec_kind_of(settings)->bases;
}

static size_t weights_bytes(const struct codec_settings *s, enum codec_way way)
{
    return weights_count(s, way) ? codec_weights_bytes(s) : 0;
}

static size_t projection_bytes(const struct codec_settings *s)
{
    return codec_weighs(s) ? 2 * (size_t)(codec_rank(s) * s->width) : 0;
}

size_t codec_state_bytes(const struct codec_settings *s, enum codec_way way)
{
    if (s->one_way && way == CODEC_BACKWARD)
        return 0;
    size_t values = codec_has_bases(s, way) ? 4 * (size_t)codec_rank(s) : 0;
    return weights_bytes(s, way) + values + 2 * (size_t)vectors_count(s, way) - (values ? projection_bytes(s) : 0);
}

size_t codec_made_bytes(const struct codec_settings *s, enum codec_way way)
{
    size_t state = codec_state_bytes(s, way);
    return state ? state + projection_bytes(s) : 0;
}

/* ---- memory ---- */

static size_t floats(int64_t count)
{
    return codec_aligned((size_t)count * sizeof(float));
}

/* Features and residuals are worked out for whole micro-batches. */
static bool has_scratch(const struct codec_settings *s)
{
    return codec_kind_of(s)->bases || (s->kind != CODEC_KIND_DENSE && s->reference == CODEC_REFERENCE_TOKENS) ||
           (s->kind == CODEC_KIND_TOPK && s->reference == CODEC_REFERENCE_MEAN);
}

static int64_t scratch_features(const struct codec_settings *s)
{
    return has_scratch(s) && s->reference == CODEC_REFERENCE_TOKENS ? s->context * s->max_rows * codec_rank(s) : 0;
}

static size_t part_memory(const struct codec_settings *s, enum codec_way way)
{
    if (!codec_has_state(s, way))
        return 0;
    size_t dealt = codec_has_bases(s, way) ? floats(codec_rank(s)) + codec_aligned((size_t)codec_rank(s)) : 0;
    return 2 * (floats(weights_count(s, way)) + floats(vectors_count(s, way))) + dealt + codec_moments_memory(s, way);
}

size_t codec_state_memory(const struct codec_settings *s)
{
    size_t scratch = has_scratch(s) ? floats(scratch_features(s)) + floats(s->max_rows * s->width) : 0;
    return part_memory(s, CODEC_FORWARD) + part_memory(s, CODEC_BACKWARD) + scratch;
}

static float *take(uint8_t **at, size_t bytes)
{
    float *here = (float *)(void *)*at;
    *at += bytes;
    return bytes ? here : NULL;
}

static void place_part(struct codec *codec, enum codec_way way, uint8_t **at)
{
    const struct codec_settings *s = &codec->settings;
    struct codec_part *part = &codec->part[way];
    if (!codec_has_state(s, way))
        return;
    for (int i = 0; i < 2; i++) {
        part->held[i].weights = take(at, floats(weights_count(s, way)));
        part->held[i].vectors = take(at, floats(vectors_count(s, way)));
        if (codec_has_bases(s, way))
            part->held[i].values = mem_array((size_t)codec_rank(s), sizeof(float));
    }
    if (codec_has_bases(s, way)) {
        part->bits = mem_array((size_t)codec_rank(s), 1);
        part->device_deviation = take(at, floats(codec_rank(s)));
        part->device_bits = (uint8_t *)take(at, codec_aligned((size_t)codec_rank(s)));
    }
    codec_moments_place(codec, way, take(at, codec_moments_memory(s, way)));
}

int codec_state_new(struct codec *codec)
{
    const struct codec_settings *s = &codec->settings;
    size_t bytes = codec_state_memory(s);
    if (!bytes)
        return 0;
    codec->state = codec->ops->alloc(codec->device, bytes);
    if (!codec->state)
        return ERR_MEMORY;
    uint8_t *at = codec->state;
    place_part(codec, CODEC_FORWARD, &at);
    place_part(codec, CODEC_BACKWARD, &at);
    if (has_scratch(s)) {
        codec->features = take(&at, floats(scratch_features(s)));
        codec->residual = take(&at, floats(s->max_rows * s->width));
        codec->ids = mem_array((size_t)s->max_rows, sizeof *codec->ids);
    }
    BUG_IF(at != codec->state + bytes);
    return 0;
}

void codec_state_free(struct codec *codec)
{
    for (int way = 0; way < WAYS; way++) {
        struct codec_part *part = &codec->part[way];
        codec_moments_free(&part->moments);
        mem_free(part->held[0].values);
        mem_free(part->held[1].values);
        mem_free(part->bits);
    }
    mem_free(codec->ids);
    if (codec->state)
        codec->ops->free(codec->device, codec->state);
}

/* ---- versions ---- */

static const struct codec_version *find(const struct codec_part *part, uint32_t version)
{
    for (int i = 0; i < 2; i++)
        if (part->held[i].version == version)
            return &part->held[i];
    return NULL;
}

static uint32_t newest(const struct codec_part *part)
{
    return part->held[0].version > part->held[1].version ? part->held[0].version : part->held[1].version;
}

const struct codec_version *codec_state_at(const struct codec *codec, enum codec_way way, uint32_t version)
{
    if (version == 0 || !codec_has_state(&codec->settings, way))
        return NULL;
    const struct codec_version *state = find(&codec->part[way], version);
    BUG_IF(!state);
    return state;
}

bool codec_holds(const struct codec *codec, uint32_t version)
{
    bool holds = true;
    for (int way = 0; way < WAYS && version; way++)
        if (codec_has_state(&codec->settings, (enum codec_way)way))
            holds &= find(&codec->part[way], version) != NULL;
    return holds;
}

uint32_t codec_newest(const struct codec *codec)
{
    uint32_t least = UINT32_MAX;
    for (int way = 0; way < WAYS; way++)
        if (codec_has_state(&codec->settings, (enum codec_way)way) && newest(&codec->part[way]) < least)
            least = newest(&codec->part[way]);
    return least == UINT32_MAX ? 0 : least;
}

/* ---- import ---- */

static bool halves_are_finite(const uint8_t *halves, int64_t count, int64_t *where)
{
    for (int64_t i = 0; i < count; i++)
        if ((half_get(halves + 2 * i) & 0x7F80) == 0x7F80) {
            *where = i;
            return false;
        }
    return true;
}

static float value_at(const uint8_t *values, int64_t i)
{
    float value;
    memcpy(&value, values + 4 * i, sizeof value);
    return value;
}

int codec_check_state(const struct codec_settings *s, enum codec_way way, uint32_t version, const uint8_t *state, size_t bytes,
                      struct why *why)
{
    int64_t rank = codec_rank(s), where = 0;
    size_t weights = weights_bytes(s, way);
    if (!codec_has_state(s, way))
        return why_set(why, ERR_INVALID, "boundary %u: a codec state came, but with these settings there is none",
                       s->boundary);
    if (bytes != codec_state_bytes(s, way) && bytes != codec_made_bytes(s, way))
        return why_set(why, ERR_INVALID,
                       "boundary %u: codec state version %u has %zu bytes, %zu are right for %lld channels",
                       s->boundary, version, bytes, codec_state_bytes(s, way), (long long)s->width);
    if (weights && !codec_weights_check(s, state, &where))
        return why_set(why, ERR_INVALID, "boundary %u: the reference of version %u is not finite in channel %lld",
                       s->boundary, version, (long long)(where % s->width));
    if (!codec_has_bases(s, way))
        return 0;
    const uint8_t *values = state + weights;
    for (int64_t i = 0; i < rank; i++) {
        float value = value_at(values, i), before = i ? value_at(values, i - 1) : value;
        if (!(value > 0) || !isfinite(value) || value > before)
            return why_set(why, ERR_INVALID,
                           "boundary %u: eigenvalue %lld of version %u is %g after %g: not positive and falling",
                           s->boundary, (long long)i, version, (double)value, (double)before);
    }
    int64_t cells = (int64_t)(bytes - weights - 4 * (size_t)rank) / 2;
    if (!halves_are_finite(values + 4 * rank, cells, &where))
        return why_set(why, ERR_INVALID, "boundary %u: direction %lld of version %u is not finite", s->boundary,
                       (long long)(where / s->width % rank), version);
    const uint8_t *spread = values + 4 * rank + 2 * rank * s->width;
    for (int64_t i = 0; i < s->width && codec_kind_of(s)->spread; i++)
        if (half_to_float(half_get(spread + 2 * i)) < 0)
            return why_set(why, ERR_INVALID,
                           "boundary %u: the variance that directions leave in channel %lld of version %u is negative",
                           s->boundary, (long long)i, version);
    return 0;
}

/* Of a channel's variance: what the number format adds to a value, and the bf16 of the directions to what they say of it. With
 * less a mask that keeps more channels than there are directions would make systems that have no solution. */
static const float rounding[] = {
    [FORMAT_FP32] = 0x1p-16f, [FORMAT_BF16] = 0x1p-16f, [FORMAT_INT8] = 0x1p-13f, [FORMAT_INT4] = 0x1p-6f};

/* Directions [rank, H] become factors [H, rank], and what they leave noise, of which no channel is without. */
static void make_factors(const struct codec_settings *s, const float *eigenvalues, float *lines)
{
    int64_t rank = codec_rank(s);
    float *vectors = mem_copy(lines, (size_t)(rank * s->width) * sizeof *lines), *noise = lines + rank * s->width;
    for (int64_t c = 0; c < s->width; c++) {
        float variance = noise[c], *factor = lines + c * rank;
        for (int64_t r = 0; r < rank; r++) {
            factor[r] = vectors[r * s->width + c] * sqrtf(eigenvalues[r]);
            variance += factor[r] * factor[r];
        }
        noise[c] += rounding[s->format] * variance + 0x1p-24f * eigenvalues[0] / (float)s->width + FLT_MIN;
    }
    mem_free(vectors);
}

static void copy_in(struct codec *codec, float *to, const float *values, int64_t count)
{
    codec->ops->copy_in(codec->device, to, values, (size_t)count * sizeof *values);
    codec->ops->finish(codec->device);
}

/* to[count] from as many halves as there are, zeros for the rest. `eigenvalues`: those by which vectors become factors; NULL: halves
 * are what they are. */
static void upload(struct codec *codec, float *to, int64_t count, const uint8_t *halves, int64_t there, const float *eigenvalues)
{
    float *values = mem_array((size_t)count, sizeof *values);
    for (int64_t i = 0; i < there; i++)
        values[i] = half_to_float(half_get(halves + 2 * i));
    if (eigenvalues)
        make_factors(&codec->settings, eigenvalues, values);
    copy_in(codec, to, values, count);
    mem_free(values);
}

int codec_import(struct codec *codec, enum codec_way way, uint32_t version, const uint8_t *state, size_t bytes,
                 struct why *why)
{
    const struct codec_settings *s = &codec->settings;
    struct codec_part *part = &codec->part[way];
    int err = codec_check_state(s, way, version, state, bytes, why);
    if (!err && version <= newest(part))
        err = why_set(why, ERR_INVALID, "boundary %u: codec state version %u came after version %u", s->boundary, version,
                      newest(part));
    if (err)
        return err;
    struct codec_version *oldest = &part->held[part->held[0].version <= part->held[1].version ? 0 : 1];
    int64_t count = weights_count(s, way), rank = codec_rank(s);
    size_t weights = weights_bytes(s, way);
    if (count) {
        float *numbers = mem_array((size_t)count, sizeof *numbers);
        codec_weights_get(s, state, numbers);
        copy_in(codec, oldest->weights, numbers, count);
        mem_free(numbers);
    }
    if (codec_has_bases(s, way)) {
        const uint8_t *values = state + weights;
        for (int64_t i = 0; i < rank; i++)
            oldest->values[i] = value_at(values, i);
        upload(codec, oldest->vectors, vectors_count(s, way), values + 4 * rank,
               (int64_t)(bytes - weights - 4 * (size_t)rank) / 2, codec->kind->spread ? oldest->values : NULL);
    }
    oldest->version = version;
    return 0;
}

/* ---- bits ---- */

static int64_t deal(const struct codec *codec, enum codec_way way, const struct codec_version *state, int64_t keep,
                    uint8_t *bits)
{
    const struct codec_settings *s = &codec->settings;
    int64_t budget = 8 * (codec_budget(s, keep, way) - 2), columns = 0;
    codec->kind->deal(s, state->values, codec_rank(s), budget, bits);
    while (columns < codec_rank(s) && bits[columns])
        columns++;
    return columns;
}

const struct codec_part *codec_state_deal(struct codec *codec, const struct codec_use *use, enum codec_way way)
{
    struct codec_part *part = &codec->part[way];
    const struct codec_version *state = codec_state_at(codec, way, use->version);
    if (part->dealt_version == use->version && part->dealt_keep == use->keep)
        return part;
    part->columns = deal(codec, way, state, use->keep, part->bits);
    part->dealt_version = use->version;
    part->dealt_keep = use->keep;
    float *deviation = mem_array((size_t)part->columns, sizeof *deviation);
    for (int64_t i = 0; i < part->columns; i++)
        deviation[i] = sqrtf(state->values[i]);
    codec->ops->copy_in(codec->device, part->device_deviation, deviation, (size_t)part->columns * sizeof *deviation);
    codec->ops->copy_in(codec->device, part->device_bits, part->bits, (size_t)part->columns);
    codec->ops->finish(codec->device);
    mem_free(deviation);
    return part;
}
