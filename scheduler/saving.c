#include "scheduler/saving.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "ssh/base/buf.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define FORMAT "kedge checkpoint 1" /* gpu/model/set.h reads it */
#define SETS_KEPT 2

static json_t *make_files(const struct saving *saving, int stages)
{
    json_t *files = json_array();
    for (int i = 0; i < stages; i++) {
        char hash[20];
        snprintf(hash, sizeof hash, "%016" PRIx64, saving->files[i].hash);
        json_array_append_new(files, json_pack("{s:s,s:I,s:s}", "file", saving->files[i].file, "bytes",
                                               (json_int_t)saving->files[i].bytes, "hash", hash));
    }
    return files;
}

static char *make_manifest(uint64_t run_id, const struct profile *profile, const struct saving *saving, int stages, struct why *why)
{
    struct buf settings;
    char id[20];
    char *text = NULL;
    buf_init(&settings, PROFILE_SETTINGS_BYTES);
    snprintf(id, sizeof id, "%016" PRIx64, run_id);
    if (profile_to_settings(profile, &settings, why) == 0) {
        json_t *json = json_pack("{s:s,s:s,s:s,s:I,s:s%,s:o}", "format", FORMAT, "run", profile->name, "run_id", id, "step",
                                 (json_int_t)saving->step, "settings", (const char *)buf_peek(&settings), buf_used(&settings), "files",
                                 make_files(saving, stages));
        text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
        json_decref(json);
        if (!text)
            why_set(why, ERR_INVALID, "the settings of the run are no text");
    }
    buf_clear(&settings);
    return text;
}

/* ---- older sets ---- */

static bool is_set(const char *sets, uint64_t step)
{
    char *path = mem_format("%s/%" PRIu64 "/manifest.json", sets, step);
    bool found = access(path, F_OK) == 0;
    mem_free(path);
    return found;
}

/* Steps that have a folder, in no order; mem_free. */
static uint64_t *list_steps(const char *sets, size_t *count)
{
    uint64_t *steps = NULL, step;
    DIR *folder = opendir(sets);
    *count = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (text_to_u64(entry->d_name, &step) != 0)
            continue;
        steps = mem_grow(steps, *count + 1, sizeof *steps);
        steps[(*count)++] = step;
    }
    if (folder)
        closedir(folder);
    return steps;
}

/* Everything older than the newest sets. What cannot be removed only takes room. */
static void remove_older(const char *sets)
{
    size_t count, newer;
    uint64_t *steps = list_steps(sets, &count);
    for (size_t i = 0; i < count; i++) {
        newer = 0;
        for (size_t k = 0; k < count; k++)
            newer += steps[k] > steps[i] && is_set(sets, steps[k]);
        if (newer < SETS_KEPT)
            continue;
        char *folder = mem_format("%s/%" PRIu64, sets, steps[i]);
        file_remove_tree(folder, NULL);
        mem_free(folder);
    }
    mem_free(steps);
}

int saving_write_manifest(const char *folder, uint64_t run_id, const struct profile *profile, const struct saving *saving, int stages,
                          struct why *why)
{
    char *sets = mem_format("%s/checkpoint", folder), *path = mem_format("%s/%" PRIu64 "/manifest.json", sets, saving->step);
    char *text = make_manifest(run_id, profile, saving, stages, why), *set = mem_format("%s/%" PRIu64, sets, saving->step);
    int err = text ? file_make_folders(set, 0700, why) : why->err; /* the stages' files may all be on other hosts */
    if (!err)
        err = file_write(path, text, strlen(text), 0600, why);
    if (!err)
        remove_older(sets);
    free(text);
    mem_free(set);
    mem_free(path);
    mem_free(sets);
    return err;
}
