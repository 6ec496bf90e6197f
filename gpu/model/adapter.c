#include "gpu/model/adapter.h"

#include <math.h>
#include <string.h>

#include "gpu/model/carve.h"
#include "gpu/model/config.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

static const char *const modules[LORA_TARGETS] = {
    [LORA_Q] = "q_proj",       [LORA_K] = "k_proj",   [LORA_V] = "v_proj",      [LORA_O] = "o_proj",
    [LORA_GATE] = "gate_proj", [LORA_UP] = "up_proj", [LORA_DOWN] = "down_proj"};

/* Read below, or of no effect on what an adapter that was trained means. */
static const char *const harmless[] = {
    "peft_type",     "r",            "lora_alpha",       "target_modules", "bias",          "init_lora_weights", "lora_dropout",
    "auto_mapping",  "peft_version", "base_model_name_or_path", "revision", "task_type",    "inference_mode",    "loftq_config",
    "megatron_core", "eva_config",   "qalora_group_size", "layers_pattern", "ensure_weight_tying",
};

static bool is_off(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) || (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static int refuse_unsupported(const char *folder, json_t *json, struct why *why)
{
    const char *key;
    json_t *value;
    char safe[80];
    json_object_foreach(json, key, value) {
        bool known = is_off(value);
        for (size_t i = 0; i < sizeof harmless / sizeof *harmless && !known; i++)
            known = strcmp(key, harmless[i]) == 0;
        if (!known)
            return why_set(why, ERR_INVALID, "%s/" ADAPTER_CONFIG ": %s is not supported", folder,
                           text_harmless(key, strlen(key), safe, sizeof safe));
    }
    return 0;
}

/* A text of the file must be one of these, NULL-terminated; absent is fine where `absent` says so. */
static int must_say(const char *folder, const json_t *json, const char *key, const char *const *words, bool absent, struct why *why)
{
    const json_t *value = json_object_get(json, key);
    const char *text = json_string_value(value);
    char safe[80];
    if ((!value || json_is_null(value)) && absent)
        return 0;
    for (; text && *words; words++)
        if (strcmp(text, *words) == 0)
            return 0;
    return why_set(why, ERR_INVALID, "%s/" ADAPTER_CONFIG ": %s = %s is not supported", folder, key,
                   text ? text_harmless(text, strlen(text), safe, sizeof safe) : value ? "(not a text)" : "(missing)");
}

/* PiSSA, OLoRA and others change the weights that the adapter is added to. */
static int check_beginning(const char *folder, const json_t *json, struct why *why)
{
    static const char *const plain[] = {"gaussian", "orthogonal", "eva", NULL};
    return json_is_boolean(json_object_get(json, "init_lora_weights"))
               ? 0
               : must_say(folder, json, "init_lora_weights", plain, true, why);
}

static int read_targets(const char *folder, const json_t *json, uint32_t *targets, struct why *why)
{
    const json_t *list = json_object_get(json, "target_modules"), *value;
    size_t index;
    char safe[80];
    *targets = 0;
    json_array_foreach(list, index, value) {
        const char *name = json_string_value(value);
        int target = 0;
        while (name && target < LORA_TARGETS && strcmp(name, modules[target]) != 0)
            target++;
        if (!name || target == LORA_TARGETS)
            return why_set(why, ERR_INVALID, "%s/" ADAPTER_CONFIG ": target_modules has %s; the projections q, k, v, o, gate, up and "
                           "down (q_proj …) are supported", folder,
                           name ? text_harmless(name, strlen(name), safe, sizeof safe) : "no text");
        *targets |= 1u << target;
    }
    return *targets ? 0 : why_set(why, ERR_INVALID, "%s/" ADAPTER_CONFIG ": target_modules is no list of modules", folder);
}

static int read_numbers(const char *folder, const json_t *json, struct lora_shape *lora, struct why *why)
{
    const json_t *rank = json_object_get(json, "r"), *alpha = json_object_get(json, "lora_alpha");
    struct why own = {0};
    if (!json_is_integer(rank) || json_integer_value(rank) < 1 || !json_is_number(alpha))
        return why_set(why, ERR_INVALID, "%s/" ADAPTER_CONFIG ": r must be a whole number above 0 and lora_alpha a number", folder);
    lora->rank = json_integer_value(rank);
    lora->alpha = (float)json_number_value(alpha);
    return lora_check(lora, &own) ? why_set(why, ERR_INVALID, "%s/" ADAPTER_CONFIG ": %s", folder, own.text) : 0;
}

int adapter_read(const char *folder, struct lora_shape *lora, struct why *why)
{
    static const char *const types[] = {"LORA", NULL}, *const biases[] = {"none", NULL};
    json_t *json;
    int err = config_read_json(folder, ADAPTER_CONFIG, CONFIG_MAX, &json, why);
    if (err)
        return err;
    *lora = (struct lora_shape){.rank = 0};
    err = must_say(folder, json, "peft_type", types, false, why);
    if (!err)
        err = refuse_unsupported(folder, json, why);
    if (!err)
        err = must_say(folder, json, "bias", biases, true, why);
    if (!err)
        err = check_beginning(folder, json, why);
    if (!err)
        err = read_targets(folder, json, &lora->targets, why);
    if (!err)
        err = read_numbers(folder, json, lora, why);
    json_decref(json);
    return err;
}

/* ---- tensors ---- */

static int same_adapters(const struct lora_shape *ours, const struct lora_shape *theirs, const char *folder, struct why *why)
{
    bool same_alpha = !(ours->alpha < theirs->alpha) && !(ours->alpha > theirs->alpha);
    if (ours->rank == theirs->rank && ours->targets == theirs->targets && same_alpha)
        return 0;
    return why_set(why, ERR_INVALID, "%s/" ADAPTER_CONFIG " has another rank, alpha or other targets than this run was planned with",
                   folder);
}

/* A tensor of another shape, or more than an adapter's, means more than we would read. */
static int check_tensors(struct checkpoint *checkpoint, const char *folder, const struct stage_shape *whole, struct why *why)
{
    struct carve_block block;
    struct carve_tensor *tensors = carve_trained(whole, &block);
    int64_t widest = 0;
    int err = 0;
    for (int i = 0; i < block.tensors; i++)
        widest = tensors[i].columns > widest ? tensors[i].columns : widest;
    float *row = mem_array((size_t)widest, sizeof *row);
    for (int i = 0; i < block.tensors && !err; i++)
        err = checkpoint_get_rows(checkpoint, tensors[i].name, 2, tensors[i].rows, tensors[i].columns, 0, 1, row, why);
    if (!err && checkpoint_tensors(checkpoint) != (size_t)block.tensors)
        err = why_set(why, ERR_INVALID, "%s/" ADAPTER_FILE " has %zu tensors, of which %d are adapters of its target_modules: the others "
                      "are not supported", folder, checkpoint_tensors(checkpoint), block.tensors);
    mem_free(row);
    mem_free(tensors);
    return err;
}

int adapter_open(const char *folder, const struct model_shape *model, const struct lora_shape *lora, struct checkpoint **checkpoint,
                 struct why *why)
{
    struct lora_shape theirs;
    struct checkpoint *opened = NULL;
    const struct stage_shape whole = {.model = *model, .lora = *lora, .layers = model->layers, .first = true, .last = true};
    int err = adapter_read(folder, &theirs, why);
    if (!err)
        err = same_adapters(lora, &theirs, folder, why);
    if (!err)
        err = checkpoint_open_file(folder, ADAPTER_FILE, &opened, why);
    if (!err)
        err = check_tensors(opened, folder, &whole, why);
    if (err)
        checkpoint_close(opened);
    else
        *checkpoint = opened;
    return err;
}

/* ---- out ---- */

static json_t *list_targets(uint32_t targets)
{
    json_t *list = json_array();
    for (int target = 0; target < LORA_TARGETS; target++)
        if (targets & 1u << target)
            json_array_append_new(list, json_string(modules[target]));
    return list;
}

static json_t *number_of(float value)
{
    bool whole = value < 1e9f && !(floorf(value) < value);
    return whole ? json_integer((json_int_t)value) : json_real(checkpoint_number(value));
}

json_t *adapter_make(const struct lora_shape *lora, const char *base)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:I, s:o, s:i, s:o, s:s, s:b, s:b, s:b, s:b, s:b, s:{}, s:{}, s:n, s:n}", "peft_type", "LORA",
                             "task_type", "CAUSAL_LM", "base_model_name_or_path", base, "r", (json_int_t)lora->rank, "lora_alpha",
                             number_of(lora->alpha), "lora_dropout", 0, "target_modules", list_targets(lora->targets), "bias", "none",
                             "fan_in_fan_out", 0, "inference_mode", 1, "init_lora_weights", 1, "use_dora", 0, "use_rslora", 0,
                             "rank_pattern", "alpha_pattern", "modules_to_save", "layers_to_transform");
    if (!json)
        BUG("adapter_config.json cannot be made");
    return json;
}
