#include "gpu/model/set.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/model/config.h"
#include "ssh/base/file.h"
#include "ssh/base/hash.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define FILES_MOST 4096
#define CHUNK ((size_t)1 << 20)

/* ---- one file ---- */

static int hash_file(const char *path, uint64_t *bytes, uint64_t *hash, struct why *why)
{
    int err = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return why_errno(why, "cannot open %s", path);
    uint8_t *chunk = mem_new(CHUNK);
    ssize_t got;
    *bytes = 0;
    *hash = HASH_START;
    while ((got = read(fd, chunk, CHUNK)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            err = why_errno(why, "cannot read %s", path);
            break;
        }
        *hash = hash_add(*hash, chunk, (size_t)got);
        *bytes += (uint64_t)got;
    }
    *hash = hash_finish(*hash);
    mem_free(chunk);
    close(fd);
    return err;
}

int set_check_file(const char *path, uint64_t bytes, uint64_t hash, struct why *why)
{
    uint64_t real_bytes = 0, real_hash = 0;
    int err = hash_file(path, &real_bytes, &real_hash, why);
    if (!err && (real_bytes != bytes || real_hash != hash))
        err = why_set(why, ERR_INVALID, "%s has %" PRIu64 " bytes and the hash %016" PRIx64 ", its manifest says %" PRIu64
                      " bytes and %016" PRIx64, path, real_bytes, real_hash, bytes, hash);
    return err;
}

/* ---- one manifest ---- */

static bool read_hash(const json_t *value, uint64_t *hash)
{
    const char *text = json_string_value(value);
    char *end;
    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return false;
    *hash = strtoull(text, &end, 16);
    return true;
}

/* A set of all replicas has the same weights several times. */
static bool is_of_other_replica(const json_t *files, const json_t *row)
{
    return json_integer_value(json_object_get(row, "replica")) != json_integer_value(json_object_get(json_array_get(files, 0), "replica"));
}

static int read_file_row(struct set *set, const json_t *row, struct why *why)
{
    const char *name = json_string_value(json_object_get(row, "file"));
    const json_t *bytes = json_object_get(row, "bytes");
    uint64_t hash;
    if (!name || !*name || name[0] == '.' || strchr(name, '/') || !json_is_integer(bytes) ||
        !read_hash(json_object_get(row, "hash"), &hash))
        return why_set(why, ERR_INVALID, "%s/manifest.json: file %zu has no name, size and hash", set->folder, set->count + 1);
    char *path = mem_format("%s/%s", set->folder, name);
    set->files[set->count++] = path;
    if (set->elsewhere && access(path, F_OK) != 0)
        return 0;
    return set_check_file(path, (uint64_t)json_integer_value(bytes), hash, why);
}

static int read_manifest(struct set *set, const json_t *json, struct why *why)
{
    const char *format = json_string_value(json_object_get(json, "format"));
    const char *settings = json_string_value(json_object_get(json, "settings"));
    const json_t *live = json_object_get(json, "live");
    const json_t *step = json_object_get(json, "step"), *files = json_object_get(json, "files"), *row;
    size_t index;
    int err = 0;
    if (!format || strcmp(format, SET_FORMAT) != 0 || !settings || !json_is_integer(step) || json_integer_value(step) < 0 ||
        !read_hash(json_object_get(json, "run_id"), &set->run_id) || !json_is_array(files) || json_array_size(files) > FILES_MOST ||
        json_array_size(files) == 0)
        return why_set(why, ERR_INVALID, "%s/manifest.json is no manifest of format '%s'", set->folder, SET_FORMAT);
    set->step = (uint64_t)json_integer_value(step);
    set->settings = mem_text(settings);
    set->live = mem_text(json_is_string(live) ? json_string_value(live) : "");
    set->resumes = json_is_string(live);
    set->files = mem_array(json_array_size(files), sizeof *set->files);
    json_array_foreach(files, index, row) {
        if (!err && (set->whole || !is_of_other_replica(files, row)))
            err = read_file_row(set, row, why);
    }
    return err;
}

/* run_id 0: of any run. */
static int open_set(const char *folder, uint64_t run_id, bool elsewhere, struct set **set, struct why *why)
{
    json_t *json;
    int err = config_read_json(folder, "manifest.json", CONFIG_MAX, &json, why);
    if (err)
        return err;
    struct set *new = mem_new(sizeof *new);
    new->folder = mem_text(folder);
    new->elsewhere = elsewhere;
    new->whole = !run_id;
    err = read_manifest(new, json, why);
    json_decref(json);
    if (!err && run_id && new->run_id != run_id)
        err = why_set(why, ERR_ABSENT, "%s is of another run", folder);
    if (err)
        set_free(new);
    else
        *set = new;
    return err;
}

void set_free(struct set *set)
{
    if (!set)
        return;
    for (size_t i = 0; i < set->count; i++)
        mem_free(set->files[i]);
    mem_free(set->files);
    mem_free(set->settings);
    mem_free(set->live);
    mem_free(set->folder);
    mem_free(set);
}

/* ---- the newest ---- */

/* The largest step below `below` that has a folder; false when there is none. */
static bool newest_below(const char *sets, uint64_t below, uint64_t *step)
{
    DIR *folder = opendir(sets);
    bool found = false;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        uint64_t number;
        if (text_to_u64(entry->d_name, &number) != 0 || number >= below || (found && number <= *step))
            continue;
        *step = number;
        found = true;
    }
    if (folder)
        closedir(folder);
    return found;
}

int set_open(const char *run_folder, uint64_t step, bool elsewhere, struct set **set, struct why *why)
{
    char *folder = mem_format("%s/checkpoint/%" PRIu64, run_folder, step);
    int err = open_set(folder, 0, elsewhere, set, why);
    if (!err && (*set)->step != step) {
        err = why_set(why, ERR_INVALID, "%s/manifest.json is of step %" PRIu64, folder, (*set)->step);
        set_free(*set);
        *set = NULL;
    }
    mem_free(folder);
    return err;
}

int set_newest(const char *run_folder, uint64_t below, uint64_t *step, struct why *why)
{
    char *sets = mem_format("%s/checkpoint", run_folder);
    bool found = false;
    for (*step = below; !found && newest_below(sets, *step, step);) {
        char *path = mem_format("%s/%" PRIu64 "/manifest.json", sets, *step);
        found = access(path, F_OK) == 0;
        mem_free(path);
    }
    int err = found ? 0 : why_set(why, ERR_ABSENT, "%s has no set of weights", sets);
    mem_free(sets);
    return err;
}

static void remove_in(const char *folder, const char *file)
{
    size_t length = strlen(file);
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        bool ours = strncmp(entry->d_name, file, length) == 0 && (entry->d_name[length] == '\0' || entry->d_name[length] == '.');
        if (ours)
            unlinkat(dirfd(entries), entry->d_name, 0);
    }
    if (entries)
        closedir(entries);
    rmdir(folder);
}

void set_remove_file(const char *run_folder, const char *file, uint64_t below)
{
    char *sets = mem_format("%s/checkpoint", run_folder);
    for (uint64_t step = below; newest_below(sets, step, &step);) {
        char *folder = mem_format("%s/%" PRIu64, sets, step);
        remove_in(folder, file);
        mem_free(folder);
    }
    mem_free(sets);
}

int set_find(const char *run_folder, uint64_t run_id, struct set **set, struct why *why)
{
    char *sets = mem_format("%s/checkpoint", run_folder);
    int err = ERR_ABSENT;
    for (uint64_t below = UINT64_MAX, step = 0; err && newest_below(sets, below, &step); below = step) {
        struct why own = {0};
        char *folder = mem_format("%s/%" PRIu64, sets, step);
        err = open_set(folder, run_id, false, set, &own);
        if (err && err != ERR_ABSENT)
            fprintf(stderr, "kedge: passed over: %s\n", own.text);
        mem_free(folder);
    }
    if (err)
        err = why_set(why, ERR_ABSENT, "%s has no complete set of weights of this run; one is written when all steps are trained, and by "
                      "'kedge checkpoint'", sets);
    mem_free(sets);
    return err;
}
