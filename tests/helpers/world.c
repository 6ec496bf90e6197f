#include "tests/helpers/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/clock.h"

static const char *const names[] = {"agent@a", "agent@b", "r0s0", "r0s1"};
static const char *const hosts[] = {"a", "b", "a", "b"};

const char *world_name(int process)
{
    return names[process];
}

static void on_send(void *handle, enum wire_type type, const void *payload, void *arg)
{
    struct world *world = arg;
    const struct world_road *road = handle;
    if (world->sent_count == WORLD_SENT)
        fail_msg("more than %d messages", WORLD_SENT);
    const struct wire_message *message = wire_find((uint16_t)type);
    struct buf encoded;
    buf_init(&encoded, 1 << 20);
    assert_int_equal(wire_encode((uint16_t)type, payload, &encoded, NULL), 0);
    buf_clear(&encoded);
    world->sent[world->sent_count].process = road->process;
    world->sent[world->sent_count].type = type;
    memcpy(&world->sent[world->sent_count].payload, payload, message->struct_bytes);
    world->sent_count++;
}

static void on_close(void *handle, int err, const char *reason, void *arg)
{
    struct world_road *road = handle;
    (void)err, (void)arg;
    road->closed = true;
    snprintf(road->reason, sizeof road->reason, "%s", reason);
}

static uint64_t on_heard(void *handle, void *arg)
{
    (void)arg;
    return clock_now_ns() - ((struct world_road *)handle)->heard_ns;
}

static bool on_clock(void *handle, int64_t *offset_ns, uint64_t *rtt_ns, void *arg)
{
    (void)handle, (void)arg;
    *offset_ns = -300 * (int64_t)CLOCK_SECOND;
    *rtt_ns = 20 * CLOCK_MS;
    return true;
}

static void on_sample(const char *process, const struct wire_sample *sample, void *arg)
{
    (void)process, (void)sample;
    ((struct world *)arg)->samples++;
}

static void on_road_sample(const char *process, const struct wire_road_sample *sample, void *arg)
{
    (void)process, (void)sample;
    ((struct world *)arg)->road_samples++;
}

static int on_saved(const struct saving *saving, void *arg, struct why *why)
{
    struct world *world = arg;
    world->saved = *saving;
    world->saves++;
    return world->disk_full ? why_set(why, ERR_FULL, "no space left on device") : 0;
}

static const struct run_sink sink = {on_send, on_close, on_heard, on_clock, on_sample, on_road_sample, on_saved, NULL};

void world_init(struct world *world)
{
    memset(world, 0, sizeof *world);
    clock_own(5000 * CLOCK_SECOND);
    profile_defaults(&world->profile);
    snprintf(world->profile.name, sizeof world->profile.name, "laptop");
    world->profile.stages = 2;
    world->profile.steps = 100;
    assert_non_null(profile_add_host(&world->profile, "a", NULL));
    assert_non_null(profile_add_host(&world->profile, "b", NULL));
    struct why why = {0};
    if (plan_make_for(&world->profile, 4, &world->plan, &why) < 0)
        fail_msg("%s", why.text);
    for (int i = 0; i < WORLD_PROCESSES; i++)
        world->roads[i].process = i;
    world->record = record_new();
    world->run = run_new(&world->profile, &world->plan, WORLD_RUN, world->record, NULL, &sink, world);
}

void world_restart(struct world *world)
{
    run_free(world->run);
    world_forget(world);
    world->run = run_new(&world->profile, &world->plan, WORLD_RUN, world->record, NULL, &sink, world);
}

void world_clear(struct world *world)
{
    run_free(world->run);
    record_free(world->record);
    clock_disown();
}

struct wire_hello world_hello_of(int process)
{
    struct wire_hello hello = {.version = WIRE_VERSION, .role = process < WORLD_R0S0 ? ROLE_AGENT : ROLE_STAGE,
                               .program = "test", .pid = 1000u + (uint32_t)process};
    snprintf(hello.name, sizeof hello.name, "%s", names[process]);
    snprintf(hello.host, sizeof hello.host, "%s", hosts[process]);
    if (process >= WORLD_R0S0)
        snprintf(hello.announce, sizeof hello.announce, "127.0.0.1:%d", 7000 + process);
    return hello;
}

int world_hello_as(struct world *world, int process, struct wire_hello hello, uint32_t incarnation, struct why *why)
{
    struct world_road *road = &world->roads[process];
    road->heard_ns = clock_now_ns();
    int err = run_hello(world->run, road, &hello, incarnation, why);
    if (err == 0)
        run_welcome(world->run, road);
    return err;
}

int world_hello(struct world *world, int process, uint32_t incarnation, struct why *why)
{
    return world_hello_as(world, process, world_hello_of(process), incarnation, why);
}

int world_say(struct world *world, int process, enum wire_type type, const void *payload)
{
    struct why why = {0};
    int err = run_message(world->run, &world->roads[process], type, payload, &why);
    if (err < 0)
        fail_msg("%s", why.text);
    return err;
}

void world_started(struct world *world, int stage)
{
    struct wire_process report = {.incarnation = 1, .state = PROCESS_STARTED, .pid = 1000u + (uint32_t)stage};
    snprintf(report.process, sizeof report.process, "%s", names[stage]);
    world_say(world, stage - 2, WIRE_PROCESS, &report);
}

void world_exit(struct world *world, int stage, int exit_code, int signal)
{
    struct wire_process report = {
        .incarnation = 1, .state = PROCESS_EXITED, .pid = 1000u + (uint32_t)stage, .exit_code = exit_code, .signal = signal};
    snprintf(report.process, sizeof report.process, "%s", names[stage]);
    if (signal == 0 && exit_code != 0)
        snprintf(report.reason, sizeof report.reason, "no memory for 3 layers");
    world_say(world, stage - 2, WIRE_PROCESS, &report);
}

void world_ready(struct world *world, int stage, enum ready_state state)
{
    struct wire_ready ready = {.state = (uint8_t)state, .parameters = 1000, .memory_bytes = 1 << 20};
    world_say(world, stage, WIRE_READY, &ready);
}

void world_alert(struct world *world, int stage, const char *code, const char *text)
{
    struct wire_event event = {.level = EVENT_ALERT, .step = 3};
    snprintf(event.code, sizeof event.code, "%s", code);
    snprintf(event.text, sizeof event.text, "%s", text);
    world_say(world, stage, WIRE_EVENT, &event);
}

void world_gone(struct world *world, int process, int err)
{
    run_gone(world->run, &world->roads[process], err, err ? "closed the connection" : "said goodbye");
}

void world_sample(struct world *world, int stage, enum stamp_kind kind, uint64_t step, double loss)
{
    struct wire_sample sample = {.step = step,
                                 .kind = (uint8_t)kind,
                                 .loss = loss,
                                 .gradient_norm = 1.5,
                                 .tokens = 1000,
                                 .step_ns = CLOCK_SECOND / 2,
                                 .compute_ns = CLOCK_SECOND / 4,
                                 .wait_grad_ns = CLOCK_SECOND / 8,
                                 .memory_bytes = 2 << 20};
    world_say(world, stage, WIRE_SAMPLE, &sample);
}

void world_pass(struct world *world, double seconds)
{
    for (int quarters = (int)(seconds * 4); quarters > 0; quarters--) {
        clock_advance_ns(CLOCK_SECOND / 4);
        for (int i = 0; i < WORLD_PROCESSES; i++)
            world->roads[i].heard_ns = clock_now_ns();
        run_tick(world->run);
    }
}

void world_form_agents(struct world *world)
{
    assert_int_equal(world_hello(world, WORLD_AGENT_A, 1, NULL), 0);
    assert_int_equal(world_hello(world, WORLD_AGENT_B, 1, NULL), 0);
}

void world_form(struct world *world)
{
    world_form_agents(world);
    for (int stage = WORLD_R0S0; stage <= WORLD_R0S1; stage++) {
        world_started(world, stage);
        assert_int_equal(world_hello(world, stage, 1, NULL), 0);
    }
    for (int stage = WORLD_R0S0; stage <= WORLD_R0S1; stage++)
        world_ready(world, stage, READY_LOADED);
    for (int stage = WORLD_R0S0; stage <= WORLD_R0S1; stage++)
        world_ready(world, stage, READY_ROADS);
    assert_int_equal(world_phase(world), PHASE_TRAINING);
}

int world_newest(const struct world *world, int process, enum wire_type type)
{
    for (int i = (int)world->sent_count - 1; i >= 0; i--)
        if (world->sent[i].process == process && world->sent[i].type == type)
            return i;
    return -1;
}

int world_count(const struct world *world, int process, enum wire_type type)
{
    int count = 0;
    for (size_t i = 0; i < world->sent_count; i++)
        count += world->sent[i].process == process && world->sent[i].type == type;
    return count;
}

void world_forget(struct world *world)
{
    world->sent_count = 0;
}

const char *world_reason(const struct world *world)
{
    return world->record->state.row.reason;
}

int world_phase(const struct world *world)
{
    return world->record->state.row.phase;
}

int world_event(const struct world *world, const char *code, const char *words)
{
    for (uint64_t id = world->record->newest_event; id > 0; id--) {
        const struct record_event *event = record_find_event(world->record, id);
        if (event && strcmp(event->row.code, code) == 0 && strstr(event->row.text, words))
            return event->row.level;
    }
    return -1;
}

struct wire_reply world_order(struct world *world, enum order_kind kind, const char *name, const char *value)
{
    struct wire_order order = {.kind = (uint8_t)kind, .request = 7, .who = "anna@home"};
    struct wire_reply reply;
    snprintf(order.name, sizeof order.name, "%s", name);
    snprintf(order.value, sizeof order.value, "%s", value);
    run_order(world->run, &order, &reply);
    assert_int_equal(reply.request, 7);
    return reply;
}
