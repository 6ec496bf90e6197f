/*
 * config.json of a Hugging Face folder: which family, which shape. What would change the result and is not supported (other
 * biases, other kinds of scaled RoPE, sliding windows, quantised weights, another architecture) is refused by its name.
 */
#include "gpu/model/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/model/checkpoint.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

/* What `transformers` takes where the file says nothing, and what it never says. */
static const struct family {
    const char *type, *architecture;
    int64_t kv_heads, head_width; /* 0 = heads, hidden / heads */
    int64_t window;               /* of sliding attention where it is on */
    bool window_by_switch;        /* only with use_sliding_window */
    bool qkv_bias, qk_norm;
} families[] = {
    {"llama", "LlamaForCausalLM", 0, 0, 0, false, false, false}, /* SmolLM2 is one */
    {"mistral", "MistralForCausalLM", 8, 0, 4096, false, false, false},
    {"qwen2", "Qwen2ForCausalLM", 32, 0, 4096, true, true, false},
    {"qwen3", "Qwen3ForCausalLM", 32, 128, 4096, true, false, true},
};

int config_read_json(const char *folder, const char *name, size_t max_bytes, json_t **json, struct why *why)
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

/* ---- members ---- */

struct config {
    const char *folder;
    const json_t *json;
};

static const json_t *member(const struct config *c, const char *key)
{
    const json_t *value = json_object_get(c->json, key);
    return json_is_null(value) ? NULL : value;
}

/* A stranger's text, as it may be shown. */
static const char *shown(const json_t *value, char out[80])
{
    const char *text = json_is_string(value) ? json_string_value(value) : "(not a text)";
    return text_harmless(text, strlen(text), out, 80);
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

/* NaN: the key must be there. */
static int read_number(const struct config *c, const char *key, double fallback, float *out, struct why *why)
{
    const json_t *value = member(c, key);
    if (!value && isnan(fallback))
        return why_set(why, ERR_INVALID, "%s/config.json: %s is missing", c->folder, key);
    if (value && !json_is_number(value))
        return why_set(why, ERR_INVALID, "%s/config.json: %s is not a number", c->folder, key);
    *out = (float)(value ? json_number_value(value) : fallback);
    return 0;
}

static int read_switch(const struct config *c, const char *key, bool *out, struct why *why)
{
    const json_t *value = member(c, key);
    if (value && !json_is_boolean(value))
        return why_set(why, ERR_INVALID, "%s/config.json: %s is neither true nor false", c->folder, key);
    *out = json_is_true(value);
    return 0;
}

/* ---- what is refused ---- */

static int must_be_false(const struct config *c, const char *key, struct why *why)
{
    const json_t *value = member(c, key);
    if (!value || json_is_false(value))
        return 0;
    return why_set(why, ERR_INVALID, "%s/config.json: %s is not supported", c->folder, key);
}

static int find_family(const struct config *c, const struct family **family, struct why *why)
{
    const json_t *type = member(c, "model_type");
    char safe[80], all[200] = "";
    for (size_t i = 0, used = 0; i < sizeof families / sizeof *families; i++) {
        *family = &families[i];
        if (json_is_string(type) && strcmp(json_string_value(type), families[i].type) == 0)
            return 0;
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", families[i].type);
    }
    if (!type)
        return why_set(why, ERR_INVALID, "%s/config.json: model_type is missing; supported: %s", c->folder, all);
    return why_set(why, ERR_INVALID, "%s/config.json: model_type \"%s\" is not supported; supported: %s", c->folder,
                   shown(type, safe), all);
}

static int refuse_unsupported(const struct config *c, struct why *why)
{
    static const char *const switches[] = {"mlp_bias", "quantization_config"};
    const json_t *activation = member(c, "hidden_act"), *partial = member(c, "partial_rotary_factor");
    char safe[80];
    int err = 0;
    for (size_t i = 0; i < sizeof switches / sizeof *switches && err == 0; i++)
        err = must_be_false(c, switches[i], why);
    if (err == 0 && activation && !(json_is_string(activation) && strcmp(json_string_value(activation), "silu") == 0))
        err = why_set(why, ERR_INVALID, "%s/config.json: hidden_act \"%s\" is not supported, only \"silu\"", c->folder,
                      shown(activation, safe));
    if (err == 0 && partial && !(json_is_number(partial) && json_number_value(partial) >= 1 && json_number_value(partial) <= 1))
        err = why_set(why, ERR_INVALID, "%s/config.json: partial_rotary_factor is not supported", c->folder);
    return err;
}

/* Qwen2 has these biases without a word; where the switch is on, another one that is not supported comes along. */
static int read_bias(const struct config *c, const struct family *family, struct model_shape *s, struct why *why)
{
    bool bias;
    s->qkv_bias = family->qkv_bias;
    if (family->qkv_bias)
        return 0;
    int err = read_switch(c, "attention_bias", &bias, why);
    if (err == 0 && bias)
        err = why_set(why, ERR_INVALID, "%s/config.json: attention_bias (with a bias of o_proj) is not supported for model_type %s",
                      c->folder, family->type);
    return err;
}

/* ---- rotary positions ---- */

static int read_llama3(const struct config *top, const struct config *rope, struct model_shape *s, struct why *why)
{
    int err = read_number(rope, "low_freq_factor", (double)NAN, &s->scaling_low, why);
    if (err == 0)
        err = read_number(rope, "high_freq_factor", (double)NAN, &s->scaling_high, why);
    if (err == 0 && member(rope, "original_max_position_embeddings"))
        err = read_integer(rope, "original_max_position_embeddings", -1, &s->scaling_context, why);
    else if (err == 0)
        err = read_integer(top, "max_position_embeddings", -1, &s->scaling_context, why);
    return err;
}

/* `rope`: rope_scaling, or rope_parameters in newer files. */
static int read_scaling(const struct config *top, const struct config *rope, struct model_shape *s, struct why *why)
{
    const json_t *type = member(rope, "rope_type") ? member(rope, "rope_type") : member(rope, "type"); /* older files */
    const char *name = type ? json_string_value(type) : "default";
    char safe[80];
    if (name && strcmp(name, "default") == 0)
        return 0;
    if (name && strcmp(name, "linear") == 0)
        s->scaling = SCALING_LINEAR;
    else if (name && strcmp(name, "llama3") == 0)
        s->scaling = SCALING_LLAMA3;
    else
        return why_set(why, ERR_INVALID, "%s/config.json: rope_type \"%s\" is not supported; supported: default, linear, llama3",
                       top->folder, shown(type, safe));
    int err = read_number(rope, "factor", (double)NAN, &s->scaling_factor, why);
    return err || s->scaling == SCALING_LINEAR ? err : read_llama3(top, rope, s, why);
}

static int read_rope(const struct config *c, struct model_shape *s, struct why *why)
{
    const json_t *scaling = member(c, "rope_scaling"), *parameters = member(c, "rope_parameters");
    const json_t *inner = parameters ? parameters : scaling;
    struct config rope = {c->folder, inner};
    if (inner && !json_is_object(inner))
        return why_set(why, ERR_INVALID, "%s/config.json: %s is not an object", c->folder,
                       parameters ? "rope_parameters" : "rope_scaling");
    bool within = parameters && member(&rope, "rope_theta");
    int err = read_number(within ? &rope : c, "rope_theta", 10000, &s->rope_theta, why);
    return err || !inner ? err : read_scaling(c, &rope, s, why);
}

/* ---- windows ---- */

/* Whether any layer slides; layer_types says it in newer files. */
static int read_sliding(const struct config *c, const struct family *family, bool *slides, struct why *why)
{
    const json_t *types = member(c, "layer_types"), *type;
    size_t index;
    char safe[80];
    int err = 0;
    *slides = family->window > 0;
    if (family->window_by_switch)
        err = read_switch(c, "use_sliding_window", slides, why);
    if (err || !types)
        return err;
    if (!json_is_array(types))
        return why_set(why, ERR_INVALID, "%s/config.json: layer_types is not an array", c->folder);
    *slides = false;
    json_array_foreach(types, index, type) {
        bool sliding = json_is_string(type) && strcmp(json_string_value(type), "sliding_attention") == 0;
        if (!sliding && !(json_is_string(type) && strcmp(json_string_value(type), "full_attention") == 0))
            return why_set(why, ERR_INVALID, "%s/config.json: layer_types has \"%s\", which is not supported", c->folder,
                           shown(type, safe));
        *slides |= sliding;
    }
    return 0;
}

/* Null is no window; the key missing is the family's. Sequences within it do not notice it. */
static int read_window(const struct config *c, const struct family *family, int64_t *window, struct why *why)
{
    bool slides;
    int err = read_sliding(c, family, &slides, why);
    *window = 0;
    if (err || !slides || json_is_null(json_object_get(c->json, "sliding_window")))
        return err;
    err = read_integer(c, "sliding_window", family->window, window, why);
    if (err == 0 && *window < 1)
        err = why_set(why, ERR_INVALID, "%s/config.json: sliding_window is %" PRId64 "; it must be above 0", c->folder, *window);
    return err;
}

/* ---- the whole ---- */

static int read_sizes(const struct config *c, const struct family *family, struct model_shape *s, struct why *why)
{
    const struct {
        const char *key;
        int64_t *out;
    } needed[] = {
        {"hidden_size", &s->hidden},           {"num_hidden_layers", &s->layers}, {"num_attention_heads", &s->heads},
        {"intermediate_size", &s->ffn},        {"vocab_size", &s->vocabulary},
    };
    int err = 0;
    for (size_t i = 0; i < sizeof needed / sizeof *needed && err == 0; i++)
        err = read_integer(c, needed[i].key, -1, needed[i].out, why);
    if (err)
        return err;
    int64_t kv_heads = family->kv_heads ? family->kv_heads : s->heads < 0 ? 0 : s->heads;
    int64_t divided = s->heads > 0 && s->hidden > 0 ? s->hidden / s->heads : 0;
    err = read_integer(c, "num_key_value_heads", kv_heads, &s->kv_heads, why);
    return err ? err : read_integer(c, "head_dim", family->head_width ? family->head_width : divided, &s->head_width, why);
}

static int read_shape(const struct config *c, struct model_shape *s, struct why *why)
{
    const struct family *family;
    int err = find_family(c, &family, why);
    if (err == 0)
        err = refuse_unsupported(c, why);
    if (err == 0)
        err = read_bias(c, family, s, why);
    if (err == 0)
        err = read_sizes(c, family, s, why);
    if (err == 0)
        err = read_rope(c, s, why);
    if (err == 0)
        err = read_window(c, family, &s->window, why);
    if (err == 0)
        err = read_number(c, "rms_norm_eps", 1e-6, &s->norm_epsilon, why);
    if (err == 0)
        err = read_switch(c, "tie_word_embeddings", &s->tied, why);
    if (err == 0)
        s->qk_norm = family->qk_norm;
    return err;
}

int checkpoint_shape(const char *folder, struct model_shape *shape, struct why *why)
{
    json_t *json;
    struct model_shape read = {0};
    int err = config_read_json(folder, "config.json", CONFIG_MAX, &json, why);
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

/* ---- out ---- */

double checkpoint_number(float value)
{
    char text[32];
    int digits = 1;
    do
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
    while (strtof(text, NULL) != value && ++digits < 10);
    return strtod(text, NULL);
}

static json_t *make_scaling(const struct model_shape *s)
{
    if (s->scaling == SCALING_LINEAR)
        return json_pack("{s:s,s:f}", "rope_type", "linear", "factor", checkpoint_number(s->scaling_factor));
    if (s->scaling == SCALING_LLAMA3)
        return json_pack("{s:s,s:f,s:f,s:f,s:I}", "rope_type", "llama3", "factor", checkpoint_number(s->scaling_factor), "low_freq_factor",
                         checkpoint_number(s->scaling_low), "high_freq_factor", checkpoint_number(s->scaling_high), "original_max_position_embeddings",
                         (json_int_t)s->scaling_context);
    return json_null();
}

json_t *config_make(const struct model_shape *s, int64_t context)
{
    const struct family *family = families; /* the first that can say it */
    while (family->qkv_bias != s->qkv_bias || family->qk_norm != s->qk_norm || (s->window && !family->window))
        family++;
    json_t *config = json_pack(
        "{s:[s],s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:f,s:o,s:s,s:b,s:b,s:f,s:f,s:b,s:s}", "architectures", family->architecture,
        "model_type", family->type, "hidden_size", (json_int_t)s->hidden, "intermediate_size", (json_int_t)s->ffn, "num_hidden_layers",
        (json_int_t)s->layers, "num_attention_heads", (json_int_t)s->heads, "num_key_value_heads", (json_int_t)s->kv_heads, "head_dim",
        (json_int_t)s->head_width, "vocab_size", (json_int_t)s->vocabulary, "max_position_embeddings", (json_int_t)context,
        "rms_norm_eps", checkpoint_number(s->norm_epsilon), "rope_theta", checkpoint_number(s->rope_theta), "rope_scaling", make_scaling(s), "hidden_act",
        "silu", "tie_word_embeddings", (int)s->tied, "attention_bias", (int)family->qkv_bias, "attention_dropout", 0.0,
        "initializer_range", 0.02, "use_cache", 1, "torch_dtype", "float32");
    if (!config)
        BUG("a config.json cannot be made");
    static const char *const none[] = {"bos_token_id", "eos_token_id", "pad_token_id"}; /* or transformers takes 1 and 2 */
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        json_object_set_new(config, none[i], json_null());
    if (s->window) {
        json_object_set_new(config, "sliding_window", json_integer((json_int_t)s->window));
        if (family->window_by_switch)
            json_object_set_new(config, "use_sliding_window", json_true());
    }
    return config;
}
