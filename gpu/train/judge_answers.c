/*
 * Final answers by generation: the model reads what stands before the last part that is learned of a line (the question), writes the
 * most likely tokens, and what stands behind its "####" is compared with what stands there in the data.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "gpu/model/answer.h"
#include "gpu/model/generate.h"
#include "gpu/model/growth.h"
#include "gpu/model/sources.h"
#include "gpu/model/text_block.h"
#include "gpu/train/judge.h"
#include "ssh/base/mem.h"

struct asking {
    const struct judge *judge;
    struct encoder *encoder;
    struct generator *generator; /* made for the longest question so far */
    int64_t context;
    float *logits;
    struct document document;
    struct token_list ids;
    struct buf written;
    struct judge_answers *result;
};

/* The question as tokens, and the right answer; false when the line has none. */
static int read_question(struct asking *a, char right[ANSWER_MAX], bool *has, struct why *why)
{
    const struct document *d = &a->document;
    const char *text = (const char *)buf_peek(&d->text);
    size_t last = d->count, at = 0;
    while (last > 0 && !d->runs[last - 1].learned)
        last--;
    *has = false;
    if (last < 2) /* all of it is learned: there is no question */
        return 0;
    while (last > 1 && d->runs[last - 2].learned) /* an answer may be in several parts */
        last--;
    size_t begin = d->runs[last - 2].end;
    if (!answer_find(text + begin, d->runs[d->count - 1].end - begin, false, right))
        return 0;
    a->ids.count = 0;
    int err = encoder_encode(a->encoder, "", 0, ENCODE_BEFORE, &a->ids, why);
    for (size_t i = 0; i + 1 < last && !err; i++) {
        err = encoder_encode(a->encoder, text + at, d->runs[i].end - at, i ? ENCODE_CONTINUE : 0, &a->ids, why);
        at = d->runs[i].end;
    }
    *has = !err && a->ids.count > 0;
    return err;
}

/* Room for this question and its answer. */
static int make_room(struct asking *a, struct why *why)
{
    const struct judge *judge = a->judge;
    int64_t wanted = (int64_t)(a->ids.count + judge->tokens);
    if (a->generator && wanted <= a->context) {
        generator_rewind(a->generator);
        return 0;
    }
    generator_free(a->generator);
    a->generator = NULL;
    a->context = wanted + wanted / 2;
    int err = generator_new(judge->offline->ops, judge->offline->device, judge->folder, judge->adapter, a->context, &a->generator, why);
    if (!err && !a->logits)
        a->logits = mem_array((size_t)generator_shape(a->generator)->vocabulary, sizeof *a->logits);
    return err;
}

/* Never NULL, which an empty buffer may be. */
static const char *written(const struct asking *a)
{
    return buf_used(&a->written) ? (const char *)buf_peek(&a->written) : "";
}

static int write_answer(struct asking *a, struct growth *growth, struct why *why)
{
    const struct tokenizer *tokenizer = a->judge->offline->tokenizer;
    struct choice greedy = {.temperature = 0};
    generator_feed(a->generator, a->ids.ids, (int64_t)a->ids.count, a->logits);
    for (uint64_t made = 0; made < a->judge->tokens; made++) {
        uint32_t id = choice_make(&greedy, a->logits, generator_shape(a->generator)->vocabulary);
        if (!isfinite(a->logits[id]))
            return why_set(why, ERR_INVALID, "what the model says is not finite: the weights of %s are damaged", a->judge->folder);
        if (id == tokenizer_end(tokenizer) || id >= tokenizer_count(tokenizer))
            break;
        int err = growth_add(growth, id, &a->written, why);
        if (err || answer_is_whole(written(a), buf_used(&a->written)))
            return err;
        if (generator_room(a->generator))
            generator_feed(a->generator, &id, 1, a->logits);
    }
    return growth_end(growth, &a->written, why);
}

static int ask(struct asking *a, struct why *why)
{
    char right[ANSWER_MAX], said[ANSWER_MAX];
    bool has;
    int err = read_question(a, right, &has, why);
    if (err || !has)
        return err;
    err = make_room(a, why);
    if (!err && !model_ids_fit(generator_shape(a->generator), a->ids.ids, (int64_t)a->ids.count))
        err = why_set(why, ERR_INVALID, "the tokenizer of %s has tokens that its model does not have", a->judge->folder);
    if (err)
        return err;
    struct growth *growth = growth_new(a->judge->offline->tokenizer);
    buf_consume(&a->written, buf_used(&a->written));
    err = write_answer(a, growth, why);
    growth_free(growth);
    if (err)
        return err;
    bool answered = answer_find(written(a), buf_used(&a->written), true, said);
    a->result->questions++;
    a->result->silent += !answered;
    a->result->right += answered && answer_same(said, right);
    a->judge->progress_cb("questions", a->result->questions, a->judge->questions, a->judge->arg);
    return 0;
}

static int ask_line(struct asking *a, const char *path, uint64_t number, const char *line, size_t bytes, struct why *why)
{
    struct why bad = {0};
    while (bytes && memchr(" \t\r", line[bytes - 1], 3))
        bytes--;
    if (bytes == 0)
        return 0;
    if (document_read(line, bytes, a->judge->template, &a->document, &bad) == 0)
        return ask(a, why);
    if (!a->judge->skip_bad_lines)
        return why_set(why, ERR_INVALID, "%s:%" PRIu64 ": %s", path, number, bad.text);
    return 0;
}

static int ask_block(struct asking *a, const struct text_block *block, struct why *why)
{
    const char *at = block->text, *end = at + block->bytes;
    int err = 0;
    if (block->overlong && !a->judge->skip_bad_lines)
        return why_set(why, ERR_INVALID, "%s:%" PRIu64 ": longer than %zu bytes", block->path, block->line, DOCUMENT_LINE_MAX);
    for (uint64_t number = block->line; at < end && !err && a->result->questions < a->judge->questions; number++) {
        const char *line = memchr(at, '\n', (size_t)(end - at)), *stop = line ? line : end;
        err = ask_line(a, block->path, number, at, (size_t)(stop - at), why);
        at = stop + 1;
    }
    return err;
}

static int ask_source(struct asking *a, const struct source *source, struct why *why)
{
    struct text_reader *reader;
    struct text_block block = {0};
    bool more = true;
    int err = text_reader_open(source, &reader, why);
    if (err)
        return err;
    while (!err && a->result->questions < a->judge->questions) {
        err = text_reader_next(reader, &block, &more, why);
        if (err || !more)
            break;
        err = ask_block(a, &block, why);
    }
    text_block_clear(&block);
    text_reader_close(reader);
    return err;
}

int judge_answers(const struct judge *judge, struct judge_answers *result, struct why *why)
{
    struct sources sources = {0};
    struct judge_answers found = {0};
    struct asking a = {.judge = judge, .encoder = encoder_new(judge->offline->tokenizer), .result = &found};
    document_init(&a.document);
    buf_init(&a.written, TOKENIZER_TEXT_MAX);
    int err = document_check(judge->template, judge->offline->tokenizer, why);
    if (!err)
        err = sources_find(judge->paths, &sources, why);
    for (size_t i = 0; i < sources.count && !err; i++)
        if (sources.rows[i].kind == SOURCE_JSONL)
            err = ask_source(&a, &sources.rows[i], why);
    if (!err && found.questions == 0)
        err = why_set(why, ERR_INVALID, "%s: no line of a .jsonl file is a question whose answer ends with \"" ANSWER_MARK
                      " …\"", judge->paths);
    if (!err)
        *result = found;
    generator_free(a.generator);
    document_clear(&a.document);
    buf_clear(&a.written);
    token_list_clear(&a.ids);
    mem_free(a.logits);
    encoder_free(a.encoder);
    sources_clear(&sources);
    return err;
}
