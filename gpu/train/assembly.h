/*
 * Where the anchor puts snapshots together: two images of the whole model as bf16 words. `held` is the newest version that
 * is whole; the next one grows beside it, chunk by chunk in any order, from differences to `held` or whole. When all stages'
 * chunks of one version are here and made the words that their hashes say, the two change places. Nothing of a version is
 * ever seen before.
 *
 * The loop thread puts chunks in and flips; the compute thread reads `held` between assembly_lock and assembly_unlock, and
 * the flip waits for it.
 */
#ifndef KEDGE_TRAIN_ASSEMBLY_H
#define KEDGE_TRAIN_ASSEMBLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/model/model.h"
#include "ssh/wire/wire.h"

struct assembly;

uint64_t assembly_memory(const struct stage_shape *whole);
int assembly_new(const struct stage_shape *whole, int stages, struct assembly **assembly, struct why *why);
void assembly_free(struct assembly *assembly);

/* ---- loop thread ---- */
/* A stage begins a version. ERR_INVALID: it cannot be that stage of this model. */
int assembly_begin(struct assembly *assembly, int stage, const struct wire_snapshot *snapshot, struct why *why);
/* 0; ERR_AGAIN: the chunk did not make what it should, it is wanted whole; ERR_INVALID: it has no place here. 1: the version
 * is whole and now held. Chunks of a version that was given up are dropped. */
int assembly_chunk(struct assembly *assembly, int stage, const struct wire_chunk *chunk, struct why *why);
/* In place of chunks: the words of a stage that has begun a version, to be filled; then whole, of so many bytes that travelled. As above: 1,
 * or 0. */
uint16_t *assembly_words(struct assembly *assembly, int stage);
int assembly_filled(struct assembly *assembly, int stage, uint64_t version, uint64_t bytes);
void assembly_held(const struct assembly *assembly, int stage, struct wire_held *held); /* what to tell a stage */
/* Bytes of the version that is held as they travelled, in full, and how many versions were whole so far. */
void assembly_bytes(const struct assembly *assembly, uint64_t *travelled, uint64_t *full, uint64_t *versions);
uint64_t assembly_repeated(const struct assembly *assembly); /* chunks that had to come again */

/* ---- compute thread, once a version is held ---- */
void assembly_layers(const struct assembly *assembly, int stage, int *first_layer, int *layers);
const uint16_t *assembly_lock(struct assembly *assembly, uint64_t *version); /* version 0: nothing is held */
void assembly_unlock(struct assembly *assembly);

#endif
