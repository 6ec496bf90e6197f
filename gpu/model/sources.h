/*
 * The files that data.path names: files, shell patterns and prepared folders, in sorted order; a file that is linked twice
 * counts once.
 */
#ifndef KEDGE_MODEL_SOURCES_H
#define KEDGE_MODEL_SOURCES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ssh/base/why.h"

enum source_kind { SOURCE_TEXT, SOURCE_JSONL, SOURCE_TOKENS, SOURCE_PREPARED };

struct source {
    char *path;
    enum source_kind kind; /* .jsonl, .bin, a folder that `kedge data prepare` made, or text */
    bool named;            /* not by a pattern */
    dev_t device;
    ino_t inode;
    size_t bytes;          /* when it was found: what is added later is not looked at */
};

struct sources {
    struct source *rows;
    size_t count;
    uint64_t bytes; /* of all */
};

/* `paths`: words with blanks between, each a path or a shell pattern. */
int sources_find(const char *paths, struct sources *sources, struct why *why);
/* Paths as they are. */
int sources_take(const char *const *paths, size_t count, struct sources *sources, struct why *why);
void sources_clear(struct sources *sources);

#endif
