/*
 * Any bytes as config.json or as the index of sharded weights: refused with a reason, or a model whose sizes can be counted. First
 * byte: which of the two; for configurations also whether the rest is the whole file, or one value of an otherwise valid one, so
 * that what is behind the parser is reached at once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "gpu/model/checkpoint.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static const char *const keys[] = {"model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                                   "num_key_value_heads", "head_dim", "vocab_size", "rms_norm_eps", "rope_theta", "rope_scaling",
                                   "rope_parameters", "hidden_act", "attention_bias", "mlp_bias", "tie_word_embeddings",
                                   "sliding_window", "use_sliding_window", "max_position_embeddings", "architectures"};

static const char *const families[] = {"llama", "mistral", "qwen2", "qwen3"};

static char folder[64];

static void write_file(const char *name, const void *bytes, size_t count)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    BUG_IF(!file || fwrite(bytes, 1, count, file) != count || fclose(file) != 0);
}

static char *changed(const uint8_t *bytes, size_t count)
{
    json_t *config = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:s, s:i}", "model_type", families[bytes[0] % 4],
                               "hidden_size", 64, "intermediate_size", 128, "num_hidden_layers", 2, "num_attention_heads", 4,
                               "num_key_value_heads", 2, "vocab_size", 256, "rms_norm_eps", 1e-5, "rope_theta", 1e4, "hidden_act",
                               "silu", "max_position_embeddings", 128);
    const uint8_t *end = bytes + count, *at = bytes + 1;
    for (int changes = 0; changes < 4 && at < end; changes++) {
        const char *key = keys[*at++ % (sizeof keys / sizeof *keys)];
        const uint8_t *stop = memchr(at, 0, (size_t)(end - at));
        size_t length = (size_t)((stop ? stop : end) - at);
        json_t *value = json_loadb((const char *)at, length, JSON_DECODE_ANY, NULL);
        if (value)
            json_object_set_new(config, key, value);
        at += length + (stop != NULL);
    }
    char *text = json_dumps(config, 0);
    json_decref(config);
    return text;
}

static void as_config(const uint8_t *bytes, size_t count, bool whole)
{
    char *text = whole || count == 0 ? NULL : changed(bytes, count);
    write_file("config.json", text ? (const void *)text : bytes, text ? strlen(text) : count);
    free(text);
    struct model_shape shape;
    struct why why = {0};
    if (checkpoint_shape(folder, &shape, &why) != 0) {
        BUG_IF(!why.err || !why.text[0]);
        return;
    }
    struct stage_shape stage = {.model = shape, .layers = shape.layers, .first = true, .last = true, .sequences = 1, .tokens = 1,
                                .slots = 1};
    BUG_IF(model_check(&shape, &why) != 0); /* what is read is a model */
    if (shape.layers < 1000 && stage_check(&stage, &why) == 0) {
        struct stage_memory memory = stage_memory(&stage);
        BUG_IF(memory.total < memory.weights || memory.weights / 4 < memory.parameters);
    }
}

static void as_index(const uint8_t *bytes, size_t count)
{
    struct checkpoint *checkpoint;
    struct why why = {0};
    write_file("model.safetensors.index.json", bytes, count);
    if (checkpoint_open(folder, &checkpoint, &why) == 0) {
        float out[4];
        checkpoint_get_rows(checkpoint, "a", 2, 2, 2, 0, 2, out, &why);
        checkpoint_close(checkpoint);
    } else {
        BUG_IF(!why.err || !why.text[0]);
    }
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
        char shard[8 + 64 + 16 + 1] = {64}; /* one shard that the index may name */
        snprintf(shard + 8, 65, "%-64s", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}");
        write_file("s", shard, sizeof shard - 1);
    }
    if (count == 0)
        return 0;
    if (*bytes % 4 == 3)
        as_index(bytes + 1, count - 1);
    else
        as_config(bytes + 1, count - 1, *bytes % 4 == 0);
    return 0;
}
