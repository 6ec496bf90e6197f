/*
 * Text to token ids and back: a model's own tokenizer.json (byte-level BPE of the GPT-2, Llama 3, Qwen and SmolLM kinds;
 * SentencePiece-style BPE with byte fallback of the Llama 2 and Mistral kind), and the built-in one whose tokens are the
 * 256 bytes.
 *
 * Ids are those of the reference library for every text that is UTF-8. Bytes that are none, which the reference cannot be
 * given, are pieces of their own and go through as bytes: decoding gives back what went in. What a file asks for and is not
 * supported is refused by name.
 *
 * A tokenizer does not change after it was opened and may be shared by threads; an encoder is the scratch and the word
 * cache of one.
 */
#ifndef KEDGE_MODEL_TOKENIZER_H
#define KEDGE_MODEL_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/base/buf.h"
#include "ssh/base/why.h"

#define TOKENIZER_NONE UINT32_MAX
#define TOKENIZER_TEXT_MAX ((size_t)64 << 20) /* of one call */
#define TOKENIZER_FILE_MAX ((size_t)128 << 20)

struct tokenizer;
struct encoder;

struct token_list {
    uint32_t *ids; /* owned; clear with token_list_clear */
    size_t count, capacity;
};

enum encode_flags {
    ENCODE_BEFORE = 1,   /* with what the file wants before a text (a beginning-of-text token, say) */
    ENCODE_AFTER = 2,    /* with what it wants behind it */
    ENCODE_WRAP = 3,     /* both */
    ENCODE_CONTINUE = 4, /* the text goes on where another one ended: no space is put in front of it */
};

/* FOLDER/tokenizer.json; ERR_ABSENT without one. What ends a text is read from the configurations beside it. */
int tokenizer_open(const char *folder, struct tokenizer **tokenizer, struct why *why);
/* The same from bytes; `label` stands for the path in reasons. */
int tokenizer_parse(const uint8_t *json, size_t bytes, const char *label, struct tokenizer **tokenizer, struct why *why);
struct tokenizer *tokenizer_new_bytes(void);
void tokenizer_close(struct tokenizer *tokenizer);

bool tokenizer_is_bytes(const struct tokenizer *tokenizer);
uint32_t tokenizer_count(const struct tokenizer *tokenizer); /* the highest id + 1 */
uint64_t tokenizer_hash(const struct tokenizer *tokenizer);  /* of the file: tells tokenizers apart */
uint32_t tokenizer_end(const struct tokenizer *tokenizer);   /* the token behind a text, or TOKENIZER_NONE */
uint32_t tokenizer_find(const struct tokenizer *tokenizer, const char *token); /* by the text in the file; TOKENIZER_NONE */

struct encoder *encoder_new(const struct tokenizer *tokenizer); /* the tokenizer outlives it */
void encoder_free(struct encoder *encoder);
/* Appends to `ids`; nothing is appended on failure. Bytes that the vocabulary has no token for are left out, as the
 * reference does; encoder_lost counts them. */
int encoder_encode(struct encoder *encoder, const void *text, size_t bytes, unsigned flags, struct token_list *ids,
                   struct why *why);
uint64_t encoder_lost(const struct encoder *encoder);

/* Appends the bytes that the ids stand for; `specials` false leaves special tokens out. What is no id is refused. */
int tokenizer_decode(const struct tokenizer *tokenizer, const uint32_t *ids, size_t count, bool specials, struct buf *out,
                     struct why *why);

void token_list_add(struct token_list *list, uint32_t id);
void token_list_clear(struct token_list *list);

#endif
