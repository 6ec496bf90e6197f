/*
 * A real agent under a kedged of a few lines: it starts processes, tells how they ended, leaves nothing behind, is alone on
 * its lock, and survives the loss of its kedged.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/head.h"

#define PATIENCE (30 * CLOCK_SECOND)
#define TIMEOUT (20 * CLOCK_SECOND) /* a busy machine may be slow; only without_scheduler_it_says_so waits for it */

struct scene {
    struct head head;
    struct head_peer *agent;
    char line[700];    /* the newest line that an agent said to its starter */
    char program[600]; /* "" = the real one */
    const char *timeout;
};

/* What the program said on stdout until it closed it. */
static void read_line(struct scene *scene, int fd)
{
    size_t used = 0;
    ssize_t got;
    while ((got = read(fd, scene->line + used, sizeof scene->line - 1 - used)) != 0) {
        if (got < 0 && errno == EAGAIN) {
            loop_run_once(scene->head.loop, 10 * CLOCK_MS);
            continue;
        }
        assert_true(got > 0);
        used += (size_t)got;
    }
    scene->line[used] = '\0';
    close(fd);
}

/* The agent's pid; scene->line has its word. */
static pid_t start_agent(struct scene *scene, const char *head)
{
    int ends[2];
    const char *words[] = {"agent",
                           "--folder",
                           scene->head.place.folder,
                           "--host",
                           "a",
                           "--head",
                           head,
                           "--timeout",
                           scene->timeout ? scene->timeout : "20s",
                           scene->head.credentials ? NULL : "--plain",
                           NULL};
    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    pid_t pid = head_run_program(scene->program[0] ? scene->program : head_program(), words, ends[1]);
    close(ends[1]);
    read_line(scene, ends[0]);
    return pid;
}

static bool connected(struct head *head, void *arg)
{
    const struct head_peer *peer = head_find(head, arg);
    return peer && peer->link;
}

static void scene_begin(struct scene *scene, bool plain)
{
    *scene = (struct scene){0};
    head_begin(&scene->head, TIMEOUT, plain);
}

static void begin_agent(struct scene *scene)
{
    char name[] = "agent@a";
    pid_t pid = start_agent(scene, listener_address(scene->head.listener));
    assert_string_equal(scene->line, "ready\n");
    head_until(&scene->head, connected, name, PATIENCE, "the agent's hello");
    scene->agent = head_find(&scene->head, name);
    scene->agent->pid = pid;
}

static void scene_end(struct scene *scene)
{
    head_end(&scene->head);
}

static bool agent_gone(struct head *head, void *arg)
{
    (void)arg;
    return head_find(head, "agent@a")->pid == 0;
}

static bool said_processes(struct head *head, void *arg)
{
    return head->process_count >= *(int *)arg;
}

static void wait_processes(struct scene *scene, int count)
{
    head_until(&scene->head, said_processes, &count, PATIENCE, "PROCESS");
}

static void spawn(struct scene *scene, const char *name, uint32_t incarnation, const char *listen)
{
    struct wire_spawn order = {.role = ROLE_STAGE, .incarnation = incarnation};
    snprintf(order.process, sizeof order.process, "%s", name);
    snprintf(order.listen, sizeof order.listen, "%s", listen);
    head_say(scene->agent, WIRE_SPAWN, &order);
}

static void stop_agent(struct scene *scene, uint32_t grace_ms)
{
    head_say(scene->agent, WIRE_STOP, &(struct wire_stop){.grace_ms = grace_ms, .reason = "over"});
    head_until(&scene->head, agent_gone, NULL, PATIENCE, "the agent's end");
    assert_true(WIFEXITED(scene->agent->status));
    assert_int_equal(WEXITSTATUS(scene->agent->status), 0);
    assert_true(access(place_file(&scene->head.place, "agent@a.lock"), F_OK) != 0);
}

static bool connected_twice(struct head *head, void *arg)
{
    return head_find(head, arg)->hellos == 2;
}

/* ---- tests ---- */

static void tells_how_processes_end(void **state)
{
    (void)state;
    struct scene scene;
    char name[] = "r0s0";
    scene_begin(&scene, false);
    begin_agent(&scene);
    spawn(&scene, name, 1, "127.0.0.1:0");
    wait_processes(&scene, 1);
    struct wire_process *told = &scene.head.processes[0];
    assert_int_equal(told->state, PROCESS_STARTED);
    assert_true(told->pid > 0);
    head_until(&scene.head, connected, name, PATIENCE, "the stage's hello");
    assert_int_equal(head_find(&scene.head, name)->hello.pid, told->pid);
    spawn(&scene, name, 1, "127.0.0.1:0"); /* said again: nothing new is started */
    wait_processes(&scene, 2);
    assert_int_equal(scene.head.processes[1].pid, told->pid);
    struct wire_signal order = {.process = "r0s0", .incarnation = 1, .signal = SIGKILL};
    head_say(scene.agent, WIRE_SIGNAL, &order);
    wait_processes(&scene, 3);
    told = &scene.head.processes[2];
    assert_int_equal(told->state, PROCESS_EXITED);
    assert_int_equal(told->signal, SIGKILL);
    assert_int_equal(told->exit_code, -1);
    assert_non_null(strstr(told->reason, "killed by signal 9 (Killed)"));
    order.incarnation = 2; /* one that a scheduler wanted, and died before it had asked: it would be waited for for ever */
    head_say(scene.agent, WIRE_SIGNAL, &order);
    wait_processes(&scene, 4);
    assert_int_equal(scene.head.processes[3].incarnation, 2);
    assert_int_equal(scene.head.processes[3].state, PROCESS_EXITED);
    assert_non_null(strstr(scene.head.processes[3].reason, "never started"));
    spawn(&scene, name, 2, "127.0.0.1:0");
    wait_processes(&scene, 5);
    assert_int_equal(scene.head.processes[4].incarnation, 2);
    assert_int_equal(scene.head.processes[4].state, PROCESS_STARTED);
    head_until(&scene.head, connected_twice, name, PATIENCE, "the hello of the second incarnation");
    stop_agent(&scene, 5000);
    assert_int_equal(scene.head.process_count, 6);
    assert_int_equal(scene.head.processes[5].exit_code, 0); /* TERM is a planned end */
    scene_end(&scene);
}

static void gives_the_last_line_of_the_log(void **state)
{
    (void)state;
    struct scene scene;
    scene_begin(&scene, true);
    begin_agent(&scene);
    spawn(&scene, "r0s0", 1, listener_address(scene.head.listener)); /* taken */
    wait_processes(&scene, 2);
    const struct wire_process *told = &scene.head.processes[1];
    assert_int_equal(told->state, PROCESS_EXITED);
    assert_int_equal(told->signal, 0);
    assert_true(told->exit_code != 0);
    assert_non_null(strstr(told->reason, listener_address(scene.head.listener)));
    assert_null(strstr(told->reason, " error ")); /* without the stamp of the log */
    stop_agent(&scene, 1000);
    scene_end(&scene);
}

/* A worker that ignores TERM and has children in its session and out of it; their pids go into the file "family". */
static void make_stubborn(struct scene *scene)
{
    char script[2000], path[700], copy[1400];
    snprintf(path, sizeof path, "%s/bin", scene->head.place.folder);
    assert_int_equal(file_make_folders(path, 0700, NULL), 0);
    snprintf(scene->program, sizeof scene->program, "%.500s/bin/real", scene->head.place.folder);
    snprintf(copy, sizeof copy, "cp '%s' '%s'", head_program(), scene->program);
    assert_int_equal(system(copy), 0);
    snprintf(script, sizeof script,
             "#!/bin/sh\ntrap '' TERM\nFAMILY='%s/family'\nexport FAMILY\n"
             "one='echo $$ >>$FAMILY.new; exec sleep 1000'\n"
             "sh -c \"$one\" &\nsetsid sh -c \"$one\" &\n(setsid sh -c \"sh -c '$one' & $one\" &)\n"
             "until [ $(cat $FAMILY.new 2>/dev/null | wc -l) = 4 ]; do sleep 0.1; done\necho $$ >>$FAMILY.new\n"
             "mv $FAMILY.new $FAMILY\nwhile :; do sleep 1; done\n",
             scene->head.place.folder);
    snprintf(path, sizeof path, "%s/bin/kedge-worker", scene->head.place.folder);
    assert_int_equal(file_write(path, script, strlen(script), 0700, NULL), 0);
}

static bool family_written(struct head *head, void *arg)
{
    (void)arg;
    return access(place_file(&head->place, "family"), F_OK) == 0;
}

/* How many pids of the file "family" there are and how many of them are alive. */
static int family_alive(struct scene *scene, int *count)
{
    FILE *file = fopen(place_file(&scene->head.place, "family"), "r");
    long pid;
    int alive = 0;
    *count = 0;
    assert_non_null(file);
    while (fscanf(file, "%ld", &pid) == 1) {
        char path[40], state = 'X';
        snprintf(path, sizeof path, "/proc/%ld/stat", pid);
        FILE *stat = fopen(path, "r");
        if (stat && fscanf(stat, "%*d %*s %c", &state) == 1 && state != 'Z')
            alive++;
        if (stat)
            fclose(stat);
        ++*count;
    }
    fclose(file);
    return alive;
}

static void leaves_no_grandchild(void **state)
{
    (void)state;
    struct scene scene;
    int count;
    scene_begin(&scene, true);
    make_stubborn(&scene);
    begin_agent(&scene);
    spawn(&scene, "r0s0", 1, "127.0.0.1:0");
    head_until(&scene.head, family_written, NULL, PATIENCE, "the family");
    assert_int_equal(family_alive(&scene, &count), 5);
    assert_int_equal(count, 5);
    uint64_t began_ns = clock_now_ns();
    stop_agent(&scene, 500);
    assert_true(clock_now_ns() - began_ns < 5 * CLOCK_SECOND);
    assert_int_equal(family_alive(&scene, &count), 0);
    const struct wire_process *told = &scene.head.processes[scene.head.process_count - 1];
    assert_int_equal(told->signal, SIGKILL);
    scene_end(&scene);
}

static void is_alone_on_its_lock(void **state)
{
    (void)state;
    struct scene scene;
    uint8_t *text;
    size_t bytes;
    char expected[100];
    int status;
    scene_begin(&scene, true);
    begin_agent(&scene);
    assert_int_equal(file_read(place_file(&scene.head.place, "agent@a.lock"), 200, &text, &bytes, NULL), 0);
    snprintf(expected, sizeof expected, "%d ", scene.agent->pid);
    assert_memory_equal(text, expected, strlen(expected));
    assert_non_null(strstr((char *)text, " feedfacecafe1234\n"));
    mem_free(text);
    pid_t second = start_agent(&scene, listener_address(scene.head.listener));
    waitpid(second, &status, 0);
    assert_int_equal(WEXITSTATUS(status), 4);
    snprintf(expected, sizeof expected, "pid %d", scene.agent->pid);
    if (!strstr(scene.line, expected) || strncmp(scene.line, "error ", 6) != 0)
        fail_msg("the second agent said '%s'", scene.line);
    kill(scene.agent->pid, SIGKILL); /* its lock file stays, and stops nobody */
    head_until(&scene.head, agent_gone, NULL, PATIENCE, "the killed agent");
    assert_int_equal(access(place_file(&scene.head.place, "agent@a.lock"), F_OK), 0);
    begin_agent(&scene);
    kill(scene.agent->pid, SIGTERM);
    head_until(&scene.head, agent_gone, NULL, PATIENCE, "the end after TERM");
    assert_int_equal(WEXITSTATUS(scene.agent->status), 0);
    assert_true(access(place_file(&scene.head.place, "agent@a.lock"), F_OK) != 0);
    scene_end(&scene);
}

static void comes_back_and_tells_what_happened(void **state)
{
    (void)state;
    struct scene scene;
    scene_begin(&scene, true);
    begin_agent(&scene);
    spawn(&scene, "r0s0", 1, "127.0.0.1:0");
    wait_processes(&scene, 1);
    pid_t stage = (pid_t)scene.head.processes[0].pid;
    scene.head.deaf = true;
    link_free(scene.agent->link);
    scene.agent->link = NULL;
    head_for(&scene.head, 200 * CLOCK_MS);
    kill(stage, SIGUSR1); /* nobody hears of it now */
    head_for(&scene.head, 200 * CLOCK_MS);
    assert_int_equal(scene.head.process_count, 1);
    scene.head.deaf = false;
    wait_processes(&scene, 2);
    assert_int_equal(scene.head.processes[1].signal, SIGUSR1);
    assert_int_equal(scene.agent->hellos, 2);
    stop_agent(&scene, 1000);
    scene_end(&scene);
}

static void without_scheduler_it_says_so(void **state)
{
    (void)state;
    struct scene scene;
    int status;
    scene_begin(&scene, true);
    char address[128];
    snprintf(address, sizeof address, "%s", listener_address(scene.head.listener));
    listener_free(scene.head.listener);
    scene.head.listener = NULL;
    scene.timeout = "1s";
    pid_t pid = start_agent(&scene, address);
    waitpid(pid, &status, 0);
    assert_int_equal(WEXITSTATUS(status), 3);
    if (strncmp(scene.line, "error no scheduler at 127.0.0.1:", 32) != 0)
        fail_msg("it said '%s'", scene.line);
    assert_true(access(place_file(&scene.head.place, "agent@a.lock"), F_OK) != 0);
    scene_end(&scene);
}

/* A program of that name in front of all others. */
static void make_gpus(struct scene *scene, const char *script)
{
    char path[700];
    snprintf(path, sizeof path, "%s/smi", scene->head.place.folder);
    assert_int_equal(file_make_folders(path, 0700, NULL), 0);
    snprintf(path, sizeof path, "%s/smi/nvidia-smi.new", scene->head.place.folder);
    assert_int_equal(file_write(path, script, strlen(script), 0700, NULL), 0);
    assert_int_equal(rename(path, place_file(&scene->head.place, "smi/nvidia-smi")), 0);
    snprintf(path, sizeof path, "%s/smi:%.400s", scene->head.place.folder, getenv("PATH"));
    setenv("PATH", path, 1);
}

static bool tells_gpus(struct head *head, void *arg)
{
    return head->host.memory_bytes > 0 && head->host.gpus == *(int *)arg;
}

static bool gone_from_proc(struct head *head, void *arg)
{
    (void)head;
    return access(arg, F_OK) != 0;
}

/* Also when nvidia-smi hangs: that is killed and not known any more, all else goes on. */
static void tells_how_its_host_is(void **state)
{
    struct scene scene;
    char *path = mem_text(getenv("PATH")), pid[64] = "/proc/";
    int two = 2, none = 0;
    (void)state;
    scene_begin(&scene, true);
    make_gpus(&scene, "#!/bin/sh\necho 'NVIDIA H100, 90, 1024, 4096, 70, 300.5'\necho 'NVIDIA H100, 70, 1024, 4096, 80, [N/A]'\n");
    begin_agent(&scene);
    head_until(&scene.head, tells_gpus, &two, PATIENCE, "GPUs");
    const struct wire_host *host = &scene.head.host;
    assert_string_equal(host->gpu, "NVIDIA H100");
    assert_true(host->gpu_share > 0.79F && host->gpu_share < 0.81F && host->gpu_celsius == 80 && isnan(host->gpu_watts));
    assert_true(host->gpu_used_bytes == UINT64_C(2) << 30 && host->gpu_memory_bytes == UINT64_C(8) << 30);
    assert_true(host->cores > 0 && host->memory_free_bytes > 0 && host->memory_free_bytes <= host->memory_bytes);
    assert_true(host->disk_bytes > 0 && host->disk_free_bytes <= host->disk_bytes && host->load >= 0);
    char script[900];
    snprintf(script, sizeof script, "#!/bin/sh\necho $$ >'%s/hung.new'\nmv '%s/hung.new' '%s/hung'\nexec sleep 1000\n",
             scene.head.place.folder, scene.head.place.folder, scene.head.place.folder);
    make_gpus(&scene, script);
    head_until(&scene.head, tells_gpus, &none, PATIENCE, "that nothing is known of the GPUs");
    FILE *hung = fopen(place_file(&scene.head.place, "hung"), "r");
    assert_non_null(hung);
    assert_int_equal(fscanf(hung, "%50s", pid + strlen("/proc/")), 1);
    fclose(hung);
    head_until(&scene.head, gone_from_proc, pid, PATIENCE, "the end of what hung");
    spawn(&scene, "r0s0", 1, "127.0.0.1:0"); /* its loop turns */
    wait_processes(&scene, 1);
    stop_agent(&scene, 5000);
    setenv("PATH", path, 1);
    mem_free(path);
    scene_end(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_how_processes_end),
        cmocka_unit_test(gives_the_last_line_of_the_log),
        cmocka_unit_test(leaves_no_grandchild),
        cmocka_unit_test(is_alone_on_its_lock),
        cmocka_unit_test(comes_back_and_tells_what_happened),
        cmocka_unit_test(tells_how_its_host_is),
        cmocka_unit_test(without_scheduler_it_says_so),
    };
    head_program(); /* or skip */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
