#include "gpu/model/shards.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

#include <jansson.h>

#include "gpu/model/token_file.h"
#include "ssh/base/file.h"
#include "ssh/base/hash.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define FORMAT "kedge tokens 1"
#define LIST_MAX ((size_t)16 << 20)
#define FILES_MAX 100000
#define BLOCK ((size_t)1 << 20)

struct shards_writer {
    char *folder;
    uint64_t tokens_each, tokenizer;
    uint32_t vocabulary;
    int width;
    json_t *list; /* of the files that are done */
    struct shards_totals totals;
    bool finished;
    /* the file at hand */
    int fd;
    char *path, *partial;
    uint64_t tokens, hash, bytes, learned;
    uint8_t *block;
    size_t block_used;
    uint8_t *mask; /* bits */
    size_t mask_room;
    uint64_t *starts;
    size_t documents, starts_room;
};

/* ---- bytes ---- */

static void put(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

static int write_all(const struct shards_writer *w, const uint8_t *bytes, size_t count, struct why *why)
{
    while (count) {
        ssize_t wrote = write(w->fd, bytes, count);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return why_errno(why, "%s", w->partial);
        bytes += wrote;
        count -= (size_t)wrote;
    }
    return 0;
}

static int flush(struct shards_writer *w, struct why *why)
{
    w->hash = hash_add(w->hash, w->block, w->block_used);
    w->bytes += w->block_used;
    int err = write_all(w, w->block, w->block_used, why);
    w->block_used = 0;
    return err;
}

static int put_bytes(struct shards_writer *w, const void *bytes, size_t count, struct why *why)
{
    const uint8_t *from = bytes;
    int err = 0;
    while (count && err == 0) {
        size_t room = BLOCK - w->block_used, part = count < room ? count : room;
        memcpy(w->block + w->block_used, from, part);
        w->block_used += part;
        from += part;
        count -= part;
        if (w->block_used == BLOCK)
            err = flush(w, why);
    }
    return err;
}

static int pad(struct shards_writer *w, struct why *why)
{
    static const uint8_t zeros[8];
    return put_bytes(w, zeros, -(w->bytes + w->block_used) & 7, why);
}

/* ---- one file ---- */

static int begin_file(struct shards_writer *w, struct why *why)
{
    static const uint8_t header[TOKEN_FILE_HEADER];
    mem_free(w->path);
    mem_free(w->partial);
    w->path = mem_format("%s/tokens-%05zu.bin", w->folder, w->totals.files);
    w->partial = mem_format("%s.partial", w->path);
    w->fd = open(w->partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (w->fd < 0)
        return why_errno(why, "%s", w->partial);
    w->tokens = w->bytes = w->learned = 0;
    w->documents = 0;
    w->hash = HASH_START;
    return write_all(w, header, sizeof header, why);
}

static int write_header(struct shards_writer *w, struct why *why)
{
    uint8_t header[TOKEN_FILE_HEADER] = TOKEN_FILE_MAGIC;
    put(header + 8, TOKEN_FILE_VERSION, 4);
    put(header + 12, (uint64_t)w->width, 4);
    put(header + 16, w->tokens, 8);
    put(header + 24, w->documents, 8);
    put(header + 40, w->tokenizer, 8);
    put(header + 48, w->vocabulary, 4);
    put(header + 52, w->learned < w->tokens ? TOKEN_FILE_MASKED : 0, 4);
    put(header + 56, hash_finish(w->hash), 8);
    if (lseek(w->fd, 0, SEEK_SET) != 0)
        return why_errno(why, "%s", w->partial);
    return write_all(w, header, sizeof header, why);
}

static int put_behind_ids(struct shards_writer *w, struct why *why)
{
    int err = pad(w, why);
    if (err == 0 && w->learned < w->tokens)
        err = put_bytes(w, w->mask, (size_t)((w->tokens + 7) / 8), why);
    if (err == 0)
        err = pad(w, why);
    for (size_t i = 0; i < w->documents && err == 0; i++) {
        uint8_t place[8];
        put(place, w->starts[i], 8);
        err = put_bytes(w, place, sizeof place, why);
    }
    return err ? err : flush(w, why);
}

static int end_file(struct shards_writer *w, struct why *why)
{
    int err = put_behind_ids(w, why);
    if (err == 0)
        err = write_header(w, why);
    if (err == 0 && fsync(w->fd) != 0)
        err = why_errno(why, "%s", w->partial);
    if (close(w->fd) != 0 && err == 0)
        err = why_errno(why, "%s", w->partial);
    w->fd = -1;
    if (err == 0 && rename(w->partial, w->path) != 0)
        err = why_errno(why, "%s", w->path);
    if (err)
        return err;
    json_array_append_new(w->list, json_pack("{s:s, s:I, s:I}", "name", strrchr(w->path, '/') + 1, "tokens",
                                             (json_int_t)w->tokens, "documents", (json_int_t)w->documents));
    w->totals.files++;
    w->totals.tokens += w->tokens;
    w->totals.learned += w->learned;
    w->totals.documents += w->documents;
    w->totals.bytes += w->bytes + TOKEN_FILE_HEADER;
    return 0;
}

/* ---- the folder ---- */

int shards_writer_open(const char *folder, const struct tokenizer *tokenizer, uint64_t tokens_each,
                       struct shards_writer **writer, struct why *why)
{
    BUG_IF(tokens_each == 0);
    if (shards_here(folder))
        return why_set(why, ERR_REFUSED, "%s has prepared data; remove it or name another folder", folder);
    int err = file_make_folders(folder, 0755, why);
    if (err)
        return err;
    struct shards_writer *w = mem_new(sizeof *w);
    w->folder = mem_text(folder);
    w->tokens_each = tokens_each;
    w->tokenizer = tokenizer_hash(tokenizer);
    w->vocabulary = tokenizer_count(tokenizer);
    w->width = w->vocabulary <= 65536 ? 2 : 4;
    w->list = json_array();
    w->block = mem_new(BLOCK);
    w->fd = -1;
    *writer = w;
    return 0;
}

static void note_marks(struct shards_writer *w, uint8_t mark)
{
    size_t byte = (size_t)(w->tokens / 8);
    if (byte >= w->mask_room) {
        w->mask_room = w->mask_room ? 2 * w->mask_room : 65536;
        w->mask = mem_grow(w->mask, w->mask_room, 1);
    }
    if (w->tokens % 8 == 0)
        w->mask[byte] = 0;
    if (mark & TOKEN_LEARNED) {
        w->mask[byte] |= (uint8_t)(1u << w->tokens % 8);
        w->learned++;
    }
    if (!(mark & TOKEN_BEGINS))
        return;
    if (w->documents == w->starts_room) {
        w->starts_room = w->starts_room ? 2 * w->starts_room : 4096;
        w->starts = mem_grow(w->starts, w->starts_room, sizeof *w->starts);
    }
    w->starts[w->documents++] = w->tokens;
}

int shards_writer_add(struct shards_writer *w, const uint32_t *ids, const uint8_t *marks, size_t count, struct why *why)
{
    int err = 0;
    for (size_t i = 0; i < count && err == 0; i++) {
        uint8_t id[4];
        /* A full file ends where a document does, or at twice its size. */
        bool full =
            w->fd >= 0 && w->tokens >= w->tokens_each && (marks[i] & TOKEN_BEGINS || w->tokens >= 2 * w->tokens_each);
        if (full)
            err = end_file(w, why);
        if (err == 0 && w->fd < 0)
            err = begin_file(w, why);
        if (err)
            break;
        note_marks(w, marks[i]);
        w->tokens++;
        put(id, ids[i], 4);
        err = put_bytes(w, id, (size_t)w->width, why);
    }
    return err;
}

int shards_writer_finish(struct shards_writer *w, struct shards_totals *totals, struct why *why)
{
    char hash[20], *path = mem_format("%s/" SHARDS_LIST, w->folder), *text = NULL;
    int err = w->fd >= 0 ? end_file(w, why) : 0;
    if (err == 0 && w->totals.tokens == 0)
        err = why_set(why, ERR_INVALID, "there is no token to write");
    if (err == 0) {
        snprintf(hash, sizeof hash, "%016" PRIx64, w->tokenizer);
        json_t *list =
            json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:O}", "format", FORMAT, "tokenizer", hash, "vocabulary",
                      (json_int_t)w->vocabulary, "tokens", (json_int_t)w->totals.tokens, "learned",
                      (json_int_t)w->totals.learned, "documents", (json_int_t)w->totals.documents, "files", w->list);
        char *json = json_dumps(list, JSON_INDENT(1));
        text = mem_format("%s\n", json);
        free(json);
        json_decref(list);
        err = file_write(path, text, strlen(text), 0644, why);
        mem_free(text);
    }
    mem_free(path);
    if (err == 0) {
        w->finished = true;
        *totals = w->totals;
    }
    return err;
}

void shards_writer_free(struct shards_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    if (w->partial)
        unlink(w->partial);
    for (size_t i = 0; !w->finished && i < json_array_size(w->list); i++) {
        char *path = mem_format("%s/%s", w->folder, json_string_value(json_object_get(json_array_get(w->list, i), "name")));
        unlink(path);
        mem_free(path);
    }
    json_decref(w->list);
    mem_free(w->folder);
    mem_free(w->path);
    mem_free(w->partial);
    mem_free(w->block);
    mem_free(w->mask);
    mem_free(w->starts);
    mem_free(w);
}

/* ---- reading ---- */

bool shards_here(const char *folder)
{
    char *path = mem_format("%s/" SHARDS_LIST, folder);
    bool here = access(path, F_OK) == 0;
    mem_free(path);
    return here;
}

static int read_list(const char *path, json_t **list, struct why *why)
{
    uint8_t *text = NULL;
    size_t bytes;
    json_error_t error;
    char safe[80];
    int err = file_read(path, LIST_MAX, &text, &bytes, why);
    if (err)
        return err;
    *list = json_loadb((const char *)text, bytes, JSON_REJECT_DUPLICATES, &error);
    mem_free(text);
    if (!*list)
        return why_set(why, ERR_INVALID, "%s:%d: %s", path, error.line,
                       text_harmless(error.text, strlen(error.text), safe, sizeof safe));
    const char *format = json_string_value(json_object_get(*list, "format"));
    const json_t *files = json_object_get(*list, "files");
    if (format && strcmp(format, FORMAT) == 0 && json_is_array(files) && json_array_size(files) <= FILES_MAX)
        return 0;
    json_decref(*list);
    *list = NULL;
    return why_set(why, ERR_INVALID, "%s: not a list of prepared data that this program knows (\"" FORMAT "\")", path);
}

int shards_list(const char *folder, int (*add_cb)(const char *path, void *arg, struct why *why), void *arg, struct why *why)
{
    char *path = mem_format("%s/" SHARDS_LIST, folder);
    json_t *list = NULL;
    int err = read_list(path, &list, why);
    const json_t *files = err ? NULL : json_object_get(list, "files");
    for (size_t i = 0; i < json_array_size(files) && err == 0; i++) {
        const char *name = json_string_value(json_object_get(json_array_get(files, i), "name"));
        if (!name || !*name || strchr(name, '/') || name[0] == '.') {
            err = why_set(why, ERR_INVALID, "%s: file number %zu is not in this folder", path, i + 1);
            continue;
        }
        char *file = mem_format("%s/%s", folder, name);
        err = add_cb(file, arg, why);
        mem_free(file);
    }
    json_decref(list);
    mem_free(path);
    return err;
}
