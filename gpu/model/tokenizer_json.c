#include "gpu/model/tokenizer_inside.h"
#include "ssh/base/text.h"

#define NESTED_MAX 8

const json_t *tokenizer_member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

int tokenizer_refuse(const struct tokenizer_place *at, const char *what, const char *theirs, const char *supported,
                     struct why *why)
{
    char safe[TOKENIZER_SHOWN];
    return why_set(why, ERR_INVALID, "%s: %s: %s%s%s%s is not supported; supported: %s", at->label, at->part, what,
                   theirs ? " \"" : "", theirs ? text_harmless(theirs, strlen(theirs), safe, sizeof safe) : "",
                   theirs ? "\"" : "", supported);
}

int tokenizer_type(const struct tokenizer_place *at, const json_t *value, const char **type, struct why *why)
{
    const char *found = json_string_value(json_object_get(value, "type"));
    if (!found)
        return why_set(why, ERR_INVALID, "%s: %s: an object with a \"type\" is expected", at->label, at->part);
    *type = found;
    return 0;
}

int tokenizer_bool(const struct tokenizer_place *at, const json_t *object, const char *key, int fallback, bool *out,
                   struct why *why)
{
    const json_t *value = tokenizer_member(object, key);
    if (!value && fallback >= 0) {
        *out = fallback;
        return 0;
    }
    if (!json_is_boolean(value))
        return why_set(why, ERR_INVALID, "%s: %s: %s is %s", at->label, at->part, key,
                       value ? "neither true nor false" : "missing");
    *out = json_is_true(value);
    return 0;
}

int tokenizer_text(const struct tokenizer_place *at, const json_t *object, const char *key, const char *fallback,
                   const char **out, struct why *why)
{
    const json_t *value = tokenizer_member(object, key);
    if (!value && fallback) {
        *out = fallback;
        return 0;
    }
    if (!json_is_string(value))
        return why_set(why, ERR_INVALID, "%s: %s: %s is %s", at->label, at->part, key, value ? "not a text" : "missing");
    if (json_string_length(value) > TOKENIZER_RULE_BYTES)
        return why_set(why, ERR_INVALID, "%s: %s: %s is longer than %d bytes", at->label, at->part, key,
                       TOKENIZER_RULE_BYTES);
    *out = json_string_value(value);
    return 0;
}

struct walk {
    const struct tokenizer_place *at;
    const char *list;
    int (*add_cb)(const struct tokenizer_place *at, const char *type, const json_t *value, void *arg, struct why *why);
    void *arg;
    int count;
};

static int walk_part(struct walk *walk, const json_t *value, int depth, struct why *why)
{
    const char *type;
    int err = tokenizer_type(walk->at, value, &type, why);
    if (err)
        return err;
    if (strcmp(type, "Sequence") != 0) {
        if (walk->count++ == TOKENIZER_STEPS)
            return why_set(why, ERR_INVALID, "%s: %s: more than %d steps", walk->at->label, walk->at->part, TOKENIZER_STEPS);
        return walk->add_cb(walk->at, type, value, walk->arg, why);
    }
    const json_t *parts = json_object_get(value, walk->list);
    if (!json_is_array(parts) || depth == NESTED_MAX)
        return why_set(why, ERR_INVALID, "%s: %s: a Sequence %s", walk->at->label, walk->at->part,
                       depth == NESTED_MAX ? "is nested too deep" : "without a list");
    for (size_t i = 0; i < json_array_size(parts) && err == 0; i++)
        err = walk_part(walk, json_array_get(parts, i), depth + 1, why);
    return err;
}

int tokenizer_each(const struct tokenizer_place *at, const json_t *value, const char *list,
                   int (*add_cb)(const struct tokenizer_place *at, const char *type, const json_t *value, void *arg,
                                 struct why *why),
                   void *arg, struct why *why)
{
    struct walk walk = {at, list, add_cb, arg, 0};
    return !value || json_is_null(value) ? 0 : walk_part(&walk, value, 0, why);
}
