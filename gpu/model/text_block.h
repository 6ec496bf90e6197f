/*
 * A file in blocks: of whole lines for JSON lines, and of text cut where nothing looks across (gpu/model/tokenise.h).
 */
#ifndef KEDGE_MODEL_TEXT_BLOCK_H
#define KEDGE_MODEL_TEXT_BLOCK_H

#include "gpu/model/sources.h"

struct text_block {
    char *text; /* owned by the block, which is used again */
    size_t bytes, room;
    const char *path;     /* of its source */
    size_t source_bytes;  /* of the file that are done with it */
    uint64_t line;        /* number of its first line */
    bool lines;           /* JSON lines */
    bool first, last;     /* of its file */
    bool overlong;        /* a line that is longer than any may be: no text */
};

struct text_reader;

int text_reader_open(const struct source *source, struct text_reader **reader, struct why *why); /* the source outlives it */
int text_reader_next(struct text_reader *reader, struct text_block *block, bool *more,
                     struct why *why); /* more false: it has ended */
void text_reader_close(struct text_reader *reader);
void text_block_clear(struct text_block *block);

#endif
