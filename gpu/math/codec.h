/*
 * What crosses a stage boundary is made by a codec behind this one interface; the operator's mask rate and every comparison
 * at equal bytes go through it. One struct codec per side of a boundary; both sides have the same settings and the same
 * versioned state.
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

enum codec_kind { CODEC_KIND_DENSE, CODEC_KIND_MASK };       /* = enum boundary_codec */
enum codec_gain { CODEC_GAIN_ONE, CODEC_GAIN_UNBIASED, CODEC_GAIN_RMS };
enum codec_reference { CODEC_REFERENCE_NONE, CODEC_REFERENCE_MEAN };

struct codec_settings {
    int kind, format, gain, reference; /* format: enum number_format */
    int64_t width;                     /* H */
    int64_t max_rows;                  /* of a micro-batch: sequences × tokens */
    uint64_t seed;
    uint32_t boundary;                 /* index of the cut, 0 = after stage 0 */
    int slots;                         /* micro-batches whose trace is kept at the same time */
};

/* What one use needs: where in the run, and how much to keep. keep = 0 means dense (evaluation, dense codec). */
struct codec_use {
    uint64_t step;
    uint32_t micro_batch;
    int64_t rows;
    int64_t keep;
    int format_override; /* -1 = the settings' format; evaluation passes FORMAT_FP32 or FORMAT_BF16 */
    uint32_t version;    /* of the state (reference) */
    int slot;            /* where the trace is kept, < slots */
};

struct codec;

int codec_new(const struct ops *ops, struct device *device, const struct codec_settings *settings, struct codec **codec,
              struct why *why);
void codec_free(struct codec *codec);

/* K = max(1, ⌊(1−p)·H + ½⌋) of a mask rate; 0 for the dense codec. */
int64_t codec_keep(const struct codec_settings *settings, double mask_rate);
/* Exact bytes of one micro-batch in either direction, known beforehand. */
size_t codec_bytes(const struct codec_settings *settings, const struct codec_use *use);
size_t codec_memory_bytes(const struct codec_settings *settings); /* device memory that codec_new takes */

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

/* Versioned state (reference NONE: never). The owner measures (sender: column means of x, running over the micro-batches of
 * a step), exports as version v, ships it; both ends import it (the sender too: what it uses is what travelled, rounded to
 * bf16) and use it from a stamped step on. Two versions are held: the newest and the one before; 0 is "no reference yet",
 * always held. */
void codec_measure(struct codec *codec, const float *x, int64_t rows);
/* mem_free the state; resets the measurement. ERR_ABSENT when nothing was measured, or something that is not finite. */
int codec_export(struct codec *codec, uint32_t version, uint8_t **state, size_t *bytes);
int codec_import(struct codec *codec, uint32_t version, const uint8_t *state, size_t bytes, struct why *why);
uint32_t codec_newest(const struct codec *codec); /* 0 = none */
bool codec_holds(const struct codec *codec, uint32_t version);
size_t codec_state_bytes(const struct codec_settings *settings); /* of one exported version; 0 = has no state */

#endif
