/*
 * `kedge-worker eval FOLDER FILE...`: the mean loss of a model on some data, and how many final answers it gets right. What it found
 * goes to standard output, how far it is to standard error: on a terminal one line that is written over, else a line every ten
 * seconds.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gpu/train/command.h"
#include "gpu/train/judge.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define USAGE                                                                                                                \
    "eval FOLDER FILE... [--adapter FOLDER] [--sequence 512] [--windows N] [--answers N] [--tokens 256] [--template plain] " \
    "[--skip-bad-lines] [--json]"

struct showing {
    bool terminal, open;
    const char *what;
    uint64_t began_ns, told_ns;
};

static void end_line(struct showing *s)
{
    if (s->open)
        fputs("\r\033[K", stderr);
    s->open = false;
}

static void tell_progress(const char *what, uint64_t done, uint64_t all, void *arg)
{
    struct showing *s = arg;
    uint64_t now_ns = clock_now_ns(), period_ns = s->terminal ? CLOCK_SECOND / 4 : 10 * CLOCK_SECOND;
    char left[32];
    if (what != s->what) {
        s->what = what;
        s->began_ns = s->told_ns = now_ns;
    }
    if (now_ns - s->told_ns < period_ns)
        return;
    s->told_ns = now_ns;
    uint64_t took_ns = now_ns - s->began_ns, rest = all > done ? all - done : 0;
    text_from_duration((uint64_t)((double)took_ns / (double)done * (double)rest), left, sizeof left);
    fprintf(stderr, "%s%" PRIu64 " of %" PRIu64 " %s, %s left%s", s->terminal ? "\r\033[K" : "", done, all, what, left,
            s->terminal ? "" : "\n");
    s->open = s->terminal;
}

static void tell_line(const char *text, void *arg)
{
    end_line(arg);
    fprintf(stderr, "kedge: %s\n", text);
}

struct wish {
    struct judge judge;
    const char *template;
    bool json;
    char *paths;
};

static char *join(const char *const *words, int count)
{
    char *all = mem_text("");
    for (int i = 0; i < count; i++) {
        char *longer = mem_format("%s%s%s", all, i ? " " : "", words[i]);
        mem_free(all);
        all = longer;
    }
    return all;
}

static int read_words(int count, char **words, struct wish *wish, struct why *why)
{
    struct judge *judge = &wish->judge;
    *judge = (struct judge){.sequence = 512, .tokens = 256};
    wish->template = "plain";
    const struct offline_option options[] = {
        {"--adapter", .text = &judge->adapter},
        {"--sequence", .whole = &judge->sequence, .least = 1, .most = 1 << 20},
        {"--windows", .whole = &judge->windows, .least = 1, .most = 1 << 30},
        {"--answers", .whole = &judge->questions, .least = 1, .most = 1 << 30},
        {"--tokens", .whole = &judge->tokens, .least = 1, .most = 1 << 16},
        {"--template", .text = &wish->template},
        {"--skip-bad-lines", .flag = &judge->skip_bad_lines},
        {"--json", .flag = &wish->json},
        {.name = NULL},
    };
    const char **others = mem_array((size_t)count + 1, sizeof *others);
    int found = offline_read_words(count, words, options, USAGE, 2, count, others, why);
    if (found > 0) {
        judge->folder = others[0];
        judge->paths = wish->paths = join(others + 1, found - 1);
    }
    mem_free(others);
    return found < 0 ? found : document_find_template(wish->template, &wish->judge.template, why);
}

static void print_json_text(const char *key, const char *text)
{
    char *safe = mem_new(4 * strlen(text) + 1);
    printf("\"%s\": \"", key);
    for (const char *at = text_harmless(text, strlen(text), safe, 4 * strlen(text) + 1); *at; at++)
        printf("%s%c", strchr("\"\\", *at) ? "\\" : "", *at);
    printf("\", ");
    mem_free(safe);
}

static void print_json(const struct wish *wish, const struct judge_loss *loss, const struct judge_answers *answers)
{
    printf("{\"version\": 1, ");
    print_json_text("model", wish->judge.folder);
    print_json_text("data", wish->judge.paths);
    printf("\"loss\": %.12g, \"targets\": %" PRIu64 ", \"windows\": %" PRIu64 ", \"sequence\": %" PRIu64 ", ", loss->loss,
           loss->targets, loss->windows, wish->judge.sequence);
    if (isfinite(exp(loss->loss)))
        printf("\"perplexity\": %.12g, ", exp(loss->loss));
    else
        printf("\"perplexity\": null, ");
    if (wish->judge.questions)
        printf("\"answers\": {\"questions\": %" PRIu64 ", \"right\": %" PRIu64 ", \"silent\": %" PRIu64 ", \"accuracy\": %.12g}}\n",
               answers->questions, answers->right, answers->silent, (double)answers->right / (double)answers->questions);
    else
        printf("\"answers\": null}\n");
}

static void print_words(const struct wish *wish, const struct judge_loss *loss, const struct judge_answers *answers)
{
    printf("loss %.6f, perplexity %.4f: %" PRIu64 " tokens in %" PRIu64 " windows of %" PRIu64 "\n", loss->loss, exp(loss->loss),
           loss->targets, loss->windows, wish->judge.sequence);
    if (wish->judge.questions)
        printf("answers %.1f %%: %" PRIu64 " of %" PRIu64 " are right, %" PRIu64 " questions got none\n",
               100.0 * (double)answers->right / (double)answers->questions, answers->right, answers->questions, answers->silent);
}

int eval_main(int count, char **words)
{
    struct wish wish = {0};
    struct judge_loss loss;
    struct judge_answers answers = {0};
    struct why why = {0};
    struct offline offline = {0};
    struct showing showing = {.terminal = isatty(STDERR_FILENO)};
    int err = read_words(count, words, &wish, &why);
    if (!err)
        err = offline_open(wish.judge.folder, &offline, &why);
    wish.judge.offline = &offline;
    wish.judge.progress_cb = tell_progress;
    wish.judge.tell_cb = tell_line;
    wish.judge.arg = &showing;
    if (!err)
        err = judge_loss(&wish.judge, &loss, &why);
    if (!err && wish.judge.questions)
        err = judge_answers(&wish.judge, &answers, &why);
    end_line(&showing);
    if (err)
        fprintf(stderr, "kedge: %s\n", why.text);
    else if (wish.json)
        print_json(&wish, &loss, &answers);
    else
        print_words(&wish, &loss, &answers);
    offline_close(&offline);
    mem_free(wish.paths);
    return command_exit(err);
}
