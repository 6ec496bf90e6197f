/*
 * Tokens and merges of a tokenizer.json: the vocabulary of its model, and the tokens that were added to it.
 *
 * The reference library numbers added tokens itself and ignores the ids in the file; a file where the two differ would be
 * read differently here and there, so it is refused.
 */
#include <inttypes.h>

#include "gpu/model/tokenizer_inside.h"
#include "gpu/model/utf8.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define MERGES_MAX ((size_t)1 << 23)

static const char *shown(const char *text, char out[TOKENIZER_SHOWN])
{
    return text_harmless(text, strlen(text), out, TOKENIZER_SHOWN);
}

/* ---- sizes, before anything is taken ---- */

static int count_token(const char *label, const char *text, const json_t *id, uint32_t *count, size_t *bytes,
                       struct why *why)
{
    char safe[TOKENIZER_SHOWN];
    json_int_t value = json_integer_value(id);
    if (!json_is_integer(id) || value < 0 || value >= TOKENIZER_ID_MAX)
        return why_set(why, ERR_INVALID, "%s: token \"%s\" has no id from 0 to %" PRIu32, label, shown(text, safe),
                       TOKENIZER_ID_MAX - 1);
    if ((uint32_t)value >= *count)
        *count = (uint32_t)value + 1;
    *bytes += strlen(text);
    return 0;
}

static int count_tokens(const char *label, json_t *vocab, const json_t *added, uint32_t *count, size_t *bytes,
                        struct why *why)
{
    const char *text;
    json_t *id;
    int err = 0;
    *count = 0;
    *bytes = 0;
    json_object_foreach(vocab, text, id) {
        err = count_token(label, text, id, count, bytes, why);
        if (err)
            return err;
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *row = json_array_get(added, i);
        text = json_string_value(json_object_get(row, "content"));
        if (!text || !*text)
            return why_set(why, ERR_INVALID, "%s: added_tokens: number %zu has no content", label, i);
        if (strlen(text) > TOKENIZER_RULE_BYTES)
            return why_set(why, ERR_INVALID, "%s: added_tokens: number %zu is longer than %d bytes", label, i,
                           TOKENIZER_RULE_BYTES);
        err = count_token(label, text, json_object_get(row, "id"), count, bytes, why);
        if (err)
            return err;
    }
    if (*count == 0)
        return why_set(why, ERR_INVALID, "%s: it has no tokens", label);
    return 0;
}

/* ---- tokens ---- */

static int add_token(const char *label, struct tokenizer *t, struct texts *to, const char *text, uint32_t id, size_t *used,
                     struct why *why)
{
    struct token *token = &t->tokens[id];
    char safe[TOKENIZER_SHOWN];
    if (token->present)
        return why_set(why, ERR_INVALID, "%s: token \"%s\" has id %" PRIu32 " like another one", label, shown(text, safe),
                       id);
    size_t bytes = strlen(text), raw;
    memcpy(t->arena + *used, text, bytes);
    *token = (struct token){.text = t->arena + *used, .text_bytes = (uint32_t)bytes, .present = true};
    texts_put(to, (uint32_t)*used, (uint32_t)bytes, id);
    *used += bytes;
    if (utf8_to_bytes((const uint8_t *)text, bytes, t->arena + *used, &raw)) {
        token->raw = t->arena + *used;
        token->raw_bytes = (uint32_t)raw;
        token->mapped = true;
        *used += raw;
    }
    return 0;
}

static int add_added(const char *label, struct tokenizer *t, const json_t *row, uint32_t *next, size_t *used,
                     struct why *why)
{
    struct tokenizer_place at = {label, "added_tokens"};
    const char *text = json_string_value(json_object_get(row, "content"));
    uint32_t id = (uint32_t)json_integer_value(json_object_get(row, "id")), known = tokenizer_find(t, text);
    bool special;
    char safe[TOKENIZER_SHOWN];
    uint32_t expected = known == TOKENIZER_NONE ? *next : known;
    int err = tokenizer_bool(&at, row, "special", 0, &special, why);
    if (err == 0 && id != expected)
        err = why_set(why, ERR_INVALID,
                      "%s: added_tokens: \"%s\" has id %" PRIu32 ", but %" PRIu32 " is its number by the vocabulary", label,
                      shown(text, safe), id, expected);
    if (err == 0 && known != TOKENIZER_NONE && t->tokens[id].added)
        err = why_set(why, ERR_INVALID, "%s: added_tokens: \"%s\" is there twice", label, shown(text, safe));
    if (err == 0 && known == TOKENIZER_NONE)
        err = add_token(label, t, &t->added, text, id, used, why);
    if (err)
        return err;
    t->tokens[id].added = true;
    t->tokens[id].special = special;
    if (id >= *next)
        *next = id + 1;
    return 0;
}

/* Byte-level: the bytes of the model's tokens → ids, to find whole words. */
static void fill_by_raw(const struct tokenizer *t, struct texts *by_raw, size_t vocabulary)
{
    texts_init(by_raw, t->arena, vocabulary);
    for (uint32_t id = 0; id < t->count; id++)
        if (t->tokens[id].mapped)
            texts_put(by_raw, (uint32_t)(t->tokens[id].raw - t->arena), t->tokens[id].raw_bytes, id);
}

static int add_tokens(const char *label, json_t *vocab, const json_t *added, struct tokenizer *t, struct why *why)
{
    size_t used = 0;
    uint32_t next = (uint32_t)json_object_size(vocab);
    const char *text;
    json_t *id;
    int err = 0;
    json_object_foreach(vocab, text, id) {
        err = add_token(label, t, &t->vocabulary, text, (uint32_t)json_integer_value(id), &used, why);
        if (err)
            return err;
    }
    if (t->bpe.byte_level && t->bpe.ignore_merges)
        fill_by_raw(t, &t->bpe.by_raw, json_object_size(vocab));
    for (size_t i = 0; i < json_array_size(added) && err == 0; i++)
        err = add_added(label, t, json_array_get(added, i), &next, &used, why);
    return err;
}

/* ---- merges ---- */

static int bad_merge(const char *label, size_t number, const char *what, struct why *why)
{
    return why_set(why, ERR_INVALID, "%s: model: merge number %zu %s", label, number + 1, what);
}

/* "left right" in older files, [left, right] in newer ones. */
static int read_merge(const char *label, const json_t *merge, size_t number, const char **left, size_t *left_bytes,
                      const char **right, struct why *why)
{
    const char *text = json_string_value(merge), *space = text ? strchr(text, ' ') : NULL;
    if (text && (!space || strchr(space + 1, ' ')))
        return bad_merge(label, number, "is not two texts with one space between them", why);
    *left = text ? text : json_string_value(json_array_get(merge, 0));
    *right = text ? space + 1 : json_string_value(json_array_get(merge, 1));
    if (!*left || !*right || (!text && json_array_size(merge) != 2))
        return bad_merge(label, number, "is not two texts", why);
    *left_bytes = text ? (size_t)(space - text) : strlen(*left);
    return 0;
}

static bool has_mark_inside(const uint8_t *text, size_t bytes)
{
    static const uint8_t mark[3] = {0xe2, 0x96, 0x81};
    for (size_t at = 0; at + 3 < bytes; at++)
        if (memcmp(text + at + 1, mark, 3) == 0 && (at < 2 || memcmp(text + at - 2, mark, 3) != 0))
            return true;
    return false;
}

static int add_merge(const char *label, const json_t *merge, size_t number, struct bpe *bpe, struct why *why)
{
    const char *left = NULL, *right = NULL;
    size_t left_bytes = 0;
    int err = read_merge(label, merge, number, &left, &left_bytes, &right, why);
    if (err)
        return err;
    uint32_t first = texts_get(bpe->vocabulary, left, left_bytes), second = texts_get(bpe->vocabulary, right, strlen(right));
    char *text = mem_format("%.*s%s", (int)left_bytes, left, right);
    uint32_t both = texts_get(bpe->vocabulary, text, strlen(text));
    bpe->cuts_at_mark &= !has_mark_inside((const uint8_t *)text, strlen(text));
    mem_free(text);
    if (first == TOKENIZER_NONE || second == TOKENIZER_NONE || both == TOKENIZER_NONE)
        return bad_merge(label, number, "makes or needs a token that the vocabulary does not have", why);
    pairs_put(&bpe->merges, first, second, (uint32_t)number, both);
    return 0;
}

static int add_merges(const char *label, const json_t *model, struct bpe *bpe, struct why *why)
{
    const json_t *merges = json_object_get(model, "merges");
    int err = 0;
    if (!json_is_array(merges) || json_array_size(merges) > MERGES_MAX)
        return why_set(why, ERR_INVALID, "%s: model: merges is %s", label,
                       json_is_array(merges) ? "longer than 8388608 rows" : "not a list");
    pairs_init(&bpe->merges, json_array_size(merges));
    for (size_t i = 0; i < json_array_size(merges) && err == 0; i++)
        err = add_merge(label, json_array_get(merges, i), i, bpe, why);
    return err;
}

/* ---- the model ---- */

static int refuse_unsupported(const struct tokenizer_place *at, const json_t *model, struct why *why)
{
    static const char *const texts[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const json_t *dropout = tokenizer_member(model, "dropout"), *type = tokenizer_member(model, "type");
    const char *text;
    if (!json_is_object(model))
        return why_set(why, ERR_INVALID, "%s: it has no model", at->label);
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "BPE") != 0))
        return tokenizer_refuse(at, "type", json_is_string(type) ? json_string_value(type) : "(not a text)", "BPE", why);
    if (dropout && (!json_is_number(dropout) || json_number_value(dropout) != 0)) /* ids would be a matter of chance */
        return tokenizer_refuse(at, "dropout", NULL, "null", why);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int err = tokenizer_text(at, model, texts[i], "", &text, why);
        if (err == 0 && *text)
            err = tokenizer_refuse(at, texts[i], text, "null", why);
        if (err)
            return err;
    }
    return 0;
}

static void find_bytes(struct bpe *bpe)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint8_t text[8];
        size_t bytes = bpe->byte_level ? utf8_from_byte((uint8_t)byte, text)
                                       : (size_t)snprintf((char *)text, sizeof text, "<0x%02X>", byte);
        bpe->byte_ids[byte] = texts_get(bpe->vocabulary, text, bytes);
    }
}

static int read_flags(const struct tokenizer_place *at, const json_t *model, struct bpe *bpe, struct why *why)
{
    const struct {
        const char *key;
        bool *out;
    } flags[] = {
        {"fuse_unk", &bpe->fuse_unknown}, {"byte_fallback", &bpe->byte_fallback}, {"ignore_merges", &bpe->ignore_merges}};
    int err = 0;
    for (size_t i = 0; i < sizeof flags / sizeof *flags && err == 0; i++)
        err = tokenizer_bool(at, model, flags[i].key, 0, flags[i].out, why);
    return err;
}

static int read_unknown(const struct tokenizer_place *at, const json_t *model, struct bpe *bpe, struct why *why)
{
    const char *unknown;
    int err = tokenizer_text(at, model, "unk_token", "", &unknown, why);
    if (err)
        return err;
    bpe->unknown = *unknown ? texts_get(bpe->vocabulary, unknown, strlen(unknown)) : TOKENIZER_NONE;
    if (*unknown && bpe->unknown == TOKENIZER_NONE)
        return why_set(why, ERR_INVALID, "%s: model: the vocabulary does not have the unk_token", at->label);
    bpe->cuts_at_mark =
        !bpe->byte_level && !bpe->ignore_merges && texts_get(bpe->vocabulary, "▁", strlen("▁")) != TOKENIZER_NONE;
    return 0;
}

int vocabulary_load(const char *label, const json_t *json, bool byte_level, struct tokenizer *t, struct why *why)
{
    struct tokenizer_place at = {label, "model"};
    const json_t *model = json_object_get(json, "model");
    json_t *vocab = json_object_get(model, "vocab");
    const json_t *added = tokenizer_member(json, "added_tokens");
    size_t bytes;
    uint32_t count;
    int err = refuse_unsupported(&at, model, why);
    if (err == 0 && (!json_is_object(vocab) || (added && !json_is_array(added))))
        err = why_set(why, ERR_INVALID, "%s: model.vocab is not an object, or added_tokens is not a list", label);
    if (err == 0)
        err = count_tokens(label, vocab, added, &count, &bytes, why);
    if (err)
        return err;
    t->count = count;
    t->arena = mem_new(2 * bytes + 1);
    t->tokens = mem_array(count, sizeof *t->tokens);
    texts_init(&t->vocabulary, t->arena, json_object_size(vocab));
    texts_init(&t->added, t->arena, json_array_size(added));
    t->bpe.vocabulary = &t->vocabulary;
    t->bpe.byte_level = byte_level;
    err = read_flags(&at, model, &t->bpe, why);
    if (err == 0)
        err = add_tokens(label, vocab, added, t, why);
    if (err == 0)
        err = read_unknown(&at, model, &t->bpe, why);
    if (err == 0)
        err = add_merges(label, model, &t->bpe, why);
    if (err == 0)
        find_bytes(&t->bpe);
    return err;
}
