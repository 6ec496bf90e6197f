/*
 * Hugging Face folders in: config.json (config.c) and model.safetensors, one file or sharded with index (checkpoint.c), of Llama,
 * Mistral, Qwen2, Qwen3 and what has their shape. Headers are hostile: every size, offset, overlap and dtype is checked. mmap, no second copy. What is not supported is
 * refused by name.
 */
#ifndef KEDGE_MODEL_CHECKPOINT_H
#define KEDGE_MODEL_CHECKPOINT_H

#include "gpu/model/model.h"

/* "model file missing" is ERR_ABSENT and names the path. */
int checkpoint_shape(const char *folder, struct model_shape *shape, struct why *why);

/* The shortest decimal that is this float: people wrote 1e-05, not 9.999999747378752e-06. */
double checkpoint_number(float value);

struct checkpoint;
int checkpoint_open(const char *folder, struct checkpoint **checkpoint, struct why *why);
int checkpoint_open_file(const char *folder, const char *name, struct checkpoint **checkpoint, struct why *why); /* this one only */
bool checkpoint_is_half(const struct checkpoint *checkpoint); /* are all tensors bf16? */
size_t checkpoint_tensors(const struct checkpoint *checkpoint); /* how many there are */
void checkpoint_close(struct checkpoint *checkpoint);
/* Rows [first, first + count) of tensor `name` as fp32 into out[count·columns]. The tensor must be [rows, columns], or
 * [rows] with dims 1 and columns 1. */
int checkpoint_get_rows(struct checkpoint *checkpoint, const char *name, int dims, int64_t rows, int64_t columns,
                        int64_t first, int64_t count, float *out, struct why *why);

#endif
