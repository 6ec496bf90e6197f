#include "gpu/train/shape.h"

#include "gpu/model/checkpoint.h"

struct model_shape shape_of_profile(const struct profile *p)
{
    struct model_shape shape = {
        .hidden = p->hidden,
        .layers = p->layers,
        .heads = p->heads,
        .kv_heads = p->kv_heads,
        .ffn = p->ffn,
        .vocabulary = p->vocabulary,
        .head_width = profile_head_width(p),
        .window = p->window,
        .tied = p->head_tie == HEAD_TIED,
        .qkv_bias = p->qkv_bias,
        .qk_norm = p->qk_norm,
        .rope_theta = (float)p->rope_theta,
        .norm_epsilon = (float)p->norm_epsilon,
        .scaling = p->rope_scaling,
    };
    if (shape.scaling != SCALING_NONE) /* what a kind does not use stays 0: shapes are compared */
        shape.scaling_factor = (float)p->rope_factor;
    if (shape.scaling == SCALING_LLAMA3) {
        shape.scaling_low = (float)p->rope_low;
        shape.scaling_high = (float)p->rope_high;
        shape.scaling_context = p->rope_context;
    }
    return shape;
}

_Static_assert((int)PROFILE_LORA_DOWN == (int)LORA_DOWN && (int)PROFILE_LORA_O == (int)LORA_O,
               "the settings' letters and the model's targets have one order");

struct lora_shape shape_lora(const struct profile *p)
{
    struct lora_shape none = {.rank = 0};
    return p->lora_rank ? (struct lora_shape){p->lora_rank, (float)p->lora_alpha, profile_lora_targets(p->lora_targets)} : none;
}

bool shape_words_only(const struct profile *p)
{
    return p->lora_rank && p->precision == PRECISION_BF16;
}

void shape_lora_to_profile(const struct lora_shape *lora, struct profile *profile)
{
    profile->lora_rank = lora->rank;
    profile->lora_alpha = checkpoint_number(lora->alpha);
    profile_lora_letters(lora->targets, profile->lora_targets, sizeof profile->lora_targets);
}

void shape_to_profile(const struct model_shape *shape, struct profile *profile)
{
    profile->hidden = shape->hidden;
    profile->layers = shape->layers;
    profile->heads = shape->heads;
    profile->kv_heads = shape->kv_heads;
    profile->head_width = shape->heads * shape->head_width == shape->hidden ? 0 : shape->head_width;
    profile->ffn = shape->ffn;
    profile->vocabulary = shape->vocabulary;
    profile->window = shape->window;
    profile->head_tie = shape->tied ? HEAD_TIED : HEAD_UNTIED;
    profile->qkv_bias = shape->qkv_bias;
    profile->qk_norm = shape->qk_norm;
    profile->rope_theta = checkpoint_number(shape->rope_theta);
    profile->norm_epsilon = checkpoint_number(shape->norm_epsilon);
    profile->rope_scaling = shape->scaling;
    if (shape->scaling != SCALING_NONE)
        profile->rope_factor = checkpoint_number(shape->scaling_factor);
    if (shape->scaling == SCALING_LLAMA3) {
        profile->rope_low = checkpoint_number(shape->scaling_low);
        profile->rope_high = checkpoint_number(shape->scaling_high);
        profile->rope_context = shape->scaling_context;
    }
}

const char *const *shape_rows(void)
{
    static const char *const names[] = {
        "model.hidden",       "model.layers",       "model.heads",       "model.kv_heads", "model.head_width", "model.ffn",
        "model.vocabulary",   "model.head",         "model.qkv_bias",    "model.qk_norm",  "model.window",     "model.rope_theta",
        "model.rope_scaling", "model.rope_factor",  "model.rope_low",    "model.rope_high", "model.rope_context",
        "model.norm_epsilon", NULL,
    };
    return names;
}

_Static_assert((int)MOMENTS_BF16 == (int)STAGE_MOMENTS_BF16 && (int)MOMENTS_FP8 == (int)STAGE_MOMENTS_FP8,
               "the table of settings and the model have one order");

const char *const *shape_lora_rows(void)
{
    static const char *const names[] = {"lora.rank", "lora.alpha", "lora.targets", NULL};
    return names;
}

int shape_begin(struct stage *stage, const struct profile *profile, struct why *why)
{
    int err = 0;
    if (profile->model_path[0])
        err = stage_load(stage, profile->model_path, why);
    else
        stage_fresh(stage, (uint64_t)profile->seed);
    if (!err && profile->lora_path[0])
        err = stage_load_adapters(stage, profile->lora_path, why);
    else if (!err && profile->lora_rank)
        stage_fresh_adapters(stage, (uint64_t)profile->seed);
    return err;
}

_Static_assert((int)CODEC_ENTROPY == (int)CODEC_KIND_ENTROPY && (int)CODEC_SUBSPACE == (int)CODEC_KIND_SUBSPACE &&
                   (int)REFERENCE_TOKENS == (int)CODEC_REFERENCE_TOKENS,
               "the table of settings and the codecs have one order");

void shape_codec(const struct profile *p, int boundary, struct codec_settings *settings)
{
    *settings = (struct codec_settings){
        .kind = p->codec,
        .format = p->values,
        .gain = p->gain,
        .decoding = p->decoding,
        .reference = p->reference,
        .width = p->hidden,
        .max_rows = p->micro_batch * p->sequence,
        .seed = (uint64_t)p->seed,
        .boundary = (uint32_t)boundary,
        .slots = 1,
        .rank = p->rank,
        .context = p->context,
        .vocabulary = p->vocabulary,
        .forward_share = p->forward_share,
        .decay = p->decay,
        .bits = (int)p->bits,
    };
}

bool shape_needs_table(const struct profile *p)
{
    return p->codec != CODEC_DENSE && p->reference == REFERENCE_TOKENS && p->stages > 1;
}

bool shape_sends_snapshots(const struct profile *profile, int replica)
{
    return replica == 0 || profile->sync_every > 1 || profile->sync_outer != OUTER_NONE;
}
