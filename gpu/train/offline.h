/* What commands need that use a Hugging Face folder without a run: the CPU backend on all cores, and the folder's tokenizer. */
#ifndef KEDGE_TRAIN_OFFLINE_H
#define KEDGE_TRAIN_OFFLINE_H

#include "gpu/math/ops.h"
#include "gpu/model/tokenizer.h"

struct offline {
    const struct ops *ops;
    struct device *device;
    struct tokenizer *tokenizer; /* the built-in one of bytes where the folder has none */
};

int offline_open(const char *folder, struct offline *offline, struct why *why);
void offline_close(struct offline *offline);

/* One option. Exactly one of the pointers is set; what is not given keeps its value. */
struct offline_option {
    const char *name;
    uint64_t *whole;   /* a number from least to most */
    double *real;
    const char **text;
    bool *flag;        /* takes no value */
    double least, most;
};
/* The words of a command: options anywhere before "--", whose table ends with a row without a name, and from `least` to `most`
 * others. Returns how many of these there are, or refuses and says how the command is used. */
int offline_read_words(int count, char **words, const struct offline_option *options, const char *usage, int least, int most,
                       const char **others, struct why *why);

#endif
