/*
 * The end: stages are told to stop and say goodbye; then agents are told, who end what is left with force; then the run is
 * over. Each wait has a deadline, and what did not end in time is named in the reason: "stopped" is never said of processes
 * that may still run without saying so.
 */
#include <string.h>

#include "scheduler/run_state.h"
#include "ssh/base/clock.h"

/* Enough for an agent to send what it saw and to go. */
#define LAST_WORDS_NS (2 * CLOCK_SECOND)

static void tell_stop(struct run *run, const struct process *process)
{
    struct wire_stop stop = {.grace_ms = run->grace_ms};
    record_text(stop.reason, sizeof stop.reason, "%s", run->end_reason);
    run_send(run, process, WIRE_STOP, &stop);
}

static bool stage_is_gone(const struct run *run, const struct process *process)
{
    const struct process *agent = &run->processes.all[process->host];
    if (process->record->row.state == PROCESS_EXITED || !process->record->spawned)
        return true;
    /* Without its agent nobody can report the end; a goodbye is the next best thing. */
    return !agent->handle && !process->handle && process->said_bye;
}

static int stages_left(const struct run *run, const struct process **first)
{
    int left = 0;
    for (size_t i = run->processes.agents; i < run->processes.everybody; i++) {
        const struct process *process = &run->processes.all[i];
        if (stage_is_gone(run, process))
            continue;
        if (left++ == 0 && first)
            *first = process;
    }
    return left;
}

static int agents_left(const struct run *run, const struct process **first)
{
    int left = 0;
    for (size_t i = 0; i < run->processes.agents; i++) {
        const struct process *process = &run->processes.all[i];
        if (!process->handle)
            continue;
        if (left++ == 0 && first)
            *first = process;
    }
    return left;
}

static void tell_agents(struct run *run)
{
    run->ending = ENDING_AGENTS;
    run->since_ns = clock_now_ns();
    run->deadline_ns = run->since_ns + run->grace_ms * CLOCK_MS + run->timeouts.silent_ns + LAST_WORDS_NS;
    for (size_t i = 0; i < run->processes.agents; i++)
        tell_stop(run, &run->processes.all[i]);
}

static void be_over(struct run *run)
{
    const struct process *first = NULL;
    int stages = stages_left(run, &first), agents = agents_left(run, stages > 0 ? NULL : &first);
    char reason[WIRE_TEXT];
    run->ending = ENDING_OVER;
    knobs_end(run->knobs);
    record_text(reason, sizeof reason, "%s", run->end_reason);
    if (stages + agents > 0) {
        record_text(reason, sizeof reason, "%s; %s on host %s%s did not report its end and may still run there",
                    run->end_reason, first->record->row.process, first->record->row.host,
                    stages + agents > 1 ? " and others" : "");
        run_say(run, EVENT_ALERT, NULL, "left-over", "%s", reason);
    }
    if (run_phase(run) == PHASE_STOPPING)
        run_move(run, PHASE_STOPPED, reason);
    else
        run_set_reason(run, reason);
    run->record->state.over = 1;
    run->record->urgent = true;
}

/* Who is awaited; not for how long, so that it changes only with the news. */
static void say_awaited(struct run *run)
{
    const struct process *first = NULL;
    char reason[WIRE_TEXT];
    int left =
        run->ending == ENDING_WORKERS || stages_left(run, NULL) > 0 ? stages_left(run, &first) : agents_left(run, &first);
    if (left == 0)
        return;
    record_text(reason, sizeof reason, "%s%s; waits for %s on host %s%s to end", run->end_reason,
                run->ending == ENDING_WORKERS ? "" : "; what is left is killed", first->record->row.process,
                first->record->row.host, left > 1 ? " and others" : "");
    run_set_reason(run, reason);
}

void ending_begin(struct run *run, uint64_t grace_ns)
{
    run->ending = ENDING_WORKERS;
    record_text(run->end_reason, sizeof run->end_reason, "%s", run->record->state.row.reason);
    run->grace_ms = (uint32_t)(grace_ns / CLOCK_MS);
    run->since_ns = clock_now_ns();
    run->deadline_ns = run->since_ns + grace_ns;
    for (size_t i = run->processes.agents; i < run->processes.everybody; i++)
        tell_stop(run, &run->processes.all[i]);
    ending_advance(run);
}

void ending_hurry(struct run *run)
{
    if (run->ending == ENDING_OVER)
        return;
    run->grace_ms = 0;
    tell_agents(run);
    ending_advance(run);
}

void ending_advance(struct run *run)
{
    bool late = clock_now_ns() >= run->deadline_ns;
    if (run->ending == ENDING_WORKERS && (stages_left(run, NULL) == 0 || late)) {
        tell_agents(run);
        late = false;
    }
    if (run->ending == ENDING_AGENTS && ((stages_left(run, NULL) == 0 && agents_left(run, NULL) == 0) || late))
        be_over(run);
    else
        say_awaited(run);
}

void ending_welcome(struct run *run, const struct process *process)
{
    if (process->stage || process->is_anchor || run->ending == ENDING_AGENTS)
        tell_stop(run, process);
}
