/*
 * A Hugging Face folder out: config.json, safetensors (sharded above a size), generation_config.json and what the tokenizer of the
 * original needs, so that `transformers` loads it unchanged. The folder is made beside its place and renamed when all of it is
 * durable: it is whole or not there. Of a run with LoRA: its adapters as a PEFT folder (adapter.h), or the model that they make of the
 * original.
 */
#ifndef KEDGE_MODEL_EXPORT_H
#define KEDGE_MODEL_EXPORT_H

#include "gpu/model/model.h"
#include "gpu/model/safetensors_write.h"

#define EXPORT_SHARD_BYTES ((int64_t)5 << 30) /* as transformers cuts */

struct export_settings {
    struct model_shape shape;
    struct lora_shape lora;   /* of a run with adapters, which has an origin */
    bool merge;               /* write the whole model */
    const char *const *files; /* safetensors that hold all tensors between them: with LoRA the adapters' */
    size_t file_count;
    const char *origin;       /* folder that the model came from: its config, tokenizer and generation config are kept; NULL = none */
    int64_t context;          /* max_position_embeddings where there is no origin */
    int format;               /* enum weights_format; −1 = that of the origin, else F32 */
    int64_t shard_bytes;
    const char *out;          /* must not be there, or be empty */
};

struct export_result {
    uint64_t bytes;
    int tensors, shards, format;
};

int export_write(const struct export_settings *settings, struct export_result *result, struct why *why);

#endif
