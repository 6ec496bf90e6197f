/*
 * Ids to text. Each id becomes the text of its token; the decoders of the file then turn the list of texts into the text
 * that was meant. Bytes stay bytes: where the reference library puts U+FFFD for what is no UTF-8, the bytes themselves come
 * out, so that any text comes back.
 */
#include <inttypes.h>

#include "gpu/model/tokenizer_inside.h"
#include "gpu/model/utf8.h"
#include "ssh/base/mem.h"

#define SUPPORTED "ByteLevel, Metaspace, Replace with a text, ByteFallback, Fuse, Strip, Sequence"

/* ---- reading ---- */

static int add_metaspace(const struct tokenizer_place *at, const json_t *value, struct decode_rule *rule, struct why *why)
{
    const char *mark, *scheme;
    bool prefix;
    int err = tokenizer_text(at, value, "replacement", NULL, &mark, why);
    if (err == 0)
        err = tokenizer_bool(at, value, "add_prefix_space", 1, &prefix, why);
    if (err == 0)
        err = tokenizer_text(at, value, "prepend_scheme", prefix ? "always" : "never", &scheme, why);
    if (err == 0 && !*mark)
        err = why_set(why, ERR_INVALID, "%s: %s: Metaspace: replacement is empty", at->label, at->part);
    if (err == 0)
        *rule = (struct decode_rule){
            .kind = DECODE_METASPACE, .from = mem_text(mark), .drop_first = strcmp(scheme, "never") != 0};
    return err;
}

static int add_replace(const struct tokenizer_place *at, const json_t *value, struct decode_rule *rule, struct why *why)
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
        *rule = (struct decode_rule){.kind = DECODE_REPLACE, .from = mem_text(from), .to = mem_text(to)};
    return err;
}

static int add_strip(const struct tokenizer_place *at, const json_t *value, struct decode_rule *rule, struct why *why)
{
    const json_t *start = json_object_get(value, "start"), *stop = json_object_get(value, "stop");
    const char *content;
    int err = tokenizer_text(at, value, "content", NULL, &content, why);
    if (err)
        return err;
    if (!*content || !json_is_integer(start) || !json_is_integer(stop) || json_integer_value(start) < 0 ||
        json_integer_value(stop) < 0)
        return why_set(why, ERR_INVALID, "%s: %s: Strip needs a content, a start and a stop", at->label, at->part);
    *rule = (struct decode_rule){.kind = DECODE_STRIP, .from = mem_text(content), .start = json_integer_value(start),
                                 .stop = json_integer_value(stop)};
    return 0;
}

static int add_rule(const struct tokenizer_place *at, const char *type, const json_t *value, void *arg, struct why *why)
{
    static const struct {
        const char *type;
        enum decode_kind kind;
        int (*add)(const struct tokenizer_place *at, const json_t *value, struct decode_rule *rule, struct why *why);
    } kinds[] = {
        {"ByteLevel", DECODE_BYTE_LEVEL, NULL}, {"Metaspace", DECODE_METASPACE, add_metaspace},
        {"Replace", DECODE_REPLACE, add_replace}, {"ByteFallback", DECODE_BYTE_FALLBACK, NULL},
        {"Fuse", DECODE_FUSE, NULL}, {"Strip", DECODE_STRIP, add_strip},
    };
    struct decode_rules *rules = arg;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].type, type) != 0)
            continue;
        if (rules->count && (kinds[i].kind == DECODE_BYTE_LEVEL || rules->rows[0].kind == DECODE_BYTE_LEVEL))
            return tokenizer_refuse(at, "ByteLevel with another step:", type, "ByteLevel alone", why);
        struct decode_rule *rule = &rules->rows[rules->count];
        rule->kind = kinds[i].kind;
        int err = kinds[i].add ? kinds[i].add(at, value, rule, why) : 0;
        rules->count += err == 0;
        return err;
    }
    return tokenizer_refuse(at, "type", type, SUPPORTED, why);
}

int decode_load(const char *label, const json_t *json, struct decode_rules *rules, struct why *why)
{
    struct tokenizer_place at = {label, "decoder"};
    return tokenizer_each(&at, json_object_get(json, at.part), "decoders", add_rule, rules, why);
}

void decode_clear(struct decode_rules *rules)
{
    for (size_t i = 0; i < rules->count; i++) {
        mem_free(rules->rows[i].from);
        mem_free(rules->rows[i].to);
    }
    rules->count = 0;
}

/* ---- the list of texts ---- */

struct part {
    size_t bytes;
    bool raw; /* bytes that no later rule looks into */
};

struct parts {
    struct buf text; /* of all, one behind the other */
    struct part *rows;
    size_t count, capacity;
};

static void add_part(struct parts *parts, size_t bytes, bool raw)
{
    if (parts->count == parts->capacity) {
        parts->capacity = parts->capacity ? 2 * parts->capacity : 256;
        parts->rows = mem_grow(parts->rows, parts->capacity, sizeof *parts->rows);
    }
    parts->rows[parts->count++] = (struct part){bytes, raw};
}

/* "<0x41>" → 0x41 */
static bool is_byte_token(const uint8_t *text, size_t bytes, uint8_t *byte)
{
    static const char digits[] = "0123456789ABCDEFabcdef";
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' || !memchr(digits, text[3], 22) ||
        !memchr(digits, text[4], 22))
        return false;
    uint8_t nibble[2];
    for (int i = 0; i < 2; i++)
        nibble[i] = (uint8_t)(text[3 + i] <= '9' ? text[3 + i] - '0' : (text[3 + i] | 0x20) - 'a' + 10);
    *byte = (uint8_t)(nibble[0] << 4 | nibble[1]);
    return true;
}

static int put_replaced(const uint8_t *text, size_t bytes, const char *from, const char *to, struct buf *out)
{
    size_t length = strlen(from);
    int err = 0;
    while (bytes && err == 0) {
        const uint8_t *found = utf8_find(text, bytes, from, length);
        size_t plain = found ? (size_t)(found - text) : bytes;
        err = buf_put(out, text, plain);
        if (err == 0 && found)
            err = buf_put(out, to, strlen(to));
        plain += found ? length : 0;
        text += plain;
        bytes -= plain;
    }
    return err;
}

static void strip(const struct decode_rule *rule, const uint8_t **text, size_t *bytes)
{
    size_t length = strlen(rule->from);
    for (int64_t i = 0; i < rule->start && *bytes >= length && memcmp(*text, rule->from, length) == 0; i++) {
        *text += length;
        *bytes -= length;
    }
    for (int64_t i = 0; i < rule->stop && *bytes >= length && memcmp(*text + *bytes - length, rule->from, length) == 0; i++)
        *bytes -= length;
}

/* One text through one rule, to the end of `out`. */
static int apply_rule(const struct decode_rule *rule, const uint8_t *text, size_t bytes, bool first, struct buf *out,
                      bool *raw)
{
    uint8_t byte;
    switch (rule->kind) {
    case DECODE_METASPACE:
        return put_replaced(text, bytes, rule->from, first && rule->drop_first ? "" : " ", out);
    case DECODE_REPLACE:
        return put_replaced(text, bytes, rule->from, rule->to, out);
    case DECODE_BYTE_FALLBACK:
        *raw = is_byte_token(text, bytes, &byte);
        return *raw ? buf_put(out, &byte, 1) : buf_put(out, text, bytes);
    case DECODE_STRIP:
        strip(rule, &text, &bytes);
        return buf_put(out, text, bytes);
    default:
        return buf_put(out, text, bytes);
    }
}

static int apply(const struct decode_rule *rule, const struct parts *from, struct parts *to)
{
    const uint8_t *text = buf_peek(&from->text);
    bool fuse = rule->kind == DECODE_FUSE;
    buf_consume(&to->text, buf_used(&to->text));
    to->count = 0;
    for (size_t i = 0; i < from->count; i++) {
        size_t start = buf_used(&to->text);
        bool raw = from->rows[i].raw;
        int err = raw ? buf_put(&to->text, text, from->rows[i].bytes)
                      : apply_rule(rule, text, from->rows[i].bytes, i == 0, &to->text, &raw);
        if (err)
            return err;
        text += from->rows[i].bytes;
        /* Bytes that follow each other are one text from here on, as a character that they make is. */
        bool joins = to->count && (fuse || (rule->kind == DECODE_BYTE_FALLBACK && raw && to->rows[to->count - 1].raw));
        if (joins)
            to->rows[to->count - 1].bytes += buf_used(&to->text) - start;
        else
            add_part(to, buf_used(&to->text) - start, raw && !fuse);
    }
    for (size_t i = 0; rule->kind == DECODE_BYTE_FALLBACK && i < to->count; i++)
        to->rows[i].raw = false;
    return 0;
}

static int put_token(const struct tokenizer *t, uint32_t id, bool byte_level, struct parts *parts)
{
    const struct token *token = &t->tokens[id];
    bool raw = byte_level && token->mapped && !token->added;
    size_t bytes = raw ? token->raw_bytes : token->text_bytes;
    add_part(parts, bytes, byte_level);
    return buf_put(&parts->text, raw ? token->raw : token->text, bytes);
}

static int put_tokens(const struct tokenizer *t, const uint32_t *ids, size_t count, bool specials, struct parts *parts,
                      struct why *why)
{
    bool byte_level = t->decoders.count && t->decoders.rows[0].kind == DECODE_BYTE_LEVEL;
    int err = 0;
    for (size_t i = 0; i < count && err == 0; i++) {
        if (ids[i] >= t->count || !t->tokens[ids[i]].present)
            return why_set(why, ERR_INVALID, "id %" PRIu32 " is no token of this tokenizer", ids[i]);
        if (!specials && t->tokens[ids[i]].special)
            continue;
        if (t->decoders.count == 0 && parts->count) /* without decoders, tokens are words with spaces between */
            err = buf_put(&parts->text, " ", 1);
        if (err == 0)
            err = put_token(t, ids[i], byte_level, parts);
    }
    return err;
}

static int decode_bytes(const uint32_t *ids, size_t count, struct buf *out, struct why *why)
{
    for (size_t i = 0; i < count; i++) {
        uint8_t byte = (uint8_t)ids[i];
        if (ids[i] > 255)
            return why_set(why, ERR_INVALID, "id %" PRIu32 " is no byte", ids[i]);
        int err = buf_put(out, &byte, 1);
        if (err)
            return err;
    }
    return 0;
}

int tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t count, bool specials, struct buf *out,
                     struct why *why)
{
    struct parts parts[2] = {0};
    size_t now = 0;
    if (t->bytes)
        return decode_bytes(ids, count, out, why);
    for (int i = 0; i < 2; i++)
        buf_init(&parts[i].text, 4 * TOKENIZER_TEXT_MAX);
    int err = put_tokens(t, ids, count, specials, &parts[0], why);
    for (size_t i = 0; i < t->decoders.count && err == 0; i++) {
        if (t->decoders.rows[i].kind == DECODE_BYTE_LEVEL) /* done with the tokens */
            continue;
        err = apply(&t->decoders.rows[i], &parts[now], &parts[1 - now]);
        now = 1 - now;
    }
    if (err == 0)
        err = buf_put(out, buf_peek(&parts[now].text), buf_used(&parts[now].text));
    if (err == ERR_FULL)
        why_set(why, err, "the text of %zu tokens is too long", count);
    for (int i = 0; i < 2; i++) {
        buf_clear(&parts[i].text);
        mem_free(parts[i].rows);
    }
    return err;
}
