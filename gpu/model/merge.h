/* The model that a base and its adapters are together: W + alpha/rank · B·A, tensor by tensor, for whoever writes it out. */
#ifndef KEDGE_MODEL_MERGE_H
#define KEDGE_MODEL_MERGE_H

#include "gpu/model/carve.h"
#include "gpu/model/safetensors.h"

struct merge;

/* `files`: safetensors that hold all adapters between them; they outlive it. */
int merge_new(const char *base, const struct model_shape *shape, const struct lora_shape *lora, struct safetensors *const *files,
              size_t file_count, struct merge **merge, struct why *why);
void merge_free(struct merge *merge);
/* Rows [row, row + rows) of a tensor of the whole model. */
int merge_get(struct merge *merge, const struct carve_tensor *tensor, int64_t row, int64_t rows, float *out, struct why *why);

#endif
