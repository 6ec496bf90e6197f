#include "gpu/model/tokenizer.h"

#include "gpu/model/tokenizer_inside.h"
#include "ssh/base/file.h"
#include "ssh/base/hash.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

struct encoder {
    const struct tokenizer *tokenizer;
    struct split_scratch *split;
    struct bpe_scratch *bpe;
    struct buf normal[2];
    uint64_t lost;
};

/* ---- opening ---- */

int tokenizer_parse(const uint8_t *json, size_t bytes, const char *label, struct tokenizer **tokenizer, struct why *why)
{
    json_error_t error;
    char safe[TOKENIZER_SHOWN];
    json_t *root = json_loadb((const char *)json, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return why_set(why, ERR_INVALID, "%s:%d: %s", label, error.line,
                       text_harmless(error.text, strlen(error.text), safe, sizeof safe));
    struct tokenizer *new = mem_new(sizeof *new);
    new->hash = hash_bytes(json, bytes);
    new->end = TOKENIZER_NONE;
    int err = tokenizer_load(root, label, new, why);
    json_decref(root);
    if (err)
        tokenizer_close(new);
    else
        *tokenizer = new;
    return err;
}

int tokenizer_open(const char *folder, struct tokenizer **tokenizer, struct why *why)
{
    char *path = mem_format("%s/tokenizer.json", folder);
    uint8_t *text = NULL;
    size_t bytes;
    struct tokenizer *new = NULL;
    int err = file_read(path, TOKENIZER_FILE_MAX, &text, &bytes, why);
    if (err == 0)
        err = tokenizer_parse(text, bytes, path, &new, why);
    if (err == 0)
        err = tokenizer_load_end(folder, new, why);
    if (err)
        tokenizer_close(new);
    else
        *tokenizer = new;
    mem_free(text);
    mem_free(path);
    return err;
}

struct tokenizer *tokenizer_new_bytes(void)
{
    struct tokenizer *new = mem_new(sizeof *new);
    new->bytes = true;
    new->count = 256;
    new->hash = hash_bytes("bytes", 5);
    new->end = TOKENIZER_NONE;
    return new;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    for (size_t i = 0; i < tokenizer->kept_count; i++)
        mem_free(tokenizer->kept[i]);
    mem_free(tokenizer->kept);
    mem_free(tokenizer->arena);
    mem_free(tokenizer->tokens);
    texts_clear(&tokenizer->vocabulary);
    texts_clear(&tokenizer->added);
    normal_clear(&tokenizer->rules);
    split_free(tokenizer->splits);
    texts_clear(&tokenizer->bpe.by_raw);
    pairs_clear(&tokenizer->bpe.merges);
    added_clear(&tokenizer->added_early);
    added_clear(&tokenizer->added_late);
    token_list_clear(&tokenizer->before);
    token_list_clear(&tokenizer->after);
    decode_clear(&tokenizer->decoders);
    mem_free(tokenizer);
}

bool tokenizer_is_bytes(const struct tokenizer *tokenizer)
{
    return tokenizer->bytes;
}

uint32_t tokenizer_count(const struct tokenizer *tokenizer)
{
    return tokenizer->count;
}

uint64_t tokenizer_hash(const struct tokenizer *tokenizer)
{
    return tokenizer->hash;
}

uint32_t tokenizer_end(const struct tokenizer *tokenizer)
{
    return tokenizer->end;
}

uint32_t tokenizer_find(const struct tokenizer *tokenizer, const char *token)
{
    uint32_t id = texts_get(&tokenizer->added, token, strlen(token));
    return id == TEXTS_NONE ? texts_get(&tokenizer->vocabulary, token, strlen(token)) : id;
}

/* ---- encoding ---- */

struct encoder *encoder_new(const struct tokenizer *tokenizer)
{
    struct encoder *new = mem_new(sizeof *new);
    new->tokenizer = tokenizer;
    for (int i = 0; i < 2; i++)
        buf_init(&new->normal[i], TOKENIZER_TEXT_MAX);
    if (!tokenizer->bytes) {
        new->split = split_scratch_new();
        new->bpe = bpe_scratch_new();
    }
    return new;
}

void encoder_free(struct encoder *encoder)
{
    if (!encoder)
        return;
    split_scratch_free(encoder->split);
    bpe_scratch_free(encoder->bpe);
    for (int i = 0; i < 2; i++)
        buf_clear(&encoder->normal[i]);
    mem_free(encoder);
}

uint64_t encoder_lost(const struct encoder *encoder)
{
    return encoder->lost;
}

/* A stretch without added tokens. `first`: it is where the text begins. */
static int encode_plain(struct encoder *e, const uint8_t *text, size_t bytes, bool first, bool goes_on,
                        struct token_list *ids, struct why *why)
{
    const struct pieces *pieces;
    int err = split_apply(e->tokenizer->splits, e->split, first, goes_on, &text, bytes, &pieces, why);
    for (size_t i = 0; i < pieces->count && err == 0; i++) {
        const struct piece *piece = &pieces->rows[i];
        e->lost += bpe_piece(&e->tokenizer->bpe, e->bpe, text + piece->start, piece->end - piece->start, ids);
    }
    return err;
}

/* A stretch between the added tokens that are looked for in the text as it is. */
static int encode_section(struct encoder *e, const uint8_t *text, size_t bytes, bool first, bool goes_on,
                          struct token_list *ids, struct why *why)
{
    size_t position = 0, done = 0;
    struct added_match match;
    int err = normal_apply(&e->tokenizer->rules, !goes_on, &text, &bytes, e->normal, why);
    while (err == 0 && added_find(&e->tokenizer->added_late, text, bytes, &position, done, &match)) {
        if (match.start > done)
            err = encode_plain(e, text + done, match.start - done, first && done == 0, goes_on && done == 0, ids, why);
        token_list_add(ids, match.id);
        done = match.end;
    }
    if (err == 0 && done < bytes)
        err = encode_plain(e, text + done, bytes - done, first && done == 0, goes_on && done == 0, ids, why);
    return err;
}

static int encode_text(struct encoder *e, const uint8_t *text, size_t bytes, bool goes_on, struct token_list *ids,
                       struct why *why)
{
    size_t position = 0, done = 0;
    struct added_match match;
    int err = 0;
    while (err == 0 && added_find(&e->tokenizer->added_early, text, bytes, &position, done, &match)) {
        if (match.start > done)
            err = encode_section(e, text + done, match.start - done, done == 0 && !goes_on, done == 0 && goes_on, ids, why);
        token_list_add(ids, match.id);
        done = match.end;
    }
    if (err == 0 && done < bytes)
        err = encode_section(e, text + done, bytes - done, done == 0 && !goes_on, done == 0 && goes_on, ids, why);
    return err;
}

static void add_all(struct token_list *list, const struct token_list *from)
{
    for (size_t i = 0; i < from->count; i++)
        token_list_add(list, from->ids[i]);
}

int encoder_encode(struct encoder *encoder, const void *text, size_t bytes, unsigned flags, struct token_list *ids,
                   struct why *why)
{
    const struct tokenizer *t = encoder->tokenizer;
    const uint8_t *byte = text;
    size_t count = ids->count;
    int err = 0;
    if (bytes > TOKENIZER_TEXT_MAX)
        return why_set(why, ERR_FULL, "a text of %zu bytes; %zu are possible at a time", bytes, TOKENIZER_TEXT_MAX);
    if (flags & ENCODE_BEFORE)
        add_all(ids, &t->before);
    for (size_t i = 0; t->bytes && i < bytes; i++)
        token_list_add(ids, byte[i]);
    if (!t->bytes)
        err = encode_text(encoder, byte, bytes, flags & ENCODE_CONTINUE, ids, why);
    if (flags & ENCODE_AFTER)
        add_all(ids, &t->after);
    if (err)
        ids->count = count;
    return err;
}

void token_list_add(struct token_list *list, uint32_t id)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 64;
        list->ids = mem_grow(list->ids, list->capacity, sizeof *list->ids);
    }
    list->ids[list->count++] = id;
}

void token_list_clear(struct token_list *list)
{
    mem_free(list->ids);
    *list = (struct token_list){0};
}
