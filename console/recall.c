#include "console/recall.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ssh/base/buf.h"
#include "ssh/base/mem.h"
#include "ssh/launch/prepare.h"

#define LINE_MOST 4096
#define TURN_BYTES (128 * 1024) /* in one turn of the loop: keys come between */

struct recall {
    pid_t child;
    int pipe;
    struct loop_watch *watch;
    struct buf bytes;
    void (*line)(const char *line, void *arg);
    void *arg;
    bool over;
};

static void finish(struct recall *recall)
{
    recall->over = true;
    loop_watch_want(recall->watch, false, false);
    recall->line(NULL, recall->arg);
}

/* Whole lines go out; a line that never ends is nobody's. */
static void take_lines(struct recall *recall)
{
    for (;;) {
        char line[LINE_MOST];
        const uint8_t *from = buf_peek(&recall->bytes);
        size_t used = buf_used(&recall->bytes);
        const uint8_t *end = used ? memchr(from, '\n', used) : NULL;
        if (!end) {
            if (used >= LINE_MOST)
                buf_consume(&recall->bytes, used);
            return;
        }
        size_t length = (size_t)(end - from);
        if (length < sizeof line) {
            memcpy(line, from, length);
            line[length] = '\0';
            recall->line(line, recall->arg);
        }
        buf_consume(&recall->bytes, length + 1);
    }
}

static void on_readable(int fd, bool readable, bool writable, void *arg)
{
    struct recall *recall = arg;
    (void)readable, (void)writable;
    for (size_t total = 0; total < TURN_BYTES;) {
        uint8_t *room = buf_reserve(&recall->bytes, LINE_MOST);
        ssize_t got = room ? read(fd, room, LINE_MOST) : -1;
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0) {
            finish(recall);
            return;
        }
        buf_commit(&recall->bytes, (size_t)got);
        total += (size_t)got;
        take_lines(recall);
    }
}

static void become_history(const char *program, const char *folder, int out)
{
    const char *const argv[] = {program, "history", "--folder", folder, NULL};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, STDIN_FILENO);
        dup2(null, STDERR_FILENO);
    }
    dup2(out, STDOUT_FILENO);
    execv(program, (char *const *)(uintptr_t)argv);
    _exit(127);
}

struct recall *recall_new(struct loop *loop, const char *folder, void (*line)(const char *line, void *arg), void *arg, struct why *why)
{
    char program[1024];
    int ends[2];
    if (prepare_sibling("kedged", program, sizeof program, why) != 0)
        return NULL;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        why_errno(why, "cannot make a pipe for kedged history");
        return NULL;
    }
    pid_t child = fork();
    if (child == 0)
        become_history(program, folder, ends[1]);
    close(ends[1]);
    if (child < 0) {
        why_errno(why, "cannot run %s", program);
        close(ends[0]);
        return NULL;
    }
    struct recall *recall = mem_new(sizeof *recall);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    *recall = (struct recall){.child = child, .pipe = ends[0], .line = line, .arg = arg};
    buf_init(&recall->bytes, 2 * LINE_MOST);
    recall->watch = loop_watch_new(loop, ends[0], on_readable, recall);
    loop_watch_want(recall->watch, true, false);
    return recall;
}

void recall_free(struct recall *recall)
{
    if (!recall)
        return;
    loop_watch_free(recall->watch);
    close(recall->pipe);
    kill(recall->child, SIGKILL); /* it only reads */
    while (waitpid(recall->child, NULL, 0) < 0 && errno == EINTR)
        ;
    buf_clear(&recall->bytes);
    mem_free(recall);
}

bool recall_is_over(const struct recall *recall)
{
    return recall->over;
}
