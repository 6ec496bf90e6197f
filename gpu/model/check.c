/* What sizes are possible: refused by name, before any two of them are multiplied. */
#include <inttypes.h>
#include <math.h>

#include "gpu/model/carve.h"

struct limit {
    const char *name;
    size_t offset;
    int64_t maximum;
};

static const struct limit limits[] = {
    {"hidden", offsetof(struct model_shape, hidden), 1 << 16},
    {"layers", offsetof(struct model_shape, layers), 1 << 10},
    {"heads", offsetof(struct model_shape, heads), 1 << 10},
    {"kv_heads", offsetof(struct model_shape, kv_heads), 1 << 10},
    {"ffn", offsetof(struct model_shape, ffn), 1 << 19},
    {"vocabulary", offsetof(struct model_shape, vocabulary), 1 << 24},
    {"head_width", offsetof(struct model_shape, head_width), 1 << 10},
};

static int check_scaling(const struct model_shape *s, struct why *why)
{
    if (s->scaling != SCALING_NONE && (!(s->scaling_factor >= 1) || !isfinite(s->scaling_factor)))
        return why_set(why, ERR_INVALID, "model: a rope_scaling factor of %g; it must be at least 1", (double)s->scaling_factor);
    if (s->scaling == SCALING_LLAMA3 &&
        (!(s->scaling_low > 0) || !(s->scaling_high > s->scaling_low) || !isfinite(s->scaling_high) || s->scaling_context < 1))
        return why_set(why, ERR_INVALID, "model: llama3 rope_scaling between the frequency factors %g and %g of %" PRId64
                       " tokens: the first must be above 0, the second above the first, the tokens above 0",
                       (double)s->scaling_low, (double)s->scaling_high, s->scaling_context);
    return 0;
}

int model_check(const struct model_shape *shape, struct why *why)
{
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        int64_t value;
        memcpy(&value, (const char *)shape + limits[i].offset, sizeof value);
        if (value < 1 || value > limits[i].maximum)
            return why_set(why, ERR_INVALID, "model: %s is %" PRId64 "; 1 to %" PRId64 " is possible", limits[i].name, value,
                           limits[i].maximum);
    }
    if (shape->heads % shape->kv_heads)
        return why_set(why, ERR_INVALID, "model: %" PRId64 " kv_heads do not divide %" PRId64 " heads", shape->kv_heads,
                       shape->heads);
    if (shape->head_width % 2)
        return why_set(why, ERR_INVALID, "model: a head of %" PRId64 " channels cannot be rotated in halves; make it even",
                       shape->head_width);
    if (!(shape->rope_theta > 0) || !isfinite(shape->rope_theta))
        return why_set(why, ERR_INVALID, "model: rope_theta is %g; it must be above 0", (double)shape->rope_theta);
    if (shape->window < 0)
        return why_set(why, ERR_INVALID, "model: an attention window of %" PRId64 " tokens; it must be above 0, or 0 for none",
                       shape->window);
    if (shape->qkv_bias && shape->qk_norm)
        return why_set(why, ERR_INVALID, "model: no supported model has both q/k/v biases and q/k norms");
    if (!(shape->norm_epsilon > 0) || !(shape->norm_epsilon < 1))
        return why_set(why, ERR_INVALID, "model: norm_epsilon is %g; it must be between 0 and 1",
                       (double)shape->norm_epsilon);
    return check_scaling(shape, why);
}

int lora_check(const struct lora_shape *lora, struct why *why)
{
    if (lora->rank < 0 || lora->rank > 1 << 12)
        return why_set(why, ERR_INVALID, "LoRA: a rank of %" PRId64 "; 1 to %d are possible", lora->rank, 1 << 12);
    if (lora->rank && (!(lora->alpha > 0) || !isfinite(lora->alpha)))
        return why_set(why, ERR_INVALID, "LoRA: alpha is %g; it must be above 0", (double)lora->alpha);
    if (lora->rank && (!lora->targets || lora->targets >= 1u << LORA_TARGETS))
        return why_set(why, ERR_INVALID, "LoRA: no matrix of a layer is a target");
    return 0;
}

int stage_check(const struct stage_shape *s, struct why *why)
{
    int err = model_check(&s->model, why);
    if (!err)
        err = lora_check(&s->lora, why);
    if (err)
        return err;
    if (s->first_layer < 0 || s->layers < 1 || s->first_layer + s->layers > s->model.layers)
        return why_set(why, ERR_INVALID, "stage: layers %" PRId64 " to %" PRId64 " of a model of %" PRId64 " layers",
                       s->first_layer, s->first_layer + s->layers - 1, s->model.layers);
    if (s->first != (s->first_layer == 0) || s->last != (s->first_layer + s->layers == s->model.layers))
        return why_set(why, ERR_INVALID,
                       "stage: layers %" PRId64 " to %" PRId64 " of %" PRId64 " do not agree with being %s", s->first_layer,
                       s->first_layer + s->layers - 1, s->model.layers,
                       s->first  ? s->last ? "first and last" : "first"
                       : s->last ? "last"
                                 : "in the middle");
    if (s->still < 0 || s->still > s->layers || (s->still && s->model.tied))
        return why_set(why, ERR_INVALID, "stage: %" PRId64 " of %" PRId64 " layers are not to be trained, the embedding neither%s",
                       s->still, s->layers, s->model.tied ? ", but the head shares it" : "");
    if (s->sequences < 1 || s->tokens < 1 || s->sequences > 1 << 20 || s->tokens > 1 << 20 ||
        s->sequences * s->tokens > 1 << 22)
        return why_set(why, ERR_INVALID, "stage: a micro-batch of %" PRId64 " × %" PRId64 " tokens; at most %d are possible",
                       s->sequences, s->tokens, 1 << 22);
    if (s->model.window && s->tokens > s->model.window)
        return why_set(why, ERR_INVALID, "stage: sequences of %" PRId64 " tokens, but attention of this model sees only %" PRId64
                       ": sliding windows are not supported, make train.sequence at most that", s->tokens, s->model.window);
    if (s->slots < 1 || s->slots > 1 << 12)
        return why_set(why, ERR_INVALID, "stage: %" PRId64 " micro-batches in flight; 1 to %d are possible", s->slots,
                       1 << 12);
    if (s->head_rows < 0 || s->head_columns < 0 || s->head_rows > 1 << 22 || s->head_columns > 1 << 24)
        return why_set(why, ERR_INVALID, "stage: logits in pieces of %" PRId64 " × %" PRId64 " are not possible",
                       s->head_rows, s->head_columns);
    const struct model_shape *m = &s->model;
    double widest = 2.0 * (double)m->ffn + 3.0 * (double)m->hidden + (double)(2 * carve_qkv_width(m) + 2 * carve_query_width(m)) +
                    (double)s->lora.rank;
    if (widest * (double)(s->sequences * s->tokens) * (double)s->layers * (double)s->slots * sizeof(float) > 0x1p62)
        return why_set(why, ERR_INVALID, "stage: activations of %" PRId64 " micro-batches of %" PRId64 " × %" PRId64
                       " tokens cannot be counted in 62 bits", s->slots, s->sequences, s->tokens);
    return 0;
}

bool model_ids_fit(const struct model_shape *shape, const uint32_t *ids, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if ((int64_t)ids[i] >= shape->vocabulary)
            return false;
    return true;
}
