/*
 * One safetensors file, mapped: u64 header length, a JSON header {"name": {"dtype", "shape", "data_offsets"}, …}, the
 * tensors' bytes. The header comes from strangers: every size, offset and name is checked before anything is looked at, and
 * what is accepted covers the data without overlap and without a hole.
 */
#ifndef KEDGE_MODEL_SAFETENSORS_H
#define KEDGE_MODEL_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"

struct safetensors;

int safetensors_open(const char *path, struct safetensors **file, struct why *why);
/* The same over bytes that outlive it; `label` stands for the path in reasons. */
int safetensors_parse(const uint8_t *bytes, size_t count, const char *label, struct safetensors **file, struct why *why);
void safetensors_close(struct safetensors *file);

bool safetensors_is_half(const struct safetensors *file); /* are all tensors bf16? */
size_t safetensors_count(const struct safetensors *file);
bool safetensors_has(const struct safetensors *file, const char *name);
/* Elements [first, first + count) of a tensor of exactly this shape, as fp32. F32, BF16 and F16 are read; others are refused
 * by name. */
int safetensors_get(const struct safetensors *file, const char *name, int dims, const int64_t *shape, int64_t first,
                    int64_t count, float *out, struct why *why);
/* These bytes of the file will not be looked at again soon: they need not count as memory of the process. */
void safetensors_release(const struct safetensors *file, const void *bytes, size_t count);
/* All bytes of a tensor of dtype U8, which has `count` of them; they lie in the file as long as it is open. */
int safetensors_raw(const struct safetensors *file, const char *name, size_t count, const uint8_t **bytes, struct why *why);
/* How many bytes a tensor of dtype U8 has; ERR_ABSENT, ERR_INVALID. */
int safetensors_raw_bytes(const struct safetensors *file, const char *name, size_t *count, struct why *why);

#endif
