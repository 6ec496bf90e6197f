#include "ssh/launch/remote.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ssh/base/clock.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/launch/delivery.h"
#include "ssh/launch/limits.h"
#include "ssh/launch/needed.h"
#include "ssh/launch/push.h"
#include "ssh/launch/room.h"
#include "ssh/launch/script.h"
#include "ssh/session/exec.h"

#define AGAIN_MOST 3                  /* sessions that break while files travel, one after the other */
#define REFUSED_MOST 3                /* connections that are refused: a host that boots */
#define AGAIN_NS (1 * CLOCK_SECOND)
#define FACTS_BYTES 4096
#define LINE_BYTES 700
#define ADDRESS_LETTERS PROFILE_NAME_LETTERS ":[]%"

enum remote_state {
    REMOTE_REACHING,   /* → LOOKING, FAILED, or again after a pause */
    REMOTE_LOOKING,    /* → PUSHING, FAILED */
    REMOTE_PUSHING,    /* → DELIVERING, FAILED, or REACHING again */
    REMOTE_DELIVERING, /* → PREPARED, FAILED */
    REMOTE_PREPARED,   /* our owner's word → STARTING */
    REMOTE_STARTING,   /* → PREPARED (the head: the agent follows), READY, FAILED */
    REMOTE_READY,
    REMOTE_FAILED,
};

struct remote {
    struct loop *loop;
    struct remote_settings settings;
    char *folder, *text_value;
    struct remote_callbacks callbacks;
    void *arg;
    enum remote_state state;
    struct reach *reach;
    struct loop_timer *timer; /* of REACHING: shows the phase, or dials again; of STARTING: the deadline */
    char said[300];           /* the newest phase */
    int again;
    bool waits;               /* for the next try */
    char address[ADDRESS_HOST];
    struct exec *exec;
    struct script_facts facts;
    int parcel;               /* under way: enum part */
    struct push *push;
    struct road *road;        /* of STARTING: the program's standard output */
    bool road_stands, starts_head;
    char line[LINE_BYTES];
    size_t line_used;
    uint64_t deadline_ns;
};

static const char *host_name(const struct remote *remote)
{
    return remote->settings.host->name;
}

static uint64_t greet_ns(const struct remote *remote)
{
    return remote->settings.reach.greet_ns;
}

static void move_to(struct remote *remote, enum remote_state state)
{
    log_at(LOG_DEBUG, "launch", "host %s: %d → %d", host_name(remote), (int)remote->state, (int)state);
    remote->state = state;
}

static void say(struct remote *remote, const char *text)
{
    if (strcmp(remote->said, text) == 0)
        return;
    snprintf(remote->said, sizeof remote->said, "%s", text);
    remote->callbacks.phase(remote, text, remote->arg);
}

static void fail(struct remote *remote, int err, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void fail(struct remote *remote, int err, const char *format, ...)
{
    char reason[SESSION_REASON + 200];
    va_list arguments;
    if (remote->state == REMOTE_FAILED)
        return;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    move_to(remote, REMOTE_FAILED);
    loop_timer_unset(remote->timer);
    if (remote->road)
        road_want(remote->road, false, false);
    remote->callbacks.failed(remote, err, reason, remote->arg); /* may free us */
}

/* "host a" in front, unless the sentence names it already. */
static void fail_by_host(struct remote *remote, int err, const char *reason)
{
    size_t length = strlen(host_name(remote));
    if (strncmp(reason, host_name(remote), length) == 0 && reason[length] == ' ')
        fail(remote, err, "host %s", reason);
    else
        fail(remote, err, "host %s: %s", host_name(remote), reason);
}

/* ---- reaching ---- */

static void look(struct remote *remote);

static void drop_session(struct remote *remote)
{
    push_free(remote->push);
    exec_free(remote->exec);
    road_free(remote->road);
    reach_free(remote->reach);
    remote->push = NULL;
    remote->exec = NULL;
    remote->road = NULL;
    remote->reach = NULL;
}

static void on_up(struct reach *reach, void *arg)
{
    struct remote *remote = arg;
    snprintf(remote->address, sizeof remote->address, "%s", reach_host(reach));
    loop_timer_unset(remote->timer);
    look(remote);
}

/* What may come yet is tried again: a host that boots refuses, a road that broke while files travelled may be mended. */
static bool may_come_yet(const struct remote *remote, int err)
{
    if (remote->state == REMOTE_REACHING)
        return err == ERR_GONE && remote->again < REFUSED_MOST;
    return remote->state <= REMOTE_PUSHING && (err == ERR_GONE || err == ERR_TIMEOUT) && remote->again < AGAIN_MOST;
}

static void lost(struct remote *remote, int err, const char *reason)
{
    char text[300], pause[32];
    if (!may_come_yet(remote, err)) {
        fail_by_host(remote, err, reason);
        return;
    }
    uint64_t pause_ns = AGAIN_NS << remote->again++;
    snprintf(text, sizeof text, "not yet (%.200s): again in %s", reason, text_from_duration(pause_ns, pause, sizeof pause));
    move_to(remote, REMOTE_REACHING);
    say(remote, text);
    remote->waits = true;
    loop_timer_set(remote->timer, pause_ns); /* what broke is freed then */
}

static void on_down(struct reach *reach, int err, const char *reason, void *arg)
{
    struct remote *remote = arg;
    (void)reach;
    if (remote->state != REMOTE_READY && remote->state != REMOTE_FAILED && !remote->waits)
        lost(remote, err, reason);
}

static void on_ask(struct session *session, const struct session_question *question, void *arg)
{
    struct remote *remote = arg;
    remote->callbacks.ask(session, question, remote->arg);
}

static void begin_reaching(struct remote *remote)
{
    const struct reach_callbacks callbacks = {.up = on_up, .down = on_down, .ask = remote->callbacks.ask ? on_ask : NULL};
    struct why why = {0};
    remote->waits = false;
    drop_session(remote);
    remote->reach = reach_new(remote->loop, &remote->settings.reach, &callbacks, remote, &why);
    if (!remote->reach) {
        fail(remote, why.err, "host %s: %s", host_name(remote), why.text);
        return;
    }
    loop_timer_set(remote->timer, 200 * CLOCK_MS);
}

static void on_timer(void *arg)
{
    struct remote *remote = arg;
    char text[200], waited[32];
    if (remote->state == REMOTE_STARTING) {
        fail(remote, ERR_TIMEOUT, "host %s: %s was not ready within %s; see %s/log there", host_name(remote),
             remote->starts_head ? "kedged" : "the agent", text_from_duration(remote->deadline_ns, waited, sizeof waited),
             remote->facts.run);
    } else if (remote->waits) {
        begin_reaching(remote);
    } else if (remote->state == REMOTE_REACHING && remote->reach) {
        say(remote, reach_phase(remote->reach, text, sizeof text));
        loop_timer_set(remote->timer, 200 * CLOCK_MS);
    }
}

/* ---- looking ---- */

static void look_for_room(struct remote *remote);

static bool is_our_machine(const struct remote *remote)
{
#if defined(__x86_64__)
    return strcmp(remote->facts.machine, "x86_64") == 0;
#elif defined(__aarch64__)
    return strcmp(remote->facts.machine, "aarch64") == 0;
#else
    (void)remote;
    return true;
#endif
}

/* Whose run of this name is it that the host has? Nothing of it matters when nothing of it lives and we begin anew. */
static bool is_stranger(const struct remote *remote, struct why *why)
{
    const char *run = remote->settings.profile->name;
    const struct nonce nonce = nonce_read(remote->folder, host_name(remote));
    if (!nonce.word || remote->facts.nonce == nonce.word)
        return false;
    if (!remote->settings.agent) /* it is taken back, not begun */
        return why_set(why, ERR_REFUSED, "host %s is another machine than the one that '%s' was started on: was its address given away?",
                       host_name(remote), run);
    return remote->facts.old_living &&
           why_set(why, ERR_REFUSED, "host %s has %d processes of a run '%s' that was not started from here (pid %ld): take another run.name, "
                   "or 'kedge stop %.120s:%s' ends them if they are yours", host_name(remote), remote->facts.old_living, run,
                   remote->facts.old_pid, remote->settings.reach.destination, run);
}

static void on_looked(struct exec *exec, int err, const char *reason, void *arg)
{
    struct remote *remote = arg;
    struct why why = {0};
    char older[400];
    if (err) {
        if (remote->state != REMOTE_LOOKING) /* the session was lost before, and comes again */
            return;
        if (strstr(reason, "No space left") || strstr(reason, "quota exceeded"))
            fail(remote, ERR_FULL, "host %s: the disk is full: %s", host_name(remote), reason);
        else
            lost(remote, err, reason);
        return;
    }
    if (script_read_facts(exec_output(exec, NULL), &remote->facts, &why) != 0) {
        fail(remote, why.err, "host %s %s", host_name(remote), why.text);
    } else if (!is_our_machine(remote)) {
        fail(remote, ERR_INVALID, "host %s is a %s: the programs here do not run there", host_name(remote), remote->facts.machine);
    } else if (needed_is_more(remote->settings.glibc, remote->facts.glibc, older, sizeof older)) {
        fail(remote, ERR_INVALID, "host %s cannot run the programs: %s", host_name(remote), older);
    } else if (is_stranger(remote, &why)) {
        fail(remote, why.err, "%s", why.text);
    } else if (remote->facts.old_living) {
        fail(remote, ERR_REFUSED, "host %s has %d processes of an earlier start of '%s' (pid %ld): 'kedge stop %s' ends them",
             host_name(remote), remote->facts.old_living, remote->settings.profile->name, remote->facts.old_pid,
             remote->settings.profile->name);
    } else {
        const struct nonce nonce = nonce_read(remote->folder, host_name(remote));
        if (nonce.left && remote->facts.nonce != nonce.word)
            say(remote, "it is another machine than at the start before; what may be left on that one is not seen from here");
        remote->parcel = 0;
        look_for_room(remote);
    }
}

static void look(struct remote *remote)
{
    char *script = script_look(remote->settings.profile->name, host_name(remote), remote->settings.run_id);
    move_to(remote, REMOTE_LOOKING);
    say(remote, "looking");
    remote->exec = exec_run(reach_session(remote->reach), "looking at it", script, NULL, 0, FACTS_BYTES, 2 * greet_ns(remote),
                            on_looked, remote);
    mem_free(script);
}

/* ---- pushing ---- */

static void deliver(struct remote *remote);
static void next_parcel(struct remote *remote);

static const struct parcel *parcel_of(const struct remote *remote, int index)
{
    const struct parcel *parcels[PARTS] = {remote->settings.programs, remote->settings.text, remote->settings.checkpoint,
                                           remote->settings.adapter};
    return parcels[index];
}

static char *parcel_folder(const struct remote *remote, int index)
{
    return delivery_place(remote->facts.data, (enum part)index, parcel_of(remote, index));
}

static void on_push_progress(struct push *push, const char *text, void *arg)
{
    (void)push;
    say(arg, text);
}

static void on_pushed(struct push *push, int err, bool sent, const char *reason, void *arg)
{
    struct remote *remote = arg;
    (void)sent;
    if (err == ERR_GONE || err == ERR_TIMEOUT) {
        lost(remote, err, reason);
        return;
    }
    if (err) {
        fail_by_host(remote, err, reason);
        return;
    }
    remote->push = NULL;
    push_free(push);
    remote->again = 0;
    remote->parcel++;
    next_parcel(remote);
}

static void next_parcel(struct remote *remote)
{
    static const struct push_callbacks callbacks = {on_push_progress, on_pushed};
    const struct parcel *parcel = NULL;
    while (remote->parcel < PARTS && (!(parcel = parcel_of(remote, remote->parcel)) || !parcel->count))
        remote->parcel++;
    if (remote->parcel == PARTS) {
        deliver(remote);
        return;
    }
    char *folder = parcel_folder(remote, remote->parcel);
    char *programs = remote->parcel > PART_PROGRAMS ? parcel_folder(remote, PART_PROGRAMS) : NULL;
    move_to(remote, REMOTE_PUSHING);
    remote->push = push_new(remote->loop, reach_session(remote->reach), parcel, folder, programs, 2 * greet_ns(remote), &callbacks, remote);
    mem_free(folder);
    mem_free(programs);
}

static void on_room(struct exec *exec, int err, const char *reason, void *arg)
{
    struct remote *remote = arg;
    struct room room;
    struct why why = {0};
    if (remote->state != REMOTE_LOOKING) /* the session was lost before, and comes again */
        return;
    if (err)
        lost(remote, err, reason);
    else if (room_read(exec_output(exec, NULL), &room, &why) != 0)
        fail(remote, why.err, "host %s %s", host_name(remote), why.text);
    else if (room_check(remote->settings.host, &room, &why) != 0)
        fail(remote, why.err, "host %s: %s", host_name(remote), why.text);
    else
        next_parcel(remote);
}

/* Before the first byte: would what is to be sent go beyond the budget of its disk? */
static void look_for_room(struct remote *remote)
{
    const struct parcel *parcels[PARTS];
    if (!remote->settings.host->disk_budget) {
        next_parcel(remote);
        return;
    }
    for (int i = 0; i < PARTS; i++)
        parcels[i] = parcel_of(remote, i);
    char *room = room_script(parcels), *script = script_of_run(remote->settings.profile->name, room);
    say(remote, "looking for room on its disk");
    exec_free(remote->exec);
    remote->exec = exec_run(reach_session(remote->reach), "looking for room on its disk", script, NULL, 0, FACTS_BYTES,
                            4 * greet_ns(remote), on_room, remote);
    mem_free(script);
    mem_free(room);
}

/* ---- delivering ---- */

static void on_delivered(struct exec *exec, int err, const char *reason, void *arg)
{
    struct remote *remote = arg;
    struct why why = {0};
    (void)exec;
    if (err && strstr(reason, "No space left")) {
        fail(remote, ERR_FULL, "host %s: the disk is full: %s", host_name(remote), reason);
    } else if (err) {
        fail_by_host(remote, err, reason);
    } else if (nonce_set_left(remote->folder, host_name(remote), true, &why) != 0) { /* from here on something may live there */
        fail(remote, why.err, "host %s: %s", host_name(remote), why.text);
    } else {
        move_to(remote, REMOTE_PREPARED);
        say(remote, "prepared");
        remote->callbacks.prepared(remote, remote->arg);
    }
}

/* What is left of a former run of this name makes room; hosts that share a home folder do not tread on each other. The programs
 * are tried: a library that is missing is known now and not when the run forms. */
static void deliver(struct remote *remote)
{
    struct why why = {0};
    struct buf input;
    char *programs = parcel_folder(remote, PART_PROGRAMS);
    buf_init(&input, (size_t)4 << 20);
    move_to(remote, REMOTE_DELIVERING);
    say(remote, "delivering credentials");
    const struct delivery delivery = {
        .profile = remote->settings.profile,
        .folder = remote->folder,
        .host = host_name(remote),
        .data = remote->facts.data,
        .text_value = remote->text_value,
        .parcels = {parcel_of(remote, PART_PROGRAMS), parcel_of(remote, PART_TEXT), parcel_of(remote, PART_CHECKPOINT),
                    parcel_of(remote, PART_ADAPTER)},
        .head = remote->settings.head,
        .agent = remote->settings.agent,
    };
    if (delivery_collect(&delivery, &input, &why) != 0) {
        buf_clear(&input);
        mem_free(programs);
        fail(remote, why.err, "host %s: %s", host_name(remote), why.text);
        return;
    }
    char *body = mem_format(
        "B='%s'; LD_LIBRARY_PATH=$B/lib \"$B/kedge-worker\" --version >/dev/null || { echo 'the programs do not run there (it has %s)' >&2; exit 1; }; "
        "exec 8<\"$R\" || exit 1; flock -w 60 8 || exit 1; cd \"$R\" || exit 1; "
        "[ \"$(head -c 16 run.id 2>/dev/null)\" = %016" PRIx64 " ] || rm -rf creds paths@* checkpoint.1 resume; "
        "mkdir -p creds log && chmod 700 creds || exit 1; "
        "[ \"$(readlink bin)\" = \"$B\" ] || { ln -sfn \"$B\" bin.new && mv -fT bin.new bin; } || exit 1; "
        "while read -r n f; do head -c \"$n\" >\"$f.new\" && chmod 600 \"$f.new\" && [ \"$(wc -c <\"$f.new\")\" = \"$n\" ] && mv -f \"$f.new\" \"$f\" || "
        "{ rm -f \"$f.new\"; exit 5; }; done",
        programs, remote->facts.glibc[0] ? remote->facts.glibc : "an unknown C library", remote->settings.run_id);
    char *script = script_of_run(remote->settings.profile->name, body);
    exec_free(remote->exec);
    remote->exec = exec_run(reach_session(remote->reach), "delivering credentials", script, buf_peek(&input), buf_used(&input), 4096,
                            4 * greet_ns(remote), on_delivered, remote);
    explicit_bzero(input.data, input.capacity);
    buf_clear(&input);
    mem_free(script);
    mem_free(body);
    mem_free(programs);
}

/* ---- starting ---- */

static void take_line(struct remote *remote)
{
    char text[LINE_BYTES];
    bool head = remote->starts_head;
    remote->line[remote->line_used] = '\0';
    const char *behind = strchr(remote->line, ' ');
    behind = behind ? behind + 1 : "";
    text_harmless(behind, strlen(behind), text, sizeof text);
    road_free(remote->road);
    remote->road = NULL;
    loop_timer_unset(remote->timer);
    if (strncmp(remote->line, "ready", 5) == 0 && (remote->line[5] == ' ' || !remote->line[5])) {
        move_to(remote, head && remote->settings.agent ? REMOTE_PREPARED : REMOTE_READY);
        say(remote, head ? "kedged is ready" : "the agent is ready");
        remote->callbacks.started(remote, head, text, remote->arg);
    } else if (strncmp(remote->line, "error ", 6) == 0) {
        fail(remote, ERR_REFUSED, "host %s: %s: %s", host_name(remote), head ? "kedged" : "the agent", text);
    } else {
        fail(remote, ERR_INVALID, "host %s: %s said '%s' instead of being ready", host_name(remote), head ? "kedged" : "the agent",
             text_harmless(remote->line, remote->line_used, text, sizeof text));
    }
}

static void start_ended(struct remote *remote, const char *words)
{
    char errors[700];
    exec_errors(remote->road, errors, sizeof errors);
    fail(remote, ERR_GONE, "host %s: %s %s%s%s; its last words are in %s/log there", host_name(remote),
         remote->starts_head ? "kedged" : "the agent", *words ? "was not ready before the end of its output" : "ended",
         errors[0] ? ": " : "", errors, remote->facts.run);
}

static void on_road(void *arg)
{
    struct remote *remote = arg;
    struct why why = {0};
    uint8_t byte;
    ssize_t got = remote->road_stands ? 0 : road_start(remote->road, &why);
    if (got == ERR_AGAIN)
        return;
    if (got < 0) {
        fail(remote, (int)got, "host %s %s", host_name(remote), why.text);
        return;
    }
    remote->road_stands = true;
    while ((got = road_read(remote->road, &byte, 1, &why)) == 1) {
        if (byte == '\n' || remote->line_used == sizeof remote->line - 1) {
            take_line(remote);
            return;
        }
        remote->line[remote->line_used++] = (char)byte;
    }
    if (got == ERR_AGAIN)
        road_want(remote->road, true, false);
    else
        start_ended(remote, why.text);
}

/* In a session of its own, a grandchild of nobody; standard output stays ours for one line. */
static void start_program(struct remote *remote, const char *log, const char *words, uint64_t deadline_ns)
{
    char *body = mem_format(
        "cd \"$R\" || exit 1; ulimit -n \"$(ulimit -Hn)\" 2>/dev/null; ulimit -c 0; export R; "
        "KEDGE_RUN=%016" PRIx64 " LD_LIBRARY_PATH=\"$R/bin/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\" "
        "setsid /bin/sh -c '\"$R\"/bin/%s </dev/null 2>>\"$R/log/%s.log\" &'",
        remote->settings.run_id, words, log);
    char *script = script_of_run(remote->settings.profile->name, body);
    move_to(remote, REMOTE_STARTING);
    remote->deadline_ns = deadline_ns;
    remote->line_used = 0;
    remote->road_stands = false;
    remote->road = exec_road(reach_session(remote->reach), script, deadline_ns);
    road_on_ready(remote->road, on_road, remote);
    road_want(remote->road, true, false);
    loop_timer_set(remote->timer, deadline_ns);
    mem_free(script);
    mem_free(body);
}

void remote_start_head(struct remote *remote, uint64_t deadline_ns)
{
    BUG_IF(remote->state != REMOTE_PREPARED);
    remote->starts_head = true;
    say(remote, "starting kedged");
    start_program(remote, "kedged", "kedged --folder \"$R\"", deadline_ns);
}

void remote_start_agent(struct remote *remote, const char *head_address, uint64_t deadline_ns)
{
    const struct profile *profile = remote->settings.profile;
    char timeout[64] = "", fuse[32] = "", budget[32] = "", name[80];
    BUG_IF(remote->state != REMOTE_PREPARED);
    if (strspn(head_address, ADDRESS_LETTERS) != strlen(head_address)) { /* it goes into a shell, and may come from another host */
        fail(remote, ERR_INVALID, "host %s: '%.100s' is no address of a scheduler", host_name(remote), head_address);
        return;
    }
    remote->starts_head = false;
    profile_get(profile, "run.timeout", timeout, sizeof timeout, &(struct why){0});
    snprintf(name, sizeof name, "agent@%s", host_name(remote));
    bool fused = limits_fuse(profile, fuse, sizeof fuse);
    bool bounded = limits_disk_budget(remote->settings.host, budget, sizeof budget);
    char *words = mem_format("kedge-worker agent --folder \"$R\" --host %s --head %s --timeout %s%s%s%s%s%s%s", host_name(remote),
                             head_address, timeout, fused ? " --fuse " : "", fuse, bounded ? " --disk-budget " : "", budget,
                             profile->without_head == WITHOUT_STOP ? " --lease" : "",
                             profile->security == SECURITY_PLAIN ? " --plain" : "");
    say(remote, "starting the agent");
    start_program(remote, name, words, deadline_ns);
    mem_free(words);
}

bool remote_is_reached(const struct remote *remote)
{
    return remote->state != REMOTE_REACHING;
}

const char *remote_address(const struct remote *remote)
{
    return remote->address;
}

/* ---- life ---- */

struct remote *remote_new(struct loop *loop, const struct remote_settings *settings, const struct remote_callbacks *callbacks,
                          void *arg)
{
    struct remote *remote = mem_new(sizeof *remote);
    *remote = (struct remote){.loop = loop, .settings = *settings, .callbacks = *callbacks, .arg = arg};
    remote->folder = mem_text(settings->folder);
    remote->text_value = mem_text(settings->text_value ? settings->text_value : "@");
    remote->timer = loop_timer_new(loop, on_timer, remote);
    remote->waits = true;
    loop_timer_set(remote->timer, 0);
    return remote;
}

void remote_free(struct remote *remote)
{
    if (!remote)
        return;
    drop_session(remote);
    loop_timer_free(remote->timer);
    mem_free(remote->folder);
    mem_free(remote->text_value);
    mem_free(remote);
}
