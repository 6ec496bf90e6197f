/* See family.h. */
#include "gpu/train/family.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ssh/base/mem.h"

#define MEMBERS_MOST 65536

extern char **environ;

/* ---- looking ---- */

bool family_look(pid_t pid, struct family_member *member)
{
    char path[48], text[1024], state = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0)
        return false;
    text[got] = '\0';
    const char *field = strrchr(text, ')'); /* the name may hold spaces and brackets */
    long parent = 0, group = 0, session = 0;
    unsigned long long start = 0;
    if (!field || sscanf(field + 1, " %c %ld %ld %ld", &state, &parent, &group, &session) != 4)
        return false;
    for (int number = 2; number < 22 && field; number++)
        field = strchr(field + 1, ' ');
    if (!field || sscanf(field, "%llu", &start) != 1)
        return false;
    *member = (struct family_member){.pid = pid,
                                     .parent = (pid_t)parent,
                                     .session = (pid_t)session,
                                     .start = start,
                                     .zombie = state == 'Z' || state == 'X'};
    return true;
}

/* All processes; mem_free. */
static struct family_member *look_all(size_t *count)
{
    struct family_member *members = NULL;
    size_t room = 0;
    DIR *folder = opendir("/proc");
    *count = 0;
    for (struct dirent *entry; folder && *count < MEMBERS_MOST && (entry = readdir(folder));) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        if (*count == room) {
            room = room ? 2 * room : 256;
            members = mem_grow(members, room, sizeof *members);
        }
        if (family_look((pid_t)strtol(entry->d_name, NULL, 10), &members[*count]))
            ++*count;
    }
    if (folder)
        closedir(folder);
    return members;
}

/* A process may have ended since the look and its number been given away. */
static int signal_member(const struct family_member *member, int number)
{
    struct family_member now;
    if (member->zombie || !family_look(member->pid, &now) || now.start != member->start || now.zombie)
        return 0;
    if (number)
        kill(member->pid, number);
    return 1;
}

static bool descends(const struct family_member *members, size_t count, const struct family_member *member, pid_t root)
{
    pid_t parent = member->parent;
    for (size_t depth = 0; depth < count && parent > 1; depth++) {
        if (parent == root)
            return true;
        size_t i = 0;
        while (i < count && members[i].pid != parent)
            i++;
        parent = i < count ? members[i].parent : 0;
    }
    return parent == root;
}

int family_signal(pid_t root, int number)
{
    size_t count;
    int signalled = 0;
    struct family_member *members = look_all(&count);
    for (size_t i = 0; i < count; i++)
        if (members[i].pid != root && descends(members, count, &members[i], root))
            signalled += signal_member(&members[i], number);
    mem_free(members);
    return signalled;
}

int family_signal_session(pid_t session, int number)
{
    size_t count;
    int signalled = 0;
    struct family_member *members = look_all(&count);
    for (size_t i = 0; i < count; i++)
        if (members[i].session == session)
            signalled += signal_member(&members[i], number);
    mem_free(members);
    return signalled;
}

int family_adopt(struct why *why)
{
    return prctl(PR_SET_CHILD_SUBREAPER, 1L, 0L, 0L, 0L) == 0 ? 0 : why_errno(why, "cannot become the reaper of orphans");
}

/* ---- starting ---- */

/* Between fork and exec only calls that are safe there: other threads may hold any lock. */
static void become(const char *const *argv, char **environment, int null, int log, int failed)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int number = 1; number < 32; number++)
        if (number != SIGKILL && number != SIGSTOP)
            signal(number, SIG_DFL);
    setsid();
    if (dup2(null, STDIN_FILENO) >= 0 && dup2(log, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0)
        execve(argv[0], (char *const *)(uintptr_t)argv, environment); /* all other descriptors close on exec */
    int code = errno;
    if (write(failed, &code, sizeof code) < 0)
        _exit(126);
    _exit(127);
}

/* environ with one more entry in front; free the array only. */
static char **extended(const char *entry)
{
    size_t count = 0;
    while (environ[count])
        count++;
    char **all = mem_array(count + 2, sizeof *all);
    all[0] = (char *)(uintptr_t)entry;
    memcpy(all + 1, environ, count * sizeof *all);
    return all;
}

static int wait_for_exec(int failed, pid_t child, const char *program, struct why *why)
{
    int code = 0;
    ssize_t got;
    while ((got = read(failed, &code, sizeof code)) < 0 && errno == EINTR)
        ;
    if (got != (ssize_t)sizeof code)
        return 0; /* the pipe closed with exec */
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    errno = code;
    return why_errno(why, "cannot run %s", program);
}

int family_start(const char *const *argv, const char *log, const char *environment, pid_t *pid, struct why *why)
{
    int err = 0, failed[2], null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    char **all = extended(environment);
    if (null < 0 || out < 0) {
        err = why_errno(why, "cannot open %s", null < 0 ? "/dev/null" : log);
        goto close_files;
    }
    if (pipe2(failed, O_CLOEXEC) != 0) {
        err = why_errno(why, "cannot start %s", argv[0]);
        goto close_files;
    }
    pid_t child = fork();
    if (child == 0)
        become(argv, all, null, out, failed[1]);
    close(failed[1]);
    err = child < 0 ? why_errno(why, "cannot start %s", argv[0]) : wait_for_exec(failed[0], child, argv[0], why);
    close(failed[0]);
    if (!err)
        *pid = child;
close_files:
    if (null >= 0)
        close(null);
    if (out >= 0)
        close(out);
    mem_free(all);
    return err;
}
