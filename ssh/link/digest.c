#include "ssh/link/digest.h"

#include <stdio.h>
#include <string.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>
#define XXH_INLINE_ALL /* hosts need no library */
#include <xxhash.h>

#include "ssh/base/mem.h"
#include "ssh/base/why.h"

struct digest { /* one of them */
    EVP_MD_CTX *sha2;
    XXH3_state_t *xxh3;
};

struct digest *digest_new(enum digest_kind kind)
{
    struct digest *digest = mem_new(sizeof *digest);
    *digest = (struct digest){0};
    if (kind == DIGEST_XXH3) {
        digest->xxh3 = XXH3_createState();
        BUG_IF(!digest->xxh3 || XXH3_128bits_reset(digest->xxh3) != XXH_OK);
    } else {
        digest->sha2 = EVP_MD_CTX_new();
        BUG_IF(!digest->sha2 || EVP_DigestInit_ex(digest->sha2, EVP_sha256(), NULL) != 1);
    }
    return digest;
}

void digest_add(struct digest *digest, const void *bytes, size_t count)
{
    if (digest->xxh3)
        XXH3_128bits_update(digest->xxh3, bytes, count);
    else
        BUG_IF(EVP_DigestUpdate(digest->sha2, bytes, count) != 1);
}

void digest_finish(struct digest *digest, char hex[DIGEST_HEX])
{
    uint8_t sum[DIGEST_SHA256];
    XXH128_canonical_t canonical;
    size_t bytes = sizeof sum;
    if (digest->xxh3) {
        XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(digest->xxh3));
        bytes = sizeof canonical.digest;
        memcpy(sum, canonical.digest, bytes);
    } else {
        BUG_IF(EVP_DigestFinal_ex(digest->sha2, sum, NULL) != 1);
    }
    for (size_t i = 0; i < bytes; i++)
        snprintf(hex + 2 * i, 3, "%02x", sum[i]);
}

void digest_free(struct digest *digest)
{
    if (!digest)
        return;
    EVP_MD_CTX_free(digest->sha2);
    if (digest->xxh3)
        XXH3_freeState(digest->xxh3);
    mem_free(digest);
}

void digest_sha256(const void *bytes, size_t count, uint8_t out[DIGEST_SHA256])
{
    BUG_IF(EVP_Digest(bytes, count, out, NULL, EVP_sha256(), NULL) != 1);
}

void digest_hmac_sha1(const void *key, size_t key_bytes, const void *bytes, size_t count, uint8_t out[DIGEST_SHA1])
{
    BUG_IF(!HMAC(EVP_sha1(), key, (int)key_bytes, bytes, count, out, NULL));
}
