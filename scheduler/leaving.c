/* See leaving.h. */
#include "scheduler/leaving.h"

#include <inttypes.h>
#include <signal.h>

#include "scheduler/run_state.h"
#include "ssh/base/clock.h"

bool leaving_has_left(const struct run *run, int replica)
{
    return run->leaving.replicas[replica].left;
}

int leaving_lowest(const struct run *run)
{
    int lowest = 0;
    while (lowest + 1 < run->plan.replicas && run->leaving.replicas[lowest].left)
        lowest++;
    return lowest;
}

int leaving_count(const struct run *run)
{
    int count = 0;
    for (int r = 0; r < run->plan.replicas; r++)
        count += !run->leaving.replicas[r].left;
    return count;
}

static struct process *process_of(struct run *run, int replica, int stage)
{
    return processes_stage(&run->processes, replica * run->plan.stages_per_replica + stage);
}

uint32_t leaving_life(const struct run *run, int replica)
{
    const struct process *first = &run->processes.all[run->processes.agents + (size_t)(replica * run->plan.stages_per_replica)];
    return first->record->row.incarnation;
}

static void tell_leave(struct run *run, const struct process *process, int replica, uint32_t life, uint64_t count)
{
    struct wire_leave leave = {.replica = (uint16_t)replica, .life = life, .count = count};
    run_send(run, process, WIRE_LEAVE, &leave);
}

/* ---- who is asked, and what is made of the answers ---- */

static void decide(struct run *run, int stage, int replica)
{
    uint32_t awaited = 0;
    for (int r = 0; r < run->plan.replicas; r++)
        awaited |= run->leaving.replicas[r].left ? 0 : 1u << r;
    if (awaited & ~run->leaving.stages[stage][replica].answered)
        return;
    run->leaving.stages[stage][replica].decided = true;
    for (int r = 0; r < run->plan.replicas; r++)
        if (!run->leaving.replicas[r].left)
            tell_leave(run, process_of(run, r, stage), replica, leaving_life(run, replica), run->leaving.stages[stage][replica].least);
}

int leaving_parted(struct run *run, struct process *process, const void *payload, struct why *why)
{
    const struct wire_parted *parted = payload;
    int stage = process->stage->stage;
    if (parted->replica >= run->plan.replicas || parted->life > leaving_life(run, parted->replica))
        return why_set(why, ERR_INVALID, "%s parts from replica %u, which nobody asked for", process->record->row.process,
                       parted->replica);
    if (leaving_has_left(run, process->stage->replica) || !run->leaving.replicas[parted->replica].left ||
        joining_is_under_way(run, parted->replica) || parted->life < leaving_life(run, parted->replica))
        return 0; /* of a life that is decided */
    uint32_t *answered = &run->leaving.stages[stage][parted->replica].answered, bit = 1u << process->stage->replica;
    uint64_t *least = &run->leaving.stages[stage][parted->replica].least;
    if (run->leaving.stages[stage][parted->replica].decided) {
        tell_leave(run, process, parted->replica, parted->life, *least);
        return 0;
    }
    if (parted->decided || !*answered || parted->received < *least)
        *least = parted->received; /* one that was decided by a former kedged is the least of all */
    *answered |= bit;
    decide(run, stage, parted->replica);
    return 0;
}

static void tell_part(struct run *run, const struct process *process, int replica)
{
    run_send(run, process, WIRE_PART, &(struct wire_part){.replica = (uint16_t)replica, .life = leaving_life(run, replica)});
}

void leaving_welcome(struct run *run, struct process *process)
{
    if (leaving_has_left(run, process->stage->replica))
        return;
    for (int r = 0; r < run->plan.replicas; r++) {
        if (r == process->stage->replica)
            continue; /* its own former life is not its business */
        if (run->leaving.stages[process->stage->stage][r].former) /* the word of it may have been lost with the road */
            tell_leave(run, process, r, run->leaving.stages[process->stage->stage][r].former,
                       run->leaving.stages[process->stage->stage][r].former_least);
        if (run->leaving.replicas[r].left && !joining_is_under_way(run, r))
            tell_part(run, process, r);
    }
}

/* ---- leaving ---- */

void leaving_kill(struct run *run, int replica)
{
    for (int s = 0; s < run->plan.stages_per_replica; s++) {
        struct process *process = process_of(run, replica, s);
        struct wire_signal order = {.incarnation = process->record->row.incarnation, .signal = SIGKILL};
        record_text(order.process, sizeof order.process, "%s", process->record->row.process);
        if (process->record->row.state != PROCESS_EXITED)
            run_send(run, processes_agent(&run->processes, process), WIRE_SIGNAL, &order);
    }
}

static void mark(struct run *run, int replica)
{
    run->leaving.replicas[replica].left = true;
    numbers_leave(run->numbers, replica);
    knobs_leave(run->knobs, replica);
}

bool leaving_is_possible(const struct run *run)
{
    enum run_phase phase = run_phase(run);
    bool trains = phase == PHASE_TRAINING || (phase == PHASE_HOLDING && run->record->state.cause == CAUSE_ORDER);
    return trains && leaving_count(run) > 1 && !plan_averages_gradients(&run->profile);
}

bool leaving_broken(struct run *run, int replica, const char *reason)
{
    if (!run->leaving.replicas[replica].left && !leaving_is_possible(run))
        return false;
    if (!run->leaving.replicas[replica].broken_ns) {
        run->leaving.replicas[replica].broken_ns = clock_now_ns();
        record_text(run->leaving.replicas[replica].broken, WIRE_TEXT, "%s", reason);
    }
    return true;
}

void leaving_part(struct run *run, int replica)
{
    run->record->urgent = true;
    leaving_kill(run, replica);
    for (int s = 0; s < run->plan.stages_per_replica; s++)
        for (int r = 0; r < run->plan.replicas; r++) {
            if (!run->leaving.replicas[r].left)
                tell_part(run, process_of(run, r, s), replica);
            if (run->leaving.replicas[r].left && r != replica && !joining_is_under_way(run, r) && !run->leaving.stages[s][r].decided)
                decide(run, s, r); /* the one that has just left is not waited for any more */
        }
}

void leaving_renew(struct run *run, int replica)
{
    for (int s = 0; s < run->plan.stages_per_replica; s++) {
        run->leaving.stages[s][replica].former = leaving_life(run, replica);
        run->leaving.stages[s][replica].former_least = run->leaving.stages[s][replica].least;
        run->leaving.stages[s][replica].answered = 0;
        run->leaving.stages[s][replica].decided = false;
    }
    run->leaving.replicas[replica].lost_by = 0;
    run->leaving.replicas[replica].lost_ns = run->leaving.replicas[replica].broken_ns = 0;
}

static bool leave(struct run *run, int replica, enum event_level level, const char *reason)
{
    if (run->leaving.replicas[replica].left)
        return true;
    if (!leaving_is_possible(run))
        return false;
    mark(run, replica);
    run_say(run, level, NULL, "replica-left", "replica %d leaves the run: %s; %d of %d replicas go on", replica,
            reason, leaving_count(run), run->plan.replicas);
    leaving_part(run, replica);
    run_check_done(run);
    return true;
}

bool leaving_begin(struct run *run, int replica, const char *reason)
{
    return leave(run, replica, EVENT_ALERT, reason);
}

bool leaving_ordered(struct run *run, int replica, const char *reason)
{
    return leave(run, replica, EVENT_INFO, reason);
}

/* ---- a partition: roads are lost while both ends live. One side leaves, the other goes on; never two histories ---- */

int leaving_lost(struct run *run, struct process *process, const void *payload, struct why *why)
{
    const struct wire_part *part = payload;
    if (part->replica >= run->plan.replicas || part->replica == process->stage->replica)
        return why_set(why, ERR_INVALID, "%s lost replica %u, which is no sibling of it", process->record->row.process,
                       part->replica);
    int of = part->replica, by = process->stage->replica;
    if (joining_is_under_way(run, by)) { /* of the two the one that joins has lost the other */
        of = by;
        by = part->replica;
    }
    if ((run->leaving.replicas[of].left && !joining_is_under_way(run, of)) || leaving_has_left(run, by))
        return 0;
    run->leaving.replicas[of].lost_by |= 1u << by;
    if (!run->leaving.replicas[of].lost_ns)
        run->leaving.replicas[of].lost_ns = clock_now_ns();
    return 0;
}

static int bits(uint32_t set)
{
    int count = 0;
    for (; set; set &= set - 1)
        count++;
    return count;
}

static void tick_broken(struct run *run)
{
    for (int r = 0; r < run->plan.replicas; r++) {
        const uint64_t broken_ns = run->leaving.replicas[r].broken_ns;
        if (run->leaving.replicas[r].left || !broken_ns || clock_now_ns() - broken_ns < run->timeouts.silent_ns)
            continue;
        run->leaving.replicas[r].broken_ns = 0;
        if (!leaving_begin(run, r, run->leaving.replicas[r].broken))
            run_hold(run, CAUSE_ROAD, run->leaving.replicas[r].broken);
    }
}

void leaving_tick(struct run *run)
{
    int worst = -1;
    uint64_t now_ns = clock_now_ns();
    if (run->ending == ENDING_NOT && run_phase(run) != PHASE_FORMING)
        tick_broken(run);
    for (int r = 0; r < run->plan.replicas; r++) {
        const uint64_t lost_ns = run->leaving.replicas[r].lost_ns;
        if (run->leaving.replicas[r].left || !lost_ns || now_ns - lost_ns < run->timeouts.silent_ns)
            continue; /* its agent may tell more */
        if (worst < 0 || bits(run->leaving.replicas[r].lost_by) >= bits(run->leaving.replicas[worst].lost_by))
            worst = r;
    }
    if (worst < 0)
        return;
    char reason[WIRE_TEXT];
    record_text(reason, sizeof reason, "%d of its siblings lost their roads to it",
                bits(run->leaving.replicas[worst].lost_by));
    if (!leaving_begin(run, worst, reason))
        return;
    for (int r = 0; r < run->plan.replicas; r++) { /* what the others said of each other was about it, or is said again */
        run->leaving.replicas[r].lost_by &= ~(1u << worst);
        if (!run->leaving.replicas[r].lost_by)
            run->leaving.replicas[r].lost_ns = 0;
    }
}

void leaving_adopt(struct run *run)
{
    if (plan_averages_gradients(&run->profile) || (run_phase(run) != PHASE_TRAINING && run_phase(run) != PHASE_HOLDING))
        return;
    for (int i = 0; i < run->plan.stage_count; i++) {
        const struct process *process = processes_stage(&run->processes, i);
        const struct record_process *row = process->record;
        bool exited = row->row.state == PROCESS_EXITED && !row->done, joins = row->row.incarnation > 1 && row->ready < READY_JOINED;
        if ((exited || joins) && leaving_count(run) > 1 && !run->leaving.replicas[process->stage->replica].left)
            mark(run, process->stage->replica);
    }
}
