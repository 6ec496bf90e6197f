/*
 * Forming: agents → processes → layers → roads → START. forming_advance looks at what stands and does all that can be done
 * next, so the order in which news arrives does not matter; forming_deadline says who is awaited, and ends the run when
 * patience is over.
 */
#include <stdio.h>
#include <string.h>

#include "scheduler/run_state.h"
#include "ssh/base/clock.h"
#include "ssh/base/text.h"

enum awaited { AWAIT_AGENTS, AWAIT_HELLO, AWAIT_LOADED, AWAIT_ROADS, AWAIT_NOTHING };

static bool agent_is_needed(const struct run *run, size_t agent)
{
    for (int i = 0; i < run->plan.stage_count; i++)
        if ((size_t)run->plan.stages[i].host == agent)
            return true;
    return false;
}

/* What one process still lacks before the run can go on. */
static enum awaited process_awaits(const struct run *run, const struct process *process)
{
    if (!process->stage)
        return !process->handle && agent_is_needed(run, (size_t)process->host) ? AWAIT_AGENTS : AWAIT_NOTHING;
    if (!process->handle)
        return AWAIT_HELLO;
    if (process->record->ready == 0)
        return AWAIT_LOADED;
    return process->record->ready >= READY_ROADS ? AWAIT_NOTHING : AWAIT_ROADS;
}

/* The earliest thing that is missing, and by how many; `first` is one of them. */
static enum awaited awaited_now(const struct run *run, const struct process **first, int *count)
{
    enum awaited earliest = AWAIT_NOTHING;
    for (size_t i = 0; i < run->processes.count; i++) {
        const struct process *process = &run->processes.all[i];
        enum awaited awaits = process_awaits(run, process);
        if (awaits < earliest) {
            earliest = awaits;
            *first = process;
            *count = 0;
        }
        *count += awaits == earliest;
    }
    return earliest;
}

void forming_spawn(struct run *run, struct process *process)
{
    const struct profile_host *host = &run->profile.hosts[process->host];
    struct wire_spawn spawn = {.role = ROLE_STAGE, .incarnation = process->record->row.incarnation};
    record_text(spawn.process, sizeof spawn.process, "%s", process->record->row.process);
    process_address(&run->processes, process, host->listen, spawn.listen, sizeof spawn.listen);
    process_address(&run->processes, process, host->announce, spawn.announce, sizeof spawn.announce);
    process->record->spawned = 1;
    record_touch(run->record, &process->record->version);
    run->record->urgent = true;
    run_send(run, processes_agent(&run->processes, process), WIRE_SPAWN, &spawn);
}

void forming_assign(struct run *run, struct process *process)
{
    const struct plan_stage *stage = process->stage;
    struct buf settings;
    struct why why = {0};
    buf_init(&settings, 64 * 1024);
    if (profile_to_settings(knobs_profile(run->knobs), &settings, &why) < 0)
        BUG("settings of the profile: %s", why.text);
    struct wire_assign message = {
        .replica = (uint16_t)stage->replica,
        .replicas = (uint16_t)run->plan.replicas,
        .stage = (uint16_t)stage->stage,
        .stages = (uint16_t)run->plan.stages_per_replica,
        .first_layer = (uint16_t)stage->first_layer,
        .layers = (uint16_t)stage->layers,
        .in_flight = (uint16_t)stage->in_flight,
        .threads = (uint16_t)stage->threads,
        .uplink_bps = stage->uplink_bps,
        .first_step = run->record->state.row.step + 1,
        .members = joining_members(run),
        .settings = {.data = buf_peek(&settings), .bytes = (uint32_t)buf_used(&settings)},
    };
    const struct saving *saving = &run->saving;
    bool member = message.members >> stage->replica & 1; /* one that joins copies what the others have */
    if (member && saving->complete && saving->step + 1 == message.first_step && saving->has[stage - run->plan.stages]) {
        message.resume_bytes = saving->files[stage - run->plan.stages].bytes;
        message.resume_hash = saving->files[stage - run->plan.stages].hash;
    }
    run_send(run, process, WIRE_ASSIGN, &message);
    buf_clear(&settings);
    process->assigned = true;
}

/* One cut or two siblings: the earlier one dials, the later one waits. */
static void tell_road(struct run *run, const struct plan_road *road)
{
    struct process *upstream = processes_stage(&run->processes, road->from);
    struct process *downstream = processes_stage(&run->processes, road->to);
    struct wire_road dial = {.dial = 1, .side = road->sibling ? ROAD_SIBLING : ROAD_DOWNSTREAM,
                             .replica = (uint16_t)downstream->stage->replica, .life = downstream->record->row.incarnation},
                     wait = {.dial = 0, .side = road->sibling ? ROAD_SIBLING : ROAD_UPSTREAM,
                             .replica = (uint16_t)upstream->stage->replica, .life = upstream->record->row.incarnation};
    record_text(dial.peer, sizeof dial.peer, "%s", downstream->record->row.process);
    record_text(dial.address, sizeof dial.address, "%s", downstream->record->announce);
    record_text(wait.peer, sizeof wait.peer, "%s", upstream->record->row.process);
    run_send(run, downstream, WIRE_ROAD, &wait);
    run_send(run, upstream, WIRE_ROAD, &dial);
}

/* Of a replica that has left only when it comes back. */
static bool may_have_roads(const struct run *run, const struct process *process)
{
    int replica = process->stage->replica;
    return process->handle && process->record->ready >= READY_LOADED &&
           (!leaving_has_left(run, replica) || joining_is_under_way(run, replica));
}

void forming_tell_roads(struct run *run)
{
    for (int i = 0; i < run->plan.road_count; i++) {
        const struct plan_road *road = &run->plan.roads[i];
        struct process *from = processes_stage(&run->processes, road->from),
                       *to = processes_stage(&run->processes, road->to);
        if (!may_have_roads(run, from) || !may_have_roads(run, to) || run->road_told[i])
            continue;
        if (!to->record->announce[0]) {
            char reason[WIRE_TEXT];
            record_text(reason, sizeof reason,
                        "%s on host %s says no address where %s could reach it; set listen in [host %s]",
                        to->record->row.process, to->record->row.host, from->record->row.process, to->record->row.host);
            if (run_phase(run) != PHASE_FORMING) {
                joining_failed(run, to->stage->replica, reason);
                return;
            }
            run_move(run, PHASE_STOPPING, reason);
            ending_begin(run, run->timeouts.grace_ns);
            return;
        }
        run->road_told[i] = true;
        tell_road(run, road);
    }
}

void forming_advance(struct run *run)
{
    const struct process *first = NULL;
    int count = 0;
    enum awaited awaited = awaited_now(run, &first, &count);
    if (awaited == AWAIT_AGENTS)
        return;
    for (int i = 0; i < run->plan.stage_count; i++) {
        struct process *process = processes_stage(&run->processes, i);
        if (!process->record->spawned) {
            forming_spawn(run, process);
            run->since_ns = clock_now_ns();
            run->deadline_ns = run->since_ns + run->timeouts.form_ns;
        }
        if (process->handle && !process->assigned && process->record->ready == 0)
            forming_assign(run, process);
    }
    forming_tell_roads(run);
    if (awaited == AWAIT_NOTHING && run_phase(run) == PHASE_FORMING) {
        run_move(run, PHASE_TRAINING, "");
        run_send_start(run, NULL);
        run_send_knobs(run);
    }
}

static const char *const wishes[] = {
    [AWAIT_AGENTS] = "say hello",
    [AWAIT_HELLO] = "start and say hello",
    [AWAIT_LOADED] = "load its layers",
    [AWAIT_ROADS] = "have its roads",
    [AWAIT_NOTHING] = "",
};

static void describe(const struct process *process, char *out, size_t size)
{
    const struct wire_process_row *row = &process->record->row;
    if (process->stage)
        record_text(out, size, "%s on host %s", row->process, row->host);
    else
        record_text(out, size, "%s", row->process); /* the host is in the name */
}

void forming_deadline(struct run *run)
{
    uint64_t now_ns = clock_now_ns();
    const struct process *first = NULL;
    int count = 0;
    enum awaited awaited = awaited_now(run, &first, &count);
    if (awaited == AWAIT_NOTHING)
        return;
    char who[WIRE_TEXT], others[32] = "", passed[32], patience[32], sentence[WIRE_TEXT];
    describe(first, who, sizeof who);
    if (count > 1)
        snprintf(others, sizeof others, " (and %d more)", count - 1);
    text_from_duration(run->deadline_ns - run->since_ns, patience, sizeof patience);
    if (now_ns < run->deadline_ns) {
        text_from_duration(now_ns - run->since_ns, passed, sizeof passed);
        record_text(sentence, sizeof sentence, "waits for %s%s to %s, %s of %s", who, others, wishes[awaited], passed,
                    patience);
        run_set_reason(run, sentence);
        return;
    }
    record_text(sentence, sizeof sentence, "%s%s did not %s within %s; log/%s.log in the run's folder may tell why", who,
                others, wishes[awaited], patience, first->record->row.process);
    run_move(run, PHASE_STOPPING, sentence);
    ending_begin(run, run->timeouts.grace_ns);
}

void forming_waiting(const struct run *run, const struct process *process, char *out, size_t size)
{
    const struct process *first = NULL;
    int count = 0;
    enum awaited awaited = awaited_now(run, &first, &count), own = process_awaits(run, process);
    char passed[32], patience[32];
    text_from_duration(clock_now_ns() - run->since_ns, passed, sizeof passed);
    text_from_duration(run->deadline_ns - run->since_ns, patience, sizeof patience);
    out[0] = '\0';
    if (!process->stage && own == AWAIT_NOTHING)
        return;
    if (process->stage && (awaited < own || own == AWAIT_NOTHING) && first)
        record_text(out, size, "waits for %s to %s, %s of %s", first->record->row.process, wishes[awaited], passed,
                    patience);
    else
        record_text(out, size, "has yet to %s, %s of %s", wishes[own], passed, patience);
}
