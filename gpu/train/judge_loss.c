/* The mean loss over windows of the data, without gradients: gpu/train/judge.h. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "gpu/model/checkpoint.h"
#include "gpu/model/corpus.h"
#include "gpu/model/model.h"
#include "gpu/train/judge.h"
#include "ssh/base/mem.h"

enum { ROWS = 2048 }; /* tokens that go through the model together, if a window is not longer */

struct judging {
    const struct judge *judge;
    struct corpus *corpus;
    struct stage *stage;
    int64_t sequences;           /* windows that go through the model together */
    uint32_t *inputs, *targets;  /* [sequences, tokens] */
    uint32_t *window;            /* [tokens + 1] */
    uint8_t *marks;
    double loss;
    uint64_t counted;
};

static int open_corpus(const struct judge *judge, const struct model_shape *model, struct corpus **corpus, struct why *why)
{
    const struct data_settings settings = {
        .paths = judge->paths,
        .tokenizer = tokenizer_is_bytes(judge->offline->tokenizer) ? NULL : judge->offline->tokenizer,
        .template = judge->template,
        .skip_bad_lines = judge->skip_bad_lines,
        .vocabulary = (uint32_t)model->vocabulary,
        .threads = 1,
        .tell_cb = judge->tell_cb,
        .arg = judge->arg,
    };
    return corpus_open(&settings, corpus, why);
}

static int open_stage(struct judging *j, struct why *why)
{
    const struct judge *judge = j->judge;
    int64_t tokens = (int64_t)judge->sequence;
    j->sequences = tokens < ROWS ? ROWS / tokens : 1;
    const struct stage_shape shape = {.sequences = j->sequences, .tokens = tokens, .slots = 1, .frozen = true};
    return stage_open(judge->offline->ops, judge->offline->device, &shape, judge->folder, judge->adapter, &j->stage, why);
}

/* Where window i of all begins. */
static uint64_t window_start(const struct judge *judge, uint64_t count, uint64_t i)
{
    if (!judge->windows)
        return i * judge->sequence;
    uint64_t last = count - judge->sequence - 1;
    return judge->windows == 1 ? 0 : (uint64_t)((unsigned __int128)last * i / (judge->windows - 1));
}

static int read_window(struct judging *j, uint64_t start, int64_t row, int64_t tokens, struct why *why)
{
    int err = corpus_read(j->corpus, start, (size_t)tokens + 1, j->window, j->marks, why);
    for (int64_t t = 0; t < tokens && !err; t++) {
        bool learned = j->marks[t + 1] & TOKEN_LEARNED;
        j->inputs[row * tokens + t] = j->window[t];
        j->targets[row * tokens + t] = learned ? j->window[t + 1] : UINT32_MAX;
        j->counted += learned;
    }
    return err;
}

/* `count` windows that begin with number `first`, of the same length. */
static int judge_windows(struct judging *j, uint64_t first, int64_t count, int64_t tokens, struct why *why)
{
    int err = 0;
    for (int64_t s = 0; s < count && !err; s++)
        err = read_window(j, window_start(j->judge, corpus_count(j->corpus), first + (uint64_t)s), s, tokens, why);
    if (err)
        return err;
    stage_forward(j->stage, 0, j->inputs, NULL, count, tokens);
    j->loss += stage_loss(j->stage, 0, j->targets, 0);
    return isfinite(j->loss) ? 0 : why_set(why, ERR_INVALID, "the loss is not finite: the weights of %s are damaged",
                                           j->judge->folder);
}

/* Windows of full length, then what is left at the end. */
static int judge_all(struct judging *j, uint64_t *windows, struct why *why)
{
    const struct judge *judge = j->judge;
    uint64_t count = corpus_count(j->corpus), length = judge->sequence;
    uint64_t whole = judge->windows ? judge->windows : (count - 1) / length, rest = judge->windows ? 0 : (count - 1) % length;
    int err = 0;
    for (uint64_t done = 0; done < whole && !err;) {
        uint64_t left = whole - done, take = left < (uint64_t)j->sequences ? left : (uint64_t)j->sequences;
        err = judge_windows(j, done, (int64_t)take, (int64_t)length, why);
        done += take;
        judge->progress_cb("windows", done, whole + (rest > 0), judge->arg);
    }
    if (rest && !err)
        err = judge_windows(j, whole, 1, (int64_t)rest, why);
    *windows = whole + (rest > 0);
    return err;
}

int judge_loss(const struct judge *judge, struct judge_loss *result, struct why *why)
{
    struct judging j = {.judge = judge};
    struct model_shape model;
    uint64_t windows = 0;
    int err = checkpoint_shape(judge->folder, &model, why);
    if (!err)
        err = open_corpus(judge, &model, &j.corpus, why);
    if (!err && corpus_count(j.corpus) < (judge->windows ? judge->sequence + 1 : 2))
        err = why_set(why, ERR_INVALID, "%s has %" PRIu64 " tokens; a window needs %" PRIu64, judge->paths, corpus_count(j.corpus),
                      judge->windows ? judge->sequence + 1 : 2);
    if (!err)
        err = open_stage(&j, why);
    if (!err) {
        size_t rows = (size_t)j.sequences * judge->sequence;
        j.inputs = mem_array(rows, sizeof *j.inputs);
        j.targets = mem_array(rows, sizeof *j.targets);
        j.window = mem_array(judge->sequence + 1, sizeof *j.window);
        j.marks = mem_array(judge->sequence + 1, 1);
        err = judge_all(&j, &windows, why);
    }
    if (!err && j.counted == 0)
        err = why_set(why, ERR_INVALID, "%s: no token in these windows is to be learned", judge->paths);
    if (!err)
        *result = (struct judge_loss){j.loss / (double)j.counted, j.counted, windows};
    stage_free(j.stage);
    corpus_close(j.corpus);
    mem_free(j.inputs);
    mem_free(j.targets);
    mem_free(j.window);
    mem_free(j.marks);
    return err;
}
