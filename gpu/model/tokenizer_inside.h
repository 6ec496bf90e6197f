/*
 * What the files of the tokenizer share. A text passes, in this order, added tokens (tokenizer_added.c) → normalizers
 * (tokenizer_normal.c) → pre-tokenizers (tokenizer_split.c) → BPE of each piece (tokenizer_bpe.c); ids come back through
 * the decoders (tokenizer_decode.c). Each of them reads its own part of the file.
 */
#ifndef KEDGE_MODEL_TOKENIZER_INSIDE_H
#define KEDGE_MODEL_TOKENIZER_INSIDE_H

#include <jansson.h>

#include "gpu/model/texts.h"
#include "gpu/model/tokenizer.h"

#define TOKENIZER_ID_MAX ((uint32_t)1 << 22)
#define TOKENIZER_STEPS 32       /* of a Sequence, all nested ones together */
#define TOKENIZER_RULE_BYTES 256 /* of a text to put in or to look for */
#define TOKENIZER_SHOWN 80

/* ---- reading JSON (tokenizer_json.c): every refusal names the file, the part, and what would be right ---- */

struct tokenizer_place {
    const char *label; /* the file */
    const char *part;  /* "pre_tokenizer" */
};

/* A member of an object; null counts as not there. */
const json_t *tokenizer_member(const json_t *object, const char *key);
/* The name in "type"; refused when the value is no object or has none. */
int tokenizer_type(const struct tokenizer_place *at, const json_t *value, const char **type, struct why *why);
/* fallback < 0: must be there. */
int tokenizer_bool(const struct tokenizer_place *at, const json_t *object, const char *key, int fallback, bool *out,
                   struct why *why);
/* A text of at most TOKENIZER_RULE_BYTES; fallback NULL: must be there. */
int tokenizer_text(const struct tokenizer_place *at, const json_t *object, const char *key, const char *fallback,
                   const char **out, struct why *why);
int tokenizer_refuse(const struct tokenizer_place *at, const char *what, const char *theirs, const char *supported,
                     struct why *why);
/* Calls `add_cb` for a part, or for each part of a Sequence (`list` is its key), nested ones too; NULL and null: none. */
int tokenizer_each(const struct tokenizer_place *at, const json_t *value, const char *list,
                   int (*add_cb)(const struct tokenizer_place *at, const char *type, const json_t *value, void *arg,
                                 struct why *why),
                   void *arg, struct why *why);

/* ---- the parts ---- */

struct token {
    const uint8_t *text, *raw; /* as the file writes it, and the bytes that byte-level BPE means by it */
    uint32_t text_bytes, raw_bytes;
    bool present, special, added, mapped; /* mapped: raw is valid */
};

enum normal_kind { NORMAL_NFC, NORMAL_PREPEND, NORMAL_REPLACE };

struct normal_rule {
    enum normal_kind kind;
    char *from, *to; /* owned; NULL where the kind has none */
};

struct normal_rules {
    struct normal_rule rows[TOKENIZER_STEPS];
    size_t count;
};

int normal_load(const char *label, const json_t *json, struct normal_rules *rules, struct why *why);
void normal_clear(struct normal_rules *rules);
/* `*text` becomes the changed text (in one of the two buffers) or stays as it is. `prefix`: Prepend applies. */
int normal_apply(const struct normal_rules *rules, bool prefix, const uint8_t **text, size_t *bytes, struct buf buffers[2],
                     struct why *why);

struct piece {
    uint32_t start, end;
    bool first; /* it begins where the whole text begins */
};

struct pieces {
    struct piece *rows;
    size_t count, capacity;
};

struct splits;        /* the steps of pre-tokenizing, shared */
struct split_scratch; /* of one encoder */

int split_load(const char *label, const json_t *json, struct splits **splits, struct why *why);
void split_free(struct splits *splits);
bool split_byte_level(const struct splits *splits);
struct split_scratch *split_scratch_new(void);
void split_scratch_free(struct split_scratch *scratch);
/* Pieces of `*text`, valid until the next call; the text may be moved into a buffer of the scratch. `first` as in a piece;
 * `goes_on`: it continues another text, so its first piece gets no space. */
int split_apply(const struct splits *splits, struct split_scratch *scratch, bool first, bool goes_on, const uint8_t **text,
                size_t bytes, const struct pieces **pieces, struct why *why);

struct added {
    uint32_t id;
    bool single_word, left_strip, right_strip;
};

/* A trie of added tokens: the longest one that begins somewhere is found without looking at the others. */
struct added_set {
    struct pairs nodes; /* node, byte → node */
    struct added *rows;
    size_t count;
    uint32_t last_node;
    bool begins[256];
};

struct added_match {
    size_t start, end; /* with what is stripped */
    uint32_t id;
};

void added_put(struct added_set *set, const void *content, size_t bytes, struct added row);
void added_clear(struct added_set *set);
/* The next match at or after *position, which moves behind it; `from` is where the last match ended. False: none. */
bool added_find(const struct added_set *set, const uint8_t *text, size_t bytes, size_t *position, size_t from,
                    struct added_match *match);

struct bpe {
    const struct texts *vocabulary; /* of the model, as in the file */
    struct texts by_raw;            /* the same as bytes: whole words of byte-level BPE, when merges may be ignored */
    struct pairs merges;            /* ids of two neighbours → rank, id of both */
    uint32_t byte_ids[256];         /* byte-level: of a byte; else of its "<0xNN>"; TOKENIZER_NONE */
    uint32_t unknown;
    bool byte_level, byte_fallback, fuse_unknown, ignore_merges;
    bool cuts_at_mark;              /* no merge goes over the space before a word: a text may be cut there */
};

struct bpe_scratch;

struct bpe_scratch *bpe_scratch_new(void);
void bpe_scratch_free(struct bpe_scratch *scratch);
/* Appends the ids of one piece; returns the bytes that have no token. */
size_t bpe_piece(const struct bpe *bpe, struct bpe_scratch *scratch, const uint8_t *piece, size_t bytes,
                 struct token_list *ids);

enum decode_kind { DECODE_BYTE_LEVEL, DECODE_METASPACE, DECODE_REPLACE, DECODE_BYTE_FALLBACK, DECODE_FUSE, DECODE_STRIP };

struct decode_rule {
    enum decode_kind kind;
    char *from, *to; /* owned */
    int64_t start, stop;
    bool drop_first;
};

struct decode_rules {
    struct decode_rule rows[TOKENIZER_STEPS];
    size_t count;
};

int decode_load(const char *label, const json_t *json, struct decode_rules *rules, struct why *why);
void decode_clear(struct decode_rules *rules);

struct tokenizer {
    bool bytes;                 /* the built-in one: nothing below but count, hash and end */
    uint64_t hash;
    uint32_t count, end;
    uint8_t *arena;
    struct token *tokens;       /* [count] */
    struct texts vocabulary;    /* of the model, by the text in the file → id */
    struct texts added;         /* added tokens that are not in it */
    struct normal_rules rules;
    struct splits *splits;
    struct bpe bpe;
    struct added_set added_early, added_late; /* looked for before and after the normalizers */
    void **kept;                      /* texts of added tokens as the normalizers made them */
    size_t kept_count;
    struct token_list before, after;  /* of a wrapped text */
    struct decode_rules decoders;
};

/* Each fills its part of a zeroed tokenizer; on failure what was filled is for tokenizer_close. */
int vocabulary_load(const char *label, const json_t *json, bool byte_level, struct tokenizer *tokenizer, struct why *why);
int tokenizer_load(const json_t *json, const char *label, struct tokenizer *tokenizer, struct why *why);
/* The id of the token behind a text, by the configurations in the folder; TOKENIZER_NONE when they say nothing. */
int tokenizer_load_end(const char *folder, struct tokenizer *tokenizer, struct why *why);

#endif
