#include "console/task.h"

#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"

#define WORDS_MOST 8
#define LOOK_NS (50 * CLOCK_MS) /* how often we look whether it has ended */
#define READ_BYTES 4096

struct task {
    struct task_callbacks callbacks;
    void *arg;
    int terminal; /* the master's side */
    pid_t child;
    struct loop_watch *watch;
    struct loop_timer *timer;
};

static void become_kedge(const char *const *words)
{
    static const int usual[] = {SIGINT, SIGTSTP, SIGPIPE, SIGWINCH, SIGHUP, SIGTERM};
    const char *argv[WORDS_MOST + 2] = {"/proc/self/exe"};
    for (size_t i = 0; i < WORDS_MOST && words[i]; i++)
        argv[i + 1] = words[i];
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        signal(usual[i], SIG_DFL);
    setenv("TERM", "dumb", 1); /* lines, no screen in the screen */
    setenv("NO_COLOR", "1", 1);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

static bool is_hidden(const struct task *task)
{
    struct termios now;
    return tcgetattr(task->terminal, &now) == 0 && !(now.c_lflag & ECHO);
}

/* What is there now; false: there will be no more. */
static bool take_words(struct task *task)
{
    char bytes[READ_BYTES];
    ssize_t got = read(task->terminal, bytes, sizeof bytes);
    if (got > 0)
        task->callbacks.said(bytes, (size_t)got, is_hidden(task), task->arg);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

static void on_words(int fd, bool readable, bool writable, void *arg)
{
    struct task *task = arg;
    (void)fd, (void)readable, (void)writable;
    if (!take_words(task))
        loop_watch_want(task->watch, false, false); /* the timer sees the end */
}

static void on_look(void *arg)
{
    struct task *task = arg;
    int status;
    pid_t ended = waitpid(task->child, &status, WNOHANG);
    if (ended == 0 || (ended < 0 && errno == EINTR)) {
        loop_timer_set(task->timer, LOOK_NS);
        return;
    }
    task->child = 0;
    for (int i = 0; i < 64; i++) /* its last words; what it started may hold the terminal, and is not waited for */
        if (!take_words(task) || errno == EAGAIN)
            break;
    task->callbacks.over(ended > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 1, task->arg);
}

struct task *task_new(struct loop *loop, const char *const *words, int columns, const struct task_callbacks *callbacks, void *arg,
                      struct why *why)
{
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)(columns < 20 ? 20 : columns)};
    int terminal;
    pid_t child = forkpty(&terminal, NULL, NULL, &size);
    if (child < 0) {
        why_errno(why, "cannot run kedge %s", words[0]);
        return NULL;
    }
    if (child == 0)
        become_kedge(words);
    struct task *task = mem_new(sizeof *task);
    task->callbacks = *callbacks;
    task->arg = arg;
    task->terminal = terminal;
    task->child = child;
    fcntl(terminal, F_SETFD, FD_CLOEXEC);
    fcntl(terminal, F_SETFL, O_NONBLOCK);
    task->watch = loop_watch_new(loop, terminal, on_words, task);
    task->timer = loop_timer_new(loop, on_look, task);
    loop_watch_want(task->watch, true, false);
    loop_timer_set(task->timer, LOOK_NS);
    return task;
}

/* A terminal takes a line at once or, when it is full of lines that nobody read, not at all. */
void task_answer(struct task *task, const char *line)
{
    size_t bytes = strlen(line);
    char *typed = mem_new(bytes + 2);
    memcpy(typed, line, bytes);
    typed[bytes] = '\n';
    if (write(task->terminal, typed, bytes + 1) < 0)
        task_interrupt(task);
    explicit_bzero(typed, bytes + 1);
    mem_free(typed);
}

void task_interrupt(struct task *task)
{
    if (task->child > 0)
        kill(task->child, SIGINT);
}

void task_free(struct task *task)
{
    if (!task)
        return;
    loop_watch_free(task->watch);
    loop_timer_free(task->timer);
    close(task->terminal);
    mem_free(task);
}
