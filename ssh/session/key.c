#include "ssh/session/key.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/session/blob.h"

#define FILE_BYTES ((size_t)64 << 10)

bool key_is_rsa(const char *type)
{
    return strcmp(type, "ssh-rsa") == 0 || strncmp(type, "rsa-sha2", 8) == 0;
}

static void take_blob(struct key *key, const uint8_t *blob, size_t bytes)
{
    struct blob view = {blob, bytes}, type;
    if (bytes > sizeof key->blob || !blob_string(&view, &type) || type.left >= sizeof key->type)
        return;
    memcpy(key->blob, blob, bytes);
    key->bytes = bytes;
    snprintf(key->type, sizeof key->type, "%.*s", (int)type.left, (const char *)type.at);
}

/* "openssh-key-v1" NUL, string cipher, string kdf, string options, u32 keys, string public key, … */
static int look_openssh(struct key *key, const char *text, const char *end, struct why *why)
{
    static const char magic[] = "openssh-key-v1";
    uint8_t *bytes = mem_new(FILE_BYTES);
    char *letters = mem_new((size_t)(end - text) + 1);
    size_t count = 0;
    for (const char *at = text; at < end; at++)
        if (!isspace((unsigned char)*at))
            letters[count++] = *at;
    int length = blob_from_base64(letters, count, bytes, FILE_BYTES), err = 0;
    struct blob blob = {bytes, length > 0 ? (size_t)length : 0}, cipher, kdf, options, public;
    uint32_t keys;
    bool fits = blob.left > sizeof magic && memcmp(blob.at, magic, sizeof magic) == 0;
    if (!fits || !blob_skip(&blob, sizeof magic) || !blob_string(&blob, &cipher) || !blob_string(&blob, &kdf) ||
        !blob_string(&blob, &options) || !blob_u32(&blob, &keys) || keys != 1 || !blob_string(&blob, &public)) {
        err = why_set(why, ERR_INVALID, "the key file %s is damaged", key->path);
    } else {
        key->encrypted = !blob_is(cipher, "none");
        take_blob(key, public.at, public.left);
    }
    explicit_bzero(bytes, FILE_BYTES);
    explicit_bzero(letters, count);
    mem_free(bytes);
    mem_free(letters);
    return err;
}

/* PATH.pub: "TYPE BASE64 COMMENT" */
static void look_public(struct key *key)
{
    char path[KNOWN_PLACE + 8];
    uint8_t *text, blob[KNOWN_KEY];
    size_t bytes;
    snprintf(path, sizeof path, "%s.pub", key->path);
    if (file_read(path, FILE_BYTES, &text, &bytes, NULL) != 0)
        return;
    char *at = strchr((char *)text, ' ');
    if (at) {
        size_t length = strcspn(++at, " \r\n");
        int count = blob_from_base64(at, length, blob, sizeof blob);
        if (count > 0)
            take_blob(key, blob, (size_t)count);
    }
    mem_free(text);
}

static int look_text(struct key *key, const char *text, struct why *why)
{
    static const char openssh[] = "-----BEGIN OPENSSH PRIVATE KEY-----", openssh_end[] = "-----END OPENSSH";
    const char *begin = strstr(text, openssh), *end = begin ? strstr(begin, openssh_end) : NULL;
    if (begin && end)
        return look_openssh(key, begin + sizeof openssh - 1, end, why);
    if (strstr(text, "-----BEGIN RSA PRIVATE KEY-----"))
        snprintf(key->type, sizeof key->type, "ssh-rsa");
    else if (!strstr(text, "PRIVATE KEY-----"))
        return why_set(why, ERR_INVALID, "%s is not a private key%s", key->path,
                       strncmp(text, "ssh-", 4) == 0 || strncmp(text, "ecdsa-", 6) == 0 ? " but a public one: give the file "
                                                                                          "without .pub"
                                                                                        : "");
    key->encrypted = strstr(text, "ENCRYPTED") != NULL;
    look_public(key);
    return 0;
}

int key_look(const char *path, struct key *key, struct why *why)
{
    struct stat status;
    uint8_t *text;
    size_t bytes;
    memset(key, 0, sizeof *key);
    snprintf(key->path, sizeof key->path, "%s", path);
    int err = file_read(path, FILE_BYTES, &text, &bytes, why);
    if (err)
        return err;
    if (stat(path, &status) == 0 && (status.st_mode & 077))
        err = why_set(why, ERR_REFUSED, "the key file %s can be read by others (mode %03o): chmod 600 it", path,
                      status.st_mode & 0777u);
    if (!err)
        err = look_text(key, (const char *)text, why);
    explicit_bzero(text, bytes);
    mem_free(text);
    return err;
}
