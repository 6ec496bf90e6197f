/*
 * Digests for the rooms that may not see OpenSSL: fingerprints of keys, hashed host names, programs; and of files that were sent.
 * Fast fingerprints of 64 bits, without an enemy, are ssh/base/hash.h.
 */
#ifndef KEDGE_LINK_DIGEST_H
#define KEDGE_LINK_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define DIGEST_SHA256 32
#define DIGEST_SHA1 20
#define DIGEST_HEX (2 * DIGEST_SHA256 + 1)

struct digest;

/* A running sum: DIGEST_XXH3, of 128 bits, is ten times as fast as SHA-256, and stands against accidents only. */
enum digest_kind { DIGEST_SHA2, DIGEST_XXH3 };
struct digest *digest_new(enum digest_kind kind);
void digest_add(struct digest *digest, const void *bytes, size_t count);
void digest_finish(struct digest *digest, char hex[DIGEST_HEX]); /* lower case; then only digest_free is allowed */
void digest_free(struct digest *digest);                         /* NULL is fine */

void digest_sha256(const void *bytes, size_t count, uint8_t out[DIGEST_SHA256]);
void digest_hmac_sha1(const void *key, size_t key_bytes, const void *bytes, size_t count, uint8_t out[DIGEST_SHA1]);

#endif
