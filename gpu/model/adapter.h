/*
 * A LoRA adapter as PEFT keeps it: a folder with adapter_config.json and adapter_model.safetensors, whose tensors have the names that
 * ours have. Both files come from strangers. What would change the result and is not supported (DoRA, ranks by module, modules that
 * are trained whole …) is refused by its name: every key that is not known to be harmless must be off.
 */
#ifndef KEDGE_MODEL_ADAPTER_H
#define KEDGE_MODEL_ADAPTER_H

#include <jansson.h>

#include "gpu/model/checkpoint.h"
#include "gpu/model/model.h"

#define ADAPTER_CONFIG "adapter_config.json"
#define ADAPTER_FILE "adapter_model.safetensors"

/* "model file missing" is ERR_ABSENT and names the path. */
int adapter_read(const char *folder, struct lora_shape *lora, struct why *why);
/* The tensors, when the folder has these adapters of all layers of this model, and nothing else. */
int adapter_open(const char *folder, const struct model_shape *model, const struct lora_shape *lora, struct checkpoint **checkpoint,
                 struct why *why);
/* adapter_config.json as PEFT writes it; `base`: where the model came from. json_decref it. */
json_t *adapter_make(const struct lora_shape *lora, const char *base);

#endif
