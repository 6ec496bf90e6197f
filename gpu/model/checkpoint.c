/*
 * A Hugging Face folder: config.json says the shape, model.safetensors or the files of model.safetensors.index.json hold the
 * tensors. What would change the result and is not supported (biases, scaled RoPE, quantised weights, another architecture)
 * is refused by its name.
 */
#include "gpu/model/checkpoint.h"

#include <inttypes.h>
#include <math.h>

#include <jansson.h>

#include "gpu/model/safetensors.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define CONFIG_MAX ((size_t)1 << 20)
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

static int read_json(const char *folder, const char *name, size_t max_bytes, json_t **json, struct why *why)
{
    char *path = mem_format("%s/%s", folder, name), safe[200];
    uint8_t *text = NULL;
    size_t bytes;
    json_error_t error;
    int err = file_read(path, max_bytes, &text, &bytes, why);
    if (err == 0) {
        *json = json_loadb((const char *)text, bytes, JSON_REJECT_DUPLICATES, &error);
        if (!*json)
            err = why_set(why, ERR_INVALID, "%s:%d: %s", path, error.line,
                          text_harmless(error.text, strlen(error.text), safe, sizeof safe));
    }
    if (err == 0 && !json_is_object(*json)) {
        err = why_set(why, ERR_INVALID, "%s: not a JSON object", path);
        json_decref(*json);
    }
    mem_free(text);
    mem_free(path);
    return err;
}

/* ---- config.json ---- */

struct config {
    const char *folder;
    const json_t *json;
};

static const json_t *member(const struct config *c, const char *key)
{
    const json_t *value = json_object_get(c->json, key);
    return json_is_null(value) ? NULL : value;
}

/* fallback < 0: the key must be there. */
static int read_integer(const struct config *c, const char *key, int64_t fallback, int64_t *out, struct why *why)
{
    const json_t *value = member(c, key);
    if (!value && fallback >= 0) {
        *out = fallback;
        return 0;
    }
    if (!json_is_integer(value))
        return why_set(why, ERR_INVALID, "%s/config.json: %s is %s", c->folder, key,
                       value ? "not a whole number" : "missing");
    *out = json_integer_value(value);
    return 0;
}

static int read_number(const struct config *c, const char *key, double fallback, float *out, struct why *why)
{
    const json_t *value = member(c, key);
    if (value && !json_is_number(value))
        return why_set(why, ERR_INVALID, "%s/config.json: %s is not a number", c->folder, key);
    *out = (float)(value ? json_number_value(value) : fallback);
    return 0;
}

static int must_be_false(const struct config *c, const char *key, struct why *why)
{
    const json_t *value = member(c, key);
    if (!value || json_is_false(value))
        return 0;
    return why_set(why, ERR_INVALID, "%s/config.json: %s is not supported", c->folder, key);
}

static int must_be_text(const struct config *c, const char *key, const char *wanted, struct why *why)
{
    const json_t *value = member(c, key);
    char safe[80];
    if (!value || (json_is_string(value) && strcmp(json_string_value(value), wanted) == 0))
        return 0;
    const char *theirs = json_is_string(value) ? json_string_value(value) : "(not a text)";
    return why_set(why, ERR_INVALID, "%s/config.json: %s \"%s\" is not supported, only \"%s\"", c->folder, key,
                   text_harmless(theirs, strlen(theirs), safe, sizeof safe), wanted);
}

/* RoPE lies at the top, or in rope_parameters in newer files; scaled kinds change every angle. */
static int read_rope(const struct config *c, float *theta, struct why *why)
{
    const json_t *scaling = member(c, "rope_scaling"), *parameters = member(c, "rope_parameters");
    const json_t *inner = parameters ? parameters : scaling;
    if (!inner)
        return read_number(c, "rope_theta", 10000, theta, why);
    struct config rope = {c->folder, inner};
    if (!json_is_object(inner))
        return why_set(why, ERR_INVALID, "%s/config.json: %s is not an object", c->folder,
                       parameters ? "rope_parameters" : "rope_scaling");
    if (!member(&rope, "rope_type") && !parameters)
        return must_be_false(c, "rope_scaling", why); /* older files say "type", and only when it is scaled */
    int err = must_be_text(&rope, "rope_type", "default", why);
    return err ? err : read_number(parameters ? &rope : c, "rope_theta", 10000, theta, why);
}

static int refuse_unsupported(const struct config *c, struct why *why)
{
    static const char *const switches[] = {"attention_bias", "mlp_bias", "quantization_config"};
    int err = must_be_text(c, "model_type", "llama", why);
    for (size_t i = 0; i < sizeof switches / sizeof *switches && err == 0; i++)
        err = must_be_false(c, switches[i], why);
    if (err == 0)
        err = must_be_text(c, "hidden_act", "silu", why);
    if (err == 0 && !member(c, "model_type"))
        err = why_set(why, ERR_INVALID, "%s/config.json: model_type is missing; \"llama\" is supported", c->folder);
    return err;
}

static int read_shape(const struct config *c, struct model_shape *s, struct why *why)
{
    const struct {
        const char *key;
        int64_t *out;
    } needed[] = {
        {"hidden_size", &s->hidden},           {"num_hidden_layers", &s->layers}, {"num_attention_heads", &s->heads},
        {"intermediate_size", &s->ffn},        {"vocab_size", &s->vocabulary},
    };
    int err = refuse_unsupported(c, why);
    for (size_t i = 0; i < sizeof needed / sizeof *needed && err == 0; i++)
        err = read_integer(c, needed[i].key, -1, needed[i].out, why);
    if (err == 0)
        err = read_integer(c, "num_key_value_heads", s->heads < 0 ? 0 : s->heads, &s->kv_heads, why);
    if (err == 0)
        err = read_integer(c, "head_dim", s->heads > 0 && s->hidden > 0 ? s->hidden / s->heads : 0, &s->head_width, why);
    if (err == 0)
        err = read_rope(c, &s->rope_theta, why);
    if (err == 0)
        err = read_number(c, "rms_norm_eps", 1e-6, &s->norm_epsilon, why);
    const json_t *tied = member(c, "tie_word_embeddings");
    if (err == 0 && tied && !json_is_boolean(tied))
        err = why_set(why, ERR_INVALID, "%s/config.json: tie_word_embeddings is neither true nor false", c->folder);
    s->tied = json_is_true(tied);
    return err;
}

int checkpoint_shape(const char *folder, struct model_shape *shape, struct why *why)
{
    json_t *json;
    struct model_shape read = {0};
    int err = read_json(folder, "config.json", CONFIG_MAX, &json, why);
    if (err)
        return err;
    struct config config = {folder, json};
    struct why inner = {0};
    err = read_shape(&config, &read, why);
    if (err == 0 && model_check(&read, &inner) != 0)
        err = why_set(why, ERR_INVALID, "%s/config.json: %s", folder, inner.text);
    json_decref(json);
    if (err == 0)
        *shape = read;
    return err;
}

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
        err = read_json(folder, "model.safetensors.index.json", INDEX_MAX, &index, &second);
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
