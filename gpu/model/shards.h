/*
 * A folder of prepared data: token files of some size (gpu/model/token_file.h) and tokens.json, which names them. Each file
 * is written under another name, synced and renamed; the list comes last, so a folder with a list is complete.
 */
#ifndef KEDGE_MODEL_SHARDS_H
#define KEDGE_MODEL_SHARDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/model/tokenizer.h"
#include "ssh/base/why.h"

#define SHARDS_LIST "tokens.json"

struct shards_totals {
    uint64_t tokens, learned, documents, bytes; /* bytes: of the files */
    size_t files;
};

/* ---- writing ---- */
struct shards_writer;

/* A folder that has a list is refused; the folder is made. `tokens_each` of a file. */
int shards_writer_open(const char *folder, const struct tokenizer *tokenizer, uint64_t tokens_each,
                       struct shards_writer **writer, struct why *why);
/* marks: enum token_mark of each. A token that begins a document may begin a file. */
int shards_writer_add(struct shards_writer *writer, const uint32_t *ids, const uint8_t *marks, size_t count,
                      struct why *why);
int shards_writer_finish(struct shards_writer *writer, struct shards_totals *totals, struct why *why);
void shards_writer_free(struct shards_writer *writer); /* what is not finished is removed */

/* ---- reading ---- */
bool shards_here(const char *folder); /* is there a list? */
/* Calls add_cb with the path of each file, in order. */
int shards_list(const char *folder, int (*add_cb)(const char *path, void *arg, struct why *why), void *arg, struct why *why);

#endif
