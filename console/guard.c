#include "console/guard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ssh/base/mem.h"

struct guard {
    pid_t child;
    int pipe;
};

/* The child holds nothing of its parent's: a road that it kept open would look alive. */
static void close_others(int keep, int also)
{
    int low = keep < also ? keep : also, high = keep < also ? also : keep;
    if (low > 0)
        syscall(SYS_close_range, 0, low - 1, 0);
    if (high > low + 1)
        syscall(SYS_close_range, low + 1, high - 1, 0);
    syscall(SYS_close_range, high + 1, ~0u, 0);
}

static void watch(int pipe, int fd, const struct termios *before, const char *reset, size_t reset_bytes)
{
    static const int deaf[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGTTOU, SIGTTIN, SIGWINCH, SIGPIPE};
    char word;
    sigset_t none;
    for (size_t i = 0; i < sizeof deaf / sizeof *deaf; i++)
        signal(deaf[i], SIG_IGN);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    close_others(pipe, fd);
    ssize_t got;
    do
        got = read(pipe, &word, 1);
    while (got < 0 && errno == EINTR);
    if (got == 1)
        _exit(0);
    if (tcgetpgrp(fd) == getpgrp())
        tcsetattr(fd, TCSANOW, before);
    if (write(fd, reset, reset_bytes) < 0)
        _exit(1);
    _exit(0);
}

struct guard *guard_new(int fd, const struct termios *before, const char *reset, size_t reset_bytes)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return NULL;
    pid_t child = fork();
    if (child == 0)
        watch(ends[0], fd, before, reset, reset_bytes);
    close(ends[0]);
    if (child < 0) {
        close(ends[1]);
        return NULL;
    }
    struct guard *guard = mem_new(sizeof *guard);
    *guard = (struct guard){child, ends[1]};
    return guard;
}

void guard_free(struct guard *guard)
{
    if (!guard)
        return;
    if (write(guard->pipe, "q", 1) < 0)
        kill(guard->child, SIGKILL);
    close(guard->pipe);
    while (waitpid(guard->child, NULL, 0) < 0 && errno == EINTR)
        ;
    mem_free(guard);
}
