#include "console/ask.h"

#include <string.h>
#include <sys/queue.h>
#include <termios.h>
#include <unistd.h>

#include "ssh/base/mem.h"

#define ANSWER_BYTES 512

struct waiting {
    TAILQ_ENTRY(waiting) entry;
    uint64_t session;
    enum session_ask kind;
    char *text, *art;
    bool hidden;
};

struct ask {
    struct loop_watch *watch;
    TAILQ_HEAD(, waiting) queue;
    bool shown; /* the first of the queue */
    bool echo_off;
    struct termios before;
};

static void set_echo(struct ask *ask, bool hidden)
{
    if (hidden && !ask->echo_off && tcgetattr(STDIN_FILENO, &ask->before) == 0) {
        struct termios quiet = ask->before;
        quiet.c_lflag &= ~(tcflag_t)ECHO;
        ask->echo_off = tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet) == 0;
    } else if (!hidden && ask->echo_off) {
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &ask->before);
        ask->echo_off = false;
        fputc('\n', stderr);
    }
}

static void drop_first(struct ask *ask)
{
    struct waiting *first = TAILQ_FIRST(&ask->queue);
    TAILQ_REMOVE(&ask->queue, first, entry);
    mem_free(first->text);
    mem_free(first->art);
    mem_free(first);
    ask->shown = false;
    set_echo(ask, false);
}

void ask_step_aside(struct ask *ask)
{
    if (ask && ask->shown)
        fputc('\n', stderr);
}

void ask_come_back(struct ask *ask)
{
    if (!ask || !ask->shown)
        return;
    const struct waiting *first = TAILQ_FIRST(&ask->queue);
    fflush(stdout);
    fprintf(stderr, "%s: ", first->kind == ASK_HOST_KEY ? "Is it that host? [o]nce, [s]ave, anything else refuses" : first->text);
    fflush(stderr);
}

/* The first question whose session still waits for it. */
static void show_first(struct ask *ask)
{
    struct waiting *first;
    while (!ask->shown && (first = TAILQ_FIRST(&ask->queue))) {
        if (!session_find(first->session)) {
            drop_first(ask);
            continue;
        }
        if (first->kind == ASK_HOST_KEY)
            fprintf(stderr, "%s\n%s\n", first->art, first->text);
        ask->shown = true;
        set_echo(ask, first->hidden);
        ask_come_back(ask);
    }
    loop_watch_want(ask->watch, ask->shown, false);
}

static const char *key_answer(const char *line)
{
    if (strcmp(line, "o") == 0 || strcmp(line, "once") == 0)
        return "once";
    return strcmp(line, "s") == 0 || strcmp(line, "save") == 0 ? "save" : "no";
}

/* A terminal gives a whole line at a time. */
static void on_line(int fd, bool readable, bool writable, void *arg)
{
    struct ask *ask = arg;
    char line[ANSWER_BYTES];
    struct waiting *first = TAILQ_FIRST(&ask->queue);
    (void)readable, (void)writable;
    ssize_t got = read(fd, line, sizeof line - 1);
    if (!first)
        return;
    line[got > 0 ? got : 0] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    struct session *session = session_find(first->session);
    const char *answer = got <= 0 ? NULL : first->kind == ASK_HOST_KEY ? key_answer(line) : line;
    drop_first(ask);
    if (session)
        session_answer(session, answer);
    explicit_bzero(line, sizeof line);
    show_first(ask);
}

struct ask *ask_new(struct loop *loop)
{
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return NULL;
    struct ask *ask = mem_new(sizeof *ask);
    TAILQ_INIT(&ask->queue);
    ask->watch = loop_watch_new(loop, STDIN_FILENO, on_line, ask);
    return ask;
}

void ask_question(struct session *session, const struct session_question *question, void *arg)
{
    struct ask *ask = arg;
    struct waiting *waiting = mem_new(sizeof *waiting);
    waiting->session = session_id(session);
    waiting->kind = question->kind;
    waiting->text = mem_text(question->text);
    waiting->art = mem_text(question->art);
    waiting->hidden = question->hidden;
    TAILQ_INSERT_TAIL(&ask->queue, waiting, entry);
    show_first(ask);
}

void ask_free(struct ask *ask)
{
    if (!ask)
        return;
    while (!TAILQ_EMPTY(&ask->queue))
        drop_first(ask);
    set_echo(ask, false);
    loop_watch_free(ask->watch);
    mem_free(ask);
}
