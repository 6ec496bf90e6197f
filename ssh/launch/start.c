#include "ssh/launch/start.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define EXEC_MS 5000 /* an exec takes as long as the disk needs */

struct start {
    struct loop *loop;
    struct loop_watch *watch;
    struct loop_timer *timer;
    int pipe;             /* the program's stdout */
    char line[640];
    size_t used;
    uint64_t deadline_ns; /* how long, for the complaint */
    char *program, *log_path;
    start_cb *done;
    void *arg;
};

/* The child's last words before it is the program: the same language that the program would speak. */
static void say_error(const char *what, const char *path)
{
    char text[600];
    int used = snprintf(text, sizeof text, "error %s %s: %s\n", what, path, strerror(errno));
    if (used > 0 && write(STDOUT_FILENO, text, strlen(text)) < 0)
        _exit(126);
    _exit(127);
}

static void become_program(const char *const *argv, const char *mark, const char *log_path, int out)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int number = 1; number < 32; number++)
        if (number != SIGKILL && number != SIGSTOP)
            signal(number, SIG_DFL);
    umask(077);
    dup2(out, STDOUT_FILENO);
    int null = open("/dev/null", O_RDONLY);
    if (null < 0)
        say_error("cannot open", "/dev/null");
    dup2(null, STDIN_FILENO);
    int log = open(log_path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (log < 0)
        say_error("cannot write the log", log_path);
    dup2(log, STDERR_FILENO);
    if (close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) != 0)
        for (int fd = 3; fd < 1024; fd++)
            fcntl(fd, F_SETFD, FD_CLOEXEC);
    setenv("KEDGE_RUN", mark, 1);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    say_error("cannot run", argv[0]);
}

/* Until the program is executed it does not carry the mark of its run (holders.h): nobody may look for it before. The only
 * writing end of `executed` is closed by exec, or by the child's end. */
static void await_exec(int executed)
{
    struct pollfd ready = {.fd = executed, .events = POLLIN};
    while (poll(&ready, 1, EXEC_MS) < 0 && errno == EINTR)
        ;
}

/* Two forks: the program is nobody's child but init's, and no leader of its session, so no terminal can become its own. */
static int fork_twice(const char *const *argv, const char *mark, const char *log_path, int out, struct why *why)
{
    int executed[2];
    if (pipe2(executed, O_CLOEXEC) != 0)
        return why_errno(why, "cannot start %s", argv[0]);
    pid_t middle = fork();
    if (middle < 0) {
        int err = why_errno(why, "cannot start %s", argv[0]);
        close(executed[0]);
        close(executed[1]);
        return err;
    }
    if (middle == 0) {
        setsid();
        pid_t inner = fork();
        if (inner == 0)
            become_program(argv, mark, log_path, out);
        _exit(inner < 0 ? 1 : 0);
    }
    close(executed[1]);
    int status = 0;
    while (waitpid(middle, &status, 0) < 0 && errno == EINTR)
        ;
    await_exec(executed[0]);
    close(executed[0]);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return why_set(why, ERR_SYSTEM, "cannot start %s: no more processes are allowed", argv[0]);
    return 0;
}

static void finish(struct start *start, int err, const char *text)
{
    loop_watch_free(start->watch);
    start->watch = NULL;
    loop_timer_unset(start->timer);
    start->done(err, text, start->arg); /* may free `start` */
}

static void finish_line(struct start *start)
{
    char text[700];
    if (strncmp(start->line, "ready", 5) == 0 && (start->line[5] == ' ' || start->line[5] == '\0')) {
        text_harmless(start->line + (start->line[5] ? 6 : 5), strlen(start->line + (start->line[5] ? 6 : 5)), text,
                      sizeof text);
        finish(start, 0, text);
    } else if (strncmp(start->line, "error ", 6) == 0) {
        text_harmless(start->line + 6, strlen(start->line + 6), text, sizeof text);
        finish(start, ERR_REFUSED, text);
    } else {
        char shown[200];
        snprintf(text, sizeof text, "%s said '%s' instead of being ready: is it of this version?", start->program,
                 text_harmless(start->line, strlen(start->line), shown, sizeof shown));
        finish(start, ERR_INVALID, text);
    }
}

static void on_readable(int fd, bool readable, bool writable, void *arg)
{
    struct start *start = arg;
    (void)readable, (void)writable;
    ssize_t got = read(fd, start->line + start->used, sizeof start->line - 1 - start->used);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got > 0)
        start->used += (size_t)got;
    start->line[start->used] = '\0';
    char *end = strchr(start->line, '\n');
    if (end)
        *end = '\0';
    if (end || start->used == sizeof start->line - 1) {
        finish_line(start);
    } else if (got <= 0) {
        char text[700];
        snprintf(text, sizeof text, "%s ended before it was ready; its last words are in %s", start->program,
                 start->log_path);
        finish(start, ERR_GONE, text);
    }
}

static void on_deadline(void *arg)
{
    struct start *start = arg;
    char text[700], waited[32];
    snprintf(text, sizeof text, "%s was not ready within %s; see %s", start->program,
             text_from_duration(start->deadline_ns, waited, sizeof waited), start->log_path);
    finish(start, ERR_TIMEOUT, text);
}

struct start *start_new(struct loop *loop, const char *const *argv, const char *mark, const char *log_path,
                        uint64_t deadline_ns, start_cb *done, void *arg, struct why *why)
{
    int ends[2];
    if (access(argv[0], X_OK) != 0) {
        why_errno(why, "the program %s cannot be run (kedge, kedged and kedge-worker belong into one folder)", argv[0]);
        return NULL;
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        why_errno(why, "cannot start %s", argv[0]);
        return NULL;
    }
    int err = fork_twice(argv, mark, log_path, ends[1], why);
    close(ends[1]);
    if (err) {
        close(ends[0]);
        return NULL;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    struct start *start = mem_new(sizeof *start);
    start->loop = loop;
    start->pipe = ends[0];
    start->deadline_ns = deadline_ns;
    start->program = mem_text(strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0]);
    start->log_path = mem_text(log_path);
    start->done = done;
    start->arg = arg;
    start->watch = loop_watch_new(loop, start->pipe, on_readable, start);
    loop_watch_want(start->watch, true, false);
    start->timer = loop_timer_new(loop, on_deadline, start);
    loop_timer_set(start->timer, deadline_ns);
    return start;
}

void start_free(struct start *start)
{
    if (!start)
        return;
    loop_watch_free(start->watch);
    loop_timer_free(start->timer);
    close(start->pipe);
    mem_free(start->program);
    mem_free(start->log_path);
    mem_free(start);
}
