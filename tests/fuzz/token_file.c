/*
 * Any bytes as a token file: refused, or all that it says can be read. A shard's hash is made right, or no damage would ever be seen
 * behind it.
 */
#include "gpu/model/token_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ssh/base/hash.h"
#include "ssh/base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void read_all(const struct token_file *file)
{
    uint64_t tokens = token_file_count(file);
    uint32_t ids[64];
    uint8_t marks[64];
    struct why why = {0};
    for (uint64_t at = 0; at < tokens; at += 64) {
        size_t part = tokens - at < 64 ? (size_t)(tokens - at) : 64;
        if (token_file_read(file, at, part, 50000, ids, marks, &why) != 0) {
            BUG_IF(!why.err || !why.text[0]);
            break;
        }
        for (size_t i = 0; i < part; i++)
            BUG_IF(ids[i] >= 50000 || marks[i] > (TOKEN_LEARNED | TOKEN_BEGINS));
        if (!token_file_masked(file))
            for (size_t i = 0; i < part; i++)
                BUG_IF(!(marks[i] & TOKEN_LEARNED));
    }
    uint64_t before, behind;
    for (uint64_t place = 0; place < tokens; place += 1 + tokens / 16)
        if (token_file_documents_around(file, place, &before, &behind, &why) == 0)
            BUG_IF(before > place || behind > tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    uint8_t *copy = mem_copy(bytes, count);
    char path[64];
    struct token_file *file;
    struct why why = {0};
    if (count >= TOKEN_FILE_HEADER && memcmp(copy, TOKEN_FILE_MAGIC, 8) == 0) {
        uint64_t hash = hash_bytes(copy + TOKEN_FILE_HEADER, count - TOKEN_FILE_HEADER);
        memcpy(copy + 56, &hash, sizeof hash);
    }
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    BUG_IF(fd < 0 || write(fd, copy, count) != (ssize_t)count);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (token_file_open(path, &file, &why) == 0) {
        read_all(file);
        token_file_close(file);
    } else if (!why.err || !why.text[0]) {
        __builtin_trap(); /* every refusal has a reason */
    }
    close(fd);
    mem_free(copy);
    return 0;
}
