#include "tests/helpers/crowd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/link/link.h"
#include "ssh/link/loop.h"
#include "ssh/link/road.h"
#include "tests/helpers/fleet.h"

#define RUN_ID 7
#define SEEN 65536
#define FIRST 0x410 /* letters that no row has: Cyrillic */
#define LETTERS 64

struct crowd {
    const struct crowd_far *far;
    char state[400], folder[500];
    pid_t scheduler, console;
    int terminal;
    char seen[SEEN]; /* the newest of what the console wrote */
    size_t used;
    int letter;
};

/* ---- the scheduler ---- */

struct scene {
    struct loop *loop;
    struct loop_timer *timer;
    struct link *link; /* the newest console's */
    bool watched;
    int processes, stages;
    uint64_t period_ns, delay_ns;
};

static void send_row(enum wire_type type, const void *row, void *arg)
{
    link_send(arg, type, row, 0, 0);
}

static void on_period(void *arg)
{
    struct scene *scene = arg;
    loop_timer_set(scene->timer, scene->period_ns);
    if (scene->watched)
        fleet_send(scene->processes, scene->stages, FLEET_NOW + clock_now_ns() % (50 * CLOCK_SECOND),
                   &(struct fleet_sink){send_row, scene->link});
}

static int on_message(struct link *link, const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg,
                      struct why *why)
{
    struct scene *scene = arg;
    (void)payload, (void)bytes, (void)why;
    if (header->type != WIRE_WATCH)
        return 0;
    scene->link = link;
    scene->watched = true;
    fleet_send(scene->processes, scene->stages, FLEET_NOW, &(struct fleet_sink){send_row, link});
    return link_send(link, WIRE_STATE_END, &(struct wire_state_end){0}, 0, 0);
}

static void on_down(struct link *link, int err, const char *reason, void *arg)
{
    struct scene *scene = arg;
    (void)err, (void)reason;
    scene->watched = scene->watched && link != scene->link;
}

static void on_console(struct road *road, const char *from, void *arg)
{
    static const struct link_callbacks callbacks = {.message = on_message, .down = on_down};
    struct scene *scene = arg;
    (void)from;
    const struct link_settings settings = {
        .run_id = RUN_ID,
        .hello = {.version = WIRE_VERSION, .role = ROLE_SCHEDULER, .program = "kedged test", .name = "kedged", .pid = (uint32_t)getpid()},
        .heartbeat_ns = 200 * CLOCK_MS, .silent_ns = 60 * CLOCK_SECOND, .greet_ns = 20 * CLOCK_SECOND, .queue_max_bytes = 64 << 20,
    };
    link_new(scene->loop, road_slow(scene->loop, road, &(struct slow_settings){.delay_ns = scene->delay_ns}), &settings, &callbacks, scene);
}

static void be_scheduler(const struct crowd *crowd, int processes, int stages, uint64_t period_ns, uint64_t delay_ns)
{
    struct scene scene = {.processes = processes, .stages = stages, .period_ns = period_ns, .delay_ns = delay_ns};
    struct why why = {0};
    char *path = mem_format("%s/kedged.sock", crowd->folder);
    scene.loop = loop_new(&why);
    if (!scene.loop || !listener_unix(scene.loop, path, on_console, &scene, &why)) {
        fprintf(stderr, "%s\n", why.text);
        _exit(1);
    }
    scene.timer = loop_timer_new(scene.loop, on_period, &scene);
    loop_timer_set(scene.timer, period_ns);
    while (getppid() != 1)
        loop_run_once(scene.loop, CLOCK_SECOND);
    _exit(0);
}

/* ---- the console ---- */

static void take(struct crowd *crowd, uint64_t wait_ns)
{
    struct pollfd ready = {.fd = crowd->terminal, .events = POLLIN};
    if (crowd->used > SEEN / 2) {
        memmove(crowd->seen, crowd->seen + crowd->used - SEEN / 4, SEEN / 4);
        crowd->used = SEEN / 4;
    }
    if (poll(&ready, 1, (int)(wait_ns / CLOCK_MS) + 1) <= 0)
        return;
    ssize_t got = read(crowd->terminal, crowd->seen + crowd->used, SEEN - crowd->used);
    crowd->used += got > 0 ? (size_t)got : 0;
}

uint64_t crowd_press(struct crowd *crowd, const char *keys, const char *words, uint64_t limit_ns)
{
    uint64_t begin_ns = clock_now_ns(), passed_ns = 0;
    crowd->used = 0;
    if (write(crowd->terminal, keys, strlen(keys)) < 0)
        return UINT64_MAX;
    while (passed_ns < limit_ns) {
        take(crowd, limit_ns - passed_ns);
        passed_ns = clock_now_ns() - begin_ns;
        if (memmem(crowd->seen, crowd->used, words, strlen(words)))
            return passed_ns;
    }
    return UINT64_MAX;
}

void crowd_rest(struct crowd *crowd, uint64_t ns)
{
    uint64_t begin_ns = clock_now_ns();
    for (uint64_t passed_ns = 0; passed_ns < ns; passed_ns = clock_now_ns() - begin_ns)
        take(crowd, ns - passed_ns);
}

static int ascending(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return a < b ? -1 : a > b;
}

int crowd_measure(struct crowd *crowd, int count, uint64_t *took, int most)
{
    static const char views[] = "12456";
    int measured = 0;
    for (const char *view = views; *view; view++) {
        char begin[] = {*view, ':', '\0'}, letter[5];
        crowd_press(crowd, begin, ":", 5 * CLOCK_SECOND);
        for (int i = 0; i < count && measured < most; i++) {
            letter[surface_encode(FIRST + (uint32_t)(crowd->letter++ % LETTERS), letter)] = '\0';
            took[measured++] = crowd_press(crowd, letter, letter, 20 * CLOCK_SECOND);
            crowd_rest(crowd, (20 + (uint64_t)(i * 37 % 50)) * CLOCK_MS); /* so that keys and rows meet at any moment */
        }
        crowd_press(crowd, "\033", "\033", CLOCK_SECOND);
        crowd_rest(crowd, 100 * CLOCK_MS); /* or Esc and what follows would be one key */
    }
    qsort(took, (size_t)measured, sizeof *took, ascending);
    return measured;
}

void crowd_fall_silent(struct crowd *crowd)
{
    if (crowd->far && system(crowd->far->cut) != 0) {
        fprintf(stderr, "'%s' failed\n", crowd->far->cut);
        exit(1);
    }
    if (!crowd->far)
        kill(crowd->scheduler, SIGSTOP);
}

/* ---- life ---- */

static void make_folder(struct crowd *crowd)
{
    static const char ini[] = "[run]\nname = sea\ntimeout = 6s\n[data]\npath = none\n[host a]\nkind = local\n";
    const char *folder = getenv("TMPDIR");
    snprintf(crowd->state, sizeof crowd->state, "%.150s/kedge-crowd.XXXXXX", folder && *folder ? folder : "/tmp");
    if (crowd->far)
        snprintf(crowd->state, sizeof crowd->state, "%s", crowd->far->state);
    else if (!mkdtemp(crowd->state))
        exit(1);
    snprintf(crowd->folder, sizeof crowd->folder, "%s/kedge/sea", crowd->state);
    struct why why = {0};
    char *path = mem_format("%s/run.ini", crowd->folder), *id = mem_format("%s/run.id", crowd->folder);
    if (file_make_folders(crowd->folder, 0700, &why) != 0 || file_write(path, ini, strlen(ini), 0600, &why) != 0 ||
        file_write(id, "0000000000000007\n", 17, 0600, &why) != 0) {
        fprintf(stderr, "%s\n", why.text);
        exit(1);
    }
    mem_free(path);
    mem_free(id);
}

static void be_console(const struct crowd *crowd)
{
    const char *build = getenv("O");
    char *program = mem_format("%s/kedge", build ? build : "build");
    if (!crowd->far)
        setenv("XDG_STATE_HOME", crowd->state, 1);
    setenv("TERM", "screen-256color", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    execl(program, "kedge", "attach", crowd->far ? crowd->far->attach : "sea", (char *)NULL);
    _exit(127);
}

struct crowd *crowd_begin(int processes, int stages, uint64_t period_ns, uint64_t delay_ns, int rows, int columns, const struct crowd_far *far)
{
    struct crowd *crowd = mem_new(sizeof *crowd);
    crowd->far = far;
    struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
    struct stat there;
    make_folder(crowd);
    crowd->scheduler = fork();
    if (crowd->scheduler == 0)
        be_scheduler(crowd, processes, stages, period_ns, delay_ns);
    char *socket = mem_format("%s/kedged.sock", crowd->folder);
    for (int i = 0; i < 500 && stat(socket, &there) != 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    mem_free(socket);
    crowd->console = forkpty(&crowd->terminal, NULL, NULL, &size);
    if (crowd->console == 0)
        be_console(crowd);
    fcntl(crowd->terminal, F_SETFL, O_NONBLOCK);
    if (crowd_press(crowd, "", "training", 60 * CLOCK_SECOND) == UINT64_MAX) {
        fprintf(stderr, "the console does not show the run: %.*s\n", (int)crowd->used, crowd->seen);
        crowd_end(crowd);
        exit(1);
    }
    return crowd;
}

struct crowd_cost crowd_cost(const struct crowd *crowd)
{
    struct crowd_cost cost = {.cpu_seconds = 0};
    unsigned long long user = 0, system = 0, pages = 0;
    char *path = mem_format("/proc/%ld/stat", (long)crowd->console);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d %*d %*u %*u %llu", &user,
                       &system, &pages) == 3) {
        cost.cpu_seconds = (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
        cost.resident_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    }
    if (file)
        fclose(file);
    mem_free(path);
    return cost;
}

void crowd_end(struct crowd *crowd)
{
    static const char *const files[] = {"kedge/sea/run.ini", "kedge/sea/run.id", "kedge/sea/kedged.sock", "kedge/sea", "kedge", ""};
    kill(crowd->scheduler, SIGKILL);
    kill(crowd->console, SIGKILL);
    waitpid(crowd->scheduler, NULL, 0);
    waitpid(crowd->console, NULL, 0);
    close(crowd->terminal);
    for (size_t i = 0; i < (crowd->far ? 0 : sizeof files / sizeof *files); i++) {
        char *path = mem_format("%s/%s", crowd->state, files[i]);
        remove(path);
        mem_free(path);
    }
    mem_free(crowd);
}
