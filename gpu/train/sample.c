/*
 * `kedge-worker sample FOLDER PROMPT`: text from a Hugging Face folder, to see that a model works. Each token is shown as soon as it
 * is known.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gpu/model/generate.h"
#include "gpu/model/growth.h"
#include "gpu/train/command.h"
#include "gpu/train/offline.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"

#define USAGE \
    "sample FOLDER PROMPT [--adapter FOLDER] [--tokens 128] [--temperature 0] [--top-p 1] [--seed 1]"

struct wish {
    const char *folder, *adapter, *prompt;
    uint64_t tokens, seed;
    double temperature, top_p;
};

static int read_words(int count, char **words, struct wish *wish, struct why *why)
{
    *wish = (struct wish){.tokens = 128, .seed = 1, .top_p = 1};
    const struct offline_option options[] = {
        {"--adapter", .text = &wish->adapter},
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
    return 0;
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
};

static int print_prompt(struct writing *w, const struct token_list *ids, struct why *why)
{
    int err = 0;
    for (size_t i = 0; i < ids->count && !err; i++)
        err = growth_add(w->growth, ids->ids[i], &w->text, why);
    print(&w->text);
    return err;
}

/* 1: the text has ended. */
static int write_one(struct writing *w, struct why *why)
{
    uint32_t id = choice_make(&w->choice, w->logits, generator_shape(w->generator)->vocabulary);
    if (!isfinite(w->logits[id]))
        return why_set(why, ERR_INVALID, "what the model says is not finite: its weights are damaged");
    if (id == tokenizer_end(w->tokenizer))
        return 1;
    if (id >= tokenizer_count(w->tokenizer))
        return why_set(why, ERR_INVALID, "the model says token %" PRIu32 ", but its tokenizer has only %" PRIu32
                       "; is this its own tokenizer.json?", id, tokenizer_count(w->tokenizer));
    w->made++;
    int err = growth_add(w->growth, id, &w->text, why);
    print(&w->text);
    if (!err && generator_room(w->generator))
        generator_feed(w->generator, &id, 1, w->logits);
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
                        .choice = {.temperature = (float)wish->temperature, .top_p = (float)wish->top_p, .state = wish->seed << 32}};
    struct token_list ids = {0};
    struct encoder *encoder = encoder_new(offline->tokenizer);
    w.growth = growth_new(offline->tokenizer);
    buf_init(&w.text, TOKENIZER_TEXT_MAX);
    int err = encoder_encode(encoder, wish->prompt, strlen(wish->prompt), ENCODE_BEFORE, &ids, why);
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
    encoder_free(encoder);
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
