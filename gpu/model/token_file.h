/*
 * A file of token ids, read in place: one of kedge's own (a shard of `kedge-worker data prepare`), or one as nanoGPT (16-bit
 * ids and nothing else) and llm.c (a header of 256 32-bit words, then 16-bit or 32-bit ids) write them.
 *
 * A shard, all numbers little-endian:
 *
 *   0   "kedgetok"            40  hash of the tokenizer, 8 bytes
 *   8   version 1, 4 bytes    48  vocabulary, 4 bytes
 *   12  bytes of an id: 2, 4  52  flags, 4 bytes: 1 = not every token is learned
 *   16  tokens, 8 bytes       56  hash of all that follows, 8 bytes
 *   24  documents, 8 bytes    64  ids; a bit for each token that is learned, lowest bit first (flag 1); the
 *   32  zero, 8 bytes             places where documents begin, 8 bytes each, rising
 *
 * Each part begins at a multiple of 8. Nothing in a file is believed: sizes and hash are checked when it is opened, ids and
 * places whenever they are read.
 */
#ifndef KEDGE_MODEL_TOKEN_FILE_H
#define KEDGE_MODEL_TOKEN_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"

#define TOKEN_FILE_HEADER 64
#define TOKEN_FILE_MAGIC "kedgetok"
#define TOKEN_FILE_VERSION 1
#define TOKEN_FILE_MASKED 1u

enum token_mark {
    TOKEN_LEARNED = 1, /* it is a target of the loss */
    TOKEN_BEGINS = 2,  /* the first of a document */
};

struct token_file;

int token_file_open(const char *path, struct token_file **file, struct why *why);
void token_file_close(struct token_file *file);

uint64_t token_file_count(const struct token_file *file);
uint64_t token_file_documents(const struct token_file *file);      /* 0: the file does not say */
uint64_t token_file_tokenizer(const struct token_file *file);      /* hash; 0: the file does not say */
bool token_file_masked(const struct token_file *file);             /* not every token is learned */
/* ids and marks of [first, first + count). An id at or above `vocabulary` is refused. */
int token_file_read(const struct token_file *file, uint64_t first, size_t count, uint32_t vocabulary, uint32_t *ids,
                    uint8_t *marks, struct why *why);
/* Where the nearest documents begin before a place (0: none) and at or behind it (the number of tokens: none). */
int token_file_documents_around(const struct token_file *file, uint64_t place, uint64_t *before, uint64_t *behind,
                                struct why *why);

#endif
