/*
 * The tensors of a Hugging Face folder: in model.safetensors, or in the files of model.safetensors.index.json. config.json is read
 * by config.c.
 */
#include "gpu/model/checkpoint.h"

#include <inttypes.h>
#include <string.h>

#include <jansson.h>

#include "gpu/model/config.h"
#include "gpu/model/safetensors.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define INDEX_MAX ((size_t)64 << 20)
#define SHARDS_MAX 1024

struct shard {
    char *name;
    struct safetensors *file;
};

struct checkpoint {
    char *folder;
    json_t *index; /* weight_map: tensor → shard; NULL when there is one file */
    struct shard *shards;
    size_t count;
};

/* ---- tensors ---- */

static int open_shard(struct checkpoint *checkpoint, const char *name, struct why *why)
{
    char *path = mem_format("%s/%s", checkpoint->folder, name);
    struct safetensors *file;
    int err = safetensors_open(path, &file, why);
    if (err == 0) {
        checkpoint->shards = mem_grow(checkpoint->shards, checkpoint->count + 1, sizeof *checkpoint->shards);
        checkpoint->shards[checkpoint->count++] = (struct shard){mem_text(name), file};
    }
    mem_free(path);
    return err;
}

static struct safetensors *shard_named(const struct checkpoint *checkpoint, const char *name)
{
    for (size_t i = 0; name && i < checkpoint->count; i++)
        if (strcmp(checkpoint->shards[i].name, name) == 0)
            return checkpoint->shards[i].file;
    return NULL;
}

static int open_index(struct checkpoint *checkpoint, json_t *index, struct why *why)
{
    const char *tensor;
    json_t *value;
    char safe[120];
    checkpoint->index = json_incref(json_object_get(index, "weight_map"));
    if (!json_is_object(checkpoint->index))
        return why_set(why, ERR_INVALID, "%s/model.safetensors.index.json has no weight_map", checkpoint->folder);
    json_object_foreach(checkpoint->index, tensor, value) {
        const char *name = json_string_value(value);
        if (!name || !*name || strchr(name, '/') || name[0] == '.')
            return why_set(why, ERR_INVALID, "%s/model.safetensors.index.json: tensor %s is in no file of this folder",
                           checkpoint->folder, text_harmless(tensor, strlen(tensor), safe, sizeof safe));
        if (shard_named(checkpoint, name))
            continue;
        if (checkpoint->count == SHARDS_MAX)
            return why_set(why, ERR_INVALID, "%s/model.safetensors.index.json names more than %d files", checkpoint->folder,
                           SHARDS_MAX);
        int err = open_shard(checkpoint, name, why);
        if (err)
            return err;
    }
    return 0;
}

int checkpoint_open(const char *folder, struct checkpoint **checkpoint, struct why *why)
{
    struct checkpoint *new = mem_new(sizeof *new);
    struct why first = {0}, second = {0};
    json_t *index;
    new->folder = mem_text(folder);
    int err = open_shard(new, "model.safetensors", &first);
    if (err == ERR_ABSENT) {
        err = config_read_json(folder, "model.safetensors.index.json", INDEX_MAX, &index, &second);
        if (err == 0) {
            err = open_index(new, index, why);
            json_decref(index);
        } else if (err == ERR_ABSENT) {
            err = why_set(why, err, "model file missing: %s has neither model.safetensors nor model.safetensors.index.json",
                          folder);
        } else {
            err = why_set(why, err, "%s", second.text);
        }
    } else if (err) {
        err = why_set(why, err, "%s", first.text);
    }
    if (err)
        checkpoint_close(new);
    else
        *checkpoint = new;
    return err;
}

int checkpoint_open_file(const char *folder, const char *name, struct checkpoint **checkpoint, struct why *why)
{
    struct checkpoint *new = mem_new(sizeof *new);
    new->folder = mem_text(folder);
    int err = open_shard(new, name, why);
    if (err)
        checkpoint_close(new);
    else
        *checkpoint = new;
    return err;
}

bool checkpoint_is_half(const struct checkpoint *checkpoint)
{
    for (size_t i = 0; i < checkpoint->count; i++)
        if (!safetensors_is_half(checkpoint->shards[i].file))
            return false;
    return true;
}

size_t checkpoint_tensors(const struct checkpoint *checkpoint)
{
    size_t count = 0;
    for (size_t i = 0; i < checkpoint->count; i++)
        count += safetensors_count(checkpoint->shards[i].file);
    return count;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    for (size_t i = 0; i < checkpoint->count; i++) {
        safetensors_close(checkpoint->shards[i].file);
        mem_free(checkpoint->shards[i].name);
    }
    json_decref(checkpoint->index);
    mem_free(checkpoint->shards);
    mem_free(checkpoint->folder);
    mem_free(checkpoint);
}

int checkpoint_get_rows(struct checkpoint *checkpoint, const char *name, int dims, int64_t rows, int64_t columns,
                        int64_t first, int64_t count, float *out, struct why *why)
{
    const struct safetensors *file =
        checkpoint->index ? shard_named(checkpoint, json_string_value(json_object_get(checkpoint->index, name)))
                          : checkpoint->shards[0].file;
    if (!file)
        return why_set(why, ERR_ABSENT, "%s/model.safetensors.index.json has no tensor %s", checkpoint->folder, name);
    int64_t shape[2] = {rows, columns};
    return safetensors_get(file, name, dims, shape, first * columns, count * columns, out, why);
}
