#include "gpu/model/export.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/model/adapter.h"
#include "gpu/model/carve.h"
#include "gpu/model/config.h"
#include "gpu/model/merge.h"
#include "gpu/model/safetensors.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"

#define PIECE ((int64_t)1 << 20) /* values at a time */
#define COPY_MAX ((size_t)256 << 20)

struct export {
    const struct export_settings *settings;
    char *folder; /* under construction */
    json_t *config, *weight_map;
    struct safetensors **files;
    struct merge *merge; /* NULL: tensors are written as they are in the files */
    struct carve_tensor *tensors;
    int tensor_count;
    float *piece;
    struct export_result result;
};

/* ---- the place ---- */

static int check_place(const char *out, struct why *why)
{
    DIR *folder = opendir(out);
    if (!folder)
        return errno == ENOENT ? 0 : why_errno(why, "cannot write to %s", out);
    int entries = 0;
    for (struct dirent *entry; (entry = readdir(folder));)
        entries += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(folder);
    return entries ? why_set(why, ERR_REFUSED, "%s is not empty: nothing in it is overwritten, give a new folder", out) : 0;
}

static char *trimmed(const char *path)
{
    char *text = mem_text(path);
    for (size_t length = strlen(text); length > 1 && text[length - 1] == '/'; length--)
        text[length - 1] = '\0';
    return text;
}

static int make_place(struct export *x, const char *out, struct why *why)
{
    int err = check_place(out, why);
    if (err)
        return err;
    x->folder = mem_format("%s.XXXXXX", out);
    if (mkdtemp(x->folder) && chmod(x->folder, 0755) == 0)
        return 0;
    err = why_errno(why, "cannot make a folder beside %s", out);
    mem_free(x->folder);
    x->folder = NULL;
    return err;
}

/* ---- the small files ---- */

static int write_json(struct export *x, const char *name, const json_t *json, struct why *why)
{
    char *path = mem_format("%s/%s", x->folder, name), *text = json_dumps(json, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(16));
    if (!text)
        BUG("%s cannot be written as text", name);
    char *lines = mem_format("%s\n", text);
    int err = file_write(path, lines, strlen(lines), 0644, why);
    free(text);
    mem_free(lines);
    mem_free(path);
    return err;
}

static int copy_file(struct export *x, const char *name, struct why *why)
{
    char *from = mem_format("%s/%s", x->settings->origin, name), *to = mem_format("%s/%s", x->folder, name);
    uint8_t *data = NULL;
    size_t bytes;
    struct why absent = {0};
    int err = file_read(from, COPY_MAX, &data, &bytes, &absent);
    if (err == ERR_ABSENT)
        err = 0;
    else if (err)
        err = why_set(why, err, "%s", absent.text);
    else
        err = file_write(to, data, bytes, 0644, why);
    mem_free(data);
    mem_free(from);
    mem_free(to);
    return err;
}

static bool is_adapter(const struct export *x)
{
    return x->settings->lora.rank && !x->settings->merge;
}

static int write_small_files(struct export *x, struct why *why)
{
    static const char *const kept[] = {
        "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
        "vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json",
    };
    int err = 0;
    if (is_adapter(x))
        return write_json(x, ADAPTER_CONFIG, x->config, why);
    if (!x->settings->origin) {
        json_t *generation = json_pack("{s:b}", "do_sample", 0);
        err = write_json(x, "generation_config.json", generation, why);
        json_decref(generation);
    }
    for (size_t i = 0; x->settings->origin && i < sizeof kept / sizeof *kept && !err; i++)
        err = copy_file(x, kept[i], why);
    return err ? err : write_json(x, "config.json", x->config, why);
}

/* ---- config ---- */

static int choose_format(const struct export *x, struct why *why)
{
    static const char *const names[] = {[WEIGHTS_F32] = "float32", [WEIGHTS_BF16] = "bfloat16", [WEIGHTS_F16] = "float16"};
    const char *key = json_object_get(x->config, "dtype") ? "dtype" : "torch_dtype";
    const char *theirs = json_string_value(json_object_get(x->config, key));
    int format = x->settings->format;
    for (int i = 0; format < 0 && theirs && i < WEIGHTS_FORMATS; i++)
        if (strcmp(theirs, names[i]) == 0)
            format = i;
    format = format < 0 ? WEIGHTS_F32 : format;
    if (format >= WEIGHTS_FORMATS)
        return why_set(why, ERR_INVALID, "weights cannot be written in format %d", format);
    json_object_set_new(x->config, key, json_string(names[format]));
    return format;
}

static int load_config(struct export *x, struct why *why)
{
    const struct export_settings *s = x->settings;
    int err = 0;
    if (is_adapter(x)) {
        x->config = adapter_make(&s->lora, s->origin);
        x->result.format = s->format < 0 ? WEIGHTS_F32 : s->format;
        return 0;
    }
    if (s->origin)
        err = config_read_json(s->origin, "config.json", CONFIG_MAX, &x->config, why);
    else
        x->config = config_make(&s->shape, s->context);
    if (err)
        return err;
    json_object_set_new(x->config, "tie_word_embeddings", json_boolean(s->shape.tied));
    int format = choose_format(x, why);
    if (format < 0)
        return format;
    x->result.format = format;
    return 0;
}

/* ---- weights ---- */

static int open_files(struct export *x, struct why *why)
{
    const struct export_settings *s = x->settings;
    int err = 0;
    x->files = mem_array(s->file_count, sizeof *x->files);
    for (size_t i = 0; i < s->file_count && !err; i++)
        err = safetensors_open(s->files[i], &x->files[i], why);
    return err;
}

static void list_tensors(struct export *x)
{
    struct stage_shape whole = {.model = x->settings->shape, .layers = x->settings->shape.layers, .first = true, .last = true,
                                .sequences = 1, .tokens = 1, .slots = 1};
    struct carve_block block;
    if (is_adapter(x))
        whole.lora = x->settings->lora;
    x->tensors = carve_trained(&whole, &block);
    x->tensor_count = block.tensors;
}

static int merge_tensor(struct export *x, const struct carve_tensor *t, struct safetensors_out *out, struct why *why)
{
    int64_t at_once = PIECE / t->columns;
    int err = 0;
    for (int64_t row = 0; row < t->rows && !err; row += at_once) {
        int64_t rows = t->rows - row < at_once ? t->rows - row : at_once;
        err = merge_get(x->merge, t, row, rows, x->piece, why);
        if (!err)
            err = safetensors_add(out, x->piece, rows * t->columns, why);
    }
    return err;
}

static int copy_tensor(struct export *x, const struct carve_tensor *t, struct safetensors_out *out, struct why *why)
{
    const struct safetensors *file = NULL;
    int64_t shape[2] = {t->rows, t->columns}, total = t->rows * t->columns;
    int err = 0;
    for (size_t i = 0; i < x->settings->file_count && !file; i++)
        file = safetensors_has(x->files[i], t->name) ? x->files[i] : NULL;
    if (!file)
        return why_set(why, ERR_ABSENT, "none of the %zu files has the tensor %s", x->settings->file_count, t->name);
    for (int64_t done = 0; done < total && !err; done += PIECE) {
        int64_t count = total - done < PIECE ? total - done : PIECE;
        err = safetensors_get(file, t->name, t->dims, shape, done, count, x->piece, why);
        if (!err)
            err = safetensors_add(out, x->piece, count, why);
    }
    return err;
}

static int64_t tensor_bytes(const struct export *x, int index)
{
    return x->tensors[index].rows * x->tensors[index].columns * weights_format_bytes(x->result.format);
}

/* The end of the shard that begins with tensor `first`: at least one tensor, at most shard_bytes. */
static int shard_end(const struct export *x, int first)
{
    int64_t bytes = tensor_bytes(x, first);
    int end = first + 1;
    while (end < x->tensor_count && bytes + tensor_bytes(x, end) <= x->settings->shard_bytes)
        bytes += tensor_bytes(x, end++);
    return end;
}

static int write_shard(struct export *x, const char *name, int first, int end, struct why *why)
{
    static const char *const metadata[] = {"format", "pt", NULL}; /* transformers wants to be told */
    struct safetensors_entry *entries = mem_array((size_t)(end - first), sizeof *entries);
    struct safetensors_out *out = NULL;
    uint64_t bytes = 0, hash;
    char *path = mem_format("%s/%s", x->folder, name);
    for (int i = first; i < end; i++) {
        carve_entry(&x->tensors[i], &entries[i - first]);
        json_object_set_new(x->weight_map, x->tensors[i].name, json_string(name));
    }
    int err = safetensors_create(path, entries, (size_t)(end - first), x->result.format, metadata, &out, why);
    for (int i = first; i < end && !err; i++)
        err = x->merge ? merge_tensor(x, &x->tensors[i], out, why) : copy_tensor(x, &x->tensors[i], out, why);
    if (!err)
        err = safetensors_finish(out, &bytes, &hash, why);
    else
        safetensors_abandon(out);
    x->result.bytes += bytes;
    mem_free(path);
    mem_free(entries);
    return err;
}

static int write_index(struct export *x, struct why *why)
{
    int64_t total = 0;
    for (int i = 0; i < x->tensor_count; i++)
        total += tensor_bytes(x, i);
    json_t *index = json_pack("{s:{s:I},s:O}", "metadata", "total_size", (json_int_t)total, "weight_map", x->weight_map);
    int err = write_json(x, "model.safetensors.index.json", index, why);
    json_decref(index);
    return err;
}

static int write_weights(struct export *x, struct why *why)
{
    int err = 0, shards = 0;
    x->weight_map = json_object();
    if (is_adapter(x)) {
        x->result.shards = 1;
        x->result.tensors = x->tensor_count;
        return write_shard(x, ADAPTER_FILE, 0, x->tensor_count, why);
    }
    for (int first = 0; first < x->tensor_count; first = shard_end(x, first))
        shards++;
    for (int first = 0, shard = 1, end; first < x->tensor_count && !err; first = end, shard++) {
        char name[64] = "model.safetensors";
        end = shard_end(x, first);
        if (shards > 1)
            snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", shard, shards);
        err = write_shard(x, name, first, end, why);
    }
    x->result.shards = shards;
    x->result.tensors = x->tensor_count;
    return err || shards == 1 ? err : write_index(x, why);
}

/* ---- the whole ---- */

static int settle(struct export *x, const char *out, struct why *why)
{
    struct why own = {0};
    if (file_sync_folder(x->folder, &own) != 0)
        return why_set(why, own.err, "%s", own.text);
    if (rename(x->folder, out) != 0)
        return why_errno(why, "cannot give %s its name", out);
    mem_free(x->folder);
    x->folder = NULL;
    return file_sync_folder(out, why);
}

static void clear(struct export *x)
{
    if (x->folder)
        file_remove_tree(x->folder, NULL);
    merge_free(x->merge);
    for (size_t i = 0; x->files && i < x->settings->file_count; i++)
        safetensors_close(x->files[i]);
    json_decref(x->config);
    json_decref(x->weight_map);
    mem_free(x->folder);
    mem_free(x->files);
    mem_free(x->tensors);
    mem_free(x->piece);
}

int export_write(const struct export_settings *settings, struct export_result *result, struct why *why)
{
    struct export x = {.settings = settings, .piece = mem_array((size_t)PIECE, sizeof(float))};
    char *out = trimmed(settings->out);
    int err = model_check(&settings->shape, why);
    if (!err)
        err = open_files(&x, why);
    if (!err && settings->lora.rank && settings->merge)
        err = merge_new(settings->origin, &settings->shape, &settings->lora, x.files, settings->file_count, &x.merge, why);
    if (!err)
        err = load_config(&x, why);
    if (!err)
        err = make_place(&x, out, why);
    if (!err) {
        list_tensors(&x);
        err = write_small_files(&x, why);
    }
    if (!err)
        err = write_weights(&x, why);
    if (!err)
        err = settle(&x, out, why);
    if (!err)
        *result = x.result;
    clear(&x);
    mem_free(out);
    return err;
}
