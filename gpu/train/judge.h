/*
 * How good a model in a Hugging Face folder is on some data: its mean loss over tokens, and how many questions it answers right when
 * it writes the answers itself. For the command `eval`; both tell how far they are.
 */
#ifndef KEDGE_TRAIN_JUDGE_H
#define KEDGE_TRAIN_JUDGE_H

#include "gpu/model/document.h"
#include "gpu/train/offline.h"

struct judge {
    const struct offline *offline;
    const char *folder, *paths; /* the model; what to judge it by, as data.path is written */
    const char *adapter;        /* a PEFT folder; NULL = none */
    enum chat_template template;
    bool skip_bad_lines;
    uint64_t sequence, windows; /* of the loss: tokens of a window; how many, spread evenly, 0 = all, side by side */
    uint64_t questions, tokens; /* of the answers: how many at most; tokens of one at most */
    void (*progress_cb)(const char *what, uint64_t done, uint64_t all, void *arg);
    void (*tell_cb)(const char *text, void *arg);
    void *arg;
};

struct judge_loss {
    double loss; /* mean over targets, in nats */
    uint64_t targets, windows;
};
int judge_loss(const struct judge *judge, struct judge_loss *result, struct why *why);

struct judge_answers {
    uint64_t questions, right;
    uint64_t silent; /* no final answer within the tokens */
};
int judge_answers(const struct judge *judge, struct judge_answers *result, struct why *why);

#endif
