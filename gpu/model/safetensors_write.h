/*
 * One safetensors file out: the header is known first, then the values come in pieces, in the order of the entries. The file is
 * whole or not there at all: written beside its place, made durable, then renamed. Room for all of it is asked for before the
 * first byte, so that a full disk is a refusal and not a torn file.
 */
#ifndef KEDGE_MODEL_SAFETENSORS_WRITE_H
#define KEDGE_MODEL_SAFETENSORS_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"

enum weights_format { WEIGHTS_F32, WEIGHTS_BF16, WEIGHTS_F16, WEIGHTS_FORMATS };

struct safetensors_entry {
    char name[96];
    int dims;
    int64_t shape[2]; /* [1] is looked at with two dims only */
    bool raw;         /* bytes (U8), whatever the format of the others is: safetensors_add_raw */
};

struct safetensors_out;

const char *weights_format_name(int format); /* "F32" */
int64_t weights_format_bytes(int format);    /* of one value */
int64_t safetensors_entry_count(const struct safetensors_entry *entry); /* its values */

/* `metadata`: keys and values in turn, NULL-terminated, or NULL. */
int safetensors_create(const char *path, const struct safetensors_entry *entries, size_t count, int format,
                       const char *const *metadata, struct safetensors_out **out, struct why *why);
/* The next values; rounded to nearest even where the format is narrower. */
int safetensors_add(struct safetensors_out *out, const float *values, int64_t count, struct why *why);
int safetensors_add_raw(struct safetensors_out *out, const void *bytes, size_t count, struct why *why);
/* Right after safetensors_create: what is added is kept in `room`, which has safetensors_data_bytes of the entries, and safetensors_finish,
 * which any one thread may call, writes it. */
void safetensors_hold(struct safetensors_out *out, uint8_t *room);
uint64_t safetensors_data_bytes(const struct safetensors_entry *entries, size_t count, int format);
/* All was added (BUG if not): the file is durable and in its place. Frees `out` in any case; on failure nothing stays. */
int safetensors_finish(struct safetensors_out *out, uint64_t *bytes, uint64_t *hash, struct why *why);
void safetensors_abandon(struct safetensors_out *out); /* nothing stays; NULL is fine */

#endif
