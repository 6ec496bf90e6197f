#include "ssh/launch/nonce.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ssh/base/file.h"
#include "ssh/base/hash.h"
#include "ssh/base/mem.h"

static char *path_of(const char *folder, const char *host)
{
    return mem_format("%s/nonce@%s", folder, host);
}

/* "WORD\n", or "WORD left\n". */
static int write_nonce(const char *folder, const char *host, const struct nonce *nonce, struct why *why)
{
    char text[40], *path = path_of(folder, host);
    int length = snprintf(text, sizeof text, "%016" PRIx64 "%s\n", nonce->word, nonce->left ? " left" : "");
    int err = file_write(path, text, (size_t)length, 0600, why);
    mem_free(path);
    return err;
}

struct nonce nonce_read(const char *folder, const char *host)
{
    struct nonce nonce = {0};
    uint8_t *text = NULL;
    size_t bytes;
    char *path = path_of(folder, host), *end;
    if (folder[0] && file_read(path, 64, &text, &bytes, NULL) == 0) {
        nonce.word = strtoull((const char *)text, &end, 16);
        if (end != (char *)text + 16)
            nonce.word = 0;
        nonce.left = nonce.word && strcmp(end, " left\n") == 0;
        mem_free(text);
    }
    mem_free(path);
    return nonce;
}

int nonce_make(const char *folder, const char *host, struct why *why)
{
    struct nonce nonce = nonce_read(folder, host);
    if (nonce.word)
        return 0;
    nonce.word = hash_random();
    return write_nonce(folder, host, &nonce, why);
}

int nonce_set_left(const char *folder, const char *host, bool left, struct why *why)
{
    struct nonce nonce = nonce_read(folder, host);
    if (!nonce.word || nonce.left == left)
        return 0;
    nonce.left = left;
    return write_nonce(folder, host, &nonce, why);
}

char *nonce_guard(const char *folder, const char *host)
{
    struct nonce nonce = nonce_read(folder, host);
    if (!nonce.word)
        return mem_text("");
    return mem_format("[ \"$(head -c 16 \"$R/nonce@%s\" 2>/dev/null)\" = %016" PRIx64 " ] || { echo \"" NONCE_STRANGER
                      " than the one that the run was started on, or the start never got that far: nothing of this start is there. Was its "
                      "address given away?\" >&2; exit 9; }; ", host, nonce.word);
}

int nonce_err(int err, const char *reason)
{
    return err && strstr(reason, NONCE_STRANGER " than the one that the run") ? ERR_REFUSED : err;
}
