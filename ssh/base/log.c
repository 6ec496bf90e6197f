/*
 * The log of this process. A line is made complete in memory and handed to the kernel in one write on an O_APPEND
 * descriptor, so that lines never mix; one mutex guards the descriptor, its size and the rotation.
 *
 * A log must never stop the program: what cannot be written (disk full) is counted, and the count is the first line that
 * can be written again. Nothing here calls BUG, because why_bug logs.
 */
#include "ssh/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "ssh/base/text.h"
#include "ssh/base/version.h"

#define LINE_BYTES 2000
#define CUT "…"
#define DEFAULT_MAX_BYTES ((size_t)16 << 20)
#define LEAST_MAX_BYTES ((size_t)16 << 10)

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int wanted = LOG_INFO; /* once open */
static atomic_bool is_open;
static struct {
    int fd;           /* STDERR_FILENO when not open or opened without a path */
    char path[4096];  /* "" = stderr */
    char program[64];
    size_t bytes, max_bytes, lost_lines;
} sink = {.fd = STDERR_FILENO};

static void format_time(char *out, size_t size)
{
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t used = strftime(out, size, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(out + used, size - used, ".%06ldZ", now.tv_nsec / 1000);
}

static bool write_all(int fd, const char *bytes, size_t count)
{
    while (count) {
        ssize_t wrote = write(fd, bytes, count);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return false;
        bytes += wrote;
        count -= (size_t)wrote;
    }
    return true;
}

/* Build one line with its newline in `line` (LINE_BYTES + 1 long); returns its length. */
static size_t build_line(char *line, enum log_level level, const char *subsystem, const char *text)
{
    char stamp[40], topic[64], clean[4 * LINE_BYTES + 1];
    format_time(stamp, sizeof stamp);
    text_harmless(subsystem, strlen(subsystem), topic, sizeof topic);
    int head = snprintf(line, LINE_BYTES, "%s %s %s: ", stamp, level_names[level], topic);
    size_t used = head < 0 ? 0 : (size_t)head, length = strlen(text), room = LINE_BYTES - used;
    text_harmless(text, length, clean, sizeof clean);
    bool cut = strlen(clean) > room;
    if (cut) /* again from the original, so that neither a character nor an escape is split */
        text_harmless(text, length, clean, room - strlen(CUT) + 1);
    used += (size_t)snprintf(line + used, room + 1, "%s%s", clean, cut ? CUT : "");
    line[used++] = '\n';
    return used;
}

static void put_line(enum log_level level, const char *subsystem, const char *text)
{
    char line[LINE_BYTES + 1];
    if (sink.lost_lines) {
        char note[80];
        snprintf(note, sizeof note, "%zu lines before this one could not be written", sink.lost_lines);
        size_t length = build_line(line, LOG_WARN, "log", note);
        if (write_all(sink.fd, line, length)) {
            sink.bytes += length;
            sink.lost_lines = 0;
        }
    }
    size_t length = build_line(line, level, subsystem, text);
    if (!sink.lost_lines && write_all(sink.fd, line, length))
        sink.bytes += length;
    else
        sink.lost_lines++;
}

/* Copy what follows "KEY<tab>: " of the first such line of /proc/cpuinfo. */
static void read_cpuinfo(const char *key, char *out, size_t size)
{
    char line[8192];
    FILE *file = fopen("/proc/cpuinfo", "re");
    out[0] = 0;
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0)
            continue;
        colon[strcspn(colon, "\n")] = 0;
        snprintf(out, size, "%s", colon[1] ? colon + 2 : "");
        break;
    }
    if (file)
        fclose(file);
}

/* The features that decide which kernels run, in one line. */
static void list_features(char *out, size_t size)
{
    static const char *const known[] = {"avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq",
                                        "avx512_vnni", "avx512_bf16", "amx_bf16"};
    char flags[8192];
    size_t used = 0;
    read_cpuinfo("flags", flags, sizeof flags);
    out[0] = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t length = strlen(known[i]);
        for (const char *at = flags; (at = strstr(at, known[i])) != NULL; at += length) {
            bool whole = (at == flags || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0);
            if (whole && used + length + 2 < size) {
                used += (size_t)snprintf(out + used, size - used, "%s%s", used ? " " : "", known[i]);
                break;
            }
        }
    }
}

static void put_world(void)
{
    struct utsname system;
    char text[1024], model[200], features[200], memory[32];
    if (uname(&system) != 0)
        memset(&system, 0, sizeof system);
    read_cpuinfo("model name", model, sizeof model);
    list_features(features, sizeof features);
    uint64_t memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    snprintf(text, sizeof text, "%s %s, pid %ld, host %s", sink.program, KEDGE_VERSION, (long)getpid(), system.nodename);
    put_line(LOG_INFO, "log", text);
    snprintf(text, sizeof text, "%s %s %s, %ld cores, %s of memory", system.sysname, system.release, system.machine,
             sysconf(_SC_NPROCESSORS_ONLN), text_from_bytes(memory_bytes, memory, sizeof memory));
    put_line(LOG_INFO, "log", text);
    snprintf(text, sizeof text, "cpu %s, features: %s", model[0] ? model : "unknown", features[0] ? features : "none known");
    put_line(LOG_INFO, "log", text);
}

static int open_append(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
}

/* PATH becomes PATH.1; when that fails the old file goes on, and is tried again after as much as it may hold. */
static void rotate(void)
{
    char old[sizeof sink.path + 2];
    snprintf(old, sizeof old, "%s.1", sink.path);
    int fd = rename(sink.path, old) == 0 ? open_append(sink.path) : -1;
    sink.bytes = 0;
    if (fd < 0)
        return;
    close(sink.fd);
    sink.fd = fd;
    put_world();
}

int log_open(const char *path, const char *program, size_t max_bytes, struct why *why)
{
    int fd = STDERR_FILENO;
    struct stat status = {0};
    if (path) {
        if (strlen(path) >= sizeof sink.path)
            return why_set(why, ERR_INVALID, "log path is longer than %zu bytes", sizeof sink.path - 1);
        fd = open_append(path);
        if (fd < 0 || fstat(fd, &status) != 0) {
            int err = why_errno(why, "cannot open the log %s", path);
            if (fd >= 0)
                close(fd);
            return err;
        }
    }
    log_close();
    pthread_mutex_lock(&mutex);
    sink.fd = fd;
    snprintf(sink.path, sizeof sink.path, "%s", path ? path : "");
    snprintf(sink.program, sizeof sink.program, "%s", program);
    sink.bytes = (size_t)status.st_size;
    sink.max_bytes = max_bytes == 0 ? DEFAULT_MAX_BYTES : max_bytes < LEAST_MAX_BYTES ? LEAST_MAX_BYTES : max_bytes;
    sink.lost_lines = 0;
    atomic_store(&is_open, true);
    put_world();
    pthread_mutex_unlock(&mutex);
    return 0;
}

void log_close(void)
{
    pthread_mutex_lock(&mutex);
    atomic_store(&is_open, false);
    if (sink.fd != STDERR_FILENO)
        close(sink.fd);
    sink.fd = STDERR_FILENO;
    sink.path[0] = 0;
    pthread_mutex_unlock(&mutex);
}

void log_set_level(enum log_level level)
{
    atomic_store(&wanted, (int)level);
}

int log_level_from_name(const char *name)
{
    for (size_t i = 0; i < sizeof level_names / sizeof *level_names; i++)
        if (strcmp(name, level_names[i]) == 0)
            return (int)i;
    return -1;
}

void log_at(enum log_level level, const char *subsystem, const char *format, ...)
{
    int threshold = atomic_load(&wanted);
    if (threshold > LOG_WARN && !atomic_load(&is_open))
        threshold = LOG_WARN;
    if ((int)level > threshold)
        return;
    int saved = errno;
    char text[LINE_BYTES + 1];
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(text, sizeof text, format, arguments) < 0)
        text[0] = 0;
    va_end(arguments);
    pthread_mutex_lock(&mutex);
    put_line(level, subsystem, text);
    if (sink.path[0] && sink.bytes > sink.max_bytes)
        rotate();
    pthread_mutex_unlock(&mutex);
    errno = saved;
}
