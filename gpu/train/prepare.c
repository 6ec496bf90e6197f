/*
 * `kedge-worker data prepare`: files of text and JSON lines become a folder of token files. Progress for people on
 * stderr: on a terminal
 * one line that is written over four times a second, else a line every ten seconds. An interrupt leaves nothing behind.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gpu/model/shards.h"
#include "gpu/model/tokenise.h"
#include "gpu/train/command.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define EXIT_INTERRUPTED 130
#define TOKENS_EACH 100000000
#define BAD_LINES_TOLD 20

static volatile sig_atomic_t interrupted;

struct prepare {
    /* asked for */
    const char *out, *tokenizer_folder;
    enum chat_template template;
    bool skip_bad_lines;
    uint64_t threads, tokens_each;
    const char **paths;
    size_t path_count;
    /* under way */
    struct sources sources;
    struct tokenizer *tokenizer;
    struct shards_writer *writer;
    uint64_t began_ns, told_ns, tokens, bad_lines;
    bool terminal, line_open;
};

/* ---- words ---- */

static int read_number(const char *option, const char *word, uint64_t most, uint64_t *value, struct why *why)
{
    uint64_t number;
    if (text_to_u64(word, &number) || number < 1 || number > most)
        return why_set(why, ERR_INVALID, "%s %s: not a number from 1 to %" PRIu64, option, word, most);
    *value = number;
    return 0;
}

static int read_option(struct prepare *p, const char *option, const char *value, struct why *why)
{
    if (!value)
        return why_set(why, ERR_INVALID, "%s: its value is missing", option);
    if (strcmp(option, "--template") == 0)
        return document_find_template(value, &p->template, why);
    if (strcmp(option, "--threads") == 0)
        return read_number(option, value, 256, &p->threads, why);
    if (strcmp(option, "--tokens-each") == 0)
        return read_number(option, value, (uint64_t)1 << 40, &p->tokens_each, why);
    if (strcmp(option, "--out") == 0)
        p->out = value;
    else if (strcmp(option, "--tokenizer") == 0)
        p->tokenizer_folder = value;
    else
        return why_set(why, ERR_INVALID, "%s: no such option; see kedge-worker --help", option);
    return 0;
}

static int read_words(int count, char **words, struct prepare *p, struct why *why)
{
    bool options = true;
    int err = 0;
    if (count < 1 || strcmp(words[0], "prepare") != 0)
        return why_set(why, ERR_INVALID, "data %s: no such command; there is data prepare", count < 1 ? "(nothing)" : words[0]);
    for (int i = 1; i < count && err == 0; i++) {
        if (options && strcmp(words[i], "--") == 0) {
            options = false;
        } else if (options && strcmp(words[i], "--skip-bad-lines") == 0) {
            p->skip_bad_lines = true;
        } else if (options && words[i][0] == '-') {
            err = read_option(p, words[i], i + 1 < count ? words[i + 1] : NULL, why);
            i++;
        } else {
            p->paths[p->path_count++] = words[i];
        }
    }
    if (err == 0 && !p->out)
        err = why_set(why, ERR_INVALID, "--out is missing; see kedge-worker --help");
    if (err == 0 && p->path_count == 0)
        err = why_set(why, ERR_INVALID, "no file is named; see kedge-worker --help");
    return err;
}

/* ---- what people see ---- */

static void tell_progress(uint64_t bytes, void *arg)
{
    struct prepare *p = arg;
    uint64_t now_ns = clock_now_ns(), period_ns = p->terminal ? CLOCK_SECOND / 4 : 10 * CLOCK_SECOND;
    if (now_ns - p->told_ns < period_ns)
        return;
    p->told_ns = now_ns;
    char done[32], all[32], rate[32], left[32];
    double seconds = (double)(now_ns - p->began_ns) / 1e9, speed = (double)bytes / seconds;
    uint64_t rest = p->sources.bytes > bytes ? p->sources.bytes - bytes : 0;
    text_from_bytes(bytes, done, sizeof done);
    text_from_bytes(p->sources.bytes, all, sizeof all);
    text_from_rate(speed, rate, sizeof rate);
    text_from_duration(speed > 0 ? (uint64_t)((double)rest / speed * 1e9) : 0, left, sizeof left);
    fprintf(stderr, "%s%s of %s (%d %%), %s, %.2f M tokens/s, %s left%s", p->terminal ? "\r\033[K" : "", done, all,
            (int)(100.0 * (double)bytes / (double)p->sources.bytes), rate, (double)p->tokens / seconds / 1e6, left,
            p->terminal ? "" : "\n");
    p->line_open = p->terminal;
}

static void end_line(struct prepare *p)
{
    if (p->line_open)
        fputc('\n', stderr);
    p->line_open = false;
}

static void tell_bad_line(const char *path, uint64_t line, const char *reason, void *arg)
{
    struct prepare *p = arg;
    if (!line || p->bad_lines++ >= BAD_LINES_TOLD)
        return;
    end_line(p);
    fprintf(stderr, "%s:%" PRIu64 ": skipped: %s\n", path, line, reason);
}

static void tell_end(struct prepare *p, const struct tokenise_totals *read, const struct shards_totals *written)
{
    char bytes[32];
    end_line(p);
    if (read->bad_lines)
        fprintf(stderr, "%" PRIu64 " bad lines were skipped\n", read->bad_lines);
    if (read->lost)
        fprintf(stderr, "%" PRIu64 " bytes are not in the tokenizer's vocabulary and were left out\n", read->lost);
    printf("%s: %" PRIu64 " tokens of %" PRIu64 " documents, %" PRIu64 " of them learned, in %zu files, %s\n", p->out, written->tokens,
           read->documents, written->learned, written->files, text_from_bytes(written->bytes, bytes, sizeof bytes));
}

/* ---- work ---- */

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

static int take(const uint32_t *ids, const uint8_t *marks, size_t count, void *arg, struct why *why)
{
    struct prepare *p = arg;
    if (interrupted)
        return why_set(why, ERR_GONE, "interrupted; nothing is left in %s", p->out);
    p->tokens += count;
    return shards_writer_add(p->writer, ids, marks, count, why);
}

static int check_sources(const struct prepare *p, struct why *why)
{
    for (size_t i = 0; i < p->sources.count; i++)
        if (p->sources.rows[i].kind != SOURCE_TEXT && p->sources.rows[i].kind != SOURCE_JSONL)
            return why_set(why, ERR_INVALID, "%s is no text: its tokens are ready for data.path", p->sources.rows[i].path);
    return p->sources.bytes ? 0 : why_set(why, ERR_INVALID, "%zu files are empty", p->sources.count);
}

static int prepare(struct prepare *p, struct why *why)
{
    struct tokenise_totals read;
    struct shards_totals written;
    int err = sources_take(p->paths, p->path_count, &p->sources, why);
    if (err == 0)
        err = check_sources(p, why);
    if (err == 0 && p->tokenizer_folder && strcmp(p->tokenizer_folder, "bytes") != 0)
        err = tokenizer_open(p->tokenizer_folder, &p->tokenizer, why);
    else if (err == 0)
        p->tokenizer = tokenizer_new_bytes();
    if (err == 0)
        err = shards_writer_open(p->out, p->tokenizer, p->tokens_each, &p->writer, why);
    if (err)
        return err;
    struct tokenise order = {p->tokenizer, p->template, p->skip_bad_lines, (int)p->threads, take, tell_bad_line, tell_progress, p};
    p->began_ns = p->told_ns = clock_now_ns();
    err = tokenise_sources(&order, &p->sources, &read, why);
    if (err == 0)
        err = shards_writer_finish(p->writer, &written, why);
    if (err == 0)
        tell_end(p, &read, &written);
    return err;
}

int prepare_main(int count, char **words)
{
    struct prepare p = {.tokens_each = TOKENS_EACH, .terminal = isatty(STDERR_FILENO)};
    struct sigaction action = {.sa_handler = on_interrupt};
    struct why why = {0};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    p.threads = cores > 0 && cores < 256 ? (uint64_t)cores : 1;
    p.paths = mem_array((size_t)count + 1, sizeof *p.paths);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    int err = read_words(count, words, &p, &why);
    if (err == 0)
        err = prepare(&p, &why);
    end_line(&p);
    if (err)
        fprintf(stderr, "kedge-worker: %s\n", why.text);
    shards_writer_free(p.writer);
    tokenizer_close(p.tokenizer);
    sources_clear(&p.sources);
    mem_free(p.paths);
    return interrupted && err ? EXIT_INTERRUPTED : command_exit(err);
}
