/*
 * `kedge-worker sample FOLDER PROMPT`: text from a Hugging Face folder, to see that a model works. Each token is shown as soon as it
 * is known. With a template the prompt is a user's message, and only what the assistant says is shown.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gpu/model/document.h"
#include "gpu/model/generate.h"
#include "gpu/model/growth.h"
#include "gpu/train/command.h"
#include "gpu/train/offline.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"

#define USAGE \
    "sample FOLDER PROMPT [--adapter FOLDER] [--template NAME] [--tokens 128] [--temperature 0] [--top-p 1] [--seed 1]"

#define MARK_MAX 16 /* bytes of a template's end token */

struct wish {
    const char *folder, *adapter, *prompt, *template_name;
    enum chat_template template; /* where there is a name */
    uint64_t tokens, seed;
    double temperature, top_p;
};

static int read_words(int count, char **words, struct wish *wish, struct why *why)
{
    *wish = (struct wish){.tokens = 128, .seed = 1, .top_p = 1};
    const struct offline_option options[] = {
        {"--adapter", .text = &wish->adapter},
        {"--template", .text = &wish->template_name},
        {"--tokens", .whole = &wish->tokens, .most = 1 << 20},
        {"--seed", .whole = &wish->seed, .most = UINT32_MAX},
        {"--temperature", .real = &wish->temperature, .most = 100},
        {"--top-p", .real = &wish->top_p, .most = 1},
        {.name = NULL},
    };
    const char *others[2];
    int err = offline_read_words(count, words, options, USAGE, 2, 2, others, why);
    if (err < 0)
        return err;
    wish->folder = others[0];
    wish->prompt = others[1];
    return wish->template_name ? document_find_template(wish->template_name, &wish->template, why) : 0;
}

/* A terminal gets no control characters but line ends and tabs: what a model writes comes from strangers. */
static void print(struct buf *text)
{
    static int terminal = -1;
    if (terminal < 0)
        terminal = isatty(STDOUT_FILENO);
    for (size_t i = 0; i < buf_used(text); i++) {
        unsigned char byte = buf_peek(text)[i];
        bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
        putchar(terminal && control ? '?' : byte);
    }
    fflush(stdout);
    buf_consume(text, buf_used(text));
}

struct writing {
    struct generator *generator;
    const struct tokenizer *tokenizer;
    struct growth *growth;
    struct choice choice;
    float *logits;
    struct buf text;
    uint64_t made;
    bool answers;           /* to a question, which is not shown */
    uint32_t end;           /* the token behind what is written */
    const char *mark;       /* where a byte is a token there is none for a template's end: so it is spelled; or "" */
    char written[MARK_MAX]; /* its last bytes, as many as the mark has */
};

static int print_prompt(struct writing *w, const struct token_list *ids, struct why *why)
{
    int err = 0;
    for (size_t i = 0; i < ids->count && !err; i++)
        err = growth_add(w->growth, ids->ids[i], &w->text, why);
    if (w->answers)
        buf_consume(&w->text, buf_used(&w->text));
    print(&w->text);
    return err;
}

/* Is the mark spelled, with this byte as its last? */
static bool ends_mark(struct writing *w, uint32_t byte)
{
    size_t bytes = strlen(w->mark);
    if (!bytes)
        return false;
    memmove(w->written, w->written + 1, bytes - 1);
    w->written[bytes - 1] = (char)byte;
    return memcmp(w->written, w->mark, bytes) == 0;
}

static int refuse_token(const struct writing *w, uint32_t id, struct why *why)
{
    if (tokenizer_is_bytes(w->tokenizer))
        return why_set(why, ERR_INVALID, "the model says token %" PRIu32 ", which is no byte, and there is no tokenizer.json beside its "
                       "weights to tell what it means; copy its own there", id);
    return why_set(why, ERR_INVALID, "the model says token %" PRIu32 ", but its tokenizer has only %" PRIu32
                   "; is this its own tokenizer.json?", id, tokenizer_count(w->tokenizer));
}

/* 1: the text has ended. */
static int write_one(struct writing *w, struct why *why)
{
    uint32_t id = choice_make(&w->choice, w->logits, generator_shape(w->generator)->vocabulary);
    if (!isfinite(w->logits[id]))
        return why_set(why, ERR_INVALID, "what the model says is not finite: its weights are damaged");
    if (id == w->end || id == tokenizer_end(w->tokenizer))
        return 1;
    if (id >= tokenizer_count(w->tokenizer))
        return refuse_token(w, id, why);
    w->made++;
    int err = growth_add(w->growth, id, &w->text, why);
    print(&w->text);
    if (!err && ends_mark(w, id))
        return 1;
    if (!err && generator_room(w->generator))
        generator_feed(w->generator, &id, 1, w->logits);
    return err;
}

/* The prompt's ids, and with a template what ends the answer. */
static int read_prompt(const struct wish *wish, struct writing *w, struct token_list *ids, struct why *why)
{
    struct encoder *encoder = encoder_new(w->tokenizer);
    struct document document;
    const char *text = wish->prompt;
    int err = 0;
    document_init(&document);
    if (wish->template_name) {
        err = document_check(wish->template, w->tokenizer, why);
        if (!err)
            err = document_ask(wish->prompt, wish->template, &document, why);
        text = (const char *)buf_peek(&document.text);
        const char *end = document_answer_end(wish->template);
        w->answers = true;
        w->mark = tokenizer_is_bytes(w->tokenizer) ? end : "";
        w->end = *end && !*w->mark ? tokenizer_find(w->tokenizer, end) : w->end;
        BUG_IF(strlen(w->mark) > MARK_MAX);
    }
    if (!err)
        err = encoder_encode(encoder, text, wish->template_name ? buf_used(&document.text) : strlen(text), ENCODE_BEFORE, ids, why);
    document_clear(&document);
    encoder_free(encoder);
    return err;
}

static int write_text(struct writing *w, const struct token_list *ids, uint64_t tokens, struct why *why)
{
    int err = print_prompt(w, ids, why);
    uint64_t began_ns = clock_now_ns(), read_ns = 0;
    if (!err && tokens) {
        generator_feed(w->generator, ids->ids, (int64_t)ids->count, w->logits);
        read_ns = clock_now_ns();
    }
    while (!err && w->made < tokens)
        err = write_one(w, why);
    if (err > 0)
        err = 0;
    if (!err)
        err = growth_end(w->growth, &w->text, why);
    print(&w->text);
    printf("\n");
    fflush(stdout);
    double seconds = (double)(clock_now_ns() - read_ns) / 1e9;
    if (!err && tokens)
        fprintf(stderr, "kedge: %zu tokens read in %.2f s, %" PRIu64 " written, %.1f a second\n", ids->count,
                (double)(read_ns - began_ns) / 1e9, w->made, (double)w->made / seconds);
    return err;
}

static int sample(const struct wish *wish, const struct offline *offline, struct why *why)
{
    struct writing w = {.tokenizer = offline->tokenizer,
                        .end = tokenizer_end(offline->tokenizer),
                        .mark = "",
                        .choice = {.temperature = (float)wish->temperature, .top_p = (float)wish->top_p, .state = wish->seed << 32}};
    struct token_list ids = {0};
    w.growth = growth_new(offline->tokenizer);
    buf_init(&w.text, TOKENIZER_TEXT_MAX);
    int err = read_prompt(wish, &w, &ids, why);
    if (!err && ids.count == 0)
        err = why_set(why, ERR_INVALID, "the prompt is empty; give at least one word to go on from");
    if (!err)
        err = generator_new(offline->ops, offline->device, wish->folder, wish->adapter, (int64_t)(ids.count + wish->tokens),
                            &w.generator, why);
    if (!err && !model_ids_fit(generator_shape(w.generator), ids.ids, (int64_t)ids.count))
        err = why_set(why, ERR_INVALID, "the tokenizer of %s has tokens that its model does not have", wish->folder);
    if (!err) {
        w.logits = mem_array((size_t)generator_shape(w.generator)->vocabulary, sizeof *w.logits);
        err = write_text(&w, &ids, wish->tokens, why);
    }
    generator_free(w.generator);
    growth_free(w.growth);
    buf_clear(&w.text);
    mem_free(w.logits);
    token_list_clear(&ids);
    return err;
}

int sample_main(int count, char **words)
{
    struct wish wish;
    struct why why = {0};
    struct offline offline = {0};
    int err = read_words(count, words, &wish, &why);
    if (!err)
        err = offline_open(wish.folder, &offline, &why);
    if (!err)
        err = sample(&wish, &offline, &why);
    offline_close(&offline);
    if (err)
        fprintf(stderr, "kedge: %s\n", why.text);
    return command_exit(err);
}
