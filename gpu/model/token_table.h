/*
 * Features of tokens that every stage can know without asking: the embedding that the run begins with, from model.path or
 * fresh. It does not
 * follow training: what the reference makes of it (gpu/math/codec.h) is measured again and again, the features are a fixed
 * alphabet.
 *
 * Where the rank is less than the model's width, rows are projected on so many directions of random signs (Philox, a
 * function of the sizes
 * alone), so that all machines use the same ones.
 */
#ifndef KEDGE_MODEL_TOKEN_TABLE_H
#define KEDGE_MODEL_TOKEN_TABLE_H

#include "gpu/model/model.h"

/* Floats of a table: [vocabulary + 1, rank], rank 0 or more than the width = the width. The last row is zeros. */
int64_t token_table_count(const struct model_shape *shape, int64_t rank);
/* Device memory, for ops->free. `folder` "" = fresh weights of `seed`. ERR_MEMORY, and what checkpoints say. */
int token_table_new(const struct ops *ops, struct device *device, const struct model_shape *shape, const char *folder,
                    uint64_t seed, int64_t rank, float **table, struct why *why);

#endif
