/*
 * What is done to a text before it is cut: Unicode's composed form (NFC), a text put in front, a text replaced by another.
 *
 * NFC by utf8proc, and only where something can change: a run is handed over from a plain character on, up to the next one
 * that cannot combine with what stands before it. Bytes that are not UTF-8 stay as they are and end a run.
 */
#include <utf8proc.h>

#include "gpu/model/tokenizer_inside.h"
#include "gpu/model/utf8.h"
#include "ssh/base/mem.h"

#define SUPPORTED "NFC, Prepend, Replace with a text, Sequence"
#define MARKS_MAX                                                                                                           \
    256 /* on one letter: utf8proc sorts them in the square of their number, so more are composed piece by piece */

/* ---- reading ---- */

static int add_replace(const struct tokenizer_place *at, const json_t *value, struct normal_rule *rule, struct why *why)
{
    const json_t *pattern = json_object_get(value, "pattern");
    const char *from, *to;
    if (json_object_get(pattern, "Regex"))
        return tokenizer_refuse(at, "Replace with a Regex", NULL, SUPPORTED, why);
    int err = tokenizer_text(at, pattern, "String", NULL, &from, why);
    if (err == 0)
        err = tokenizer_text(at, value, "content", NULL, &to, why);
    if (err == 0 && !*from)
        err = why_set(why, ERR_INVALID, "%s: %s: Replace of an empty text", at->label, at->part);
    if (err == 0)
        *rule = (struct normal_rule){NORMAL_REPLACE, mem_text(from), mem_text(to)};
    return err;
}

static int add_rule(const struct tokenizer_place *at, const char *type, const json_t *value, void *arg, struct why *why)
{
    struct normal_rules *rules = arg;
    struct normal_rule rule = {NORMAL_NFC, NULL, NULL};
    const char *text;
    int err = 0;
    if (strcmp(type, "Prepend") == 0) {
        err = tokenizer_text(at, value, "prepend", NULL, &text, why);
        if (err == 0)
            rule = (struct normal_rule){NORMAL_PREPEND, NULL, mem_text(text)};
    } else if (strcmp(type, "Replace") == 0) {
        err = add_replace(at, value, &rule, why);
    } else if (strcmp(type, "NFC") != 0) {
        err = tokenizer_refuse(at, "type", type, SUPPORTED, why);
    }
    if (err == 0)
        rules->rows[rules->count++] = rule;
    return err;
}

int normal_load(const char *label, const json_t *json, struct normal_rules *rules, struct why *why)
{
    struct tokenizer_place at = {label, "normalizer"};
    return tokenizer_each(&at, json_object_get(json, at.part), "normalizers", add_rule, rules, why);
}

void normal_clear(struct normal_rules *rules)
{
    for (size_t i = 0; i < rules->count; i++) {
        mem_free(rules->rows[i].from);
        mem_free(rules->rows[i].to);
    }
    rules->count = 0;
}

/* ---- NFC ---- */

/* Composed already, and never part of what stands before it: so a text may be cut in front of it. */
static bool is_plain(uint32_t code)
{
    return code < 0x300 || (code >= 0x400 && code <= 0x482) || (code >= 0x3041 && code <= 0x3096) ||
           (code >= 0x30a1 && code <= 0x30fa) || (code >= 0x4e00 && code <= 0x9fff) || (code >= 0xac00 && code <= 0xd7a3);
}

static int put_composed(const uint8_t *text, size_t bytes, struct buf *out, struct why *why)
{
    utf8proc_uint8_t *composed = NULL;
    utf8proc_ssize_t made = utf8proc_map(text, (utf8proc_ssize_t)bytes, &composed, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (made < 0)
        return why_set(why, ERR_MEMORY, "normalizer: NFC of %zu bytes: %s", bytes, utf8proc_errmsg(made));
    int err = buf_put(out, composed, (size_t)made);
    free(composed);
    return err;
}

/* Where the run from `at` on ends, and whether all of it is plain. */
static size_t run_to_compose(const uint8_t *text, size_t bytes, size_t at, size_t *plain)
{
    size_t last = at, length, marks = 0;
    uint32_t code;
    *plain = 0;
    while ((length = utf8_read(text + at, bytes - at, &code)) && is_plain(code)) {
        last = at;
        at += length;
    }
    *plain = length && at < bytes ? last : at; /* what follows may combine with the last plain one */
    while (at < bytes && (length = utf8_read(text + at, bytes - at, &code)) && !is_plain(code) && marks < MARKS_MAX) {
        marks = utf8proc_get_property((utf8proc_int32_t)code)->combining_class ? marks + 1 : 0;
        at += length;
    }
    return at;
}

static int compose(const uint8_t *text, size_t bytes, struct buf *out, struct why *why)
{
    int err = 0;
    for (size_t at = 0; at < bytes && err == 0;) {
        size_t plain, end;
        if (utf8_length(text + at, bytes - at) == 0) {
            err = buf_put(out, text + at++, 1);
            continue;
        }
        end = run_to_compose(text, bytes, at, &plain);
        err = buf_put(out, text + at, plain - at);
        if (err == 0 && end > plain)
            err = put_composed(text + plain, end - plain, out, why);
        at = end;
    }
    return err;
}

/* ---- the others ---- */

static int replace(const struct normal_rule *rule, const uint8_t *text, size_t bytes, struct buf *out)
{
    size_t from = strlen(rule->from), to = strlen(rule->to), done = 0;
    const uint8_t *found;
    int err = 0;
    while (err == 0 && (found = utf8_find(text + done, bytes - done, rule->from, from))) {
        size_t at = (size_t)(found - text);
        err = buf_put(out, text + done, at - done);
        if (err == 0)
            err = buf_put(out, rule->to, to);
        done = at + from;
    }
    return err ? err : buf_put(out, text + done, bytes - done);
}

static int apply_rule(const struct normal_rule *rule, bool prefix, const uint8_t *text, size_t bytes, struct buf *out,
                      struct why *why)
{
    int err;
    if (rule->kind == NORMAL_REPLACE)
        return replace(rule, text, bytes, out);
    if (rule->kind == NORMAL_NFC)
        return compose(text, bytes, out, why);
    err = prefix && bytes ? buf_put(out, rule->to, strlen(rule->to)) : 0;
    return err ? err : buf_put(out, text, bytes);
}

int normal_apply(const struct normal_rules *rules, bool prefix, const uint8_t **text, size_t *bytes, struct buf buffers[2],
                 struct why *why)
{
    for (size_t i = 0; i < rules->count && *bytes; i++) {
        struct buf *out = &buffers[i % 2];
        buf_consume(out, buf_used(out));
        int err = apply_rule(&rules->rows[i], prefix, *text, *bytes, out, why);
        if (err)
            return why_set(why, err, "normalizer: the text grows beyond %zu bytes", out->max);
        *text = buf_peek(out);
        *bytes = buf_used(out);
    }
    return 0;
}
