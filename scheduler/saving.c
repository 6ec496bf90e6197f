#include "scheduler/saving.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "profiles/fields.h"
#include "ssh/base/buf.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define FORMAT "kedge checkpoint 1" /* gpu/model/set.h reads it */
#define MANIFEST_MOST ((size_t)1 << 20)

static json_t *make_files(const struct saving_run *run, const struct saving *saving)
{
    json_t *files = json_array();
    for (int i = 0; i < run->plan->stage_count; i++) {
        const struct plan_stage *stage = &run->plan->stages[i];
        char hash[20];
        if (!saving->has[i])
            continue;
        snprintf(hash, sizeof hash, "%016" PRIx64, saving->files[i].hash);
        json_array_append_new(files, json_pack("{s:s,s:I,s:s,s:i,s:i,s:i}", "file", saving->files[i].file, "bytes",
                                               (json_int_t)saving->files[i].bytes, "hash", hash, "replica", stage->replica,
                                               "first_layer", stage->first_layer, "layers", stage->layers));
    }
    return files;
}

/* Live rows whose value is not that of the profile any more, as NAME=VALUE lines. */
static void put_live(const struct saving_run *run, struct buf *out)
{
    size_t count;
    const struct field *rows = field_all(&count);
    struct why why = {0};
    for (size_t i = 0; i < count; i++) {
        char name[WIRE_NAME], begun[PROFILE_PATHS], now[PROFILE_PATHS];
        if (!rows[i].live || field_is_host(&rows[i]))
            continue;
        field_name(&rows[i], name, sizeof name);
        if (profile_get(run->profile, name, begun, sizeof begun, &why) == 0 && profile_get(run->live, name, now, sizeof now, &why) == 0 &&
            strcmp(begun, now) != 0)
            buf_format(out, "%s=%s\n", name, now);
    }
}

static json_t *number(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static char *make_manifest(const struct saving_run *run, const struct saving *saving, struct why *why)
{
    struct buf settings, live;
    char id[20];
    char *text = NULL;
    buf_init(&settings, PROFILE_SETTINGS_BYTES);
    buf_init(&live, PROFILE_SETTINGS_BYTES);
    snprintf(id, sizeof id, "%016" PRIx64, run->run_id);
    if (profile_to_settings(run->profile, &settings, why) == 0) {
        put_live(run, &live);
        json_t *json = json_pack("{s:s,s:s,s:s,s:I,s:s%,s:s%,s:I,s:o,s:o}", "format", FORMAT, "run", run->profile->name, "run_id", id, "step",
                                 (json_int_t)saving->step, "settings", (const char *)buf_peek(&settings), buf_used(&settings), "live",
                                 buf_used(&live) ? (const char *)buf_peek(&live) : "", buf_used(&live), "trained_ns",
                                 (json_int_t)run->state->trained_ns, "first_validation_loss", number(run->state->first_validation_loss),
                                 "files", make_files(run, saving));
        text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
        json_decref(json);
        if (!text)
            why_set(why, ERR_INVALID, "the settings of the run are no text");
    }
    buf_clear(&settings);
    buf_clear(&live);
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
static void remove_older(const char *sets, size_t kept)
{
    size_t count, newer;
    uint64_t *steps = list_steps(sets, &count);
    for (size_t i = 0; i < count; i++) {
        newer = 0;
        for (size_t k = 0; k < count; k++)
            newer += steps[k] > steps[i] && is_set(sets, steps[k]);
        if (newer < kept)
            continue;
        char *folder = mem_format("%s/%" PRIu64, sets, steps[i]);
        file_remove_tree(folder, NULL);
        mem_free(folder);
    }
    mem_free(steps);
}

int saving_write_manifest(const char *folder, const struct saving_run *run, const struct saving *saving, struct why *why)
{
    char *sets = mem_format("%s/checkpoint", folder), *path = mem_format("%s/%" PRIu64 "/manifest.json", sets, saving->step);
    char *text = make_manifest(run, saving, why), *set = mem_format("%s/%" PRIu64, sets, saving->step);
    int err = text ? file_make_folders(set, 0700, why) : why->err; /* the stages' files may all be on other hosts */
    if (!err)
        err = file_write(path, text, strlen(text), 0600, why);
    if (!err)
        remove_older(sets, (size_t)run->profile->checkpoint_keep);
    free(text);
    mem_free(set);
    mem_free(path);
    mem_free(sets);
    return err;
}

uint64_t saving_oldest(const char *folder)
{
    char *sets = mem_format("%s/checkpoint", folder);
    size_t count;
    uint64_t *steps = list_steps(sets, &count), oldest = UINT64_MAX;
    for (size_t i = 0; i < count; i++)
        if (steps[i] < oldest && is_set(sets, steps[i]))
            oldest = steps[i];
    mem_free(steps);
    mem_free(sets);
    return oldest == UINT64_MAX ? 0 : oldest;
}

/* ---- a run that goes on ---- */

static int read_step(const char *folder, uint64_t *step, struct why *why)
{
    char *path = mem_format("%s/resume", folder);
    uint8_t *text = NULL;
    size_t bytes;
    struct why own = {0};
    int err = file_read(path, 32, &text, &bytes, &own);
    *step = 0;
    if (err == ERR_ABSENT) {
        err = 0;
    } else if (err) {
        err = why_set(why, err, "%s", own.text);
    } else {
        text[strcspn((char *)text, "\n")] = '\0';
        if (text_to_u64((char *)text, step) != 0 || *step == 0)
            err = why_set(why, ERR_INVALID, "%s: no step of a set", path);
    }
    mem_free(text);
    mem_free(path);
    return err;
}

static bool read_file_row(const json_t *row, struct wire_saved *file, int *first_layer, int *layers)
{
    const char *name = json_string_value(json_object_get(row, "file")), *hash = json_string_value(json_object_get(row, "hash"));
    json_int_t bytes = json_integer_value(json_object_get(row, "bytes"));
    char *end;
    if (!name || strlen(name) >= sizeof file->file || !hash || strlen(hash) != 16 || bytes <= 0)
        return false;
    snprintf(file->file, sizeof file->file, "%s", name);
    file->bytes = (uint64_t)bytes;
    file->hash = strtoull(hash, &end, 16);
    *first_layer = (int)json_integer_value(json_object_get(row, "first_layer"));
    *layers = (int)json_integer_value(json_object_get(row, "layers"));
    return *end == '\0';
}

static const json_t *find_row(const json_t *files, const struct plan_stage *stage)
{
    char name[WIRE_NAME + 16];
    size_t index;
    const json_t *row;
    snprintf(name, sizeof name, "%s.safetensors", stage->process);
    json_array_foreach(files, index, row) {
        const char *file = json_string_value(json_object_get(row, "file"));
        if (file && strcmp(file, name) == 0)
            return row;
    }
    return NULL;
}

static int read_files(const json_t *json, const struct saving_run *run, struct saving *saving, struct why *why)
{
    const json_t *files = json_object_get(json, "files");
    if (json_array_size(files) > (size_t)run->plan->stage_count)
        return why_set(why, ERR_REFUSED, "the set of step %" PRIu64 " is of %zu processes, this plan has %d", saving->step,
                       json_array_size(files), run->plan->stage_count);
    for (int i = 0; i < run->plan->stage_count; i++) {
        const struct plan_stage *stage = &run->plan->stages[i];
        struct wire_saved *file = &saving->files[i];
        const json_t *row = find_row(files, stage);
        int first_layer, layers;
        file->step = saving->step;
        if (!row)
            return why_set(why, ERR_REFUSED, "the set of step %" PRIu64 " has nothing of %s: only the sets that checkpoint.every asks for have all "
                           "replicas, those that train then", saving->step, stage->process);
        if (!read_file_row(row, file, &first_layer, &layers))
            return why_set(why, ERR_INVALID, "the manifest of step %" PRIu64 ": file %d has no name, size and hash", saving->step, i + 1);
        if (first_layer != stage->first_layer || layers != stage->layers)
            return why_set(why, ERR_REFUSED, "%s of the set of step %" PRIu64 " has layers %d to %d, %s of this plan %d to %d: set pipeline.layers "
                           "as it was", file->file, saving->step, first_layer, first_layer + layers - 1, stage->process, stage->first_layer,
                           stage->first_layer + stage->layers - 1);
        saving->has[i] = true;
        saving->said++;
    }
    return 0;
}

static int read_manifest(const char *path, const struct saving_run *run, struct saving_resumed *resumed, struct why *why)
{
    uint8_t *text = NULL;
    size_t bytes;
    int err = file_read(path, MANIFEST_MOST, &text, &bytes, why);
    if (err)
        return err;
    json_t *json = json_loadb((const char *)text, bytes, JSON_REJECT_DUPLICATES, NULL);
    const char *format = json_string_value(json_object_get(json, "format"));
    const json_t *loss = json_object_get(json, "first_validation_loss"), *trained = json_object_get(json, "trained_ns");
    if (!format || strcmp(format, FORMAT) != 0 || json_integer_value(json_object_get(json, "step")) != (json_int_t)resumed->set.step)
        err = why_set(why, ERR_INVALID, "%s is no manifest of format '%s'", path, FORMAT);
    else
        err = read_files(json, run, &resumed->set, why);
    resumed->trained_ns = json_integer_value(trained) > 0 ? (uint64_t)json_integer_value(trained) : 0;
    resumed->first_validation_loss = json_is_real(loss) ? json_real_value(loss) : (double)NAN;
    json_decref(json);
    mem_free(text);
    return err;
}

/* Sets of later steps are of a run before, or of a history that is not this run's: they would be taken for its newest. */
static int put_newer_aside(const char *folder, uint64_t step, struct why *why)
{
    char *sets = mem_format("%s/checkpoint", folder), *old = mem_format("%s/checkpoint.1", folder);
    size_t count;
    uint64_t *steps = list_steps(sets, &count);
    int err = 0;
    for (size_t i = 0; i < count && !err; i++) {
        char *from = mem_format("%s/%" PRIu64, sets, steps[i]), *to = mem_format("%s/%" PRIu64, old, steps[i]);
        if (steps[i] > step) {
            err = file_make_folders(old, 0700, why);
            if (!err)
                err = file_remove_tree(to, why);
            if (!err && rename(from, to) != 0)
                err = why_errno(why, "cannot put %s aside", from);
        }
        mem_free(from);
        mem_free(to);
    }
    mem_free(steps);
    mem_free(sets);
    mem_free(old);
    return err;
}

int saving_resume(const char *folder, const struct saving_run *run, struct saving_resumed *resumed, struct why *why)
{
    struct wire_run_state state = {0};
    struct saving_run ours = *run;
    *resumed = (struct saving_resumed){.first_validation_loss = (double)NAN};
    int err = read_step(folder, &resumed->set.step, why);
    if (!err && !resumed->set.step)
        return put_newer_aside(folder, 0, why);
    if (err)
        return err;
    if (resumed->set.step >= (uint64_t)run->profile->steps)
        return why_set(why, ERR_REFUSED, "the set is of step %" PRIu64 ", and run.steps = %" PRId64 ": all of them are trained; set run.steps "
                       "higher", resumed->set.step, run->profile->steps);
    char *path = mem_format("%s/checkpoint/%" PRIu64 "/manifest.json", folder, resumed->set.step);
    err = read_manifest(path, run, resumed, why);
    mem_free(path);
    if (err)
        return err;
    resumed->set.complete = true;
    state.trained_ns = resumed->trained_ns;
    state.first_validation_loss = resumed->first_validation_loss;
    ours.state = &state;
    err = put_newer_aside(folder, resumed->set.step, why);
    return err ? err : saving_write_manifest(folder, &ours, &resumed->set, why);
}
