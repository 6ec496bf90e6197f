/*
 * Any bytes as a token file: refused, or all that it says can be read. First byte: whether the rest is the file, or becomes a shard
 * whose header fits its size. A shard's hash is made right, or no damage would ever be seen behind it.
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

static uint64_t even(uint64_t bytes)
{
    return (bytes + 7) & ~(uint64_t)7;
}

/* The header of a shard of this size: as many tokens as fit, with what the bytes there say of width, mask and documents. */
static void make_header(uint8_t *shard, size_t count)
{
    uint32_t version = TOKEN_FILE_VERSION, width = shard[12] & 1 ? 4 : 2, flags = shard[52] & TOKEN_FILE_MASKED;
    uint64_t documents = shard[24] % 5, tokens = (count - TOKEN_FILE_HEADER) / width, end = 0;
    do {
        end = even(TOKEN_FILE_HEADER + tokens * width);
        end = (flags ? even(end + (tokens + 7) / 8) : end) + documents * 8;
    } while (end != count && tokens-- > 0);
    memcpy(shard, TOKEN_FILE_MAGIC, 8);
    memcpy(shard + 8, &version, sizeof version);
    memcpy(shard + 12, &width, sizeof width);
    memcpy(shard + 16, &tokens, sizeof tokens);
    memcpy(shard + 24, &documents, sizeof documents);
    memcpy(shard + 52, &flags, sizeof flags);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count == 0)
        return 0;
    bool made = bytes[0] & 1;
    uint8_t *copy = mem_copy(++bytes, --count);
    char path[64];
    struct token_file *file;
    struct why why = {0};
    if (made && count >= TOKEN_FILE_HEADER)
        make_header(copy, count);
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
