#include "tests/helpers/trio.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/clock.h"

struct trio trio;

int trio_stage_at(int replica, int stage)
{
    return TRIO_AGENTS + replica * TRIO_STAGES + stage;
}

const char *trio_name_of(int process)
{
    static char name[16];
    if (process < TRIO_AGENTS)
        snprintf(name, sizeof name, "agent@%c", 'a' + process);
    else
        snprintf(name, sizeof name, "r%ds%d", (process - TRIO_AGENTS) / TRIO_STAGES, (process - TRIO_AGENTS) % TRIO_STAGES);
    return name;
}

int trio_host_of(int process)
{
    return process < TRIO_AGENTS ? process : trio.plan.stages[process - TRIO_AGENTS].host;
}

static void on_send(void *handle, enum wire_type type, const void *payload, void *arg)
{
    size_t bytes = wire_find((uint16_t)type)->struct_bytes;
    struct trio_sent *at = &trio.sent[trio.sent_count];
    (void)arg;
    assert_true(trio.sent_count < TRIO_SENT);
    at->process = *(int *)handle;
    at->type = type;
    if (bytes <= sizeof at->of)
        memcpy(&at->of, payload, bytes);
    trio.sent_count++;
}

static void on_close(void *handle, int err, const char *reason, void *arg)
{
    (void)handle, (void)err, (void)arg;
    fail_msg("a road is closed: %s", reason);
}

static uint64_t on_heard(void *handle, void *arg)
{
    (void)handle, (void)arg;
    return 0;
}

static bool on_clock(void *handle, int64_t *offset_ns, uint64_t *rtt_ns, void *arg)
{
    (void)handle, (void)offset_ns, (void)rtt_ns, (void)arg;
    return false;
}

static void on_sample(const char *process, const struct wire_sample *sample, void *arg)
{
    (void)process, (void)sample, (void)arg;
}

static void on_road_sample(const char *process, const struct wire_road_sample *sample, void *arg)
{
    (void)process, (void)sample, (void)arg;
}

static int on_saved(const struct saving *saving, void *arg, struct why *why)
{
    (void)arg, (void)why;
    trio.newest_set = *saving;
    trio.sets++;
    return 0;
}

const struct run_sink trio_sink = {on_send, on_close, on_heard, on_clock, on_sample, on_road_sample, on_saved, NULL};

void trio_say(int process, enum wire_type type, const void *payload)
{
    struct why why = {0};
    if (run_message(trio.run, &trio.handles[process], type, payload, &why) < 0)
        fail_msg("%s: %s", trio_name_of(process), why.text);
}

void trio_hello(int process)
{
    struct wire_hello hello = {.version = WIRE_VERSION, .role = process < TRIO_AGENTS ? ROLE_AGENT : ROLE_STAGE,
                               .program = "test",
                               .announce = "127.0.0.1:7000", .pid = 1000u + (uint32_t)process};
    struct why why = {0};
    snprintf(hello.name, sizeof hello.name, "%s", trio_name_of(process));
    snprintf(hello.host, sizeof hello.host, "%c", 'a' + trio_host_of(process));
    if (run_hello(trio.run, &trio.handles[process], &hello, trio.life[process], &why) < 0)
        fail_msg("%s", why.text);
    run_welcome(trio.run, &trio.handles[process]);
}

void trio_begin(void)
{
    struct why why = {0};
    assert_int_equal(plan_make_for(&trio.profile, 4, &trio.plan, &why), 0);
    trio.record = record_new();
    trio.run = run_new(&trio.profile, &trio.plan, 7, trio.record, NULL, &trio_sink, NULL);
    trio.sets = 0;
    for (int i = 0; i < TRIO_ALL; i++) {
        trio.handles[i] = i;
        trio.life[i] = 1;
        trio_hello(i);
    }
    for (int state = READY_LOADED; state <= READY_ROADS; state++)
        for (int i = TRIO_AGENTS; i < TRIO_ALL; i++)
            trio_say(i, WIRE_READY, &(struct wire_ready){.state = (uint8_t)state});
    assert_int_equal(trio.record->state.row.phase, PHASE_TRAINING);
    trio.sent_count = 0;
}

int trio_up(void **state)
{
    (void)state;
    clock_own(5000 * CLOCK_SECOND);
    profile_defaults(&trio.profile);
    snprintf(trio.profile.name, sizeof trio.profile.name, "laptop");
    trio.profile.stages = TRIO_STAGES;
    trio.profile.replicas = TRIO_REPLICAS;
    trio.profile.rejoin = false;
    assert_non_null(profile_add_host(&trio.profile, "a", NULL));
    assert_non_null(profile_add_host(&trio.profile, "b", NULL));
    trio_begin();
    return 0;
}

int trio_down(void **state)
{
    (void)state;
    run_free(trio.run);
    record_free(trio.record);
    clock_disown();
    return 0;
}

void trio_pass(double seconds)
{
    for (int i = 0; i < (int)(4 * seconds); i++) {
        clock_advance_ns(CLOCK_SECOND / 4);
        run_tick(trio.run);
    }
}

void trio_killed(int process)
{
    struct wire_process report = {.incarnation = trio.life[process], .state = PROCESS_EXITED, .exit_code = -1, .signal = SIGKILL};
    snprintf(report.process, sizeof report.process, "%s", trio_name_of(process));
    run_gone(trio.run, &trio.handles[process], ERR_GONE, "the connection was closed");
    trio_say(trio_host_of(process), WIRE_PROCESS, &report);
}

void trio_parted(int replica, int stage, int from, uint64_t received, bool decided)
{
    trio_say(trio_stage_at(replica, stage), WIRE_PARTED,
        &(struct wire_parted){.replica = (uint16_t)from, .life = trio.life[trio_stage_at(from, 0)], .received = received, .decided = decided});
}

int trio_count(int process, enum wire_type type)
{
    int found = 0;
    for (int i = 0; i < trio.sent_count; i++)
        found += trio.sent[i].process == process && trio.sent[i].type == type;
    return found;
}

int trio_newest(int process, enum wire_type type)
{
    int found = -1;
    for (int i = 0; i < trio.sent_count; i++)
        found = trio.sent[i].process == process && trio.sent[i].type == type ? i : found;
    return found;
}

void trio_lost(int replica, int stage, int other)
{
    trio_say(trio_stage_at(replica, stage), WIRE_PART, &(struct wire_part){.replica = (uint16_t)other});
}

uint64_t trio_leave_to(int process, int replica)
{
    uint64_t found = UINT64_MAX;
    for (int i = 0; i < trio.sent_count; i++)
        if (trio.sent[i].process == process && trio.sent[i].type == WIRE_LEAVE && trio.sent[i].of.leave.replica == replica)
            found = trio.sent[i].of.leave.count;
    return found;
}

bool trio_happened(const char *code, const char *words)
{
    for (int i = 0; i < RECORD_EVENTS; i++)
        if (strcmp(trio.record->events[i].row.code, code) == 0 && strstr(trio.record->events[i].row.text, words))
            return true;
    return false;
}

int trio_up_rejoin(void **state)
{
    trio_up(state);
    run_free(trio.run);
    record_free(trio.record);
    trio.profile.rejoin = true;
    trio_begin();
    return 0;
}
