#include "gpu/train/health.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "gpu/train/disk.h"
#include "ssh/base/clock.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define PERIOD_NS (3 * CLOCK_SECOND)
#define GPU_NS (5 * CLOCK_SECOND) /* nvidia-smi takes a second on some machines */
#define OUTPUT 8192
#define MIB ((uint64_t)1 << 20)

struct health {
    struct loop *loop;
    const char *folder;
    health_cb *tell;
    void *arg;
    struct loop_timer *period, *deadline;
    struct health_busy before;
    pid_t child; /* nvidia-smi; 0 = none */
    int out;     /* what it says; −1 = closed */
    struct loop_watch *watch;
    char said[OUTPUT];
    size_t used;
    bool no_gpus; /* nvidia-smi is not there: nobody asks again */
    bool told;    /* that it hangs */
    bool answered, had_gpus; /* the first time */
    uint64_t before_bytes;
    struct wire_host gpus; /* its newest words */
    uint64_t disk_budget, disk_used, counted_ns; /* counted_ns: from when on it is counted again */
};

extern char **environ;

/* ---- reading ---- */

bool health_read_stat(const char *text, struct health_busy *busy, uint16_t *cores)
{
    unsigned long long t[8] = {0}; /* user nice system idle iowait irq softirq steal */
    *cores = 0;
    if (sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) < 4)
        return false;
    *busy = (struct health_busy){.busy = t[0] + t[1] + t[2] + t[5] + t[6] + t[7]};
    busy->all = busy->busy + t[3] + t[4];
    for (const char *line = text; (line = strstr(line, "\ncpu")) != NULL; line++)
        *cores = (uint16_t)(*cores + (*cores < UINT16_MAX));
    return true;
}

float health_share(const struct health_busy *before, const struct health_busy *now)
{
    if (!before->all || now->all <= before->all || now->busy < before->busy)
        return NAN;
    float share = (float)((double)(now->busy - before->busy) / (double)(now->all - before->all));
    return share < 1 ? share : 1;
}

static uint64_t kib_of(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    return at ? strtoull(at + strlen(key), NULL, 10) << 10 : 0;
}

void health_read_memory(const char *text, struct wire_host *host)
{
    host->memory_bytes = kib_of(text, "MemTotal:");
    host->memory_free_bytes = kib_of(text, "MemAvailable:");
}

/* NaN when it is no number: "[N/A]", "[Unknown Error]". */
static float number_of(const char *word)
{
    char *end;
    float value = strtof(word, &end);
    return end != word && isfinite(value) && value >= 0 ? value : NAN;
}

static void add_gpu(char *line, struct wire_host *host)
{
    char *words[6] = {0}, *rest = line;
    for (int i = 0; i < 6 && rest; i++) {
        words[i] = strsep(&rest, ",");
        words[i] += strspn(words[i], " ");
    }
    if (!words[5] || host->gpus == UINT16_MAX)
        return;
    float share = number_of(words[1]) / 100, used = number_of(words[2]), all = number_of(words[3]), heat = number_of(words[4]),
          watts = number_of(words[5]);
    bool first = host->gpus++ == 0;
    if (first)
        text_harmless(words[0], strlen(words[0]), host->gpu, sizeof host->gpu);
    host->gpu_share = first ? share : (host->gpu_share * (float)(host->gpus - 1) + share) / (float)host->gpus;
    host->gpu_used_bytes += used < 1e9F ? (uint64_t)used * MIB : 0;
    host->gpu_memory_bytes += all < 1e9F ? (uint64_t)all * MIB : 0;
    host->gpu_celsius = first || heat > host->gpu_celsius ? heat : host->gpu_celsius;
    host->gpu_watts = first ? watts : host->gpu_watts + watts;
}

void health_read_gpus(const char *text, struct wire_host *host)
{
    host->gpus = 0;
    host->gpu[0] = '\0';
    host->gpu_share = host->gpu_celsius = host->gpu_watts = NAN;
    host->gpu_memory_bytes = host->gpu_used_bytes = 0;
    while (*text) {
        size_t length = strcspn(text, "\n");
        char line[400];
        snprintf(line, sizeof line, "%.*s", (int)length, text);
        add_gpu(line, host);
        text += length + (text[length] == '\n');
    }
}

/* ---- nvidia-smi ---- */

static void close_out(struct health *health)
{
    loop_watch_free(health->watch);
    health->watch = NULL;
    if (health->out >= 0)
        close(health->out);
    health->out = -1;
}

/* What lies in the pipe now; at its end, or when it says too much, it is closed. */
static void on_words(int fd, bool readable, bool writable, void *arg)
{
    struct health *health = arg;
    (void)readable, (void)writable;
    size_t room = sizeof health->said - 1 - health->used;
    ssize_t got = room ? read(fd, health->said + health->used, room) : 0;
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got > 0) {
        health->used += (size_t)got;
        return;
    }
    health->said[health->used] = '\0';
    health_read_gpus(health->said, &health->gpus);
    if (!health->answered) {
        health->had_gpus = health->gpus.gpus > 0;
        health->before_bytes = health->gpus.gpu_used_bytes;
    }
    health->answered = true;
    close_out(health);
}

static void on_deadline(void *arg)
{
    struct health *health = arg;
    if (health->out >= 0)
        health_read_gpus("", &health->gpus);
    health->answered = true; /* what it says later is not of before */
    close_out(health);
    if (!health->child)
        return;
    kill(health->child, SIGKILL); /* ours and not reaped */
    if (!health->told)
        log_at(LOG_WARN, "health", "nvidia-smi does not answer within %d s: nothing is known of the GPUs", (int)(GPU_NS / CLOCK_SECOND));
    health->told = true;
}

/* A process that the kernel holds is not asked a second time, nor is anybody while words of the one before may come: it may have been reaped
 * before the end of its pipe was seen. */
static void ask_gpus(struct health *health)
{
    char *const argv[] = {(char[]){"nvidia-smi"},
                          (char[]){"--query-gpu=name,utilization.gpu,memory.used,memory.total,temperature.gpu,power.draw"},
                          (char[]){"--format=csv,noheader,nounits"}, NULL};
    int ends[2];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    if (health->no_gpus || health->child || health->out >= 0 || pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    int err = posix_spawnp(&health->child, argv[0], &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (err) {
        health->child = 0;
        health->no_gpus = true;
        close(ends[0]);
        return;
    }
    health->out = ends[0];
    health->used = 0;
    health->watch = loop_watch_new(health->loop, ends[0], on_words, health);
    loop_watch_want(health->watch, true, false);
    loop_timer_set(health->deadline, GPU_NS);
}

bool health_gpus_before(const struct health *health, uint64_t *bytes)
{
    if (!health || !health->had_gpus)
        return false;
    *bytes = health->before_bytes;
    return true;
}

bool health_reaped(struct health *health, pid_t pid)
{
    if (!health || !health->child || health->child != pid)
        return false;
    health->child = 0;
    return true;
}

/* ---- looking ---- */

static size_t read_text(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t got = fd < 0 ? -1 : 1;
    while (got > 0 && used < size - 1) {
        got = read(fd, out + used, size - 1 - used);
        used += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0)
        close(fd);
    out[used] = '\0';
    return used;
}

/* So many files may lie there that counting them takes a while: at most a hundredth of the time. */
static void count_disk(struct health *health)
{
    uint64_t began_ns = clock_now_ns();
    if (!health->disk_budget || began_ns < health->counted_ns)
        return;
    health->disk_used = disk_used(health->folder);
    health->counted_ns = clock_now_ns() + 100 * (clock_now_ns() - began_ns);
}

static void look(struct health *health, struct wire_host *host)
{
    char text[64 << 10];
    struct health_busy now;
    struct statvfs disk;
    *host = health->gpus;
    host->cpu_share = host->load = NAN;
    host->clock_offset = host->price_per_hour = (double)NAN;
    read_text("/proc/stat", text, sizeof text);
    if (health_read_stat(text, &now, &host->cores)) {
        host->cpu_share = health_share(&health->before, &now);
        health->before = now;
    }
    if (read_text("/proc/loadavg", text, sizeof text))
        host->load = number_of(text);
    read_text("/proc/meminfo", text, sizeof text);
    health_read_memory(text, host);
    if (statvfs(health->folder, &disk) == 0) {
        host->disk_bytes = (uint64_t)disk.f_blocks * disk.f_frsize;
        host->disk_free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
        count_disk(health);
        disk_narrow(health->disk_budget, health->disk_used, &host->disk_bytes, &host->disk_free_bytes);
    }
}

static void on_period(void *arg)
{
    struct health *health = arg;
    struct wire_host host;
    loop_timer_set(health->period, PERIOD_NS);
    look(health, &host);
    health->tell(&host, health->arg);
    ask_gpus(health);
}

uint64_t health_disk_used(const struct health *health)
{
    return health->disk_used;
}

struct health *health_new(struct loop *loop, const char *folder, uint64_t disk_budget, health_cb *tell, void *arg)
{
    struct health *health = mem_new(sizeof *health);
    *health = (struct health){.loop = loop, .folder = folder, .disk_budget = disk_budget, .tell = tell, .arg = arg, .out = -1};
    health_read_gpus("", &health->gpus);
    health->period = loop_timer_new(loop, on_period, health);
    health->deadline = loop_timer_new(loop, on_deadline, health);
    loop_timer_set(health->period, 0);
    return health;
}

void health_look(struct health *health)
{
    if (health)
        loop_timer_set(health->period, 0);
}

void health_free(struct health *health)
{
    if (!health)
        return;
    close_out(health);
    if (health->child)
        kill(health->child, SIGKILL);
    loop_timer_free(health->period);
    loop_timer_free(health->deadline);
    mem_free(health);
}
