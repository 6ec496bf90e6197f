/*
 * The codec interface: checks what comes in, and hands the work to the row of its kind. keep = 0 is dense whatever the
 * kind, so that evaluation and "mask off" are the same exchange.
 *
 * Invariant: a decode touches its output only after every check has passed; a wrong use on the encoding side is our own
 * bug.
 */
#include "gpu/math/codec.h"

#include <math.h>

#include "gpu/math/codec_kind.h"
#include "gpu/math/mask.h"
#include "ssh/base/mem.h"

#define ROWS_MAX (1 << 24)
#define SLOTS_MAX 4096

static const struct codec_kind_row *const kinds[] = {
    [CODEC_KIND_DENSE] = &codec_dense,
    [CODEC_KIND_MASK] = &codec_mask,
    [CODEC_KIND_SUBSPACE] = &codec_subspace,
    [CODEC_KIND_PRINCIPAL] = &codec_principal,
    [CODEC_KIND_TOPK] = &codec_topk,
    [CODEC_KIND_HYBRID] = &codec_hybrid,
    [CODEC_KIND_ENTROPY] = &codec_entropy,
};

const struct codec_kind_row *codec_kind_of(const struct codec_settings *settings)
{
    BUG_IF(settings->kind < 0 || (size_t)settings->kind >= sizeof kinds / sizeof *kinds);
    if (settings->kind == CODEC_KIND_MASK && settings->decoding == CODEC_DECODING_MMSE)
        return &codec_mask_mmse;
    return kinds[settings->kind];
}

static const struct codec_kind_row *kind_in_use(const struct codec_settings *settings, const struct codec_use *use)
{
    return use->keep ? codec_kind_of(settings) : &codec_dense;
}

int codec_format(const struct codec_settings *settings, const struct codec_use *use)
{
    return use->format_override < 0 ? settings->format : use->format_override;
}

size_t codec_aligned(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

int64_t codec_rank(const struct codec_settings *settings)
{
    return settings->rank < 1 || settings->rank > settings->width ? settings->width : settings->rank;
}

bool codec_has_bases(const struct codec_settings *settings, enum codec_way way)
{
    const struct codec_kind_row *kind = codec_kind_of(settings);
    return kind->bases && (way == CODEC_FORWARD || !kind->spread);
}

int64_t codec_lines(const struct codec_settings *settings)
{
    const struct codec_kind_row *kind = codec_kind_of(settings);
    return codec_rank(settings) * (1 + kind->weighs) + kind->spread;
}

int64_t codec_keep(const struct codec_settings *settings, double mask_rate)
{
    const struct codec_kind_row *kind = codec_kind_of(settings);
    return kind->keep ? kind->keep(settings, mask_rate) : 0;
}

int64_t codec_keep_most(const struct codec_settings *settings)
{
    if (!codec_kind_of(settings)->keep)
        return 0;
    return settings->kind == CODEC_KIND_MASK ? settings->width : 4 * settings->width - 1;
}

int64_t codec_keep_bytes(const struct codec_settings *settings, double mask_rate, int64_t least)
{
    int64_t dense = 4 * settings->width;
    double keep = floor((1.0 - mask_rate) * (double)dense + 0.5);
    if (keep >= (double)dense)
        return 0;
    return keep >= 2 * (double)least ? (int64_t)keep : 2 * least < dense ? 2 * least : 0;
}

/* Three bytes are a scale and one byte of codes. */
int64_t codec_budget(const struct codec_settings *settings, int64_t keep, enum codec_way way)
{
    int64_t forward = (int64_t)floor((double)keep * settings->forward_share + 0.5), backward = keep - forward;
    int64_t budget = way == CODEC_FORWARD ? forward : backward;
    return budget > 3 ? budget : 3;
}

size_t codec_bytes(const struct codec_settings *settings, const struct codec_use *use, enum codec_way way)
{
    if (settings->one_way && way == CODEC_BACKWARD)
        return 0;
    return (size_t)use->rows * kind_in_use(settings, use)->row_bytes(settings, use, way);
}

static size_t staging_bytes(const struct codec_settings *settings)
{
    const struct codec_kind_row *kind = codec_kind_of(settings);
    return kind->staging ? kind->staging(settings) : 0;
}

size_t codec_memory_bytes(const struct codec_settings *settings)
{
    return codec_kind_of(settings)->memory(settings) + staging_bytes(settings) + codec_state_memory(settings);
}

static int check_statistics(const struct codec_settings *s, struct why *why)
{
    bool tokens = s->reference == CODEC_REFERENCE_TOKENS && s->kind != CODEC_KIND_DENSE;
    if (tokens && (s->context < 1 || s->context > 8 || !s->table || s->vocabulary < 1))
        return why_set(why, ERR_INVALID, "boundary %u: a reference on %lld tokens of %lld kinds; 1 to 8 tokens are possible",
                       s->boundary, (long long)s->context, (long long)s->vocabulary);
    bool counts_bytes = codec_keep_most(s) > s->width;
    if (codec_keep_most(s) > UINT16_MAX) /* it is stamped so */
        return why_set(why, ERR_INVALID, "boundary %u: %lld channels a token; with the %s codec up to %d are possible", s->boundary,
                       (long long)s->width, codec_kind_of(s)->name, (UINT16_MAX + 1) / 4);
    if (counts_bytes && !(s->forward_share > 0 && s->forward_share < 1))
        return why_set(why, ERR_INVALID, "boundary %u: a share of %g of the bytes forward; between 0 and 1 is possible",
                       s->boundary, s->forward_share);
    if ((codec_needs_state(s) || tokens) && !(s->decay >= 0 && s->decay < 1))
        return why_set(why, ERR_INVALID, "boundary %u: statistics that keep %g of the old; 0 to below 1 is possible", s->boundary,
                       s->decay);
    if (s->kind == CODEC_KIND_PRINCIPAL && (s->bits < 1 || s->bits > 8))
        return why_set(why, ERR_INVALID, "boundary %u: coefficients of %d bits; 1 to 8 are possible", s->boundary, s->bits);
    return 0;
}

static int check_settings(const struct codec_settings *s, struct why *why)
{
    if (s->kind < 0 || (size_t)s->kind >= sizeof kinds / sizeof *kinds)
        return why_set(why, ERR_INVALID, "boundary %u: there is no codec of number %d", s->boundary, s->kind);
    if (s->format < FORMAT_FP32 || s->format > FORMAT_INT4)
        return why_set(why, ERR_INVALID, "boundary %u: there is no number format %d", s->boundary, s->format);
    if (s->gain < CODEC_GAIN_ONE || s->gain > CODEC_GAIN_RMS)
        return why_set(why, ERR_INVALID, "boundary %u: there is no gain rule %d", s->boundary, s->gain);
    if (s->reference < CODEC_REFERENCE_NONE || s->reference > CODEC_REFERENCE_TOKENS)
        return why_set(why, ERR_INVALID, "boundary %u: there is no reference %d", s->boundary, s->reference);
    if (s->decoding < CODEC_DECODING_PLAIN || s->decoding > CODEC_DECODING_MMSE)
        return why_set(why, ERR_INVALID, "boundary %u: there is no decoding %d", s->boundary, s->decoding);
    if (s->decoding == CODEC_DECODING_MMSE && s->gain != CODEC_GAIN_ONE)
        return why_set(why, ERR_INVALID, "boundary %u: what is expected has no gain rule; %d was given", s->boundary, s->gain);
    if (s->width < 1 || s->width > MASK_MAX_WIDTH)
        return why_set(why, ERR_INVALID, "boundary %u: %lld channels a token; 1 to %d are possible", s->boundary,
                       (long long)s->width, MASK_MAX_WIDTH);
    if (s->boundary > MASK_MAX_BOUNDARY)
        return why_set(why, ERR_INVALID, "boundary %u: the last possible one is %d", s->boundary, MASK_MAX_BOUNDARY);
    if (s->max_rows < 1 || s->max_rows > ROWS_MAX || s->slots < 1 || s->slots > SLOTS_MAX)
        return why_set(why, ERR_INVALID,
                       "boundary %u: micro-batches of %lld tokens in %d slots; up to %d tokens in %d slots are "
                       "possible", s->boundary, (long long)s->max_rows, s->slots, ROWS_MAX, SLOTS_MAX);
    return check_statistics(s, why);
}

static int check_use(const struct codec *codec, const struct codec_use *use, struct why *why)
{
    const struct codec_settings *s = &codec->settings;
    const char *wrong = use->rows < 1 || use->rows > s->max_rows                                       ? "rows"
                        : use->keep < 0 || use->keep > codec_keep_most(s) ? "kept channels"
                        : use->format_override > FORMAT_INT4                                           ? "number format"
                        : use->micro_batch > MASK_MAX_MICRO_BATCH                                      ? "micro-batch"
                        : use->slot < 0 || use->slot >= s->slots                                       ? "slot"
                                                                                                       : NULL;
    if (wrong)
        return why_set(why, ERR_INVALID,
                       "boundary %u, step %llu, micro-batch %u: %s out of range (rows %lld of at most %lld, "
                       "keep %lld of %lld, slot %d of %d)",
                       s->boundary, (unsigned long long)use->step, use->micro_batch, wrong, (long long)use->rows,
                       (long long)s->max_rows, (long long)use->keep, (long long)s->width, use->slot, s->slots);
    return 0;
}

static int check_version(const struct codec *codec, const struct codec_use *use, struct why *why)
{
    bool missing = codec->kind->bases && use->version == 0;
    if (!use->keep || (codec_holds(codec, use->version) && !missing))
        return 0;
    return why_set(why, ERR_INVALID, "boundary %u, step %llu: codec state version %u is not here (the newest is %u)",
                   codec->settings.boundary, (unsigned long long)use->step, use->version, codec_newest(codec));
}

static int check_bytes(const struct codec *codec, const struct codec_use *use, enum codec_way way, size_t count, struct why *why)
{
    size_t wanted = codec_bytes(&codec->settings, use, way);
    if (count == wanted)
        return 0;
    return why_set(why, ERR_INVALID, "boundary %u, step %llu, micro-batch %u: %zu bytes came, %zu are right for %lld tokens",
                   codec->settings.boundary, (unsigned long long)use->step, use->micro_batch, count, wanted,
                   (long long)use->rows);
}

/* What the reference looks at. */
static int check_windows(const struct codec *codec, const struct codec_use *use, struct why *why)
{
    if (!use->keep || codec->settings.reference != CODEC_REFERENCE_TOKENS || use->version == 0)
        return 0;
    if (use->windows && use->tokens > 0 && use->rows % use->tokens == 0)
        return 0;
    return why_set(why, ERR_INVALID, "boundary %u, step %llu: no token ids for %lld rows in windows of %lld",
                   codec->settings.boundary, (unsigned long long)use->step, (long long)use->rows, (long long)use->tokens);
}

int codec_new(const struct ops *ops, struct device *device, const struct codec_settings *settings, struct codec **codec,
              struct why *why)
{
    int err = check_settings(settings, why);
    if (err)
        return err;
    struct codec *new = mem_new(sizeof *new);
    new->ops = ops;
    new->device = device;
    new->settings = *settings;
    new->kind = codec_kind_of(settings);
    size_t bytes = new->kind->memory(settings);
    if (bytes)
        new->block = ops->alloc(device, bytes);
    size_t staging = staging_bytes(settings);
    new->staging = staging ? mem_large(staging) : NULL;
    if ((bytes && !new->block) || (staging && !new->staging) || codec_state_new(new) != 0) {
        codec_free(new);
        return why_set(why, ERR_MEMORY, "boundary %u: no memory for the %s codec (%zu bytes for %lld tokens a micro-batch)",
                       settings->boundary, codec_kind_of(settings)->name, codec_memory_bytes(settings),
                       (long long)settings->max_rows);
    }
    *codec = new;
    return 0;
}

void codec_free(struct codec *codec)
{
    if (!codec)
        return;
    codec_state_free(codec);
    mem_large_free(codec->staging);
    if (codec->block)
        codec->ops->free(codec->device, codec->block);
    mem_free(codec);
}

static void must_be_right(const struct codec *codec, const struct codec_use *use, bool version, bool windows)
{
    struct why why = {0};
    if (check_use(codec, use, &why) != 0 || (version && check_version(codec, use, &why) != 0) ||
        (windows && check_windows(codec, use, &why) != 0))
        BUG("%s", why.text);
}

void codec_encode(struct codec *codec, const struct codec_use *use, const float *x, uint8_t *out)
{
    must_be_right(codec, use, true, true);
    const struct codec_kind_row *kind = kind_in_use(&codec->settings, use);
    if (kind->encode_rest)
        kind->encode_rest(codec, use, CODEC_FORWARD, codec_reference_residual(codec, use, x), out);
    else
        kind->encode(codec, use, x, out);
    codec->ops->finish(codec->device);
}

int codec_decode(struct codec *codec, const struct codec_use *use, const uint8_t *bytes, size_t count, float *x,
                 struct why *why)
{
    int err = check_use(codec, use, why);
    if (err == 0)
        err = check_version(codec, use, why);
    if (err == 0)
        err = check_windows(codec, use, why);
    if (err == 0)
        err = check_bytes(codec, use, CODEC_FORWARD, count, why);
    const struct codec_kind_row *kind = kind_in_use(&codec->settings, use);
    if (err == 0 && kind->decode_rest) {
        kind->decode_rest(codec, use, CODEC_FORWARD, bytes, x);
        codec_reference_add(codec, use, x);
    } else if (err == 0) {
        kind->decode(codec, use, bytes, x);
    }
    return err;
}

/* A mask's gradient looks at no state. */
static bool gradient_needs_version(const struct codec *codec)
{
    return codec_has_bases(&codec->settings, CODEC_BACKWARD);
}

void codec_encode_gradient(struct codec *codec, const struct codec_use *use, const float *dx, uint8_t *out)
{
    must_be_right(codec, use, gradient_needs_version(codec), false);
    if (codec->settings.one_way)
        return;
    const struct codec_kind_row *kind = kind_in_use(&codec->settings, use);
    if (kind->encode_rest)
        kind->encode_rest(codec, use, CODEC_BACKWARD, dx, out);
    else
        kind->encode_gradient(codec, use, dx, out);
    codec->ops->finish(codec->device);
}

int codec_decode_gradient(struct codec *codec, const struct codec_use *use, const uint8_t *bytes, size_t count, float *dx,
                          struct why *why)
{
    int err = check_use(codec, use, why);
    if (err == 0 && gradient_needs_version(codec))
        err = check_version(codec, use, why);
    if (err == 0)
        err = check_bytes(codec, use, CODEC_BACKWARD, count, why);
    const struct codec_kind_row *kind = kind_in_use(&codec->settings, use);
    if (err == 0 && !codec->settings.one_way && kind->decode_rest)
        kind->decode_rest(codec, use, CODEC_BACKWARD, bytes, dx);
    else if (err == 0 && !codec->settings.one_way)
        kind->decode_gradient(codec, use, bytes, dx);
    return err;
}

uint32_t codec_checksum(struct codec *codec, const struct codec_use *use)
{
    must_be_right(codec, use, false, false);
    const struct codec_kind_row *kind = kind_in_use(&codec->settings, use);
    return kind->checksum ? kind->checksum(codec, use) : 0;
}
