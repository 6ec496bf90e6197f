#include "ssh/base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ssh/base/clock.h"
#include "ssh/base/text.h"

static void become(const char *const *argv, bool errors_too, int out)
{
    int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    if (errors_too)
        dup2(out, STDERR_FILENO);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* Until the program closes its output, the deadline, or the room's end. Whether the deadline passed. */
static bool read_all(int fd, char *out, size_t size, uint64_t until_ns)
{
    size_t used = 0;
    uint64_t now_ns = clock_now_ns();
    while (used < size - 1 && now_ns < until_ns) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        ssize_t got = poll(&ready, 1, (int)((until_ns - now_ns) / CLOCK_MS) + 1) > 0 ? read(fd, out + used, size - 1 - used) : -1;
        now_ns = clock_now_ns();
        if (got == 0)
            break;
        used += got > 0 ? (size_t)got : 0;
    }
    out[used] = '\0';
    return now_ns >= until_ns;
}

int child_output(const char *const *argv, bool errors_too, char *out, size_t size, uint64_t deadline_ns, int *status,
                 struct why *why)
{
    int ends[2], result = 0;
    char waited[32];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return why_errno(why, "cannot run %s", argv[0]);
    pid_t child = fork();
    if (child < 0) {
        int err = why_errno(why, "cannot run %s", argv[0]);
        close(ends[0]);
        close(ends[1]);
        return err;
    }
    if (child == 0)
        become(argv, errors_too, ends[1]);
    close(ends[1]);
    bool late = read_all(ends[0], out, size, clock_now_ns() + deadline_ns);
    close(ends[0]); /* who goes on writing gets SIGPIPE */
    if (late)
        kill(child, SIGKILL);
    while (waitpid(child, &result, 0) < 0 && errno == EINTR)
        ;
    if (late)
        return why_set(why, ERR_TIMEOUT, "%s did not end within %s", argv[0],
                       text_from_duration(deadline_ns, waited, sizeof waited));
    *status = WIFEXITED(result) ? WEXITSTATUS(result) : 128 + WTERMSIG(result);
    return 0;
}
