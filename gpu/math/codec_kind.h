/*
 * The inside of a codec, for the files that make one: codec.c (the interface), codec_reference.c (the versioned state) and
 * one small file per kind. A new kind is one file with a `const struct codec_kind_row` and one line in codec.c.
 *
 * A kind sees only uses that codec.c has checked, with keep > 0 unless the kind is dense: keep = 0 is dense for every kind.
 */
#ifndef KEDGE_MATH_CODEC_KIND_H
#define KEDGE_MATH_CODEC_KIND_H

#include "gpu/math/codec.h"

struct codec_kind_row {
    const char *name;
    bool sparse;                                                   /* keep counts; false: always 0 */
    size_t (*memory)(const struct codec_settings *settings);       /* device bytes it wants at codec->block */
    int64_t (*columns)(const struct codec_settings *settings, const struct codec_use *use); /* numbers packed per row */
    void (*encode)(struct codec *codec, const struct codec_use *use, const float *x, uint8_t *out);
    void (*decode)(struct codec *codec, const struct codec_use *use, const uint8_t *bytes, float *x);
    void (*encode_gradient)(struct codec *codec, const struct codec_use *use, const float *dx, uint8_t *out);
    void (*decode_gradient)(struct codec *codec, const struct codec_use *use, const uint8_t *bytes, float *dx);
    uint32_t (*checksum)(struct codec *codec, const struct codec_use *use);
};

extern const struct codec_kind_row codec_dense, codec_mask;

/* Column means, measured by the sender, used by both ends. */
struct codec_means {
    float *block;          /* device, 3·H: two held versions and the mean of one micro-batch */
    uint32_t version[2];   /* of the two; 0 = empty */
    double *sum;           /* host, H: Σ rows·mean of the measurement under way; NULL without reference */
    double rows;
    float *mean;           /* host, H */
};

struct codec {
    const struct ops *ops;
    struct device *device;
    struct codec_settings settings;
    const struct codec_kind_row *kind;
    uint8_t *block; /* device, kind->memory long; NULL when that is 0 */
    struct codec_means reference;
};

int codec_format(const struct codec_settings *settings, const struct codec_use *use);
size_t codec_aligned(size_t bytes); /* to whole 64-byte lines */

size_t codec_reference_memory(const struct codec_settings *settings);
int codec_reference_new(struct codec *codec);
void codec_reference_free(struct codec *codec);
/* Device pointer to the reference of a version; NULL for version 0. The version is held. */
const float *codec_reference_at(const struct codec *codec, uint32_t version);

#endif
