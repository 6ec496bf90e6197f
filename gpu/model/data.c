#include "gpu/model/data.h"

#include <glob.h>
#include <inttypes.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "gpu/math/philox.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"

#define TEXT_MAX ((uint64_t)4 << 30)
#define FILES_MAX 20000

struct data {
    uint8_t *text;
    size_t bytes, split; /* training: [0, split), validation: [split, bytes) */
};

struct source {
    char *path;
    bool named; /* not by a pattern */
    dev_t device;
    ino_t inode;
    size_t bytes, end; /* at most so many bytes; where they end in the text */
};

struct sources {
    struct source *rows;
    size_t count;
};

/* ---- which files ---- */

static int add_word(struct sources *sources, const char *word, struct why *why)
{
    glob_t found = {0};
    int err = 0, result = glob(word, GLOB_NOSORT, NULL, &found);
    if (result)
        err = why_set(why, result == GLOB_NOMATCH ? ERR_ABSENT : ERR_SYSTEM, "data.path: %s %s", word,
                      result == GLOB_NOMATCH ? "matches no file" : "cannot be searched");
    else if (found.gl_pathc > FILES_MAX - sources->count)
        err = why_set(why, ERR_INVALID, "data.path: more than %d files", FILES_MAX);
    for (size_t i = 0; err == 0 && i < found.gl_pathc; i++) {
        sources->rows = mem_grow(sources->rows, sources->count + 1, sizeof *sources->rows);
        sources->rows[sources->count++] =
            (struct source){.path = mem_text(found.gl_pathv[i]), .named = strcmp(found.gl_pathv[i], word) == 0};
    }
    globfree(&found);
    return err;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct source *)a)->path, ((const struct source *)b)->path);
}

static bool seen_before(const struct sources *sources, const struct stat *status)
{
    for (size_t i = 0; i < sources->count; i++)
        if (sources->rows[i].device == status->st_dev && sources->rows[i].inode == status->st_ino)
            return true;
    return false;
}

/* Drops what is no file (a pattern may match folders; who names one wants what is in it) and what was linked before. */
static int keep_files(struct sources *sources, struct why *why)
{
    size_t count = sources->count;
    int err = 0;
    sources->count = 0;
    for (size_t i = 0; i < count; i++) {
        struct source source = sources->rows[i];
        struct stat status;
        if (err == 0 && stat(source.path, &status) != 0)
            err = why_errno(why, "data.path: %s", source.path);
        else if (err == 0 && !S_ISREG(status.st_mode) && source.named)
            err = why_set(why, ERR_INVALID, "data.path: %s is not a file; for a folder write %s/*", source.path,
                          source.path);
        if (err || !S_ISREG(status.st_mode) || seen_before(sources, &status)) {
            mem_free(source.path);
            continue;
        }
        source.device = status.st_dev;
        source.inode = status.st_ino;
        source.bytes = (size_t)status.st_size;
        sources->rows[sources->count++] = source;
    }
    if (err == 0 && sources->count == 0)
        err = why_set(why, ERR_ABSENT, "data.path names no file");
    return err;
}

static int find_sources(const char *paths, struct sources *sources, struct why *why)
{
    int err = 0;
    char *words = mem_text(paths), *rest = NULL;
    for (char *word = strtok_r(words, " \t\n", &rest); word && err == 0; word = strtok_r(NULL, " \t\n", &rest))
        err = add_word(sources, word, why);
    mem_free(words);
    if (sources->count)
        qsort(sources->rows, sources->count, sizeof *sources->rows, by_path);
    return err ? err : keep_files(sources, why);
}

/* ---- their text ---- */

static int read_source(struct source *source, struct data *data, struct why *why)
{
    uint8_t *text;
    size_t bytes;
    int err = file_read(source->path, (size_t)TEXT_MAX, &text, &bytes, why);
    if (err)
        return err;
    if (bytes > source->bytes) /* it grew since it was counted */
        bytes = source->bytes;
    memcpy(data->text + data->bytes, text, bytes);
    mem_free(text);
    data->bytes += bytes;
    source->end = data->bytes;
    return 0;
}

static int read_sources(struct sources *sources, struct data *data, struct why *why)
{
    uint64_t total = 0;
    for (size_t i = 0; i < sources->count; i++) {
        total += sources->rows[i].bytes;
        if (total > TEXT_MAX)
            return why_set(why, ERR_INVALID, "data.path: more than %" PRIu64 " bytes of text in %zu files; give fewer",
                           TEXT_MAX, sources->count);
    }
    if (total == 0)
        return why_set(why, ERR_INVALID, "data.path: the text of %zu files is empty", sources->count);
    data->text = mem_large((size_t)total);
    if (!data->text)
        return why_set(why, ERR_MEMORY, "data.path: no memory for %" PRIu64 " bytes of text", total);
    for (size_t i = 0; i < sources->count; i++) {
        int err = read_source(&sources->rows[i], data, why);
        if (err)
            return err;
    }
    return 0;
}

static size_t choose_split(const struct sources *sources, size_t bytes, double share)
{
    size_t kept = (size_t)((double)bytes * share), wanted = bytes - kept, split = wanted, nearest = kept / 2;
    for (size_t i = 0; i < sources->count; i++) {
        size_t end = sources->rows[i].end, distance = end < wanted ? wanted - end : end - wanted;
        if (end < bytes && distance <= nearest) {
            split = end;
            nearest = distance;
        }
    }
    return split;
}

int data_open(const char *paths, double validation_share, struct data **data, struct why *why)
{
    struct sources sources = {0};
    struct data *new = mem_new(sizeof *new);
    int err = validation_share >= 0 && validation_share < 1
                  ? find_sources(paths, &sources, why)
                  : why_set(why, ERR_INVALID, "data.validation is %g; 0 to below 1 is possible", validation_share);
    if (err == 0)
        err = read_sources(&sources, new, why);
    if (err == 0) {
        new->split = choose_split(&sources, new->bytes, validation_share);
        *data = new;
    } else {
        data_close(new);
    }
    for (size_t i = 0; i < sources.count; i++)
        mem_free(sources.rows[i].path);
    mem_free(sources.rows);
    return err;
}

void data_close(struct data *data)
{
    if (!data)
        return;
    mem_large_free(data->text);
    mem_free(data);
}

uint64_t data_train_tokens(const struct data *data)
{
    return data->split;
}

uint64_t data_validation_tokens(const struct data *data)
{
    return data->bytes - data->split;
}

int data_check(const struct data *data, int64_t tokens, int64_t validation_windows, struct why *why)
{
    const struct {
        const char *side;
        uint64_t bytes;
        bool wanted;
    } sides[] = {{"training", data_train_tokens(data), true},
                 {"validation", data_validation_tokens(data), validation_windows > 0}};
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        if (sides[i].wanted && sides[i].bytes < (uint64_t)tokens + 1)
            return why_set(why, ERR_INVALID,
                           "data.path: too little text for %s: %" PRIu64 " bytes of %zu, a window needs %" PRIu64
                           "; give more files, change data.validation or shorten train.sequence",
                           sides[i].side, sides[i].bytes, data->bytes, (uint64_t)tokens + 1);
    return 0;
}

/* ---- windows ---- */

static void take_window(const uint8_t *text, int64_t tokens, uint32_t *ids)
{
    for (int64_t i = 0; i <= tokens; i++)
        ids[i] = text[i];
}

void data_train_window(const struct data *data, uint64_t seed, uint64_t step, uint32_t micro_batch, uint32_t sequence,
                       int64_t tokens, uint32_t *ids)
{
    BUG_IF(tokens < 1 || data_train_tokens(data) < (uint64_t)tokens + 1);
    /* The masks' draws have the seed as their key: another key, so that windows and masks have nothing in common. */
    uint32_t key[2] = {(uint32_t)seed ^ 0x64617461, (uint32_t)(seed >> 32) ^ 0x77696e64}, word[4];
    uint32_t counter[4] = {(uint32_t)step, (uint32_t)(step >> 32), micro_batch, sequence};
    philox4x32(counter, key, word);
    uint64_t draw = (uint64_t)word[0] << 32 | word[1], starts = data_train_tokens(data) - (uint64_t)tokens;
    take_window(data->text + (size_t)(((unsigned __int128)draw * starts) >> 64), tokens, ids);
}

void data_validation_window(const struct data *data, int64_t index, int64_t count, int64_t tokens, uint32_t *ids)
{
    BUG_IF(tokens < 1 || index < 0 || index >= count || data_validation_tokens(data) < (uint64_t)tokens + 1);
    uint64_t last = data_validation_tokens(data) - (uint64_t)tokens - 1;
    uint64_t start = count == 1 ? 0 : (uint64_t)(((unsigned __int128)last * (uint64_t)index) / (uint64_t)(count - 1));
    take_window(data->text + data->split + start, tokens, ids);
}
