/*
 * What crosses a stage boundary is made by a codec behind this one interface; the operator's mask rate and every
 * comparison at equal bytes go through it. One struct codec per side of a boundary; both sides have the same settings
 * and the same versioned state.
 *
 *   sender   (earlier stage)  codec_encode(x) → bytes ─────────► codec_decode(bytes) → x̂   receiver (later stage)
 *   sender   codec_decode_gradient(bytes) → dx ◄──────── codec_encode_gradient(dx̂) → bytes  receiver
 *
 * The map x → x̂ is part of the graph: the gradient uses the same channels and the same gain, so codec_decode_gradient
 * returns the exact gradient through it (straight-through for the rounding of number formats). For RMS gain, the sender
 * keeps one gain per row in the use's slot from encode until the gradient is back.
 */
#ifndef KEDGE_MATH_CODEC_H
#define KEDGE_MATH_CODEC_H

#include <stdint.h>

#include "gpu/math/ops.h"

enum codec_kind { CODEC_KIND_DENSE, CODEC_KIND_MASK, CODEC_KIND_SUBSPACE, CODEC_KIND_PRINCIPAL,
                 CODEC_KIND_TOPK, CODEC_KIND_HYBRID, CODEC_KIND_ENTROPY }; /* = enum boundary_codec */
enum codec_gain { CODEC_GAIN_ONE, CODEC_GAIN_UNBIASED, CODEC_GAIN_RMS };
enum codec_reference { CODEC_REFERENCE_NONE, CODEC_REFERENCE_MEAN, CODEC_REFERENCE_TOKENS };
enum codec_decoding { CODEC_DECODING_PLAIN, CODEC_DECODING_MMSE }; /* of the mask */
enum codec_way { CODEC_FORWARD, CODEC_BACKWARD };

/* Of dense micro-batches that only statistics are made of: their owner has the tensor itself, the other end needs what it is about. */
#define CODEC_CALIBRATION_FORMAT FORMAT_INT8

struct codec_settings {
    int kind, format, gain, reference, decoding; /* format: enum number_format */
    int64_t width;                     /* H */
    int64_t max_rows;                  /* of a micro-batch: sequences × tokens */
    uint64_t seed;
    uint32_t boundary;                 /* index of the cut, 0 = after stage 0 */
    int slots;                         /* micro-batches whose trace is kept at the same time */
    /* What follows is for kinds with statistics and for reference TOKENS. */
    int64_t rank;        /* directions, and features of a token: 0 or more than H = H */
    int64_t context;     /* tokens that the reference looks at: the position's own, the one before, … */
    const float *table;  /* device [vocabulary + 1, rank]: features of a token; the last row, zeros, is before a sequence */
    int64_t vocabulary;
    double forward_share; /* of the bytes that travel: the rest is for gradients */
    double decay;         /* what statistics keep of the old when new ones come */
    int bits;             /* principal: of every coefficient */
    bool one_way;         /* nothing before the cut is trained: gradients have no bytes, and no statistics */
};

/* What one use needs: where in the run, and how much may travel. `keep` is what codec_keep says: channels of a token for
 * the mask, bytes of a token, both ways together, for the others; 0 means dense (evaluation, dense codec, no statistics yet). */
struct codec_use {
    uint64_t step;
    uint32_t micro_batch;
    int64_t rows;
    int64_t keep;
    int format_override; /* -1 = the settings' format; evaluation passes FORMAT_FP32 or FORMAT_BF16 */
    uint32_t version;    /* of the state */
    int slot;            /* where the trace is kept, < slots */
    const uint32_t *windows; /* host [rows / tokens][tokens + 1], below the vocabulary; forward, with reference TOKENS */
    int64_t tokens;
};

struct codec;

int codec_new(const struct ops *ops, struct device *device, const struct codec_settings *settings, struct codec **codec,
              struct why *why);
void codec_free(struct codec *codec);

/* What a mask rate leaves: K = max(1, ⌊(1−p)·H + ½⌋) channels for the mask; ⌊(1−p)·4H + ½⌋ bytes a token, there and back, for the
 * others, at least as many as make a code, and 0 (dense) where that is not less than bf16; 0 for the dense codec. */
int64_t codec_keep(const struct codec_settings *settings, double mask_rate);
int64_t codec_keep_most(const struct codec_settings *settings); /* of any rate */
/* Exact bytes of one micro-batch, known beforehand. */
size_t codec_bytes(const struct codec_settings *settings, const struct codec_use *use, enum codec_way way);
size_t codec_memory_bytes(const struct codec_settings *settings); /* that codec_new takes, of the device and staging of the host */
/* Host memory of who measures a tensor: the sums (fp64), and what codec_export takes while it runs; and all that its owner needs, with
 * the sums of the other way where it weighs by them. */
size_t codec_measured_bytes(const struct codec_settings *settings, enum codec_way way);
size_t codec_export_bytes(const struct codec_settings *settings, enum codec_way way);
size_t codec_owner_bytes(const struct codec_settings *settings, enum codec_way way);

/* x[rows,H] → out (codec_bytes long, host). */
void codec_encode(struct codec *codec, const struct codec_use *use, const float *x, uint8_t *out);
/* 0 or ERR_INVALID (a use that these settings do not allow, wrong size, a version that is not held): x is untouched then.
 * Encoding with such a use is a bug of the caller. Numbers that are not finite pass: they are news for the step's loss, not
 * an error of the road. */
int codec_decode(struct codec *codec, const struct codec_use *use, const uint8_t *bytes, size_t count, float *x,
                 struct why *why);
void codec_encode_gradient(struct codec *codec, const struct codec_use *use, const float *dx, uint8_t *out);
int codec_decode_gradient(struct codec *codec, const struct codec_use *use, const uint8_t *bytes, size_t count, float *dx,
                          struct why *why);
/* Hash of the channels of this use: travels in debug mode, a mismatch is drift. 0 for dense. */
uint32_t codec_checksum(struct codec *codec, const struct codec_use *use);

/* Versioned state: what the owner of a tensor measured of it, in two parts. The sender owns x (its reference, its
 * directions), the receiver
 * owns dx̂ (its directions):
 *
 *   codec_measure* in a step → codec_settle: joins what was measured before → codec_export: as bytes, version v → ship →
 *   codec_import on
 *   both ends (the owner too: what it uses is what travelled, rounded) → used from a stamped step on.
 *
 * Of each part two versions are held: the newest and the one before; 0 is "nothing yet", always held. */
bool codec_has_state(const struct codec_settings *settings, enum codec_way way);
size_t codec_state_bytes(const struct codec_settings *settings, enum codec_way way); /* of one version, as it travels; 0 = has none */
/* As codec_export makes it: the end that encodes needs more than travels, the rest of it is behind. */
size_t codec_made_bytes(const struct codec_settings *settings, enum codec_way way);
/* Weighs errors of one way by what the other says: who measures x measures what it gets of dx̂ too, and who measures dx̂ what it gets
 * of x. It settles that first. */
bool codec_weighs(const struct codec_settings *settings);
/* Works only with statistics; without, the mask goes by zeros. */
bool codec_needs_state(const struct codec_settings *settings);
void codec_measure(struct codec *codec, const struct codec_use *use, const float *x);
void codec_measure_gradient(struct codec *codec, const struct codec_use *use, const float *dx);
void codec_forget(struct codec *codec, enum codec_way way); /* what was measured since codec_settle */
/* ERR_ABSENT when nothing was measured, or something that is not finite, which is forgotten. */
int codec_settle(struct codec *codec, enum codec_way way);
/* From the settled statistics alone: uses no device, so another thread may do it while this one codes. mem_free the state.
 * ERR_ABSENT when
 * there is nothing settled or no solution. */
int codec_export(struct codec *codec, enum codec_way way, uint8_t **state, size_t *bytes);
/* Can these bytes be a state of such a codec? codec_import asks it too. */
int codec_check_state(const struct codec_settings *settings, enum codec_way way, uint32_t version, const uint8_t *state,
                      size_t bytes, struct why *why);
int codec_import(struct codec *codec, enum codec_way way, uint32_t version, const uint8_t *state, size_t bytes,
                 struct why *why);
/* codec_save.c: the whole state, for a run that goes on from disk; what is measured is settled or forgotten. codec_restore is for a codec that
 * has not been used yet. */
size_t codec_save_bytes(const struct codec_settings *settings);
void codec_save(const struct codec *codec, uint8_t *out);
int codec_restore(struct codec *codec, const uint8_t *bytes, size_t count, struct why *why);
uint32_t codec_newest(const struct codec *codec); /* that all parts have; 0 = none */
bool codec_holds(const struct codec *codec, uint32_t version);
/* Mean square error of a token, as expected of the newest version at this budget, and the least that is possible for a
 * Gaussian with this
 * spectrum in the bits that travel. False without directions. */
bool codec_distortion(const struct codec *codec, enum codec_way way, int64_t keep, double *expected, double *bound);

#endif
