/*
 * The inside of a stage, for the files that make it: stage.c (life, forward, backward, step), stage_tensors.c (weights by
 * name), linear.c, adapt.c, layer.c, head.c. Nothing here is allocated after stage_new.
 */
#ifndef KEDGE_MODEL_INSIDE_H
#define KEDGE_MODEL_INSIDE_H

#include "gpu/model/carve.h"

struct slot {
    int64_t sequences, tokens; /* of the micro-batch that it holds; 0 = empty */
    uint32_t *ids;             /* host, first stage only */
    int32_t *starts;           /* host, of a stage whose documents are apart: for each position the first that it sees */
};

struct stage {
    const struct ops *ops;
    struct device *device;
    struct stage_shape shape;
    struct carve_weights at;
    struct carve_adapters adapters;
    struct carve_block learned;                               /* sizes of what is trained: the weights or the adapters */
    struct carve_activations kept;
    struct carve_scratch work;
    struct carve_tensor *tensors;                             /* [learned.tensors] */
    float *weights;                                           /* device, the model's; NULL with words_only */
    uint16_t *words;                                          /* device: weights from at.words on in bf16, if products ask; NULL */
    float *trained;                                           /* device, learned.floats: the same block, or that of the adapters */
    size_t still;                                             /* floats at the beginning of `trained` that stay as they are */
    float *gradients;                                         /* device, learned.floats − still: stage_gradient_at */
    bool stale;                                               /* weights have changed since `words` were made of them */
    void *moments[2];                                         /* device, carve_moment_bytes each */
    float *activations, *scratch;                             /* device */
    float *corrections;                                       /* device, as gradients, where the stage corrects; NULL */
    bool *corrected;                                          /* [learned.tensors]: its gradient in `corrections` counts */
    uint32_t *ids;                                            /* host, of all slots */
    int32_t *starts;                                          /* host, of all slots; NULL where documents are not apart */
    struct slot *slots;
    float *frequency;                                         /* host, [head_width / 2] */
    void (*watch_cb)(int64_t layer, const float *x, const float *dx, void *arg);
    void *watch_arg;
    int resident; /* slot whose forward is in the shared set (recompute) and, on the last stage, in `output`; −1 = none */
    int ready;    /* slot whose loss gradient is in `gradient` (last stage); −1 = none */
};

/* Of what lies at `offset` of the weights; NULL where it has none. */
float *stage_gradient_at(const struct stage *stage, size_t offset);
/* Has it a gradient? What comes first in the block may have none: the embedding and layers that stay as they are. */
bool stage_is_trained(const struct stage *stage, const struct carve_tensor *tensor);

/* Offset of the last stage's trained copy of a tied embedding; CARVE_NONE when there is none. */
size_t stage_tied_copy(const struct stage *stage);

/* After a change of weights; of what is trained: what was computed with the old ones is void. */
void stage_changed(struct stage *stage);
void stage_moved(struct stage *stage);

/* A matrix of weights; at least one of the two is there. */
struct weight {
    const float *full;
    const uint16_t *words;
};

struct weight weight_at(const struct stage *stage, size_t offset);
/* A vector of weights in fp32, if need be in scratch at *place, which moves on. */
const float *vector_at(const struct stage *stage, size_t offset, int64_t count, size_t *place);
void linear_embed(struct stage *stage, float *y, const uint32_t *ids, int64_t rows);
struct weight weight_part(struct weight weight, int64_t first); /* from element `first` on */

/* y[rows,out] = x[rows,in] · Wᵀ */
void linear_forward(struct stage *stage, float *y, const float *x, struct weight weight, int64_t rows, int64_t out, int64_t in);
/* dW[out,in] += dyᵀ · x, where it is not NULL: frozen; dx[rows,in] = dy[rows,out] · W, or +=, where it is wanted */
void linear_backward(struct stage *stage, float *dw, float *dx, const float *dy, const float *x, struct weight weight, int64_t rows,
                     int64_t out, int64_t in, bool accumulate);
/* With half_products, of x and dy in bf16; rows of dy are `stride` apart. */
void linear_forward_words(struct stage *stage, float *y, const uint16_t *x, struct weight weight, int64_t rows, int64_t out,
                          int64_t in);
void linear_backward_words(struct stage *stage, float *dw, float *dx, const uint16_t *dy, int64_t stride, const uint16_t *x,
                           struct weight weight, int64_t rows, int64_t out, int64_t in, bool accumulate);
/* x[count] rounded in the scratch for the side of a product that is x, or dy. */
uint16_t *linear_x_words(struct stage *stage, const float *x, int64_t count);
uint16_t *linear_dy_words(struct stage *stage, const float *dy, int64_t count);

struct adapter {
    const float *a, *b; /* [rank,in] [out,rank]; NULL: not a target */
    float *d_a, *d_b;
    int64_t in, out;
};

/* What a layer keeps with half_products; NULL without. x of layer 0 is kept in fp32, here is only room for it. */
struct kept_words {
    uint16_t *x, *qkv, *o, *mid, *gate_up; /* as below */
};

/* One layer's pointers for one micro-batch. What is frozen has no gradient: NULL. */
struct layer {
    const float *norm1, *norm2;                                 /* [H] */
    struct weight qkv_weight, o_weight, gate_up_weight, down_weight; /* [q+2kv,H] [H,q] [2F,H] [H,F] */
    float *d_norm1, *d_qkv_weight, *d_o_weight, *d_norm2, *d_gate_up_weight, *d_down_weight;
    const float *qkv_bias, *q_norm, *k_norm; /* [q+2kv] [d] [d]; NULL where the model has none */
    float *d_qkv_bias, *d_q_norm, *d_k_norm;
    struct adapter adapters[LORA_TARGETS];
    struct kept_words kept; /* then qkv, o, mid and gate_up are scratch, and x may be what becomes the output */
    float *x;             /* [rows,H]     input */
    float *qkv;           /* [rows,q+2kv] after RoPE; with q/k norm [rows,q], [rows,kv], [rows,kv] one behind the other */
    float *raw, *inverse; /* with q/k norm: [rows,q], [rows,kv] before the norm; [rows,heads], [rows,kv_heads] */
    float *o;             /* [rows,q]     attention's output */
    float *log_sum;       /* [sequences,heads,tokens] */
    float *mid;           /* [rows,H]     x + attention */
    float *gate_up;       /* [rows,2F]; backward overwrites it by its gradient */
    const int32_t *starts; /* [sequences,tokens] first position that each sees; NULL: all before it */
};

/* Layer `index` of the stage with the places of a slot, and where its input lies. */
struct layer stage_layer(const struct stage *stage, int slot, int64_t index);
float *stage_x(const struct stage *stage, int slot, int64_t layer);
void stage_copy(struct stage *stage, float *to, const float *from, int64_t count); /* nothing where both are one */

void layer_forward(struct stage *stage, const struct layer *layer, int64_t sequences, int64_t tokens, float *out);
/* One sequence whose earlier tokens' keys and values lie in caches [context, kv]; those of these tokens, at positions first …, are
 * put there. */
void layer_forward_cached(struct stage *stage, const struct layer *layer, int64_t tokens, int64_t first, float *keys, float *values,
                          float *out);
/* Scratch `gradient` holds the gradient of the layer's output and becomes that of its input. */
void layer_backward(struct stage *stage, const struct layer *layer, int64_t sequences, int64_t tokens);

/* y[rows,out], whose rows are `stride` apart, += alpha/rank · x[rows,in] · Aᵀ · Bᵀ; nothing where the matrix is no target. */
void adapt_forward(struct stage *stage, const struct adapter *adapter, float *y, int64_t stride, const float *x, int64_t rows);
/* From dy: gradients of A and B, and what dx[rows,in] gets through them. */
void adapt_backward(struct stage *stage, const struct adapter *adapter, float *dx, const float *dy, int64_t stride, const float *x,
                    int64_t rows);

/* Σ loss of the last stage's `output`; when scale is not 0, weight gradients and scratch `gradient` of scale·Σ loss. */
double head_loss(struct stage *stage, int64_t rows, const uint32_t *targets, float scale);
void head_logits(struct stage *stage, int64_t rows, float *out);

#endif
