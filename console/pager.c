#include "console/pager.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "profiles/profile.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"

/* A process's name comes from the road: only what can be one is a file's name. */
static char *log_path(const char *folder, const char *log)
{
    bool usable = log[0] && log[0] != '.' && strspn(log, PROFILE_NAME_LETTERS "@") == strlen(log);
    return usable ? mem_format("%s/log/%s.log", folder, log) : NULL;
}

void pager_tail(const char *folder, const char *log, char *out, size_t size)
{
    char *path = log_path(folder, log);
    int file = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    struct stat about;
    ssize_t got = 0;
    out[0] = '\0';
    mem_free(path);
    if (file < 0)
        return;
    if (fstat(file, &about) == 0 && S_ISREG(about.st_mode)) {
        off_t from = about.st_size > (off_t)size - 1 ? about.st_size - ((off_t)size - 1) : 0;
        got = pread(file, out, size - 1, from);
        got = got < 0 ? 0 : got;
        char *first = from && got ? memchr(out, '\n', (size_t)got) : NULL; /* half a line is none */
        if (first) {
            got -= first + 1 - out;
            memmove(out, first + 1, (size_t)got);
        }
    }
    close(file);
    for (ssize_t i = 0; i < got; i++)
        if (out[i] == '\0')
            out[i] = '?';
    while (got > 0 && out[got - 1] != '\n')
        got--;
    out[got] = '\0';
}

static int write_text(const char *text, char *path, size_t size, struct why *why)
{
    const char *folder = getenv("TMPDIR");
    snprintf(path, size, "%s/kedge.XXXXXX", folder && *folder ? folder : "/tmp");
    int file = mkstemp(path);
    if (file < 0)
        return why_errno(why, "cannot write %s", path);
    size_t bytes = strlen(text);
    bool whole = write(file, text, bytes) == (ssize_t)bytes;
    close(file);
    return whole ? 0 : why_errno(why, "cannot write %s", path);
}

static void become_pager(const char *path)
{
    static const char script[] = "exec ${PAGER:-less} \"$1\"";
    const char *const argv[] = {"sh", "-c", script, "sh", path, NULL};
    static const int usual[] = {SIGINT, SIGTSTP, SIGPIPE, SIGWINCH, SIGHUP, SIGTERM};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        signal(usual[i], SIG_DFL);
    setenv("LESSSECURE", "1", 0); /* the text may come from strangers */
    execv("/bin/sh", (char *const *)(uintptr_t)argv);
    _exit(127);
}

static int run_pager(struct loop *loop, const char *path, struct why *why)
{
    struct sigaction deaf = {.sa_handler = SIG_IGN}, ours;
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        become_pager(path);
    if (child < 0)
        return why_errno(why, "cannot run a pager");
    sigaction(SIGINT, &deaf, &ours); /* Ctrl-C is the pager's while it shows */
    while (waitpid(child, &status, WNOHANG) == 0)
        loop_run_once(loop, 50 * CLOCK_MS);
    sigaction(SIGINT, &ours, NULL);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return why_set(why, ERR_ABSENT, "there is no pager: set PAGER");
    return 0;
}

int pager_run(struct loop *loop, const char *folder, const char *log, const char *text, struct why *why)
{
    char path[1024];
    if (!text) {
        char *own = log_path(folder, log);
        if (!own)
            return why_set(why, ERR_INVALID, "'%.40s' has no log here", log);
        int err = run_pager(loop, own, why);
        mem_free(own);
        return err;
    }
    int err = write_text(text, path, sizeof path, why);
    if (!err)
        err = run_pager(loop, path, why);
    unlink(path);
    return err;
}
