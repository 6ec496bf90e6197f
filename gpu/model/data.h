/*
 * Text files in, windows of token ids out; a token is a byte. Files and globs are read in sorted order (a file that is
 * linked twice counts once) and laid one behind the other. The last `validation_share` of the bytes is kept for validation:
 * the cut is moved to the nearest end of a file when there is one within half of that share, so that mostly no document lies
 * on both sides.
 *
 * The training window of (seed, step, micro-batch, sequence) is a pure function of them: resumable by construction. Owned by
 * stage 0's compute thread.
 */
#ifndef KEDGE_MODEL_DATA_H
#define KEDGE_MODEL_DATA_H

#include <stdint.h>

#include "ssh/base/why.h"

struct data;

int data_open(const char *paths, double validation_share, struct data **data, struct why *why);
void data_close(struct data *data);
/* Is there a window of tokens + 1 on both sides (on the validation side only when windows are wanted)? Refuses with the
 * numbers. To be asked before the windows below, for which too little text is a bug. */
int data_check(const struct data *data, int64_t tokens, int64_t validation_windows, struct why *why);
uint64_t data_train_tokens(const struct data *data);
uint64_t data_validation_tokens(const struct data *data);
/* ids[tokens + 1] of one training sequence: the last is only a target. */
void data_train_window(const struct data *data, uint64_t seed, uint64_t step, uint32_t micro_batch, uint32_t sequence,
                       int64_t tokens, uint32_t *ids);
/* Validation window `index` of `count`, at floor(linspace(0, length − tokens − 1, count)). */
void data_validation_window(const struct data *data, int64_t index, int64_t count, int64_t tokens, uint32_t *ids);

#endif
