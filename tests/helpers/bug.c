#include "tests/helpers/bug.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char text[4096];

static void run_child(void (*call)(void *arg), void *arg, int fd)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    signal(SIGABRT, SIG_DFL);
    dup2(fd, STDERR_FILENO);
    call(arg);
    _exit(0);
}

const char *bug_text(void (*call)(void *arg), void *arg)
{
    int pipes[2], status = 0;
    size_t used = 0;
    ssize_t got;
    if (pipe(pipes) != 0)
        return NULL;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        run_child(call, arg, pipes[1]);
    close(pipes[1]);
    while (child > 0 && used < sizeof text - 1 && (got = read(pipes[0], text + used, sizeof text - 1 - used)) > 0)
        used += (size_t)got;
    text[used] = 0;
    close(pipes[0]);
    if (child < 0 || waitpid(child, &status, 0) != child)
        return NULL;
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? text : NULL;
}
