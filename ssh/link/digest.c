#include "ssh/link/digest.h"

#include <stdio.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "ssh/base/mem.h"
#include "ssh/base/why.h"

struct digest {
    EVP_MD_CTX *context;
};

static void digest_begin(struct digest *digest)
{
    if (EVP_DigestInit_ex(digest->context, EVP_sha256(), NULL) != 1)
        BUG("OpenSSL has no SHA-256");
}

struct digest *digest_new(void)
{
    struct digest *digest = mem_new(sizeof *digest);
    digest->context = EVP_MD_CTX_new();
    BUG_IF(!digest->context);
    digest_begin(digest);
    return digest;
}

void digest_add(struct digest *digest, const void *bytes, size_t count)
{
    BUG_IF(EVP_DigestUpdate(digest->context, bytes, count) != 1);
}

void digest_finish(struct digest *digest, uint8_t out[DIGEST_SHA256])
{
    BUG_IF(EVP_DigestFinal_ex(digest->context, out, NULL) != 1);
    digest_begin(digest);
}

void digest_free(struct digest *digest)
{
    if (!digest)
        return;
    EVP_MD_CTX_free(digest->context);
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

void digest_hex(const uint8_t digest[DIGEST_SHA256], char out[DIGEST_HEX])
{
    for (int i = 0; i < DIGEST_SHA256; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}
