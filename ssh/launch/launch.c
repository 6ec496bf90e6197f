#include "ssh/launch/launch.h"

#include <inttypes.h>
#include <string.h>

#include "profiles/timeouts.h"
#include "ssh/base/mem.h"
#include "ssh/launch/prepare.h"
#include "ssh/launch/runs.h"
#include "ssh/launch/start.h"
#include "ssh/wire/wire.h"

struct launch_program { /* kedged, or the agent of one host */
    struct launch *launch;
    char name[WIRE_NAME + 8];
    const char *host; /* "" for kedged */
    enum launch_state state;
    struct start *start;
};

struct launch {
    struct loop *loop;
    const struct profile *profile;
    char folder[RUNS_PATH], mark[32], address[128];
    uint64_t deadline_ns;
    struct launch_callbacks callbacks;
    void *arg;
    struct launch_program head;
    struct launch_program *agents; /* one per host */
    int64_t agent_count;
    bool failed;
    char reason[700];
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

static void check_done(struct launch *launch)
{
    bool waiting = launch->head.state == LAUNCH_STARTING;
    for (int64_t i = 0; i < launch->agent_count; i++) {
        enum launch_state state = launch->agents[i].state;
        waiting |= state == LAUNCH_STARTING || (state == LAUNCH_WAITING && !launch->failed);
    }
    if (!waiting)
        launch->callbacks.done(launch->failed ? ERR_GONE : 0, launch->reason, launch->arg); /* may free `launch` */
}

static void on_agent(int err, const char *text, void *arg)
{
    struct launch_program *program = arg;
    move_to(program, err ? LAUNCH_FAILED : LAUNCH_READY, text);
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
        move_to(program, LAUNCH_FAILED, why->text);
    return program->start ? 0 : why->err;
}

static void start_agent(struct launch_program *program)
{
    struct why why = {0};
    struct launch *launch = program->launch;
    char worker[RUNS_PATH], timeout[64];
    if (prepare_sibling("kedge-worker", worker, sizeof worker, &why) != 0 ||
        profile_get(launch->profile, "run.timeout", timeout, sizeof timeout, &why) != 0) {
        move_to(program, LAUNCH_FAILED, why.text);
        return;
    }
    /* An agent reads no profile: what it must know before anybody can tell it stands here. */
    const char *const argv[] = {worker, "agent", "--folder", launch->folder, "--host", program->host, "--head", launch->address,
                                "--timeout", timeout, launch->profile->security == SECURITY_PLAIN ? "--plain" : NULL, NULL};
    start_program(program, argv, on_agent, &why);
}

static void on_head(int err, const char *text, void *arg)
{
    struct launch_program *head = arg;
    struct launch *launch = head->launch;
    if (!err)
        snprintf(launch->address, sizeof launch->address, "%s", text);
    move_to(head, err ? LAUNCH_FAILED : LAUNCH_READY, text);
    for (int64_t i = 0; i < launch->agent_count && !err; i++)
        start_agent(&launch->agents[i]);
    check_done(launch);
}

struct launch *launch_new(struct loop *loop, const struct profile *profile, const char *folder, uint64_t run_id,
                          bool only_head, const struct launch_callbacks *callbacks, void *arg, struct why *why)
{
    char kedged[RUNS_PATH];
    if (prepare_sibling("kedged", kedged, sizeof kedged, why) != 0)
        return NULL;
    struct launch *launch = mem_new(sizeof *launch);
    struct timeouts timeouts = timeouts_derive(profile->timeout_ns);
    launch->loop = loop;
    launch->profile = profile;
    launch->callbacks = *callbacks;
    launch->arg = arg;
    launch->deadline_ns = 2 * timeouts.greet_ns;
    snprintf(launch->folder, sizeof launch->folder, "%s", folder);
    snprintf(launch->mark, sizeof launch->mark, "%016" PRIx64, run_id);
    launch->head.launch = launch;
    launch->head.host = "";
    snprintf(launch->head.name, sizeof launch->head.name, "kedged");
    launch->agent_count = only_head ? 0 : profile->host_count;
    launch->agents = mem_array((size_t)launch->agent_count + 1, sizeof *launch->agents);
    for (int64_t i = 0; i < launch->agent_count; i++) {
        launch->agents[i].launch = launch;
        launch->agents[i].host = profile->hosts[i].name;
        snprintf(launch->agents[i].name, sizeof launch->agents[i].name, "agent@%s", profile->hosts[i].name);
    }
    const char *const argv[] = {kedged, "--folder", launch->folder, NULL};
    if (start_program(&launch->head, argv, on_head, why) != 0) {
        launch_free(launch);
        return NULL;
    }
    return launch;
}

void launch_free(struct launch *launch)
{
    if (!launch)
        return;
    start_free(launch->head.start);
    for (int64_t i = 0; i < launch->agent_count; i++)
        start_free(launch->agents[i].start);
    mem_free(launch->agents);
    mem_free(launch);
}
