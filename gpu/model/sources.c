#include "gpu/model/sources.h"

#include <errno.h>
#include <glob.h>
#include <sys/stat.h>

#include "gpu/model/shards.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"

#define FILES_MAX 20000

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

static bool ends_with(const char *path, const char *ending)
{
    size_t length = strlen(path), letters = strlen(ending);
    return length > letters && strcmp(path + length - letters, ending) == 0;
}

static enum source_kind kind_of(const char *path)
{
    return ends_with(path, ".jsonl") ? SOURCE_JSONL : ends_with(path, ".bin") ? SOURCE_TOKENS : SOURCE_TEXT;
}

/* Whether it is a file to read, and of what kind; a pattern may match other things, and those are left out. */
static int look_at(const char *label, struct source *source, const struct stat *status, bool *wanted, struct why *why)
{
    *wanted = true;
    source->device = status->st_dev;
    source->inode = status->st_ino;
    source->bytes = (size_t)status->st_size;
    source->kind = kind_of(source->path);
    const char *what = file_no_text(source->path); /* though any bytes would do: a run would learn noise and say nothing */
    if (S_ISREG(status->st_mode))
        return what ? why_set(why, ERR_INVALID, "%s%s %s", label, source->path, what) : 0;
    if (S_ISDIR(status->st_mode) && shards_here(source->path)) {
        source->kind = SOURCE_PREPARED;
        source->bytes = 0;
        return 0;
    }
    *wanted = false;
    if (!source->named)
        return 0;
    return why_set(why, ERR_INVALID, "%s%s is not a file; for a folder write %s/*", label, source->path, source->path);
}

static int keep_files(const char *label, struct sources *sources, struct why *why)
{
    size_t count = sources->count;
    int err = 0;
    sources->count = 0;
    for (size_t i = 0; i < count; i++) {
        struct source source = sources->rows[i];
        struct stat status;
        bool wanted = false;
        bool there = stat(source.path, &status) == 0;
        if (err == 0 && !there && (source.named || errno != ENOENT)) /* a link to nowhere that a pattern matches is no file */
            err = why_errno(why, "%s%s", label, source.path);
        else if (err == 0 && there)
            err = look_at(label, &source, &status, &wanted, why);
        if (err || !wanted || seen_before(sources, &status)) {
            mem_free(source.path);
            continue;
        }
        sources->bytes += source.bytes;
        sources->rows[sources->count++] = source;
    }
    if (err == 0 && sources->count == 0)
        err = why_set(why, ERR_ABSENT, "data.path names no file");
    return err;
}

/* In order, without doubles; `err` is that of finding them. */
static int settle(const char *label, struct sources *new, int err, struct sources *sources, struct why *why)
{
    if (new->count)
        qsort(new->rows, new->count, sizeof *new->rows, by_path);
    if (err == 0)
        err = keep_files(label, new, why);
    if (err)
        sources_clear(new);
    else
        *sources = *new;
    return err;
}

int sources_take(const char *const *paths, size_t count, struct sources *sources, struct why *why)
{
    struct sources new = {0};
    new.rows = mem_array(count + 1, sizeof *new.rows);
    for (size_t i = 0; i < count; i++)
        new.rows[new.count++] = (struct source){.path = mem_text(paths[i]), .named = true};
    return settle("", &new, 0, sources, why);
}

int sources_find(const char *paths, struct sources *sources, struct why *why)
{
    int err = 0;
    char *words = mem_text(paths), *rest = NULL;
    struct sources new = {0};
    for (char *word = strtok_r(words, " \t\n", &rest); word && err == 0; word = strtok_r(NULL, " \t\n", &rest))
        err = add_word(&new, word, why);
    mem_free(words);
    return settle("data.path: ", &new, err, sources, why);
}

void sources_clear(struct sources *sources)
{
    for (size_t i = 0; i < sources->count; i++)
        mem_free(sources->rows[i].path);
    mem_free(sources->rows);
    *sources = (struct sources){0};
}
