/*
 * The reference as it travels, little-endian:
 *
 *   of the one       H bf16
 *   of token features, where they are looked at
 *                    a scale of each channel [H] bf16, one of each feature [m] bf16; B[i, c] = q · scale_i · scale_c, q int8 [m, H]
 *
 * It is the most of what statistics cost on the road: int8 halves that, and adds an error of the reference some 40 dB below it. Channels have
 * scales of their own because a few of a language model are a hundred times as large as the others.
 */
#include <math.h>

#include "gpu/math/codec_kind.h"
#include "gpu/math/half.h"
#include "ssh/base/mem.h"

enum { MOST = 127 };

/* Features of tokens: all but the one. */
static int64_t token_rows(const struct codec_settings *s)
{
    int64_t features = codec_features(s);
    return features > 1 ? features - 1 : 0;
}

size_t codec_weights_bytes(const struct codec_settings *s)
{
    int64_t m = token_rows(s), one = codec_features(s) > 0;
    return (size_t)(2 * one * s->width + (m ? 2 * s->width + m * (2 + s->width) : 0));
}

/* ---- out ---- */

static void put_halves(uint8_t *out, const float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        half_put(out + 2 * i, half_from_float(values[i]));
}

/* The largest of each column, then what of it the largest of each row is; both as they travel. */
static void find_scales(const float *weights, int64_t m, int64_t width, float *columns, float *rows)
{
    for (int64_t c = 0; c < width; c++) {
        float most = 0;
        for (int64_t i = 0; i < m; i++)
            most = fmaxf(most, fabsf(weights[i * width + c]));
        columns[c] = half_to_float(half_above(most));
    }
    for (int64_t i = 0; i < m; i++) {
        float most = 0;
        for (int64_t c = 0; c < width; c++)
            most = fmaxf(most, columns[c] > 0 ? fabsf(weights[i * width + c]) / columns[c] : 0);
        rows[i] = half_to_float(half_above(most / MOST));
    }
}

void codec_weights_put(const struct codec_settings *s, const float *weights, uint8_t *out)
{
    int64_t m = token_rows(s), width = s->width;
    if (codec_features(s))
        put_halves(out, weights + m * width, width);
    if (!m)
        return;
    float *columns = mem_array((size_t)width, sizeof *columns), *rows = mem_array((size_t)m, sizeof *rows);
    int8_t *values = (int8_t *)(out + 4 * width + 2 * m);
    find_scales(weights, m, width, columns, rows);
    put_halves(out + 2 * width, columns, width);
    put_halves(out + 4 * width, rows, m);
    for (int64_t i = 0; i < m * width; i++) {
        float scale = columns[i % width] * rows[i / width], q = scale > 0 ? rintf(weights[i] / scale) : 0;
        values[i] = (int8_t)(q > MOST ? MOST : q < -MOST ? -MOST : q);
    }
    mem_free(columns);
    mem_free(rows);
}

/* ---- in ---- */

void codec_weights_get(const struct codec_settings *s, const uint8_t *in, float *weights)
{
    int64_t m = token_rows(s), width = s->width;
    const uint8_t *columns = in + 2 * width, *rows = in + 4 * width;
    const int8_t *values = (const int8_t *)(in + 4 * width + 2 * m);
    for (int64_t c = 0; c < width && codec_features(s); c++)
        weights[m * width + c] = half_to_float(half_get(in + 2 * c));
    for (int64_t i = 0; i < m * width; i++)
        weights[i] = values[i] * half_to_float(half_get(rows + 2 * (i / width))) * half_to_float(half_get(columns + 2 * (i % width)));
}

bool codec_weights_check(const struct codec_settings *s, const uint8_t *in, int64_t *channel)
{
    int64_t m = token_rows(s), width = s->width;
    if (!codec_features(s))
        return true;
    float *weights = mem_array((size_t)((m + 1) * width), sizeof *weights);
    bool finite = true;
    codec_weights_get(s, in, weights);
    for (int64_t i = 0; i < (m + 1) * width && finite; i++) {
        finite = isfinite(weights[i]);
        *channel = i % width;
    }
    mem_free(weights);
    return finite;
}
