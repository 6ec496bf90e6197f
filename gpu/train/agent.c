/*
 * `kedge-worker agent`: supervises the worker processes of one run on one host. It starts what kedged asks for (SPAWN), each
 * in a session of its own, tells how each ended (PROCESS) in words, and leaves nothing behind: at the end TERM, grace, KILL
 * for all that descends from it, whatever sessions those have made.
 *
 * One agent per run and host: the lock file says which. It survives its kedged and dials again; what happened meanwhile is
 * told when the road stands again. An agent that is dead does not take its stages with it; kedged and kedge stop reach them
 * without it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/train/command.h"
#include "gpu/train/control.h"
#include "gpu/train/family.h"
#include "gpu/train/health.h"
#include "gpu/train/lock.h"
#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define CHILDREN_MOST 64
#define SWEEP_NS (50 * CLOCK_MS)
#define SWEEP_MOST_NS (5 * CLOCK_SECOND) /* a killed process leaves at once unless the kernel holds it */
#define TAIL_BYTES 4096

struct child {
    struct wire_process report; /* what kedged was told last */
    pid_t pid;                  /* 0: not running */
};

struct agent {
    struct worker_arguments arguments;
    struct timeouts timeouts;
    struct loop *loop;
    struct lock *lock;
    struct credentials *credentials;
    struct control *control;
    struct health *health; /* until it stops */
    struct loop_timer *kill_due, *sweep, *lease, *patience, *fuse;
    struct child children[CHILDREN_MOST];
    int child_count;
    bool ready_told, disk_told, stopping, control_over, swept, gpus_noted;
    uint64_t sweep_until_ns, busy_ns;
    int exit_err;
    char newest_failure[600];
};

/* ---- the one line on stdout ---- */

static void tell_starter(struct agent *agent, int err, const char *text)
{
    if (agent->ready_told)
        return;
    agent->ready_told = true;
    if (err)
        printf("error %s\n", text);
    else
        printf("ready\n");
    fflush(stdout);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, STDOUT_FILENO); /* the starter waits for the end of the pipe */
        close(null);
    }
}

/* ---- children ---- */

static struct child *find_child(struct agent *agent, const char *name)
{
    for (int i = 0; i < agent->child_count; i++)
        if (strcmp(agent->children[i].report.process, name) == 0)
            return &agent->children[i];
    return NULL;
}

static int running_children(const struct agent *agent)
{
    int count = 0;
    for (int i = 0; i < agent->child_count; i++)
        count += agent->children[i].pid != 0;
    return count;
}

static void report(struct agent *agent, const struct child *child)
{
    control_send(agent->control, WIRE_PROCESS, &child->report);
}

static void log_path(const struct agent *agent, const char *process, char *out, size_t size)
{
    snprintf(out, size, "%s/log/%s.log", agent->arguments.folder, process);
}

/* The text of a line of our logs without its time, level and subsystem. */
static const char *without_stamp(const char *line)
{
    const char *text = strstr(line, ": ");
    bool stamped = strlen(line) > 28 && line[4] == '-' && line[10] == 'T' && line[26] == 'Z';
    return stamped && text ? text + 2 : line;
}

/* The last line that a process wrote into its log; "" when there is none. */
static void last_line(const struct agent *agent, const char *process, char *out, size_t size)
{
    char path[sizeof agent->arguments.folder + WIRE_NAME + 16], tail[TAIL_BYTES + 1];
    out[0] = '\0';
    log_path(agent, process, path, sizeof path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    if (fd < 0)
        return;
    ssize_t got = end < 0 ? -1 : pread(fd, tail, TAIL_BYTES, end > TAIL_BYTES ? end - TAIL_BYTES : 0);
    close(fd);
    while (got > 0 && (tail[got - 1] == '\n' || tail[got - 1] == ' '))
        got--;
    if (got <= 0)
        return;
    tail[got] = '\0';
    const char *line = strrchr(tail, '\n');
    line = without_stamp(line ? line + 1 : tail);
    text_harmless(line, strlen(line), out, size);
}

static void describe_end(struct agent *agent, struct child *child, int status)
{
    char line[WIRE_TEXT - 80], ending[80] = "";
    struct wire_process *told = &child->report;
    last_line(agent, told->process, line, sizeof line);
    told->state = PROCESS_EXITED;
    if (WIFSIGNALED(status)) {
        const char *words = sigdescr_np(WTERMSIG(status));
        told->signal = WTERMSIG(status);
        told->exit_code = -1;
        snprintf(ending, sizeof ending, "killed by signal %d (%s)", told->signal, words ? words : "unknown");
    } else {
        told->signal = 0;
        told->exit_code = WEXITSTATUS(status);
    }
    snprintf(told->reason, sizeof told->reason, "%s%s%s", ending, ending[0] && line[0] ? "; last in its log: " : "", line);
    log_at(status == 0 ? LOG_INFO : LOG_WARN, "agent", "%s (pid %u, incarnation %u) ended: exit code %d, signal %d, %s",
           told->process, told->pid, told->incarnation, told->exit_code, told->signal, told->reason);
}

static void begin_sweep(struct agent *agent);

static void reap(struct agent *agent)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (health_reaped(agent->health, pid))
            continue;
        agent->busy_ns = clock_now_ns();
        for (int i = 0; i < agent->child_count; i++) {
            struct child *child = &agent->children[i];
            if (child->pid != pid)
                continue;
            child->pid = 0;
            int left = family_signal_session(pid, SIGKILL); /* whoever is left in its session has nobody to work for */
            if (left)
                log_at(LOG_WARN, "agent", "%s left %d processes behind: killed", child->report.process, left);
            describe_end(agent, child, status);
            report(agent, child);
        }
    }
    if (agent->stopping && running_children(agent) == 0)
        begin_sweep(agent);
}

static void on_child(int number, void *arg)
{
    (void)number;
    reap(arg);
}

static int start_child(struct agent *agent, struct child *child, const struct wire_spawn *spawn, struct why *why)
{
    char folder[1024], program[1100], log[sizeof agent->arguments.folder + WIRE_NAME + 16], incarnation[16], timeout[32],
        mark[40];
    int err = file_program_folder(folder, sizeof folder, why);
    if (err)
        return err;
    snprintf(program, sizeof program, "%s/kedge-worker", folder);
    snprintf(incarnation, sizeof incarnation, "%" PRIu32, spawn->incarnation);
    snprintf(timeout, sizeof timeout, "%" PRIu64 "ms", agent->arguments.timeout_ns / CLOCK_MS);
    snprintf(mark, sizeof mark, "KEDGE_RUN=%016" PRIx64, agent->arguments.run_id);
    log_path(agent, spawn->process, log, sizeof log);
    const char *argv[24] = {program,         spawn->role == ROLE_ANCHOR ? "anchor" : "stage",
                            "--folder",      agent->arguments.folder,
                            "--name",        spawn->process,
                            "--host",        agent->arguments.host,
                            "--head",        agent->arguments.head,
                            "--incarnation", incarnation,
                            "--listen",      spawn->listen,
                            "--timeout",     timeout};
    int count = 16;
    if (spawn->announce[0]) {
        argv[count++] = "--announce";
        argv[count++] = spawn->announce;
    }
    if (agent->arguments.plain)
        argv[count++] = "--plain";
    return family_start(argv, log, mark, &child->pid, why);
}

static void spawn_child(struct agent *agent, struct child *child, const struct wire_spawn *spawn)
{
    struct why why = {0};
    child->report = (struct wire_process){.incarnation = spawn->incarnation, .state = PROCESS_STARTED};
    memcpy(child->report.process, spawn->process, sizeof child->report.process);
    int err = start_child(agent, child, spawn, &why);
    if (err) {
        child->report.state = PROCESS_EXITED;
        child->report.exit_code = 127;
        snprintf(child->report.reason, sizeof child->report.reason, "%.*s", WIRE_TEXT - 1, why.text);
        log_at(LOG_ERROR, "agent", "%s: %s", spawn->process, why.text);
    } else {
        child->report.pid = (uint32_t)child->pid;
        log_at(LOG_INFO, "agent", "%s (incarnation %u) is started: pid %ld", spawn->process, spawn->incarnation,
               (long)child->pid);
    }
    report(agent, child);
}

/* ---- the end ---- */

static void check_over(struct agent *agent)
{
    if (agent->stopping && agent->control_over && agent->swept)
        loop_stop(agent->loop);
}

/* All children are gone: nothing else of the family may stay. */
static void on_sweep(void *arg)
{
    struct agent *agent = arg;
    reap(agent);
    int left = family_signal(getpid(), SIGKILL);
    if (left && clock_now_ns() < agent->sweep_until_ns) {
        log_at(LOG_WARN, "agent", "%d processes are left over: killed", left);
        loop_timer_set(agent->sweep, SWEEP_NS);
        return;
    }
    if (left)
        log_at(LOG_ERROR, "agent", "%d processes do not leave: the kernel holds them", left);
    agent->swept = true;
    control_close(agent->control, 0, "all processes of this host are gone", agent->timeouts.silent_ns);
    check_over(agent);
}

static void begin_sweep(struct agent *agent)
{
    if (agent->sweep_until_ns)
        return;
    loop_timer_unset(agent->kill_due);
    agent->sweep_until_ns = clock_now_ns() + SWEEP_MOST_NS;
    loop_timer_set(agent->sweep, 0);
}

static void on_kill_due(void *arg)
{
    (void)arg;
    int left = family_signal(getpid(), SIGKILL);
    log_at(LOG_WARN, "agent", "the grace is over: %d processes killed", left);
}

static void stop(struct agent *agent, const char *reason, uint64_t grace_ns)
{
    if (agent->stopping)
        return;
    agent->stopping = true;
    health_free(agent->health);
    agent->health = NULL;
    log_at(LOG_INFO, "agent", "stops: %s", reason);
    for (int i = 0; i < agent->child_count; i++)
        if (agent->children[i].pid)
            kill(agent->children[i].pid, SIGTERM); /* ours and not reaped: the number cannot be another's */
    loop_timer_set(agent->kill_due, grace_ns);
    if (running_children(agent) == 0)
        begin_sweep(agent);
}

static void on_signal(int number, void *arg)
{
    struct agent *agent = arg;
    char reason[64];
    snprintf(reason, sizeof reason, "signal %d", number);
    stop(agent, reason, agent->timeouts.grace_ns);
}

/* Time or money is up: nobody has to live for this to hold. kedged is a little earlier and ends the run in good order. */
static void on_fuse(void *arg)
{
    struct agent *agent = arg;
    stop(agent, "the run's deadline or budget is used up", agent->timeouts.grace_ns);
}

/* An agent without scheduler and children has no reason to be. */
static void on_lease(void *arg)
{
    struct agent *agent = arg;
    uint64_t lease_ns = agent->timeouts.lease_ns;
    if (running_children(agent) == 0 && control_lost_ns(agent->control) > lease_ns &&
        clock_now_ns() - agent->busy_ns > lease_ns)
        stop(agent, "no scheduler for a whole lease, and nothing to supervise", 0);
    else if (agent->arguments.lease && control_lost_ns(agent->control) > lease_ns)
        stop(agent, "no scheduler for a whole lease, and the profile says to stop then", agent->timeouts.grace_ns);
    else
        loop_timer_set(agent->lease, lease_ns / 8);
}

/* ---- from kedged ---- */

static int take_spawn(struct agent *agent, const void *message, struct why *why)
{
    const struct wire_spawn *spawn = message;
    struct child *child = find_child(agent, spawn->process);
    if ((spawn->role != ROLE_STAGE && spawn->role != ROLE_ANCHOR) || strchr(spawn->process, '/') || spawn->process[0] == '.' || spawn->process[0] == '\0')
        return why_set(why, ERR_INVALID, "'%s' as a %s is nothing that this agent can start", spawn->process,
                       wire_role_name(spawn->role));
    if (agent->stopping)
        return 0;
    if (child && (child->pid || spawn->incarnation <= child->report.incarnation)) {
        report(agent, child); /* asked again after a lost road, or too early */
        return 0;
    }
    if (!child && agent->child_count == CHILDREN_MOST)
        return why_set(why, ERR_FULL, "more than %d processes on one host", CHILDREN_MOST);
    spawn_child(agent, child ? child : &agent->children[agent->child_count++], spawn);
    return 0;
}

static int take_signal(struct agent *agent, const void *message, struct why *why)
{
    const struct wire_signal *order = message;
    struct child *child = find_child(agent, order->process);
    if (order->signal < 1 || order->signal > 31)
        return why_set(why, ERR_INVALID, "signal %d", order->signal);
    struct child never = {.report = {.incarnation = order->incarnation, .state = PROCESS_EXITED, .exit_code = 127,
                                     .reason = "it was never started: the scheduler died before it could ask"}};
    memcpy(never.report.process, order->process, sizeof never.report.process);
    if (!child || child->report.incarnation < order->incarnation)
        report(agent, &never);
    else if (child->pid && child->report.incarnation == order->incarnation)
        kill(child->pid, order->signal);
    else
        report(agent, child);
    return 0;
}

static int take_stop(struct agent *agent, const void *message, struct why *why)
{
    const struct wire_stop *order = message;
    (void)why;
    stop(agent, order->reason[0] ? order->reason : "by order", order->grace_ms * CLOCK_MS);
    return 0;
}

static int on_control(const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg, struct why *why)
{
    static const struct {
        uint16_t type;
        int (*take)(struct agent *agent, const void *message, struct why *why);
    } takers[] = {{WIRE_SPAWN, take_spawn}, {WIRE_SIGNAL, take_signal}, {WIRE_STOP, take_stop}};
    union {
        struct wire_spawn spawn;
        struct wire_signal signal;
        struct wire_stop stop;
    } decoded;
    for (size_t i = 0; i < sizeof takers / sizeof *takers; i++)
        if (takers[i].type == header->type) {
            int err = wire_decode(header->type, payload, bytes, &decoded, why);
            return err ? err : takers[i].take(arg, &decoded, why);
        }
    return why_set(why, ERR_INVALID, "a %s is not for an agent", wire_find(header->type)->name);
}

static void on_control_up(void *arg)
{
    struct agent *agent = arg;
    loop_timer_unset(agent->patience);
    tell_starter(agent, 0, "");
    for (int i = 0; i < agent->child_count; i++)
        report(agent, &agent->children[i]);
    health_look(agent->health);
}

static void on_control_down(int err, const char *reason, bool final, void *arg)
{
    struct agent *agent = arg;
    agent->control_over = final;
    snprintf(agent->newest_failure, sizeof agent->newest_failure, "%s", reason);
    if (final && !agent->stopping) {
        tell_starter(agent, err ? err : ERR_GONE, reason);
        agent->exit_err = err ? err : ERR_GONE;
        stop(agent, reason, agent->timeouts.grace_ns);
    } else if (!final) {
        log_at(LOG_WARN, "agent", "no road to the scheduler: %s", reason);
    }
    check_over(agent);
}

/* The starter waits: no scheduler in time is an error to tell, not something to hope against. */
static void on_patience(void *arg)
{
    struct agent *agent = arg;
    char text[800];
    snprintf(text, sizeof text, "no scheduler at %s: %s", agent->arguments.head,
             agent->newest_failure[0] ? agent->newest_failure : "it does not answer");
    tell_starter(agent, ERR_TIMEOUT, text);
    agent->exit_err = ERR_TIMEOUT;
    stop(agent, text, 0);
}

/* ---- begin ---- */

static void dial_control(struct agent *agent)
{
    static const struct control_callbacks callbacks = {.up = on_control_up, .message = on_control, .down = on_control_down};
    struct control_settings settings = {
        .credentials = agent->credentials,
        .run_id = agent->arguments.run_id,
        .incarnation = 1,
        .hello = {.role = ROLE_AGENT},
        .timeouts = agent->timeouts,
    };
    memcpy(settings.head, agent->arguments.head, sizeof settings.head);
    memcpy(settings.hello.host, agent->arguments.host, sizeof settings.hello.host);
    snprintf(settings.hello.name, sizeof settings.hello.name, "agent@%.*s", WIRE_NAME - 8, agent->arguments.host);
    agent->control = control_new(agent->loop, &settings, &callbacks, agent);
}

/* For who stops the run and wants to see the memory free again (ssh/launch/script.h), also when we are dead by then: gpu@HOST, in MiB. */
static void note_gpus(struct agent *agent)
{
    char path[sizeof agent->arguments.folder + WIRE_NAME + 16], text[32];
    uint64_t bytes;
    if (agent->gpus_noted || !health_gpus_before(agent->health, &bytes))
        return;
    agent->gpus_noted = true;
    snprintf(path, sizeof path, "%s/gpu@%s", agent->arguments.folder, agent->arguments.host);
    int length = snprintf(text, sizeof text, "%" PRIu64 "\n", bytes >> 20);
    struct why why = {0};
    if (file_write(path, text, (size_t)length, 0600, &why) != 0)
        log_at(LOG_WARN, "agent", "%s", why.text);
}

/* Logs and journals ask nobody before they grow: what is above the budget is said, once until it is below again. */
static void judge_disk(struct agent *agent)
{
    struct wire_event event = {.code = "disk-budget"};
    uint64_t used = health_disk_used(agent->health), budget = agent->arguments.disk_budget;
    char has[32], may[32];
    bool above = used > budget;
    if (above == agent->disk_told || !budget)
        return;
    agent->disk_told = above;
    event.level = above ? EVENT_WARN : EVENT_INFO;
    snprintf(event.text, sizeof event.text, "kedge has %s on host %s, %s its disk_budget of %s%s",
             text_from_bytes(used, has, sizeof has), agent->arguments.host, above ? "above" : "within", text_from_bytes(budget, may, sizeof may),
             above ? ": no weights are written there until it has less" : " again");
    log_at(above ? LOG_WARN : LOG_INFO, "agent", "%s", event.text);
    control_send(agent->control, WIRE_EVENT, &event);
}

static void tell_health(const struct wire_host *host, void *arg)
{
    note_gpus(arg);
    judge_disk(arg);
    control_sample(((struct agent *)arg)->control, WIRE_HOST, host, 0, false);
}

static int take_lock(struct agent *agent, struct why *why)
{
    char path[sizeof agent->arguments.folder + WIRE_NAME + 16], who[WIRE_NAME + 40];
    snprintf(path, sizeof path, "%s/agent@%s.lock", agent->arguments.folder, agent->arguments.host);
    snprintf(who, sizeof who, "an agent of this run on host %s", agent->arguments.host);
    return lock_take(path, agent->arguments.run_id, who, &agent->lock, why);
}

static int open_log(struct agent *agent, struct why *why)
{
    char path[sizeof agent->arguments.folder + WIRE_NAME + 24];
    snprintf(path, sizeof path, "%s/log", agent->arguments.folder);
    int err = file_make_folders(path, 0700, why);
    snprintf(path, sizeof path, "%s/log/agent@%s.log", agent->arguments.folder, agent->arguments.host);
    return err ? err : log_open(path, "kedge-worker", 0, why);
}

static int add_signals(struct agent *agent, struct why *why)
{
    static const struct {
        int number;
        loop_signal_cb *cb;
    } signals[] = {{SIGCHLD, on_child}, {SIGTERM, on_signal}, {SIGINT, on_signal}};
    int err = 0;
    for (size_t i = 0; i < sizeof signals / sizeof *signals && !err; i++)
        err = loop_signal(agent->loop, signals[i].number, signals[i].cb, agent, why);
    return err;
}

static int begin(struct agent *agent, struct why *why)
{
    char creds[sizeof agent->arguments.folder + 16];
    snprintf(creds, sizeof creds, "%s/creds", agent->arguments.folder);
    agent->timeouts = timeouts_derive(agent->arguments.timeout_ns);
    agent->busy_ns = clock_now_ns();
    int err = family_adopt(why);
    if (err)
        return err;
    if (!agent->arguments.plain) {
        agent->credentials = credentials_load_folder(creds, agent->arguments.host, why);
        if (!agent->credentials)
            return why->err;
    }
    agent->loop = loop_new(why);
    if (!agent->loop)
        return why->err;
    agent->kill_due = loop_timer_new(agent->loop, on_kill_due, agent);
    agent->sweep = loop_timer_new(agent->loop, on_sweep, agent);
    agent->lease = loop_timer_new(agent->loop, on_lease, agent);
    agent->patience = loop_timer_new(agent->loop, on_patience, agent);
    agent->fuse = loop_timer_new(agent->loop, on_fuse, agent);
    if (agent->arguments.fuse_ns)
        loop_timer_set(agent->fuse, agent->arguments.fuse_ns);
    loop_timer_set(agent->lease, agent->timeouts.lease_ns / 8);
    loop_timer_set(agent->patience, agent->timeouts.greet_ns + agent->timeouts.greet_ns / 2);
    err = add_signals(agent, why);
    if (!err) {
        dial_control(agent);
        agent->health = health_new(agent->loop, agent->arguments.folder, agent->arguments.disk_budget, tell_health, agent);
    }
    return err;
}

static void end(struct agent *agent)
{
    health_free(agent->health);
    loop_timer_free(agent->kill_due);
    loop_timer_free(agent->sweep);
    loop_timer_free(agent->lease);
    loop_timer_free(agent->patience);
    loop_timer_free(agent->fuse);
    control_free(agent->control);
    loop_free(agent->loop);
    credentials_free(agent->credentials);
    lock_release(agent->lock);
    mem_free(agent);
    log_close();
}

int agent_main(int count, char **words)
{
    static const char *const needs[] = {"--folder", "--host", "--head", NULL};
    struct agent *agent = mem_new(sizeof *agent);
    struct why why = {0};
    int err = command_arguments(count, words, needs, &agent->arguments, &why);
    if (!err)
        err = take_lock(agent, &why);
    if (!err)
        err = open_log(agent, &why);
    if (!err)
        err = begin(agent, &why);
    if (err) {
        tell_starter(agent, err, why.text);
        fprintf(stderr, "kedge-worker: %s\n", why.text);
    } else {
        loop_run(agent->loop);
        err = agent->exit_err;
    }
    end(agent);
    return command_exit(err);
}
