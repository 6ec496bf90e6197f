#include "ssh/launch/holders.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/launch/runs.h"

/* All that /proc gives under `path`, at most size − 1 bytes; proc files have no size beforehand. */
static ssize_t read_proc(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t used = 0;
    ssize_t got;
    while (used < size - 1 && (got = read(fd, out + used, size - 1 - used)) > 0)
        used += (size_t)got;
    close(fd);
    out[used] = '\0';
    return (ssize_t)used;
}

/* Fields of /proc/PID/stat, counted from one (proc(5)). */
enum { WAITS = 1000, ASKED_AGAIN = 10 }; /* WAITS: a millisecond each */
enum { STATE = 3, START_TIME = 22, ENVIRONMENT_END = 51 };

/* Of a process that lives; false for others. */
static bool read_field(pid_t pid, int number, uint64_t *value)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    if (pid <= 0 || read_proc(path, text, sizeof text) <= 0)
        return false;
    char *field = strrchr(text, ')'); /* the name may hold spaces and brackets */
    if (!field || !field[1] || field[2] == 'Z' || field[2] == 'X')
        return false;
    field += 2;
    for (int at = STATE; at < number; at++) {
        field = strchr(field, ' ');
        if (!field)
            return false;
        field++;
    }
    *value = strtoull(field, NULL, 10);
    return true;
}

uint64_t holders_start_of(pid_t pid)
{
    uint64_t start;
    return read_field(pid, START_TIME, &start) ? start : 0;
}

bool holders_live(const struct holder *holder)
{
    return holder->start != 0 && holders_start_of(holder->pid) == holder->start;
}

/* "PID START RUN", separated by white space. */
static bool parse_lock(const char *text, struct holder *holder, uint64_t *run_id)
{
    char *end;
    long pid = strtol(text, &end, 10);
    if (end == text || pid <= 0 || pid > INT32_MAX)
        return false;
    const char *next = end;
    uint64_t start = strtoull(next, &end, 10);
    if (end == next)
        return false;
    next = end;
    *run_id = strtoull(next, &end, 16);
    if (end == next || (*end && !isspace((unsigned char)*end)))
        return false;
    holder->pid = (pid_t)pid;
    holder->start = start;
    return true;
}

static bool is_lock_name(const char *name)
{
    size_t length = strlen(name);
    return length > 5 && strcmp(name + length - 5, ".lock") == 0 &&
           (strncmp(name, "agent@", 6) == 0 || strcmp(name, "kedged.lock") == 0);
}

static bool holds_already(const struct holder *holders, size_t count, pid_t pid)
{
    for (size_t i = 0; i < count; i++)
        if (holders[i].pid == pid)
            return true;
    return false;
}

static size_t from_locks(const char *folder, uint64_t run_id, struct holder *holders, size_t room)
{
    size_t count = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && count < room && (entry = readdir(entries));) {
        char path[RUNS_PATH + 300];
        uint8_t *text;
        size_t bytes;
        uint64_t lock_run;
        struct holder holder = {0};
        if (!is_lock_name(entry->d_name))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (file_read(path, 256, &text, &bytes, NULL) != 0)
            continue;
        bool valid = parse_lock((const char *)text, &holder, &lock_run);
        mem_free(text);
        snprintf(holder.name, sizeof holder.name, "%.*s", (int)(strlen(entry->d_name) - 5), entry->d_name);
        if (valid && lock_run == run_id && holders_live(&holder) && !holds_already(holders, count, holder.pid))
            holders[count++] = holder;
    }
    if (entries)
        closedir(entries);
    return count;
}

/* While a process changes its program the kernel shows it without environment, nor a place for one, for as long as that takes it: such
 * a one, other than a kernel thread (which has no program), is asked again. So is one that has a place: the change may have come
 * between opening and reading. */
static ssize_t read_environment(pid_t pid, char *out, size_t size)
{
    char path[64], program[64], target[2];
    ssize_t bytes = 0;
    uint64_t end;
    snprintf(path, sizeof path, "/proc/%ld/environ", (long)pid);
    snprintf(program, sizeof program, "/proc/%ld/exe", (long)pid);
    for (int waits = 0, others = 0; waits < WAITS && others < ASKED_AGAIN && (bytes = read_proc(path, out, size)) == 0;) {
        bool changes = read_field(pid, ENVIRONMENT_END, &end) && end == 0;
        if (changes && readlink(program, target, sizeof target) < 0)
            break;
        if (changes)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        waits += changes;
        others += !changes;
    }
    return bytes;
}

static bool carries_mark(pid_t pid, const char *mark)
{
    static char environment[128 * 1024];
    ssize_t bytes = read_environment(pid, environment, sizeof environment);
    for (ssize_t at = 0; at < bytes; at += (ssize_t)strlen(environment + at) + 1)
        if (strcmp(environment + at, mark) == 0)
            return true;
    return false;
}

static size_t from_marks(uint64_t run_id, struct holder *holders, size_t count, size_t room)
{
    char mark[64];
    snprintf(mark, sizeof mark, "KEDGE_RUN=%016" PRIx64, run_id);
    DIR *entries = opendir("/proc");
    for (struct dirent *entry; entries && count < room && (entry = readdir(entries));) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);
        if (*end || pid <= 0 || pid == (long)getpid() || holds_already(holders, count, (pid_t)pid))
            continue;
        /* The start time is read before and after: the mark was read of the process that we note. */
        struct holder holder = {.name = "process", .pid = (pid_t)pid, .start = holders_start_of((pid_t)pid)};
        if (holder.start && carries_mark(holder.pid, mark) && holders_live(&holder))
            holders[count++] = holder;
    }
    if (entries)
        closedir(entries);
    return count;
}

size_t holders_find(const char *folder, uint64_t run_id, struct holder *holders, size_t room)
{
    size_t count = from_locks(folder, run_id, holders, room);
    return from_marks(run_id, holders, count, room);
}

/* A lock that somebody holds is no leftover, whatever is written in it. */
static bool lock_is_held(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return held;
}

int holders_leftover_files(const char *folder, bool remove_them)
{
    int count = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        char path[RUNS_PATH + 300];
        bool lock = is_lock_name(entry->d_name), socket = strcmp(entry->d_name, "kedged.sock") == 0;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (!(lock && !lock_is_held(path)) && !(socket && !runs_answers(folder)))
            continue;
        count++;
        if (remove_them)
            unlink(path);
    }
    if (entries)
        closedir(entries);
    return count;
}
