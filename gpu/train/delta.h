/*
 * A chunk of a snapshot on its way: bf16 words as they are, or as their differences from words that the receiver has,
 * through zstd. Exact by construction and by check: every chunk has the hash of the words that it must make, and one that
 * makes others is refused, never repaired. Small steps move most words by 0 or ±1, and small words further than large ones:
 * differences go in the order of the base's exponents, which both ends know, as two planes, low bytes and high bytes, of
 * which the second is nearly all zeros. Pure.
 */
#ifndef KEDGE_TRAIN_DELTA_H
#define KEDGE_TRAIN_DELTA_H

#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"
#include "ssh/wire/wire.h"

uint64_t delta_chunks(uint64_t words);                /* of WIRE_CHUNK_WORDS each, the last may be shorter */
uint64_t delta_count(uint64_t words, uint64_t chunk); /* words of that chunk */
size_t delta_bound(void);                             /* bytes that any coded chunk fits into */

/* `base` NULL: CHUNK_WHOLE, else CHUNK_DELTA. `scratch` has 2 · count bytes. Returns the bytes written to `out`, of
 * delta_bound() room. */
size_t delta_encode(const uint16_t *words, const uint16_t *base, uint64_t count, uint8_t *scratch, uint8_t *out);
/* The other way, into `words` (not `base`). ERR_INVALID: it is not `count` words, or not those of the hash. */
int delta_decode(const uint8_t *in, size_t bytes, const uint16_t *base, uint64_t count, uint64_t hash, uint8_t *scratch,
                 uint16_t *words, struct why *why);

#endif
