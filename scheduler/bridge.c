#include "scheduler/bridge.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "profiles/timeouts.h"
#include "scheduler/folder.h"
#include "scheduler/journal.h"
#include "scheduler/viewers.h"
#include "ssh/base/buf.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/base/version.h"
#include "ssh/link/link.h"
#include "ssh/link/loop.h"
#include "ssh/link/road.h"

#define PIPE_BYTES (64 * 1024)
#define FLUSH_NS CLOCK_SECOND

/* ---- joined: bytes go both ways, as they are ---- */

struct joint;

struct side { /* what came from `road` waits in `bytes` for the other side */
    struct joint *joint;
    struct side *other;
    struct road *road;
    struct buf bytes;
    bool stands, ended;
};

struct joint {
    struct loop *loop;
    struct side console, kedged;
    struct loop_timer *flush; /* armed when one side has ended */
    struct why *why;
};

static int read_side(struct side *side)
{
    struct why own = {0};
    while (!side->ended && buf_used(&side->bytes) < PIPE_BYTES) {
        uint8_t *room = buf_reserve(&side->bytes, 4096);
        if (!room)
            return 0;
        ssize_t got = road_read(side->road, room, 4096, &own);
        if (got == ERR_AGAIN)
            return 0;
        if (got < 0)
            return (int)got;
        buf_commit(&side->bytes, (size_t)got);
    }
    return 0;
}

static int write_side(struct side *side, struct buf *bytes)
{
    struct why own = {0};
    while (buf_used(bytes) > 0) {
        ssize_t put = road_write(side->road, buf_peek(bytes), buf_used(bytes), &own);
        if (put == ERR_AGAIN)
            return 0;
        if (put < 0)
            return (int)put;
        buf_consume(bytes, (size_t)put);
    }
    return 0;
}

static void end_side(struct side *side)
{
    if (!side->ended)
        loop_timer_set(side->joint->flush, FLUSH_NS); /* the other side gets what is still under way */
    side->ended = true;
}

static void pump(struct side *side)
{
    if (read_side(side) < 0)
        end_side(side);
    if (side->other->stands && write_side(side->other, &side->bytes) < 0)
        loop_stop(side->joint->loop);
    if (side->ended && buf_used(&side->bytes) == 0)
        loop_stop(side->joint->loop);
}

static void on_ready(void *arg)
{
    struct side *side = arg;
    struct why own = {0};
    struct joint *joint = side->joint;
    if (!side->stands) {
        int err = road_start(side->road, &own);
        if (err == ERR_AGAIN)
            return;
        if (err < 0) {
            why_set(joint->why, err, "%s", own.text);
            loop_stop(joint->loop);
            return;
        }
        side->stands = true;
    }
    struct side *sides[] = {&joint->console, &joint->kedged};
    for (size_t i = 0; i < 2; i++)
        if (sides[i]->stands)
            pump(sides[i]);
    for (size_t i = 0; i < 2; i++)
        road_want(sides[i]->road, !sides[i]->ended && buf_used(&sides[i]->bytes) < PIPE_BYTES,
                  !sides[i]->stands || buf_used(&sides[i]->other->bytes) > 0);
}

static void on_flushed(void *arg)
{
    loop_stop(arg);
}

static void begin_side(struct side *side, struct joint *joint, struct side *other, struct road *road)
{
    *side = (struct side){.joint = joint, .other = other, .road = road};
    buf_init(&side->bytes, PIPE_BYTES + 4096);
    road_on_ready(road, on_ready, side);
}

static int join(struct loop *loop, struct road *console, struct road *kedged, struct why *why)
{
    struct joint joint = {.loop = loop, .why = why};
    joint.flush = loop_timer_new(loop, on_flushed, loop);
    begin_side(&joint.console, &joint, &joint.kedged, console);
    begin_side(&joint.kedged, &joint, &joint.console, kedged);
    on_ready(&joint.console);
    on_ready(&joint.kedged);
    if (!why->err)
        loop_run(loop);
    buf_clear(&joint.console.bytes);
    buf_clear(&joint.kedged.bytes);
    road_free(console);
    road_free(kedged);
    loop_timer_free(joint.flush);
    return why->err;
}

/* ---- recorded: the journal's last state, in the same language ---- */

struct past {
    struct loop *loop;
    struct loop_timer *tick;
    struct viewers *viewers;
    struct record *record;
};

static void refuse_order(const struct wire_order *order, struct wire_reply *reply, void *arg)
{
    const struct past *past = arg;
    const struct wire_run_state *state = &past->record->state.row;
    *reply = (struct wire_reply){.request = order->request, .err = ERR_GONE};
    record_text(reply->text, sizeof reply->text, "no kedged is running for %s; it was %s at step %llu", state->run,
                wire_phase_name(state->phase), (unsigned long long)state->step);
}

static void on_tick(void *arg)
{
    struct past *past = arg;
    record_touch(past->record, &past->record->state.version); /* a follower hears from us once a tick */
    viewers_tick(past->viewers);
    loop_timer_set(past->tick, CLOCK_SECOND);
    if (viewers_count(past->viewers) == 0)
        loop_stop(past->loop);
}

/* What was true when it was written is old now, and a run whose scheduler was killed has no news at all. */
static void age(struct record *record)
{
    uint64_t now_ms = clock_wall_ms(), then_ms = record->state.wall_ms;
    uint64_t passed_ns = now_ms > then_ms ? (now_ms - then_ms) * CLOCK_MS : 0;
    for (size_t i = 0; i < record->process_count; i++) {
        uint64_t *heard = &record->processes[i].row.heard_ns_ago;
        *heard = *heard == UINT64_MAX ? *heard : *heard + passed_ns;
    }
    for (size_t i = 0; i < record->road_count; i++)
        record->roads[i].row.bytes_per_second = (double)NAN;
    if (record->state.over)
        return;
    struct wire_run_state *state = &record->state.row;
    char reason[WIRE_TEXT], since[32];
    text_from_duration(passed_ns, since, sizeof since);
    record_text(reason, sizeof reason,
                "kedged is not running (last word %s ago, the run was %s%s%s); its processes may train on: "
                "'kedge attach %s' schedules them again, 'kedge stop %s' ends them",
                since, wire_phase_name(state->phase), state->reason[0] ? ": " : "", state->reason, state->run, state->run);
    record_text(state->reason, sizeof state->reason, "%s", reason);
    state->tokens_per_second = (double)NAN;
}

static int serve_past(const char *folder, const struct profile *profile, struct loop *loop, struct road *console,
                      struct why *why)
{
    struct past past = {.loop = loop, .record = record_new()};
    struct timeouts timeouts = timeouts_derive(profile->timeout_ns);
    int err = journal_read(folder, past.record, why);
    if (err < 0)
        goto free_road;
    age(past.record);
    struct link_settings settings = {
        .run_id = past.record->state.row.run_id,
        .incarnation = 1,
        .hello = {.version = WIRE_VERSION, .role = ROLE_SCHEDULER, .program = "kedged " KEDGE_VERSION WIRE_RECORD, .name = "kedged",
                  .host = "kedged", .pid = (uint32_t)getpid()},
        .heartbeat_ns = timeouts.heartbeat_ns,
        .silent_ns = timeouts.silent_ns,
        .greet_ns = timeouts.greet_ns,
        .queue_max_bytes = 4 * 1024 * 1024,
    };
    past.viewers = viewers_new(loop, past.record, &settings, refuse_order, &past);
    past.tick = loop_timer_new(loop, on_tick, &past);
    viewers_add(past.viewers, console);
    console = NULL;
    loop_timer_set(past.tick, CLOCK_SECOND);
    loop_run(loop);
    loop_timer_free(past.tick);
    viewers_free(past.viewers);
free_road:
    if (console)
        road_free(console);
    record_free(past.record);
    return err;
}

int bridge_run(const char *folder, struct why *why)
{
    char path[FOLDER_PATH];
    struct why own = {0};
    struct profile *profile = mem_new(sizeof *profile);
    struct loop *loop = loop_new(why);
    if (!loop) {
        mem_free(profile);
        return why->err;
    }
    signal(SIGPIPE, SIG_IGN);
    profile_defaults(profile);
    folder_read_profile(folder, profile, NULL); /* only for the deadlines: the defaults do as well */
    struct road *console = road_fd(loop, STDIN_FILENO, STDOUT_FILENO, "bridge");
    snprintf(path, sizeof path, "%s/kedged.sock", folder);
    struct road *kedged = road_unix_dial(loop, path, &own);
    int err;
    if (kedged && road_start(kedged, &own) == 0) {
        err = join(loop, console, kedged, why);
    } else {
        if (kedged)
            road_free(kedged);
        err = serve_past(folder, profile, loop, console, why);
    }
    loop_free(loop);
    mem_free(profile);
    return err;
}
