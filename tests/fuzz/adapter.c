/*
 * Any bytes as adapter_config.json or as adapter_model.safetensors beside a good one: refused with a reason, or an adapter that can be
 * counted and read whole. First byte: which of the two, and whether the rest is the whole file or changes to a valid one (a key and a
 * value each), so that what is behind the parser is reached at once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "gpu/model/adapter.h"
#include "gpu/model/carve.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static const char *const keys[] = {
    "peft_type", "r", "lora_alpha", "target_modules", "bias", "init_lora_weights", "lora_dropout", "use_dora", "use_rslora",
    "rank_pattern", "alpha_pattern", "modules_to_save", "layers_to_transform", "layers_pattern", "fan_in_fan_out",
    "base_model_name_or_path", "task_type", "exclude_modules", "lora_bias", "corda_config", "trainable_token_indices", "auto_mapping",
};
static const char *const parts[] = {"dtype", "shape", "data_offsets", "other"};

static const struct model_shape model = {.hidden = 8, .layers = 2, .heads = 2, .kv_heads = 1, .ffn = 12, .vocabulary = 16,
                                         .head_width = 4, .rope_theta = 1e4f, .norm_epsilon = 1e-5f};
static const struct lora_shape lora = {.rank = 2, .alpha = 4, .targets = 1u << LORA_Q | 1u << LORA_DOWN};

static char folder[64];

static void write_file(const char *name, const void *bytes, size_t count)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    BUG_IF(!file || fwrite(bytes, 1, count, file) != count || fclose(file) != 0);
}

struct input {
    const uint8_t *at, *end;
};

static uint8_t next(struct input *input)
{
    return input->at < input->end ? *input->at++ : 0;
}

/* JSON up to a byte of 0, or NULL. */
static json_t *next_value(struct input *input)
{
    const uint8_t *stop = memchr(input->at, 0, (size_t)(input->end - input->at));
    size_t length = (size_t)((stop ? stop : input->end) - input->at);
    json_t *value = json_loadb((const char *)input->at, length, JSON_DECODE_ANY, NULL);
    input->at += length + (stop != NULL);
    return value;
}

static void write_json(const char *name, const json_t *json)
{
    char *text = json_dumps(json, 0);
    BUG_IF(!text);
    write_file(name, text, strlen(text));
    free(text);
}

/* What is read must be an adapter, and what is written of it must be read as the same. */
static void read_config(void)
{
    struct lora_shape read, again;
    struct why why = {0};
    if (adapter_read(folder, &read, &why) != 0) {
        BUG_IF(!why.err || !why.text[0]);
        return;
    }
    BUG_IF(!read.rank || lora_check(&read, &why) != 0);
    struct stage_shape whole = {.model = model, .lora = read, .layers = model.layers, .first = true, .last = true, .sequences = 1,
                                .tokens = 1, .slots = 1};
    BUG_IF(stage_check(&whole, &why) == 0 && stage_memory(&whole).trained < (uint64_t)read.rank);
    json_t *made = adapter_make(&read, "base");
    write_json(ADAPTER_CONFIG, made);
    json_decref(made);
    BUG_IF(adapter_read(folder, &again, &why) != 0 || again.rank != read.rank || again.targets != read.targets);
}

static void as_config(struct input *input, bool whole)
{
    if (whole) {
        write_file(ADAPTER_CONFIG, input->at, (size_t)(input->end - input->at));
        read_config();
        return;
    }
    json_t *config = adapter_make(&lora, "base");
    for (int changes = 0; changes < 4 && input->at < input->end; changes++) {
        const char *key = keys[next(input) % (sizeof keys / sizeof *keys)];
        json_t *value = next_value(input);
        if (value)
            json_object_set_new(config, key, value);
    }
    write_json(ADAPTER_CONFIG, config);
    json_decref(config);
    read_config();
}

/* The header of a good file; the bytes of its data. */
static json_t *good_header(const struct carve_tensor *tensors, int count, size_t *data)
{
    json_t *header = json_object();
    *data = 0;
    for (int i = 0; i < count; i++) {
        json_int_t begin = (json_int_t)*data, bytes = 4 * tensors[i].rows * tensors[i].columns;
        *data += (size_t)bytes;
        json_object_set_new(header, tensors[i].name,
                            json_pack("{s:s, s:[I,I], s:[I,I]}", "dtype", "F32", "shape", (json_int_t)tensors[i].rows,
                                      (json_int_t)tensors[i].columns, "data_offsets", begin, begin + bytes));
    }
    return header;
}

static void change_header(json_t *header, const struct carve_tensor *tensors, int count, struct input *input)
{
    for (int changes = 0; changes < 4 && input->at < input->end; changes++) {
        const char *name = tensors[next(input) % count].name;
        uint8_t kind = next(input);
        json_t *value = next_value(input), *tensor = json_object_get(header, name);
        if (kind >= 240)
            json_object_set(header, kind % 2 ? "__metadata__" : "another", value);
        else if (kind >= 220)
            json_object_del(header, name);
        else if (value && tensor)
            json_object_set(tensor, parts[kind % 4], value);
        json_decref(value);
    }
}

static void write_tensors(const struct carve_tensor *tensors, int count, struct input *input)
{
    size_t data, length_bytes = 8;
    json_t *header = good_header(tensors, count, &data);
    uint8_t cut = next(input);
    change_header(header, tensors, count, input);
    char *text = json_dumps(header, 0);
    uint64_t length = strlen(text) + (cut == 255 ? UINT64_MAX / 2 : 0);
    size_t whole = length_bytes + strlen(text) + data;
    uint8_t *file = mem_new(whole);
    memcpy(file, &length, length_bytes);
    memcpy(file + length_bytes, text, strlen(text));
    write_file(ADAPTER_FILE, file, whole - (cut > 200 ? cut - 200 : 0));
    mem_free(file);
    free(text);
    json_decref(header);
}

static void as_tensors(struct input *input, bool whole)
{
    struct carve_block block;
    const struct stage_shape shape = {.model = model, .lora = lora, .layers = model.layers, .first = true, .last = true};
    struct carve_tensor *tensors = carve_trained(&shape, &block);
    struct checkpoint *checkpoint;
    struct why why = {0};
    json_t *config = adapter_make(&lora, "base");
    write_json(ADAPTER_CONFIG, config);
    json_decref(config);
    if (whole)
        write_file(ADAPTER_FILE, input->at, (size_t)(input->end - input->at));
    else
        write_tensors(tensors, block.tensors, input);
    if (adapter_open(folder, &model, &lora, &checkpoint, &why) == 0) {
        float out[64];
        for (int i = 0; i < block.tensors; i++) { /* what was taken can be read to its end */
            const struct carve_tensor *t = &tensors[i];
            BUG_IF(t->rows * t->columns > 64 ||
                   checkpoint_get_rows(checkpoint, t->name, 2, t->rows, t->columns, 0, t->rows, out, &why) != 0);
        }
        checkpoint_close(checkpoint);
    } else {
        BUG_IF(!why.err || !why.text[0]);
    }
    mem_free(tensors);
}

static void remove_folder(void)
{
    file_remove_tree(folder, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (!folder[0]) {
        snprintf(folder, sizeof folder, "/dev/shm/kedge-fuzz.XXXXXX");
        BUG_IF(!mkdtemp(folder));
        atexit(remove_folder);
    }
    if (count == 0)
        return 0;
    struct input input = {bytes + 1, bytes + count};
    if (bytes[0] & 1)
        as_tensors(&input, bytes[0] & 2);
    else
        as_config(&input, bytes[0] & 2);
    return 0;
}
