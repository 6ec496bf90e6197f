/*
 * What a run learns from, as windows of token ids. Files are read in sorted order (a file that is linked twice counts once)
 * and laid one behind the other:
 *
 *   text                  with the built-in tokenizer read as it is, a token is a byte; with a model's, tokenised at opening
 *   .jsonl                tokenised at opening; what the lines may be: gpu/model/document.h
 *   .bin                  token ids as nanoGPT and llm.c write them: gpu/model/token_file.h
 *   folders with a list   prepared by `kedge-worker data prepare`: gpu/model/shards.h
 *
 * The last `validation_share` of the tokens is kept for validation: the cut is moved to the nearest end of a document (of a
 * file, where documents are not known) when there is one within half of that share, so that mostly no document lies on both
 * sides.
 *
 * The training window of (seed, step, micro-batch, sequence) is a pure function of them: resumable by construction. Owned
 * by stage 0's compute thread.
 */
#ifndef KEDGE_MODEL_DATA_H
#define KEDGE_MODEL_DATA_H

#include <stdint.h>

#include "gpu/model/document.h"
#include "gpu/model/token_file.h"
#include "ssh/base/why.h"

struct data;

enum data_order {
    DATA_RANDOM, /* a window begins anywhere, drawn anew for each */
    DATA_EPOCHS, /* every token once in an epoch: windows lie side by side and come in an order that is shuffled anew for
                    each epoch */
};

struct data_settings {
    const char *paths;
    double validation_share;
    const struct tokenizer *tokenizer; /* NULL: bytes; used only while it is opened */
    enum chat_template template;
    bool skip_bad_lines;
    uint32_t vocabulary;               /* of the model: no id is at or above it; 0: any */
    int threads;                       /* to tokenise with */
    enum data_order order;
    int64_t micro_batches, sequences;  /* of a step: what comes next in an epoch */
    void (*tell_cb)(const char *text, void *arg); /* bad lines that were skipped, and the like; may be NULL */
    void *arg;
};

int data_open(const struct data_settings *settings, struct data **data, struct why *why);
void data_close(struct data *data);
/* Is there a window of tokens + 1 on both sides (on the validation side only when windows are wanted)? Refuses with the
 * numbers. To be asked before the windows below, for which too little text is a bug. */
int data_check(const struct data *data, int64_t tokens, int64_t validation_windows, struct why *why);
uint64_t data_train_tokens(const struct data *data);
uint64_t data_validation_tokens(const struct data *data);
bool data_masked(const struct data *data); /* some tokens are not learned */
/* ids[tokens + 1] of one training sequence, the last of which is only a target, and the marks of each (enum token_mark).
 * Fails when a file cannot be read any more, or holds what it must not. Steps count from 1. */
int data_train_window(const struct data *data, uint64_t seed, uint64_t step, uint32_t micro_batch, uint32_t sequence,
                      int64_t tokens, uint32_t *ids, uint8_t *marks, struct why *why);
/* Validation window `index` of `count`, at floor(linspace(0, length − tokens − 1, count)). */
int data_validation_window(const struct data *data, int64_t index, int64_t count, int64_t tokens, uint32_t *ids,
                           uint8_t *marks, struct why *why);

#endif
