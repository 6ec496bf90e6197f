#include "gpu/model/data.h"

#include <inttypes.h>

#include "gpu/math/philox.h"
#include "gpu/model/corpus.h"
#include "ssh/base/mem.h"

struct data {
    struct corpus *corpus;
    uint64_t count, split; /* training: [0, split), validation: [split, count) */
    enum data_order order;
    uint64_t micro_batches, sequences;
};

int data_open(const struct data_settings *settings, struct data **data, struct why *why)
{
    double share = settings->validation_share;
    struct data *new = mem_new(sizeof *new);
    *new = (struct data){.order = settings->order, .micro_batches = (uint64_t)settings->micro_batches,
                         .sequences = (uint64_t)settings->sequences};
    BUG_IF(settings->order == DATA_EPOCHS && (settings->micro_batches < 1 || settings->sequences < 1));
    int err = share >= 0 && share < 1 ? corpus_open(settings, &new->corpus, why)
                                      : why_set(why, ERR_INVALID, "data.validation is %g; 0 to below 1 is possible", share);
    if (err == 0) {
        new->count = corpus_count(new->corpus);
        uint64_t kept = (uint64_t)((double)new->count * share);
        err = corpus_nearest_end(new->corpus, new->count - kept, kept / 2, &new->split, why);
    }
    if (err)
        data_close(new);
    else
        *data = new;
    return err;
}

void data_close(struct data *data)
{
    if (!data)
        return;
    corpus_close(data->corpus);
    mem_free(data);
}

uint64_t data_train_tokens(const struct data *data)
{
    return data->split;
}

uint64_t data_validation_tokens(const struct data *data)
{
    return data->count - data->split;
}

bool data_masked(const struct data *data)
{
    return corpus_masked(data->corpus);
}

int data_check(const struct data *data, int64_t tokens, int64_t validation_windows, struct why *why)
{
    const struct {
        const char *side;
        uint64_t tokens;
        bool wanted;
    } sides[] = {{"training", data_train_tokens(data), true},
                 {"validation", data_validation_tokens(data), validation_windows > 0}};
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        if (sides[i].wanted && sides[i].tokens < (uint64_t)tokens + 1)
            return why_set(why, ERR_INVALID,
                           "data.path: too little text for %s: %" PRIu64 " tokens of %" PRIu64 ", a window needs %" PRIu64
                           "; give more files, change data.validation or shorten train.sequence",
                           sides[i].side, sides[i].tokens, data->count, (uint64_t)tokens + 1);
    return 0;
}

/* ---- where windows begin ---- */

/* The masks' draws have the seed as their key: other keys, so that windows and masks have nothing in common. */
static void draw(uint64_t seed, uint32_t tag, const uint32_t counter[4], uint32_t word[4])
{
    uint32_t key[2] = {(uint32_t)seed ^ 0x64617461, (uint32_t)(seed >> 32) ^ tag};
    philox4x32(counter, key, word);
}

static uint64_t random_start(const struct data *data, uint64_t seed, uint64_t step, uint32_t micro_batch, uint32_t sequence,
                             int64_t tokens)
{
    uint32_t counter[4] = {(uint32_t)step, (uint32_t)(step >> 32), micro_batch, sequence}, word[4];
    draw(seed, 0x77696e64, counter, word);
    uint64_t drawn = (uint64_t)word[0] << 32 | word[1], starts = data_train_tokens(data) - (uint64_t)tokens;
    return (uint64_t)(((unsigned __int128)drawn * starts) >> 64);
}

/* One round: the halves are h bits each; a bijection whatever the drawn number is. */
static uint64_t feistel(uint64_t seed, uint64_t epoch, uint64_t index, unsigned half)
{
    uint64_t mask = (UINT64_C(1) << half) - 1, left = index >> half, right = index & mask;
    for (uint32_t round = 0; round < 4; round++) {
        uint32_t counter[4] = {(uint32_t)right, (uint32_t)epoch, (uint32_t)(epoch >> 32), round}, word[4];
        draw(seed, 0x73687566, counter, word);
        uint64_t mixed = left ^ (word[0] & mask);
        left = right;
        right = mixed;
    }
    return left << half | right;
}

/* Place `index` in the shuffled order of `count` windows: a walk through a permutation of the next power of four until it is
 * one. */
static uint64_t shuffled(uint64_t seed, uint64_t epoch, uint64_t index, uint64_t count)
{
    unsigned half = 1;
    while ((UINT64_C(1) << 2 * half) < count)
        half++;
    do
        index = feistel(seed, epoch, index, half);
    while (index >= count);
    return index;
}

static uint64_t epoch_start(const struct data *data, uint64_t seed, uint64_t step, uint32_t micro_batch, uint32_t sequence,
                            int64_t tokens)
{
    uint64_t windows = (data_train_tokens(data) - 1) / (uint64_t)tokens;
    uint64_t number = ((step - 1) * data->micro_batches + micro_batch) * data->sequences + sequence;
    return shuffled(seed, number / windows, number % windows, windows) * (uint64_t)tokens;
}

/* ---- windows ---- */

int data_train_window(const struct data *data, uint64_t seed, uint64_t step, uint32_t micro_batch, uint32_t sequence,
                      int64_t tokens, uint32_t *ids, uint8_t *marks, struct why *why)
{
    BUG_IF(tokens < 1 || data_train_tokens(data) < (uint64_t)tokens + 1 || step < 1);
    uint64_t start = data->order == DATA_EPOCHS ? epoch_start(data, seed, step, micro_batch, sequence, tokens)
                                                : random_start(data, seed, step, micro_batch, sequence, tokens);
    return corpus_read(data->corpus, start, (size_t)tokens + 1, ids, marks, why);
}

int data_validation_window(const struct data *data, int64_t index, int64_t count, int64_t tokens, uint32_t *ids,
                           uint8_t *marks, struct why *why)
{
    BUG_IF(tokens < 1 || index < 0 || index >= count || data_validation_tokens(data) < (uint64_t)tokens + 1);
    uint64_t last = data_validation_tokens(data) - (uint64_t)tokens - 1;
    uint64_t start = count == 1 ? 0 : (uint64_t)(((unsigned __int128)last * (uint64_t)index) / (uint64_t)(count - 1));
    return corpus_read(data->corpus, data->split + start, (size_t)tokens + 1, ids, marks, why);
}
