/*
 * tokenizer.json as a whole: version, added tokens and how they are looked for, the vocabulary, and what goes around a
 * text. `truncation` and `padding` are left aside on purpose: they are settings of a caller of the reference library, which
 * it turns off for plain encoding.
 */
#include "gpu/model/tokenizer_inside.h"

#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define WRAP_MAX 16
#define CONFIG_MAX ((size_t)4 << 20)

/* ---- added tokens as they are looked for ---- */

/* A token that is looked for behind the normalizers stands for what they made of it. */
static void keep_text(struct tokenizer *t, uint32_t id, const uint8_t *text, size_t bytes)
{
    t->kept = mem_grow(t->kept, t->kept_count + 1, sizeof *t->kept);
    t->tokens[id].text = t->kept[t->kept_count++] = mem_copy(text, bytes);
    t->tokens[id].text_bytes = (uint32_t)bytes;
}

static int add_pattern(const char *label, struct tokenizer *t, const json_t *row, struct buf buffers[2], struct why *why)
{
    struct tokenizer_place at = {label, "added_tokens"};
    const char *content = json_string_value(json_object_get(row, "content"));
    const uint8_t *text = (const uint8_t *)content;
    size_t bytes = strlen(content);
    struct added added = {.id = (uint32_t)json_integer_value(json_object_get(row, "id"))};
    bool normalized;
    const struct {
        const char *key;
        bool *out;
        int fallback;
    } flags[] = {{"single_word", &added.single_word, 0}, {"lstrip", &added.left_strip, 0}, {"rstrip", &added.right_strip, 0},
                 {"normalized", &normalized, !t->tokens[added.id].special}};
    int err = 0;
    for (size_t i = 0; i < sizeof flags / sizeof *flags && err == 0; i++)
        err = tokenizer_bool(&at, row, flags[i].key, flags[i].fallback, flags[i].out, why);
    if (err == 0 && normalized)
        err = normal_apply(&t->rules, true, &text, &bytes, buffers, why);
    if (err == 0 && bytes == 0)
        err = why_set(why, ERR_INVALID, "%s: added_tokens: the normalizer leaves nothing of one", label);
    if (err)
        return err;
    added_put(normalized ? &t->added_late : &t->added_early, text, bytes, added);
    if (text != (const uint8_t *)content)
        keep_text(t, added.id, text, bytes);
    return 0;
}

static int add_patterns(const char *label, const json_t *json, struct tokenizer *t, struct why *why)
{
    const json_t *rows = tokenizer_member(json, "added_tokens");
    struct buf buffers[2];
    int err = 0;
    for (int i = 0; i < 2; i++)
        buf_init(&buffers[i], (size_t)1 << 20);
    for (size_t i = 0; i < json_array_size(rows) && err == 0; i++)
        err = add_pattern(label, t, json_array_get(rows, i), buffers, why);
    for (int i = 0; i < 2; i++)
        buf_clear(&buffers[i]);
    return err;
}

/* ---- what goes around a text ---- */

static int add_special(const struct tokenizer_place *at, const json_t *table, const json_t *special, struct tokenizer *t,
                       struct token_list *list, struct why *why)
{
    const json_t *ids = json_object_get(json_object_get(table, json_string_value(json_object_get(special, "id"))), "ids");
    for (size_t i = 0; i < json_array_size(ids) && list->count < WRAP_MAX; i++) {
        json_int_t id = json_integer_value(json_array_get(ids, i));
        if (!json_is_integer(json_array_get(ids, i)) || id < 0 || id >= t->count || !t->tokens[id].present)
            return why_set(why, ERR_INVALID, "%s: %s: special_tokens has an id that is no token", at->label, at->part);
        token_list_add(list, (uint32_t)id);
    }
    if (json_array_size(ids) == 0)
        return why_set(why, ERR_INVALID, "%s: %s: the template names a token that special_tokens does not explain",
                       at->label, at->part);
    return 0;
}

static int add_template(const struct tokenizer_place *at, const json_t *value, struct tokenizer *t, struct why *why)
{
    const json_t *parts = json_object_get(value, "single"), *table = json_object_get(value, "special_tokens");
    bool text_seen = false;
    int err = 0;
    if (!json_is_array(parts))
        return why_set(why, ERR_INVALID, "%s: %s: TemplateProcessing without a single", at->label, at->part);
    for (size_t i = 0; i < json_array_size(parts) && err == 0; i++) {
        const json_t *part = json_array_get(parts, i), *special = json_object_get(part, "SpecialToken");
        const json_t *sequence = json_object_get(part, "Sequence");
        if (special)
            err = add_special(at, table, special, t, text_seen ? &t->after : &t->before, why);
        else if (sequence && !text_seen)
            text_seen = true;
        else
            err = why_set(why, ERR_INVALID, "%s: %s: the template puts the text in twice, or something unknown", at->label,
                          at->part);
    }
    if (err == 0 && !text_seen)
        err = why_set(why, ERR_INVALID, "%s: %s: the template leaves the text out", at->label, at->part);
    return err;
}

static int add_processor(const struct tokenizer_place *at, const char *type, const json_t *value, void *arg, struct why *why)
{
    struct tokenizer *t = arg;
    if (strcmp(type, "ByteLevel") == 0) /* changes offsets only */
        return 0;
    if (strcmp(type, "TemplateProcessing") != 0)
        return tokenizer_refuse(at, "type", type, "ByteLevel, TemplateProcessing, Sequence", why);
    if (t->before.count || t->after.count)
        return tokenizer_refuse(at, "a second", type, "one", why);
    return add_template(at, value, t, why);
}

/* ---- the file ---- */

int tokenizer_load(const json_t *json, const char *label, struct tokenizer *t, struct why *why)
{
    struct tokenizer_place processor = {label, "post_processor"};
    if (!json_is_object(json))
        return why_set(why, ERR_INVALID, "%s: not a JSON object", label);
    int err = normal_load(label, json, &t->rules, why);
    if (err == 0)
        err = split_load(label, json, &t->splits, why);
    if (err == 0)
        err = vocabulary_load(label, json, split_byte_level(t->splits), t, why);
    if (err == 0)
        err = add_patterns(label, json, t, why);
    if (err == 0)
        err = tokenizer_each(&processor, json_object_get(json, processor.part), "processors", add_processor, t, why);
    if (err == 0)
        err = decode_load(label, json, &t->decoders, why);
    return err;
}

/* ---- what ends a text ---- */

static int read_config(const char *folder, const char *name, json_t **json, struct why *why)
{
    char *path = mem_format("%s/%s", folder, name), safe[TOKENIZER_SHOWN];
    uint8_t *text = NULL;
    size_t bytes;
    json_error_t error;
    int err = file_read(path, CONFIG_MAX, &text, &bytes, why);
    if (err == 0) {
        *json = json_loadb((const char *)text, bytes, 0, &error);
        if (!*json)
            err = why_set(why, ERR_INVALID, "%s:%d: %s", path, error.line,
                          text_harmless(error.text, strlen(error.text), safe, sizeof safe));
    }
    mem_free(text);
    mem_free(path);
    return err;
}

/* "eos_token": "</s>", or an object that has it as content. */
static int end_by_text(const char *folder, const json_t *json, struct tokenizer *t, struct why *why)
{
    const json_t *value = tokenizer_member(json, "eos_token");
    const char *text = json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
    char safe[TOKENIZER_SHOWN];
    if (!value)
        return 0;
    uint32_t id = text ? tokenizer_find(t, text) : TOKENIZER_NONE;
    if (id == TOKENIZER_NONE)
        return why_set(why, ERR_INVALID, "%s/tokenizer_config.json: eos_token \"%s\" is no token of tokenizer.json", folder,
                       text ? text_harmless(text, strlen(text), safe, sizeof safe) : "(not a text)");
    t->end = id;
    return 0;
}

/* "eos_token_id": 2, or a list of which the first ends a text. */
static int end_by_id(const char *folder, const json_t *json, struct tokenizer *t, struct why *why)
{
    const json_t *value = tokenizer_member(json, "eos_token_id");
    if (json_is_array(value))
        value = json_array_get(value, 0);
    if (!value)
        return 0;
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id >= t->count || !t->tokens[id].present)
        return why_set(why, ERR_INVALID, "%s/config.json: eos_token_id is no token of tokenizer.json", folder);
    t->end = (uint32_t)id;
    return 0;
}

int tokenizer_load_end(const char *folder, struct tokenizer *t, struct why *why)
{
    static const struct {
        const char *name;
        int (*read)(const char *folder, const json_t *json, struct tokenizer *t, struct why *why);
    } files[] = {{"tokenizer_config.json", end_by_text}, {"config.json", end_by_id}};
    int err = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files && err == 0 && t->end == TOKENIZER_NONE; i++) {
        json_t *json = NULL;
        struct why inner = {0};
        err = read_config(folder, files[i].name, &json, &inner);
        if (err == 0)
            err = files[i].read(folder, json, t, why);
        else
            err = err == ERR_ABSENT ? 0 : why_set(why, err, "%s", inner.text);
        json_decref(json);
    }
    return err;
}
