/*
 * A 64-bit hash of bytes (FNV-1a, then a splitmix64 finish): run identities, profile and weight fingerprints,
 * mask checksums. Not cryptographic: trust rests on TLS, never on this.
 */
#ifndef KEDGE_BASE_HASH_H
#define KEDGE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_START UINT64_C(0xcbf29ce484222325)

uint64_t hash_add(uint64_t state, const void *bytes, size_t count); /* begin with HASH_START */
uint64_t hash_finish(uint64_t state);
uint64_t hash_bytes(const void *bytes, size_t count);               /* the three in one */
/*
 * Of much at once, as weights are: four lanes of eight bytes with the rounds of XXH64, twenty times as fast as byte after byte, and
 * another number. What is hashed in pieces cannot use it.
 */
uint64_t hash_block(const void *bytes, size_t count);
uint64_t hash_random(void);                                         /* from the kernel; never 0 */

#endif
