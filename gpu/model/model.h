/*
 * A stage of a Llama-shaped model (Llama, Mistral, Qwen2, Qwen3, SmolLM2): any contiguous range of layers, the embedding on the first, norm + head + loss on the
 * last.
 *
 * Weights, gradients and the two AdamW moments are each one block carved by a table of named tensors; their sizes are known
 * before anything is taken (model_size). Weight names are those of Hugging Face ("model.layers.3.self_attn.q_proj.weight").
 * q, k, v are one fused tensor in memory, gate and up another; names map to row ranges of them.
 *
 * Fresh weights are a pure function of (seed, Hugging Face tensor name, index), so that any split in stages starts from the
 * same model. Owned by the compute thread.
 *
 * A slot keeps, for each layer: its input, q|k|v after RoPE (with q/k norm also q|k before the norm), the attention's output
 * and log sums, the sum after attention, gate|up; with half_products in bf16 (layer.c). Normed inputs and silu(gate)·up are
 * computed again in backward. With `recompute` a slot keeps only the stage's input and one set of the above is shared: backward runs forward again first, with the same bits. All memory is taken by
 * stage_new, nothing in steps.
 */
#ifndef KEDGE_MODEL_MODEL_H
#define KEDGE_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu/math/ops.h"

enum model_scaling { SCALING_NONE, SCALING_LINEAR, SCALING_LLAMA3 }; /* of rotary positions: model_frequency */

struct model_shape {
    int64_t hidden, layers, heads, kv_heads, ffn, vocabulary, head_width;
    int64_t window; /* attention sees no further back, so longer sequences are refused; 0 = it sees all */
    bool tied;
    bool qkv_bias;  /* q, k and v have a bias (Qwen2) */
    bool qk_norm;   /* every head of q and k is normed before it is rotated (Qwen3) */
    float rope_theta, norm_epsilon;
    int scaling;
    float scaling_factor;        /* of linear and llama3 */
    float scaling_low, scaling_high; /* llama3 only, as scaling_context: wavelengths above context/low are stretched, */
    int64_t scaling_context;         /* those below context/high are not */
};

enum stage_moments { STAGE_MOMENTS_FP32, STAGE_MOMENTS_BF16, STAGE_MOMENTS_FP8 };

enum lora_target { LORA_Q, LORA_K, LORA_V, LORA_O, LORA_GATE, LORA_UP, LORA_DOWN, LORA_TARGETS };

/* Adapters: a target W of every layer acts as W + alpha/rank · B·A, with A [rank, in] and B [out, rank]. They alone are trained; the
 * model's own weights have neither gradients nor moments, and are no tensors of the stage (stage_tensor). */
struct lora_shape {
    int64_t rank;     /* 0: there are none, and all weights are trained */
    float alpha;
    uint32_t targets; /* bits 1 << enum lora_target */
};

struct stage_shape {
    struct model_shape model;
    struct lora_shape lora;
    int64_t first_layer, layers; /* of this stage */
    bool first, last;            /* has the embedding / the head */
    int64_t sequences, tokens;   /* largest micro-batch */
    int64_t slots;               /* micro-batches in flight */
    int64_t still;               /* the first so many of its layers are not trained, nor is the embedding then: they have no gradients */
    bool frozen;                 /* forward only: gradients and optimiser are not taken */
    bool judges;                 /* gradients are taken and no optimiser: stage_step is not called */
    bool corrects;               /* a second block of gradients is taken: stage_correction */
    bool words_only;             /* weights that are not trained are kept in bf16 alone: exactly, where they come in bf16 */
    bool half_products;          /* matrix products are of bf16 (linear.c); weights are kept in both formats */
    enum stage_moments moments;  /* how AdamW keeps its two */
    bool apart;                  /* attention does not leave a document: stage_documents */
    bool recompute;              /* keep only a stage's input; run forward again before backward */
    int64_t head_rows, head_columns; /* logits held at a time; 0 = the whole vocabulary, of as many rows as fit 64 MiB */
};

struct stage_memory { /* bytes, exactly what stage_new takes for them; a field is 0 when its block is not taken */
    uint64_t weights, gradients, optimizer, corrections, activations, scratch; /* device blocks */
    uint64_t host;                                                /* token ids of the slots */
    uint64_t total;
    uint64_t parameters, trained; /* numbers: all; those that have gradients */
};

struct stage;

/* Is this a model, are these layers of it, can its sizes be counted? Refuses by name; stage_new does it too. */
int model_check(const struct model_shape *shape, struct why *why);
int lora_check(const struct lora_shape *lora, struct why *why);
int stage_check(const struct stage_shape *shape, struct why *why);

/* frequency[head_width/2]: the angle of position p is p · frequency[i]. */
void model_frequency(const struct model_shape *shape, float *frequency);

int64_t
model_parameters(const struct stage_shape *shape); /* of this stage; a tied copy of the embedding counts where it lies */
struct stage_memory stage_memory(const struct stage_shape *shape);

int stage_new(const struct ops *ops, struct device *device, const struct stage_shape *shape, struct stage **stage,
              struct why *why);
void stage_free(struct stage *stage);
void stage_fresh(struct stage *stage, uint64_t seed);
/* As PEFT begins: A at random, B zero, so that they add nothing. */
void stage_fresh_adapters(struct stage *stage, uint64_t seed);
/* Read this stage's part of a Hugging Face folder, whose config.json must describe the same model. A head of its own
 * begins as a copy of the embedding where the folder's is tied. Adapters stay as they are. */
int stage_load(struct stage *stage, const char *folder, struct why *why);
/* Read the adapters from a PEFT folder (adapter.h), which must have the same ranks and targets. */
int stage_load_adapters(struct stage *stage, const char *folder, struct why *why);

/* A stage of the model in a folder with the adapters of another one (NULL: none): the shape's `model`, `layers` and `lora` come from
 * there, so it is first and last. */
int stage_open(const struct ops *ops, struct device *device, const struct stage_shape *shape, const char *folder, const char *adapter,
               struct stage **stage, struct why *why);

/* Are all ids below the vocabulary? What comes from a file or a peer must be asked before the calls below, for which it is a
 * bug. */
bool model_ids_fit(const struct model_shape *shape, const uint32_t *ids, int64_t count);

/* Where the input of a slot lies, [rows,H]; NULL on the first stage. Who writes it there (codec_decode) and passes the same
 * pointer to stage_forward saves a copy. */
float *stage_input(struct stage *stage, int slot);
/* Forward of one micro-batch into `slot`. On the first stage ids[sequences·tokens] are embedded (copied into the slot) and x
 * is NULL, else x[rows,H] is the input (copied into the slot) and ids is not looked at. Returns the output [rows,H] (valid
 * until the next call), NULL on the last stage. */
const float *stage_forward(struct stage *stage, int slot, const uint32_t *ids, const float *x, int64_t sequences,
                           int64_t tokens);
/* Where documents are apart, before stage_forward of the slot: is the token of a position the first of one? Any other
 * position's document is that of the position before it; a sequence always begins one. */
void stage_documents(struct stage *stage, int slot, const bool *begins, int64_t sequences, int64_t tokens);
/* Last stage only: right after stage_forward of the same slot; targets[rows] (UINT32_MAX = none). Returns Σ loss over
 * targets; when `scale` is not 0, the gradient of scale·Σ loss is made ready for stage_backward of this slot, which must be
 * the next call. */
double stage_loss(struct stage *stage, int slot, const uint32_t *targets, float scale);
/* Last stage only: right after stage_forward, all logits into host memory [rows, vocabulary]. */
void stage_logits(struct stage *stage, float *out);
/* Backward of the slot: dy[rows,H] is the gradient of the output (NULL on the last stage: from stage_loss; on others it may
 * be what stage_gradient gave). Weight gradients accumulate. The slot is empty after it. Returns dx[rows,H] (valid until the
 * next call), NULL on the first stage and where layers at the beginning are not trained. */
const float *stage_backward(struct stage *stage, int slot, const float *dy);
/* During stage_backward, from the last layer to the first: the layer's input and its gradient, [rows,H] on the device. NULL:
 * nobody looks. */
void stage_watch(struct stage *stage, void (*watch_cb)(int64_t layer, const float *x, const float *dx, void *arg),
                 void *arg);
/* Where the gradient of the output may be written before stage_backward, [rows,H], to save a copy; NULL on the last stage.
 * */
float *stage_gradient(struct stage *stage);

/* Σ of squares of all gradients. The last stage's copy of a tied embedding is left out: the first stage has the sum (below).
 * */
double stage_gradient_squares(struct stage *stage);
void stage_zero_gradients(struct stage *stage);
/* One AdamW step number t = 1, 2, … (settings->correction1 and 2 are computed from it); then gradients are zero. Decay
 * applies to 2-D tensors only. */
void stage_step(struct stage *stage, const struct adamw *settings, int64_t t);
void stage_forget(struct stage *stage); /* AdamW's moments are zero, as before t = 1 */

/* Of a stage that `corrects`: where the gradient of tensor `index` lies and where a corrected one, or any other copy of it, may be put; device
 * memory. Once a tensor is said to be corrected, stage_gradient_squares counts the correction, and stage_step takes AdamW's first moment from
 * it and the second from the gradient; after that step nothing is corrected. */
float *stage_gradient_of(struct stage *stage, int index);
float *stage_correction(struct stage *stage, int index);
void stage_corrected(struct stage *stage, int index);
/* All tensors but the last stage's tied copy, one behind tensor in the order of stage_tensor, as bf16 words in host memory. The words of all
 * stages of a model, one behind the other, are those of the whole model on one stage. */
int64_t stage_word_count(const struct stage_shape *shape);
void stage_words_get(struct stage *stage, uint16_t *words);
void stage_words_set(struct stage *stage, const uint16_t *words);

/* A tied head on more than one stage: first and last hold a copy of the embedding, equal from the start, and stay equal
 * because both step with the sum of both gradients. Who drives the stages does, after the last backward and before
 * stage_gradient_squares of the first stage:   last: stage_tied_get → first: stage_tied_add → first: stage_tied_get → last:
 * stage_tied_set in pieces of any size, over [0, stage_tied_count), which is 0 where there is nothing to exchange. `values`
 * is host memory. */
int64_t stage_tied_count(const struct stage *stage);
void stage_tied_get(struct stage *stage, int64_t first, int64_t count, float *values);
void stage_tied_add(struct stage *stage, int64_t first, int64_t count, const float *values);
void stage_tied_set(struct stage *stage, int64_t first, int64_t count, const float *values);

/* Named tensors, for tests, hashes, checkpoints, all that is trained and nothing else: name(i), shape, host copies. The last stage's tied copy is called
 * "model.embed_tokens.weight" there too. */
int stage_tensor_count(const struct stage *stage);
struct tensor_info {
    char name[96];
    int dims;
    int64_t shape[2];
};
void stage_tensor(const struct stage *stage, int index, struct tensor_info *info);
void stage_tensor_get(struct stage *stage, int index, float *out, bool gradient); /* count = product of shape */
void stage_tensor_set(struct stage *stage, int index, const float *in);
void stage_gradient_set(struct stage *stage, int index, const float *in); /* nothing where layers stay: theirs are 0 */
uint64_t stage_hash(struct stage *stage); /* of all weights */
/* All tensors as fp32 into one safetensors file (safetensors_write.h); the last stage's tied copy is left out. */
int stage_save(struct stage *stage, const char *path, uint64_t *bytes, uint64_t *hash, struct why *why);

/* ---- stage_save.c: what training goes on from ---- */
struct stage_block { /* bytes of the trainer, beside weights and moments */
    const char *name;
    const void *data;
    size_t bytes;
};
struct safetensors;
struct safetensors_out;
/* Weights, moments and blocks are in `room` (stage_save_bytes of it), or with NULL in the file, when it returns; safetensors_finish makes the
 * file whole. Refused, with nothing left, when the disk has no room for all of it. */
int stage_save_begin(struct stage *stage, const char *path, const struct stage_block *blocks, size_t count, uint8_t *room,
                     struct safetensors_out **out, struct why *why);
uint64_t stage_save_bytes(const struct stage *stage, const struct stage_block *blocks, size_t count);
/* Weights and moments of such a file; one of another stage or format is refused. On failure the stage is good for nothing. */
int stage_resume(struct stage *stage, const struct safetensors *file, struct why *why);

#endif
