/*
 * Hugging Face folders in: config.json and model.safetensors (one file here; sharded with index) of Llama-shaped models. Headers
 * are hostile: every size, offset, overlap and dtype is checked. mmap, no second copy. What is not supported is refused by name.
 */
#ifndef KEDGE_MODEL_CHECKPOINT_H
#define KEDGE_MODEL_CHECKPOINT_H

#include "gpu/model/model.h"

/* "model file missing" is ERR_ABSENT and names the path. */
int checkpoint_shape(const char *folder, struct model_shape *shape, struct why *why);

struct checkpoint;
int checkpoint_open(const char *folder, struct checkpoint **checkpoint, struct why *why);
void checkpoint_close(struct checkpoint *checkpoint);
/* Tensor `name` as fp32 into out[rows·columns] (columns 1 for vectors); shape must match. */
int checkpoint_get(struct checkpoint *checkpoint, const char *name, int64_t rows, int64_t columns, float *out, struct why *why);

#endif
