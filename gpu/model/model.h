/*
 * A stage of a Llama-shaped model: any contiguous range of layers, the embedding on the first, norm + head + loss on the last.
 *
 * Weights, gradients and the two AdamW moments are each one block carved by a table of named tensors; their sizes are known before
 * anything is taken (model_size). Weight names are those of Hugging Face ("model.layers.3.self_attn.q_proj.weight").
 * q, k, v are one fused tensor in memory, gate and up another; names map to row ranges of them.
 *
 * Fresh weights are a pure function of (seed, Hugging Face tensor name, index), so that any split in stages starts from the same
 * model. Owned by the compute thread.
 */
#ifndef KEDGE_MODEL_MODEL_H
#define KEDGE_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu/math/ops.h"

struct model_shape {
    int64_t hidden, layers, heads, kv_heads, ffn, vocabulary, head_width;
    bool tied;
    float rope_theta, norm_epsilon;
};

struct stage_shape {
    struct model_shape model;
    int64_t first_layer, layers; /* of this stage */
    bool first, last;            /* has the embedding / the head */
    int64_t sequences, tokens;   /* largest micro-batch */
    int64_t slots;               /* micro-batches in flight */
    bool recompute;              /* keep only a stage's input; run forward again before backward */
};

struct stage_memory { /* bytes, exactly what stage_new takes */
    uint64_t weights, gradients, optimizer, activations, scratch, total;
    uint64_t parameters;
};

struct stage;

int64_t model_parameters(const struct stage_shape *shape);
struct stage_memory stage_memory(const struct stage_shape *shape);

int stage_new(const struct ops *ops, struct device *device, const struct stage_shape *shape, struct stage **stage, struct why *why);
void stage_free(struct stage *stage);
void stage_fresh(struct stage *stage, uint64_t seed);
/* Read this stage's tensors from a Hugging Face folder (gpu/model/checkpoint.h checks it first). */
int stage_load(struct stage *stage, const char *folder, struct why *why);

/* Forward of one micro-batch into `slot`. On the first stage ids[sequences·tokens] are embedded and x is NULL, else x[rows,H] is the
 * input (copied into the slot). Returns the output [rows,H] (valid until the next call), NULL on the last stage. */
const float *stage_forward(struct stage *stage, int slot, const uint32_t *ids, const float *x, int64_t sequences, int64_t tokens);
/* Last stage only: after stage_forward; targets[rows] (UINT32_MAX = none). Returns Σ loss over targets; when `scale` is not 0, the
 * gradient of scale·Σ loss is made ready for stage_backward. */
double stage_loss(struct stage *stage, int slot, const uint32_t *targets, float scale);
/* Backward of the slot: dy[rows,H] is the gradient of the output (NULL on the last stage: from stage_loss). Weight gradients accumulate.
 * Returns dx[rows,H] (valid until the next call), NULL on the first stage. */
const float *stage_backward(struct stage *stage, int slot, const float *dy);

double stage_gradient_squares(struct stage *stage);
void stage_zero_gradients(struct stage *stage);
/* One AdamW step number t = 1, 2, …; then gradients are zero. Decay applies to 2-D tensors only. */
void stage_step(struct stage *stage, const struct adamw *settings, int64_t t);

/* Named tensors, for tests, hashes, checkpoints: name(i), shape, host copies. */
int stage_tensor_count(const struct stage *stage);
struct tensor_info {
    char name[96];
    int dims;
    int64_t shape[2];
};
void stage_tensor(const struct stage *stage, int index, struct tensor_info *info);
void stage_tensor_get(struct stage *stage, int index, float *out, bool gradient); /* count = product of shape */
void stage_tensor_set(struct stage *stage, int index, const float *in);
uint64_t stage_hash(struct stage *stage); /* of all weights */

#endif
