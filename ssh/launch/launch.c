#include "ssh/launch/launch.h"

#include <inttypes.h>
#include <string.h>

#include "profiles/timeouts.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/launch/limits.h"
#include "ssh/launch/needed.h"
#include "ssh/launch/parcel.h"
#include "ssh/launch/prepare.h"
#include "ssh/launch/remote.h"
#include "ssh/launch/runs.h"
#include "ssh/launch/start.h"
#include "ssh/link/address.h"
#include "ssh/session/alias.h"
#include "ssh/wire/wire.h"

struct launch_program { /* kedged, or the agent of one host */
    struct launch *launch;
    char name[WIRE_NAME + 8];
    const char *host; /* "" for kedged */
    enum launch_state state;
    struct start *start;   /* on this machine */
    struct remote *remote; /* over SSH; kedged's, too, belongs to the agent of its host */
    bool prepared;
};

struct launch {
    struct loop *loop;
    const struct profile *profile;
    char folder[RUNS_PATH], mark[32];
    char address[160], near_address[160]; /* kedged's, for others and for its own machine */
    uint64_t run_id, deadline_ns, began_ns;
    struct loop_timer *patience;          /* with hosts that do not even answer: then kedged is started without them */
    struct launch_options options;
    struct launch_callbacks callbacks;
    void *arg;
    struct launch_program head;
    struct launch_program *agents; /* one per host */
    int64_t agent_count;
    int64_t head_index;            /* of the host where kedged runs; −1 = this machine */
    bool touched[PROFILE_HOSTS];
    struct parcel programs, text, checkpoint, adapter;
    char text_value[64];
    unsigned glibc;                /* that the programs need */
    bool failed, over;
    int err;
    char reason[SESSION_REASON + 200];
};

/* The only place where a state changes. */
static void move_to(struct launch_program *program, enum launch_state state, const char *text)
{
    struct launch *launch = program->launch;
    program->state = state;
    if (state == LAUNCH_FAILED && !launch->failed) {
        launch->failed = true;
        snprintf(launch->reason, sizeof launch->reason, "%s", text);
    }
    if (launch->callbacks.changed)
        launch->callbacks.changed(program->name, state, text, launch->arg);
}

static bool is_remote(const struct launch *launch, int64_t index)
{
    return launch->profile->hosts[index].kind == HOST_SSH;
}

static void check_done(struct launch *launch)
{
    bool waiting = launch->head.state == LAUNCH_STARTING;
    for (int64_t i = 0; i < launch->agent_count; i++) {
        enum launch_state state = launch->agents[i].state;
        waiting |= state == LAUNCH_STARTING || (state < LAUNCH_STARTING && !launch->failed && !launch->options.only_head);
    }
    waiting |= launch->head.state < LAUNCH_STARTING && !launch->failed;
    if (waiting || launch->over)
        return;
    launch->over = true;
    launch->callbacks.done(launch->failed ? launch->err : 0, launch->reason, launch->arg); /* may free `launch` */
}

static void fail_program(struct launch_program *program, int err, const char *text)
{
    if (!program->launch->failed)
        program->launch->err = err == ERR_REFUSED || err == ERR_FULL || err == ERR_INVALID ? err : ERR_GONE;
    move_to(program, LAUNCH_FAILED, text);
}

/* ---- on this machine ---- */

static void on_agent(int err, const char *text, void *arg)
{
    struct launch_program *program = arg;
    if (err)
        fail_program(program, ERR_GONE, text);
    else
        move_to(program, LAUNCH_READY, text);
    check_done(program->launch);
}

static int start_program(struct launch_program *program, const char *const *argv, start_cb *done, struct why *why)
{
    struct launch *launch = program->launch;
    char log[RUNS_PATH + 128];
    snprintf(log, sizeof log, "%s/log/%s.log", launch->folder, program->name);
    move_to(program, LAUNCH_STARTING, "");
    program->start = start_new(launch->loop, argv, launch->mark, log, launch->deadline_ns, done, program, why);
    if (!program->start)
        fail_program(program, ERR_GONE, why->text);
    return program->start ? 0 : why->err;
}

static void start_here(struct launch_program *program, const char *address)
{
    struct why why = {0};
    struct launch *launch = program->launch;
    char worker[RUNS_PATH], timeout[64], fuse[32], budget[32];
    if (prepare_sibling("kedge-worker", worker, sizeof worker, &why) != 0 ||
        profile_get(launch->profile, "run.timeout", timeout, sizeof timeout, &why) != 0) {
        fail_program(program, ERR_GONE, why.text);
        return;
    }
    /* An agent reads no profile: what it must know before anybody can tell it stands here. */
    const char *argv[20] = {worker, "agent", "--folder", launch->folder, "--host", program->host, "--head", address, "--timeout",
                            timeout};
    int count = 10;
    if (limits_fuse(launch->profile, fuse, sizeof fuse)) {
        argv[count++] = "--fuse";
        argv[count++] = fuse;
    }
    if (limits_disk_budget(&launch->profile->hosts[program - launch->agents], budget, sizeof budget)) {
        argv[count++] = "--disk-budget";
        argv[count++] = budget;
    }
    if (launch->profile->without_head == WITHOUT_STOP)
        argv[count++] = "--lease";
    if (launch->profile->security == SECURITY_PLAIN)
        argv[count++] = "--plain";
    start_program(program, argv, on_agent, &why);
}

/* ---- who reaches whom ---- */

static bool is_wildcard(const char *address)
{
    return strncmp(address, "0.0.0.0:", 8) == 0 || strncmp(address, "[::]:", 5) == 0;
}

static bool is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strncmp(host, "[::1]", 5) == 0 || strcmp(host, "::1") == 0 ||
           strncmp(host, "localhost", 9) == 0;
}

static void join(const char *host, const char *port, char out[160])
{
    bool bare = strchr(host, ':') && host[0] != '[';
    snprintf(out, 160, bare ? "[%.120s]%s" : "%.120s%s", host, port);
}

/* From what kedged says it listens on to how its own machine and all others dial it. */
static int set_addresses(struct launch *launch, const char *text, struct why *why)
{
    const char *said = launch->profile->announce, *port = strrchr(text, ':');
    if (!port || strlen(text) >= sizeof launch->address)
        return why_set(why, ERR_INVALID, "kedged is ready at '%.100s', which is no address", text);
    snprintf(launch->near_address, sizeof launch->near_address, "%s%s", is_wildcard(text) ? "127.0.0.1" : text,
             is_wildcard(text) ? port : "");
    bool bare = *said && (said[strlen(said) - 1] == ']' || !strchr(said, ':'));
    if (bare)
        join(said, port, launch->address);
    else if (*said)
        snprintf(launch->address, sizeof launch->address, "%s", said);
    else if (!is_wildcard(text))
        snprintf(launch->address, sizeof launch->address, "%s", text);
    else if (launch->head_index >= 0)
        join(remote_address(launch->agents[launch->head_index].remote), port, launch->address);
    else
        launch->address[0] = '\0';
    return 0;
}

static const char *address_for(const struct launch *launch, int64_t index)
{
    bool near = launch->head_index >= 0 ? index == launch->head_index : !is_remote(launch, index);
    return near ? launch->near_address : launch->address;
}

/* Said before an agent tries in vain. */
static bool refuse_unreachable(struct launch_program *program, const char *address)
{
    struct launch *launch = program->launch;
    char text[600];
    if (!*address)
        snprintf(text, sizeof text, "host %s: nobody knows how it reaches the scheduler: run.listen takes all addresses of this machine; "
                 "set run.announce to the one that hosts can dial, or run.head to one of the hosts", program->host);
    else if (is_loopback(address) && address != launch->near_address && program->remote &&
             !is_loopback(remote_address(program->remote)))
        snprintf(text, sizeof text, "host %s cannot reach the scheduler at %s, which is a place inside its own machine: set run.listen to "
                 "0.0.0.0:PORT and run.announce to the name that hosts can dial, or run.head to one of the hosts", program->host,
                 address);
    else
        return false;
    fail_program(program, ERR_INVALID, text);
    return true;
}

/* Whoever can start is started. */
static void advance(struct launch *launch)
{
    for (int64_t i = 0; i < launch->agent_count && launch->near_address[0] && !launch->options.only_head; i++) {
        struct launch_program *program = &launch->agents[i];
        const char *address = address_for(launch, i);
        if (launch->failed || program->state >= LAUNCH_STARTING || (is_remote(launch, i) && !program->prepared) ||
            refuse_unreachable(program, address))
            continue;
        launch->touched[i] = true;
        if (!is_remote(launch, i)) {
            start_here(program, address);
            continue;
        }
        move_to(program, LAUNCH_STARTING, "");
        remote_start_agent(program->remote, address, launch->deadline_ns);
    }
    check_done(launch);
}

static void on_head(int err, const char *text, void *arg)
{
    struct launch_program *head = arg;
    struct launch *launch = head->launch;
    struct why why = {0};
    if (!err)
        err = set_addresses(launch, text, &why);
    if (err)
        fail_program(head, ERR_GONE, why.err ? why.text : text);
    else
        move_to(head, LAUNCH_READY, text);
    advance(launch);
}

/* ---- over SSH ---- */

static struct launch_program *program_of(struct remote *remote, void *arg)
{
    struct launch *launch = arg;
    for (int64_t i = 0; i < launch->agent_count; i++)
        if (launch->agents[i].remote == remote)
            return &launch->agents[i];
    BUG("a host over SSH belongs to no launch");
}

static void on_remote_phase(struct remote *remote, const char *text, void *arg)
{
    struct launch_program *program = program_of(remote, arg);
    if (program->state <= LAUNCH_PREPARING)
        move_to(program, LAUNCH_PREPARING, text);
}

/* Once kedged is there, the others have its deadlines to come; files may need hours. So it waits for all hosts, but not for one that
 * does not even answer: that one is told of, and delays nobody, after a quarter of the time that it has. */
static bool may_start_head(const struct launch *launch)
{
    bool patient = clock_now_ns() - launch->began_ns < launch->deadline_ns / 8;
    for (int64_t i = 0; i < launch->agent_count; i++) {
        const struct launch_program *program = &launch->agents[i];
        if (program->remote && !program->prepared && (i == launch->head_index || patient || remote_is_reached(program->remote)))
            return false;
    }
    return true;
}

static int start_head_here(struct launch *launch, struct why *why)
{
    char kedged[RUNS_PATH];
    if (prepare_sibling("kedged", kedged, sizeof kedged, why) != 0) {
        fail_program(&launch->head, ERR_GONE, why->text);
        return why->err;
    }
    const char *const argv[] = {kedged, "--folder", launch->folder, NULL};
    return start_program(&launch->head, argv, on_head, why);
}

static void start_head(struct launch *launch)
{
    if (launch->failed || launch->head.state != LAUNCH_WAITING || !may_start_head(launch))
        return;
    loop_timer_unset(launch->patience);
    if (launch->head_index < 0) {
        start_head_here(launch, &(struct why){0}); /* a failure is told by the program's state */
    } else {
        launch->touched[launch->head_index] = true;
        move_to(&launch->head, LAUNCH_STARTING, "");
        remote_start_head(launch->agents[launch->head_index].remote, launch->deadline_ns);
    }
}

static void on_patience(void *arg)
{
    start_head(arg);
    check_done(arg);
}

static void on_remote_prepared(struct remote *remote, void *arg)
{
    struct launch *launch = arg;
    program_of(remote, arg)->prepared = true;
    start_head(launch);
    advance(launch);
}

static void on_remote_started(struct remote *remote, bool head, const char *text, void *arg)
{
    struct launch *launch = arg;
    if (head)
        on_head(0, text, &launch->head);
    else
        on_agent(0, text, program_of(remote, arg));
}

static void on_remote_failed(struct remote *remote, int err, const char *reason, void *arg)
{
    struct launch *launch = arg;
    struct launch_program *program = program_of(remote, arg);
    if (launch->head.state == LAUNCH_STARTING && launch->head_index >= 0 && program == &launch->agents[launch->head_index])
        fail_program(&launch->head, err, reason);
    fail_program(program, err, reason);
    check_done(launch);
}

static void on_remote_ask(struct session *session, const struct session_question *question, void *arg)
{
    struct launch *launch = arg;
    launch->callbacks.ask(session, question, launch->arg);
}

static int pack(struct launch *launch, struct why *why)
{
    const struct profile *profile = launch->profile;
    int err = parcel_programs(&launch->programs, why);
    launch->glibc = needed_glibc(&launch->programs);
    if (!err && !launch->options.only_head)
        err = parcel_text(profile, &launch->text, launch->text_value, sizeof launch->text_value, why);
    if (!err && !launch->options.only_head && profile->model_path[0])
        err = parcel_checkpoint(profile, &launch->checkpoint, why);
    if (!err && !launch->options.only_head && profile->lora_path[0])
        err = parcel_adapter(profile, &launch->adapter, why);
    struct parcel *parcels[] = {&launch->programs, &launch->text, &launch->checkpoint, &launch->adapter};
    for (size_t i = 0; i < sizeof parcels / sizeof *parcels && !err; i++)
        if (parcels[i]->count)
            err = parcel_pack(parcels[i], launch->folder, why);
    return err;
}

static void begin_remote(struct launch *launch, int64_t index)
{
    const struct remote_callbacks callbacks = {on_remote_phase, on_remote_prepared, on_remote_started, on_remote_failed,
                                               launch->callbacks.ask ? on_remote_ask : NULL};
    struct remote_settings settings = {
        .profile = launch->profile,
        .host = &launch->profile->hosts[index],
        .folder = launch->folder,
        .run_id = launch->run_id,
        .head = index == launch->head_index,
        .agent = !launch->options.only_head,
        .programs = &launch->programs,
        .text = &launch->text,
        .checkpoint = &launch->checkpoint,
        .adapter = &launch->adapter,
        .text_value = launch->text_value,
        .glibc = launch->glibc,
    };
    settings.reach.accept_new = launch->options.accept_new;
    runs_known_hosts(settings.reach.save, sizeof settings.reach.save);
    reach_of_host(launch->profile, settings.host, &settings.reach);
    launch->agents[index].remote = remote_new(launch->loop, &settings, &callbacks, launch);
}

/* ---- before anything ---- */

static bool listens_alone(const struct profile_host *host)
{
    return is_loopback(host->listen) && !host->announce[0];
}

static int resolve_host(struct profile *profile, struct profile_host *host, struct why *why)
{
    char name[96];
    struct alias *alias = mem_new(sizeof *alias);
    struct why own = {0};
    int err = alias_resolve(host->ssh[0] ? host->ssh : host->name, NULL, alias, &own);
    bool near = !err && is_loopback(alias->host) && !alias->jump_count;
    snprintf(name, sizeof name, "host.%s.announce", host->name);
    if (err)
        why_set(why, err, "host %s: %s", host->name, own.text);
    else if (listens_alone(host) && profile->host_count > 1 && !near)
        err = why_set(why, ERR_INVALID, "host %s: listen = %s can be reached from inside that host alone; write listen = 0.0.0.0:0, "
                      "or the port that is mapped and announce = HOST:PORT", host->name, host->listen);
    else if (is_wildcard(host->listen) && !host->announce[0] && alias->jump_count && profile->host_count > 1)
        err = why_set(why, ERR_INVALID, "host %s is reached through %s, so its name there may mean nothing to the other hosts: write "
                      "announce = HOST, as they reach it", host->name, alias->jumps[alias->jump_count - 1]);
    else if (is_wildcard(host->listen) && !host->announce[0] && !strchr(alias->host, ':'))
        err = profile_set(profile, name, alias->host, why);
    mem_free(alias);
    return err;
}

int launch_resolve(struct profile *profile, struct why *why)
{
    int err = 0;
    for (int64_t i = 0; i < profile->host_count && !err; i++)
        if (profile->hosts[i].kind == HOST_SSH && (is_wildcard(profile->hosts[i].listen) || listens_alone(&profile->hosts[i])))
            err = resolve_host(profile, &profile->hosts[i], why);
    return err;
}

/* ---- life ---- */

static struct launch *make(struct loop *loop, const struct profile *profile, const char *folder, uint64_t run_id,
                           const struct launch_options *options, const struct launch_callbacks *callbacks, void *arg)
{
    struct launch *launch = mem_new(sizeof *launch);
    struct timeouts timeouts = timeouts_derive(profile->timeout_ns);
    launch->loop = loop;
    launch->profile = profile;
    launch->callbacks = *callbacks;
    launch->arg = arg;
    launch->run_id = run_id;
    launch->options = *options;
    launch->deadline_ns = 2 * timeouts.greet_ns;
    launch->began_ns = clock_now_ns();
    launch->patience = loop_timer_new(loop, on_patience, launch);
    launch->head_index = -1;
    snprintf(launch->folder, sizeof launch->folder, "%s", folder);
    snprintf(launch->mark, sizeof launch->mark, "%016" PRIx64, run_id);
    launch->head.launch = launch;
    launch->head.host = "";
    snprintf(launch->head.name, sizeof launch->head.name, "kedged");
    launch->agent_count = profile->host_count;
    launch->agents = mem_array((size_t)launch->agent_count + 1, sizeof *launch->agents);
    for (int64_t i = 0; i < launch->agent_count; i++) {
        launch->agents[i].launch = launch;
        launch->agents[i].host = profile->hosts[i].name;
        snprintf(launch->agents[i].name, sizeof launch->agents[i].name, "agent@%s", profile->hosts[i].name);
        if (&profile->hosts[i] == profile_head(profile))
            launch->head_index = i;
    }
    return launch;
}

struct launch *launch_new(struct loop *loop, const struct profile *profile, const char *folder, uint64_t run_id,
                          const struct launch_options *options, const struct launch_callbacks *callbacks, void *arg,
                          struct why *why)
{
    struct launch *launch = make(loop, profile, folder, run_id, options, callbacks, arg);
    bool any = false;
    int err = 0;
    for (int64_t i = 0; i < launch->agent_count; i++)
        any |= is_remote(launch, i) && (!options->only_head || i == launch->head_index);
    if (any)
        err = pack(launch, why);
    for (int64_t i = 0; i < launch->agent_count && !err; i++)
        if (is_remote(launch, i) && (!options->only_head || i == launch->head_index))
            begin_remote(launch, i);
    if (!err && !any)
        err = start_head_here(launch, why);
    else
        loop_timer_set(launch->patience, launch->deadline_ns / 8);
    if (err) {
        launch_free(launch);
        return NULL;
    }
    return launch;
}

const bool *launch_touched(const struct launch *launch)
{
    return launch->touched;
}

void launch_free(struct launch *launch)
{
    if (!launch)
        return;
    start_free(launch->head.start);
    loop_timer_free(launch->patience);
    for (int64_t i = 0; i < launch->agent_count; i++) {
        start_free(launch->agents[i].start);
        remote_free(launch->agents[i].remote);
    }
    parcel_clear(&launch->programs);
    parcel_clear(&launch->text);
    parcel_clear(&launch->checkpoint);
    parcel_clear(&launch->adapter);
    mem_free(launch->agents);
    mem_free(launch);
}
