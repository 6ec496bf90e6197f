#include "gpu/model/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ssh/base/hash.h"
#include "ssh/base/mem.h"

#define LLMC_HEADER 1024
#define BLOCK ((size_t)1 << 20)

struct token_file {
    char *path;
    int fd, width;
    uint64_t count, documents, tokenizer;
    uint64_t ids_at, mask_at, starts_at; /* in the file; mask_at 0: all are learned */
};

static uint64_t get(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static int read_at(const struct token_file *file, void *out, size_t bytes, uint64_t at, struct why *why)
{
    uint8_t *to = out;
    while (bytes) {
        ssize_t got = pread(file->fd, to, bytes, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return why_errno(why, "%s", file->path);
        if (got == 0)
            return why_set(why, ERR_INVALID, "%s: it ends before byte %" PRIu64 "; was it changed while it was read?",
                           file->path, at + bytes);
        to += got;
        at += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return 0;
}

/* ---- the three kinds ---- */

static uint64_t even(uint64_t bytes)
{
    return (bytes + 7) & ~(uint64_t)7;
}

static int check_hash(const struct token_file *file, uint64_t bytes, uint64_t expected, struct why *why)
{
    uint8_t *block = mem_new(BLOCK);
    uint64_t state = HASH_START;
    int err = 0;
    for (uint64_t at = TOKEN_FILE_HEADER; at < bytes && err == 0; at += BLOCK) {
        size_t part = bytes - at < BLOCK ? (size_t)(bytes - at) : BLOCK;
        err = read_at(file, block, part, at, why);
        state = err ? state : hash_add(state, block, part);
    }
    mem_free(block);
    if (err == 0 && hash_finish(state) != expected)
        err = why_set(why, ERR_INVALID, "%s: damaged: its bytes do not have the hash in its header; prepare the data again",
                      file->path);
    return err;
}

static int open_shard(struct token_file *file, const uint8_t *head, uint64_t bytes, struct why *why)
{
    uint64_t version = get(head + 8, 4), width = get(head + 12, 4), flags = get(head + 52, 4);
    file->count = get(head + 16, 8);
    file->documents = get(head + 24, 8);
    file->tokenizer = get(head + 40, 8);
    if (version != TOKEN_FILE_VERSION)
        return why_set(why, ERR_INVALID, "%s: version %" PRIu64 " of kedge's token files; this program reads version %d",
                       file->path, version, TOKEN_FILE_VERSION);
    if ((width != 2 && width != 4) || flags > TOKEN_FILE_MASKED || file->count > bytes || file->documents > bytes)
        return why_set(why, ERR_INVALID, "%s: damaged: its header makes no sense", file->path);
    file->width = (int)width;
    file->ids_at = TOKEN_FILE_HEADER;
    uint64_t end = even(file->ids_at + file->count * width);
    if (flags & TOKEN_FILE_MASKED) {
        file->mask_at = end;
        end = even(end + (file->count + 7) / 8);
    }
    file->starts_at = end;
    end += file->documents * 8;
    if (end != bytes)
        return why_set(why, ERR_INVALID, "%s: damaged: %" PRIu64 " bytes instead of %" PRIu64, file->path, bytes, end);
    return check_hash(file, bytes, get(head + 56, 8), why);
}

static int open_llmc(struct token_file *file, const uint8_t *head, uint64_t bytes, struct why *why)
{
    static const struct {
        uint64_t magic, version;
        int width;
    } kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (get(head, 4) != kinds[i].magic)
            continue;
        if (get(head + 4, 4) != kinds[i].version || bytes != LLMC_HEADER + get(head + 8, 4) * (uint64_t)kinds[i].width)
            return why_set(why, ERR_INVALID,
                           "%s: damaged, or not as llm.c writes it: version %" PRIu64 ", %" PRIu64 " tokens said, %" PRIu64
                           " bytes", file->path, get(head + 4, 4), get(head + 8, 4), bytes);
        file->width = kinds[i].width;
        file->count = get(head + 8, 4);
        file->ids_at = LLMC_HEADER;
        return 0;
    }
    return ERR_ABSENT;
}

static int open_kind(struct token_file *file, uint64_t bytes, struct why *why)
{
    uint8_t head[LLMC_HEADER] = {0};
    int err = read_at(file, head, bytes < sizeof head ? (size_t)bytes : sizeof head, 0, why);
    if (err)
        return err;
    if (bytes >= TOKEN_FILE_HEADER && memcmp(head, TOKEN_FILE_MAGIC, 8) == 0)
        return open_shard(file, head, bytes, why);
    if (bytes >= LLMC_HEADER && (err = open_llmc(file, head, bytes, why)) != ERR_ABSENT)
        return err;
    if (bytes % 2)
        return why_set(why, ERR_INVALID, "%s: an odd number of bytes is no file of 16-bit token ids", file->path);
    file->width = 2;
    file->count = bytes / 2;
    return 0;
}

int token_file_open(const char *path, struct token_file **file, struct why *why)
{
    struct token_file *new = mem_new(sizeof *new);
    struct stat status;
    int err = 0;
    new->path = mem_text(path);
    new->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (new->fd < 0 || fstat(new->fd, &status) != 0)
        err = why_errno(why, "%s", path);
    else if (!S_ISREG(status.st_mode))
        err = why_set(why, ERR_INVALID, "%s: not a file", path);
    else
        err = open_kind(new, (uint64_t)status.st_size, why);
    if (err)
        token_file_close(new);
    else
        *file = new;
    return err;
}

void token_file_close(struct token_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    mem_free(file->path);
    mem_free(file);
}

uint64_t token_file_count(const struct token_file *file)
{
    return file->count;
}

uint64_t token_file_documents(const struct token_file *file)
{
    return file->documents;
}

uint64_t token_file_tokenizer(const struct token_file *file)
{
    return file->tokenizer;
}

bool token_file_masked(const struct token_file *file)
{
    return file->mask_at > 0;
}

/* ---- reading ---- */

static int read_start(const struct token_file *file, uint64_t index, uint64_t *place, struct why *why)
{
    uint8_t bytes[8];
    int err = read_at(file, bytes, sizeof bytes, file->starts_at + 8 * index, why);
    *place = get(bytes, 8);
    if (err == 0 && *place >= file->count)
        err = why_set(why, ERR_INVALID, "%s: damaged: document %" PRIu64 " begins behind the end", file->path, index);
    return err;
}

/* The index of the first document at or behind a place. */
static int find_start(const struct token_file *file, uint64_t from, uint64_t *index, struct why *why)
{
    uint64_t low = 0, high = file->documents, place;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int err = read_start(file, middle, &place, why);
        if (err)
            return err;
        if (place < from)
            low = middle + 1;
        else
            high = middle;
    }
    *index = low;
    return 0;
}

int token_file_documents_around(const struct token_file *file, uint64_t place, uint64_t *before, uint64_t *behind,
                                struct why *why)
{
    uint64_t index;
    *before = 0;
    *behind = file->count;
    int err = find_start(file, place, &index, why);
    if (err == 0 && index > 0)
        err = read_start(file, index - 1, before, why);
    if (err == 0 && index < file->documents)
        err = read_start(file, index, behind, why);
    return err;
}

static int read_marks(const struct token_file *file, uint64_t first, size_t count, uint8_t *marks, struct why *why)
{
    uint64_t index = 0, place;
    int err = 0;
    memset(marks, TOKEN_LEARNED, count);
    if (file->mask_at && count) {
        size_t bytes = (size_t)((first + count - 1) / 8 - first / 8 + 1);
        uint8_t *mask = mem_new(bytes);
        err = read_at(file, mask, bytes, file->mask_at + first / 8, why);
        for (size_t i = 0; i < count; i++)
            marks[i] = mask[(first % 8 + i) / 8] >> (first + i) % 8 & 1 ? TOKEN_LEARNED : 0;
        mem_free(mask);
    }
    if (err == 0)
        err = find_start(file, first, &index, why);
    for (; err == 0 && index < file->documents; index++) {
        err = read_start(file, index, &place, why);
        if (err || place >= first + count)
            break;
        if (place >= first) /* places that do not rise are damage that does no harm */
            marks[place - first] |= TOKEN_BEGINS;
    }
    return err;
}

int token_file_read(const struct token_file *file, uint64_t first, size_t count, uint32_t vocabulary, uint32_t *ids,
                    uint8_t *marks, struct why *why)
{
    BUG_IF(first > file->count || count > file->count - first);
    size_t width = (size_t)file->width;
    uint8_t *bytes = mem_new(count * width + 1);
    int err = read_at(file, bytes, count * width, file->ids_at + first * width, why);
    for (size_t i = 0; i < count && err == 0; i++) {
        ids[i] = (uint32_t)get(bytes + i * width, file->width);
        if (ids[i] >= vocabulary)
            err = why_set(why, ERR_INVALID,
                          "%s: token %" PRIu64 " is %" PRIu32 "; the model has %" PRIu32 " tokens. Was the file made "
                          "with another tokenizer?", file->path, first + i, ids[i], vocabulary);
    }
    mem_free(bytes);
    return err ? err : read_marks(file, first, count, marks, why);
}
