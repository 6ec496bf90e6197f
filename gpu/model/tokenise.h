/*
 * Files of text and of JSON lines to tokens, in order, on several threads. The calling thread reads blocks of about a
 * megabyte, the others encode them, and the calling thread takes the results in the order of the files: what comes out does
 * not depend on the number of threads.
 *
 * A text file is one document. It is cut in front of a line where no pattern of a tokenizer looks across (no blank on
 * either side of the line end), so that the tokens are those of the file in one piece; a file without such lines is cut
 * anywhere between two characters.
 */
#ifndef KEDGE_MODEL_TOKENISE_H
#define KEDGE_MODEL_TOKENISE_H

#include "gpu/model/document.h"
#include "gpu/model/sources.h"
#include "gpu/model/tokenizer.h"

struct tokenise {
    const struct tokenizer *tokenizer;
    enum chat_template template;
    bool skip_bad_lines; /* else the first one ends it, with file and line */
    int threads;         /* that encode; at least 1 */
    /* All on the calling thread. marks: enum token_mark (gpu/model/token_file.h) of each token. */
    int (*take_cb)(const uint32_t *ids, const uint8_t *marks, size_t count, void *arg, struct why *why);
    void (*bad_line_cb)(const char *path, uint64_t line, const char *reason, void *arg); /* may be NULL */
    void (*progress_cb)(uint64_t bytes, void *arg);                                      /* so many are done; may be NULL */
    void *arg;
};

struct tokenise_totals {
    uint64_t bytes, tokens, learned, documents, bad_lines;
    uint64_t lost; /* bytes without a token in the vocabulary */
};

int tokenise_sources(const struct tokenise *tokenise, const struct sources *sources, struct tokenise_totals *totals,
                     struct why *why);

#endif
