/*
 * The inside of a codec, for the files that make one: codec.c (the interface), codec_state.c (versions),
 * codec_moments.c (what is measured and what is made of it), codec_reference.c (the reference of a token) and one small
 * file per kind. A new kind is one file with a `const struct codec_kind_row` and one line in codec.c.
 *
 * A kind sees only uses that codec.c has checked, with keep > 0 unless the kind is dense: keep = 0 is dense for every
 * kind.
 */
#ifndef KEDGE_MATH_CODEC_KIND_H
#define KEDGE_MATH_CODEC_KIND_H

#include "gpu/math/codec.h"

struct codec_kind_row {
    const char *name;
    bool bases;  /* needs directions, of both ways; without them it is dense */
    bool spread; /* forward alone, and what variance they leave in each channel: kept as factors, √value·vector */
    bool weighs; /* they are those of errors as the tensor of the other way weighs them; projections are other rows than directions */
    int64_t (*keep)(const struct codec_settings *settings, double mask_rate); /* NULL: always 0 */
    size_t (*memory)(const struct codec_settings *settings);                  /* device bytes it wants at codec->block */
    size_t (*row_bytes)(const struct codec_settings *settings, const struct codec_use *use, enum codec_way way);
    void (*encode)(struct codec *codec, const struct codec_use *use, const float *x, uint8_t *out);
    void (*decode)(struct codec *codec, const struct codec_use *use, const uint8_t *bytes, float *x);
    void (*encode_gradient)(struct codec *codec, const struct codec_use *use, const float *dx, uint8_t *out);
    void (*decode_gradient)(struct codec *codec, const struct codec_use *use, const uint8_t *bytes, float *dx);
    /* Instead of these four, where both ways are alike: of what the reference leaves of activations, and of gradients, e[rows, H]. */
    void (*encode_rest)(struct codec *codec, const struct codec_use *use, enum codec_way way, const float *e, uint8_t *out);
    void (*decode_rest)(struct codec *codec, const struct codec_use *use, enum codec_way way, const uint8_t *bytes, float *e);
    size_t (*staging)(const struct codec_settings *settings); /* host bytes at codec->staging; NULL: none */
    uint32_t (*checksum)(struct codec *codec, const struct codec_use *use);
    /* How many directions get how many bits (bases only): bits[count], falling; returns the sum. */
    int64_t (*deal)(const struct codec_settings *settings, const float *values, int64_t count, int64_t budget,
                    uint8_t *bits);
    /* Mean square error of a token to expect (bases only; NULL: by the bits that are dealt). */
    double (*error)(const float *values, int64_t count, int64_t budget);
};

extern const struct codec_kind_row codec_dense, codec_mask, codec_mask_mmse, codec_subspace, codec_principal, codec_topk,
    codec_hybrid, codec_entropy;

/* One version of a part: host and device copies of what travelled. */
struct codec_version {
    uint32_t version; /* 0 = empty */
    float *values;    /* host [rank]: eigenvalues, falling; with bases */
    /* device [codec_lines, H], rows: directions, with bases; then projections where the kind weighs. spread: factors [H, rank] instead,
     * then noise [H] */
    float *vectors;
    float *weights;   /* device [features, H]; forward, with a reference */
};

/* What was measured, as sums over rows. Device memory of the newest measurement, host memory (fp64) of all, decayed. */
struct codec_moments {
    float *block;                  /* device; the parts below point into it */
    float *ff, *fx, *f, *x;        /* [m, m], [m, H], [m], [H]: features f and x, m = features − 1 */
    float *products;               /* [H, H]: XᵀX or GᵀG */
    double *fresh_f, *fresh_x;     /* host: sums of columns, [m], [H] */
    double rows;                   /* measured since it was settled */
    bool settled;                  /* there is something in the host's sums */
    double *sum_ff, *sum_fx, *sum_products, sum_rows; /* [features, features], [features, H], [H, H] */
};

struct codec_part {
    struct codec_version held[2];
    struct codec_moments moments;
    /* Bits of the directions for one version and budget, and their device copies. */
    uint32_t dealt_version;
    int64_t dealt_keep, columns; /* columns: directions with bits */
    uint8_t *bits, *device_bits;
    float *device_deviation;
};

struct codec {
    const struct ops *ops;
    struct device *device;
    struct codec_settings settings;
    const struct codec_kind_row *kind;
    uint8_t *block;   /* device, kind->memory long; NULL when that is 0 */
    uint8_t *staging; /* host, kind->staging long */
    uint8_t *state;   /* device, codec_state_memory long: what the parts point into */
    float *features;  /* device [max(context, 1), max_rows, rank], residual [max_rows, H]: reference TOKENS or bases */
    float *residual;
    uint32_t *ids;    /* host [max_rows] */
    struct codec_part part[2]; /* by enum codec_way */
};

int codec_format(const struct codec_settings *settings, const struct codec_use *use);
size_t codec_aligned(size_t bytes); /* to whole 64-byte lines */
int64_t codec_rank(const struct codec_settings *settings);
bool codec_has_bases(const struct codec_settings *settings, enum codec_way way);
/* Rows of H that a part with bases has: rank; one more with spread; as many again for projections. */
int64_t codec_lines(const struct codec_settings *settings);
const struct codec_kind_row *codec_kind_of(const struct codec_settings *settings);
/* Bytes of a token that one direction may use. */
int64_t codec_budget(const struct codec_settings *settings, int64_t keep, enum codec_way way);
int64_t codec_keep_bytes(const struct codec_settings *settings, double mask_rate,
                         int64_t least); /* for kinds that count bytes; least: one way */

/* ---- codec_reference.c ---- */
/* Features of a position: those of its tokens and a one; just the one for the mean; none without a reference. */
int64_t codec_features(const struct codec_settings *settings);
/* Features of the use's tokens, all but the one, at codec->features + j · max_rows · rank for token j before. */
void codec_reference_features(struct codec *codec, const struct codec_use *use);
/* x − reference of the use's version, [rows, H]: x itself where there is none, else codec->residual. */
const float *codec_reference_residual(struct codec *codec, const struct codec_use *use, const float *x);
void codec_reference_add(struct codec *codec, const struct codec_use *use, float *x); /* x += reference */
/* Where the reference is the same for all rows and nothing is projected: device [H]; NULL = zeros. */
const float *codec_reference_row(const struct codec *codec, const struct codec_use *use);

/* ---- codec_weights.c ---- */
/* The reference [features, H] as it travels: out and in are so many bytes. */
size_t codec_weights_bytes(const struct codec_settings *settings);
void codec_weights_put(const struct codec_settings *settings, const float *weights, uint8_t *out);
void codec_weights_get(const struct codec_settings *settings, const uint8_t *in, float *weights);
bool codec_weights_check(const struct codec_settings *settings, const uint8_t *in, int64_t *channel); /* is it finite? where not? */

/* ---- codec_state.c ---- */
size_t codec_state_memory(const struct codec_settings *settings);
int codec_state_new(struct codec *codec);
void codec_state_free(struct codec *codec);
/* NULL for version 0. The version is held. */
const struct codec_version *codec_state_at(const struct codec *codec, enum codec_way way, uint32_t version);
/* The part with bits dealt for this use, device copies filled. */
const struct codec_part *codec_state_deal(struct codec *codec, const struct codec_use *use, enum codec_way way);

/* ---- codec_moments.c ---- */
size_t codec_moments_memory(const struct codec_settings *settings, enum codec_way way);
void codec_moments_place(struct codec *codec, enum codec_way way, float *block); /* host sums too */
void codec_moments_free(struct codec_moments *moments);

#endif
