/*
 * Where everything of a stage lies: the few large blocks are carved by pure functions of the shape, so sizes are known
 * before anything is taken. All offsets count floats from the start of their block; every part begins on a 64-byte line,
 * except the parts of a fused tensor (q|k|v and their biases, gate|up), which follow each other without a gap.
 *
 * What is trained, its gradients and both AdamW moments share one layout: that of the weights, or, with LoRA, that of the adapters;
 * of layers that stay as they are, at the beginning, only weights are there. Gaps stay zero for ever.
 */
#ifndef KEDGE_MODEL_CARVE_H
#define KEDGE_MODEL_CARVE_H

#include "gpu/model/model.h"
#include "gpu/model/safetensors_write.h"

#define CARVE_NONE SIZE_MAX
#define CARVE_ONES 0.0f
#define CARVE_ZEROS (-1.0f)
#define CARVE_EMBEDDING "model.embed_tokens.weight"
#define CARVE_ADAPTER "base_model.model." /* PEFT's, before the name of what an adapter is of */

/* One tensor by its Hugging Face name: `rows`·`columns` floats, contiguous at `offset`. */
struct carve_tensor {
    char name[96];
    int dims;
    int64_t rows, columns; /* columns = 1 for vectors */
    size_t offset;
    float deviation;       /* of fresh weights; CARVE_ONES, CARVE_ZEROS: all the same */
};

struct carve_block {
    size_t floats;
    uint64_t parameters;
    int tensors;
};

struct carve_weights {
    size_t embedding, norm, head;                  /* CARVE_NONE when not of this stage; tied: head = embedding */
    size_t words;                                  /* from here on there is a copy in bf16, where there is one */
    size_t first_layer, layer_stride;              /* layer i begins at first_layer + i·layer_stride */
    size_t norm1, qkv, o, norm2, gate_up, down;    /* within a layer */
    size_t qkv_bias, q_norm, k_norm;               /* within a layer; CARVE_NONE where the model has none */
    struct carve_block block;
};

/* Layer i's adapters begin at i·layer_stride; CARVE_NONE where the layer's matrix is no target. */
struct carve_adapters {
    size_t layer_stride;
    size_t a[LORA_TARGETS], b[LORA_TARGETS];
    struct carve_block block;
};

/*
 * Kept from forward to backward. A set is all that one micro-batch keeps of all layers of the stage. With half_products most of it
 * is words of bf16, inputs of layers too, but that of the first, which may wait for recomputation.
 */
struct carve_activations {
    int64_t rows;                                  /* of the largest micro-batch */
    size_t inputs, inputs_stride;                  /* inputs of slots, [slots][rows,H]; stride 0: part of the set */
    size_t sets, sets_stride;                      /* stride 0: one shared set (recompute) */
    size_t x, x_stride; /* within a set: layer i's input, i ≥ x_first, at x + (i − x_first)·x_stride */
    int64_t x_first;                               /* … which are in fp32; with half_products only layer 0's is */
    size_t half_x, half_x_stride;                  /* with half_products: layer i's, i ≥ 1, at half_x + (i − 1)·half_x_stride */
    size_t layer, layer_stride;                    /* within a set */
    size_t qkv, o, log_sum, mid, gate_up;          /* within a layer of a set */
    size_t raw, inverse;                           /* with q/k norm: q|k before it, and what it divided by */
    size_t floats;
};

/* Shared by all slots: what one call needs while it runs. */
struct carve_scratch {
    size_t output, gradient;            /* [rows,H] */
    size_t normed, d_normed;            /* [rows,H] */
    size_t inverse;                     /* [rows] */
    size_t wide, d_wide;                /* [rows,F], the feed-forward's; one behind the other where an adapter wants both,
                                         * and in bf16, where gate|up in fp32 lies there; else the same */
    size_t d_qkv, d_o, d_raw;           /* [rows, q+2kv], [rows, heads·d], [rows, heads·d]: attention's, in the same place */
    size_t qkv, o;                      /* with half_products: the same in fp32 of what is kept */
    size_t half_x, half_dy;             /* with half_products, in words: [rows, max(H, F, heads·d)], [rows, max(H, q+2kv)] */
    size_t vectors;                     /* with words_only: those of one layer, or the last norm */
    size_t low;                         /* [rows, rank], with LoRA */
    size_t maximum, sum, target;        /* [head rows] ×3, last stage only */
    size_t logits;                      /* [head rows, head columns], where layers have the five above: never at one time */
    int64_t head_rows, head_columns;
    size_t floats;
};

int64_t carve_query_width(const struct model_shape *shape); /* heads·d */
int64_t carve_key_width(const struct model_shape *shape);   /* kv_heads·d */
int64_t carve_qkv_width(const struct model_shape *shape);   /* heads·d + 2·kv_heads·d */

float carve_embedding_deviation(const struct model_shape *shape); /* of fresh weights */
/* Lays the weights out; when `tensors` is not NULL its block.tensors entries are filled. */
void carve_weights(const struct stage_shape *shape, struct carve_weights *weights, struct carve_tensor *tensors);
void carve_adapters(const struct stage_shape *shape, struct carve_adapters *adapters, struct carve_tensor *tensors);
/* What is trained, those two being one behind the other for whoever asks: the adapters where there are some, else the weights. The table
 * is the caller's to free (mem_free). */
struct carve_tensor *carve_trained(const struct stage_shape *shape, struct carve_block *block);
/* Where in that layout what is really trained begins: behind the layers that stay as they are, and the embedding before them. */
size_t carve_still(const struct stage_shape *shape, const struct carve_weights *weights, const struct carve_adapters *adapters);
void carve_entry(const struct carve_tensor *tensor, struct safetensors_entry *entry); /* as a file names it */
/* Of one of AdamW's moments. In 8 bits there is a byte for each 64 values behind it, and one for each tensor whose last are fewer. */
size_t carve_moment_bytes(enum stage_moments moments, size_t floats, int tensors);
size_t carve_word_bytes(const struct stage_shape *shape, const struct carve_weights *weights); /* of the copy in bf16 */
void carve_activations(const struct stage_shape *shape, struct carve_activations *activations);
/* Which place within a set is layer i's: those that stay as they are share the first, since nothing of them is asked for again. */
int64_t carve_place(const struct stage_shape *shape, int64_t layer);
void carve_scratch(const struct stage_shape *shape, struct carve_scratch *scratch);

#endif
