/*
 * Cryptographic digests for the rooms that may not see OpenSSL: fingerprints of keys, hashed host names, files that
 * were sent.
 * Fast fingerprints without an enemy are ssh/base/hash.h.
 */
#ifndef KEDGE_LINK_DIGEST_H
#define KEDGE_LINK_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define DIGEST_SHA256 32
#define DIGEST_SHA1 20
#define DIGEST_HEX (2 * DIGEST_SHA256 + 1)

struct digest;

/* A running SHA-256. */
struct digest *digest_new(void);
void digest_add(struct digest *digest, const void *bytes, size_t count);
void digest_finish(struct digest *digest, uint8_t out[DIGEST_SHA256]); /* begins anew */
void digest_free(struct digest *digest);                               /* NULL is fine */

void digest_sha256(const void *bytes, size_t count, uint8_t out[DIGEST_SHA256]);
void digest_hmac_sha1(const void *key, size_t key_bytes, const void *bytes, size_t count, uint8_t out[DIGEST_SHA1]);
/* Lower case hexadecimal. */
void digest_hex(const uint8_t digest[DIGEST_SHA256], char out[DIGEST_HEX]);

#endif
