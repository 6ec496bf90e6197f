/*
 * Text files in, windows of token ids out. Files and globs are read in sorted order (a file that is linked twice counts once), cut at
 * whole files; the last `validation_share` of the bytes is kept for validation. The training window of (seed, step, micro-batch,
 * sequence) is a pure function of them: resumable by construction. Owned by stage 0's compute thread.
 */
#ifndef KEDGE_MODEL_DATA_H
#define KEDGE_MODEL_DATA_H

#include <stdint.h>

#include "ssh/base/why.h"

struct data;

int data_open(const char *paths, double validation_share, struct data **data, struct why *why);
void data_close(struct data *data);
uint64_t data_train_tokens(const struct data *data);
uint64_t data_validation_tokens(const struct data *data);
/* ids[tokens + 1] of one training sequence. */
void data_train_window(const struct data *data, uint64_t seed, uint64_t step, uint32_t micro_batch, uint32_t sequence,
                       int64_t tokens, uint32_t *ids);
/* Validation window `index` of `count`, at floor(linspace(0, length − tokens − 1, count)). */
void data_validation_window(const struct data *data, int64_t index, int64_t count, int64_t tokens, uint32_t *ids);

#endif
