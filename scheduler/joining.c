/* See joining.h. */
#include "scheduler/joining.h"

#include <inttypes.h>
#include <string.h>

#include "scheduler/run_state.h"
#include "ssh/base/clock.h"
#include "ssh/base/text.h"

static struct process *process_of(struct run *run, int replica, int stage)
{
    return processes_stage(&run->processes, replica * run->plan.stages_per_replica + stage);
}

static int joiner(const struct run *run)
{
    for (int r = 0; r < run->plan.replicas; r++)
        if (run->leaving.replicas[r].joining != JOINING_NOT)
            return r;
    return -1;
}

bool joining_is_under_way(const struct run *run, int replica)
{
    return run->leaving.replicas[replica].joining != JOINING_NOT;
}

uint32_t joining_members(const struct run *run)
{
    uint32_t members = 0;
    for (int r = 0; r < run->plan.replicas; r++)
        members |= run->leaving.replicas[r].left ? 0 : 1u << r;
    return members;
}

static void move(struct run *run, int replica, enum joining state)
{
    run->leaving.replicas[replica].joining = state;
    run->leaving.replicas[replica].since_ns = clock_now_ns();
}

/* ---- the beginning of a life ---- */

bool joining_is_in_time(const struct run *run)
{
    const struct profile *profile = knobs_profile(run->knobs);
    const struct wire_run_state *row = &run->record->state.row;
    return row->step + 2 * (uint64_t)profile->sync_every + (uint64_t)profile->sync_overlap < row->steps;
}

/* Its next rounds would come too late, or somebody who is needed for it is away. */
static bool is_possible(struct run *run, int replica)
{
    if (!joining_is_in_time(run) || moves_keep_away(run, replica))
        return false;
    for (size_t i = run->processes.agents; i < run->processes.count; i++) {
        const struct process *process = &run->processes.all[i];
        int stage = process->stage->stage;
        if (process->stage->replica != replica && !leaving_has_left(run, process->stage->replica) && !process->handle)
            return false;
        if (process->stage->replica == replica && process->record->row.state != PROCESS_EXITED)
            return false;
        if (process->stage->replica == replica && !processes_agent(&run->processes, process)->handle)
            return false;
        if (process->stage->replica == replica && !run->leaving.stages[stage][replica].decided)
            return false;
    }
    return true;
}

static void begin(struct run *run, int replica)
{
    for (int i = 0; i < run->plan.road_count; i++)
        if (run->plan.stages[run->plan.roads[i].from].replica == replica || run->plan.stages[run->plan.roads[i].to].replica == replica)
            run->road_told[i] = false;
    leaving_renew(run, replica);
    anchor_forget(run, replica);
    for (int s = 0; s < run->plan.stages_per_replica; s++) {
        struct process *process = process_of(run, replica, s);
        processes_renew(run->record, process);
        forming_spawn(run, process);
    }
    move(run, replica, JOINING_STARTS);
    run_say(run, EVENT_INFO, NULL, "replica-starts", "replica %d is started again", replica);
}

static bool comes_back(const struct run *run, int replica)
{
    return run->profile.rejoin || run->leaving.replicas[replica].wanted;
}

static void look_for_one(struct run *run)
{
    for (int r = 0; r < run->plan.replicas; r++) {
        struct lives *lives = &run->leaving.replicas[r].lives;
        if (!leaving_has_left(run, r) || lives->over || !comes_back(run, r))
            continue;
        leaving_kill(run, r); /* a former kedged may have left something of it */
        if (!is_possible(run, r))
            continue;
        if (lives_take(lives, clock_now_ns())) {
            begin(run, r);
            return;
        }
        if (lives->over)
            run_say(run, EVENT_ALERT, NULL, "replica-down",
                    "replica %d ended %d more times within ten minutes and is not started again; the others go on without it", r, LIVES_MOST);
    }
}

/* ---- on its way ---- */

static int least_ready(struct run *run, int replica)
{
    int least = READY_JOINED;
    for (int s = 0; s < run->plan.stages_per_replica; s++)
        least = process_of(run, replica, s)->record->ready < least ? process_of(run, replica, s)->record->ready : least;
    return least;
}

static void say_join(struct run *run, const struct process *process, int replica)
{
    run_send(run, process, WIRE_JOIN, &(struct wire_join){.replica = (uint16_t)replica, .life = leaving_life(run, replica)});
}

/* It is here: with the next step that it trains it is a replica as any other. */
static void joined(struct run *run, int replica)
{
    uint64_t step = run->leaving.replicas[replica].step, round = run->leaving.replicas[replica].round;
    struct wire_start start = {.first_step = step, .last_step = run->record->state.row.steps + 1};
    move(run, replica, JOINING_NOT);
    run->leaving.replicas[replica].left = run->leaving.replicas[replica].wanted = false;
    run->leaving.replicas[replica].lost_by = 0;
    run->leaving.replicas[replica].lost_ns = 0;
    numbers_join(run->numbers, replica);
    run_say(run, EVENT_INFO, NULL, "replica-joined", "replica %d joined at step %" PRIu64 ", round %" PRIu64 "; %d of %d replicas train",
            replica, step, round, leaving_count(run), run->plan.replicas);
    run->record->urgent = true;
    for (int s = 0; s < run->plan.stages_per_replica; s++)
        run_send(run, process_of(run, replica, s), WIRE_START, &start);
    const struct process *first = process_of(run, replica, 0);
    struct wire_knob knob = {.ledger = 0};
    while (knobs_active(run->knobs, knob.ledger, &knob)) /* since it was assigned; said twice it does no harm */
        run_send(run, first, WIRE_KNOB, &knob);
    knobs_join(run->knobs, replica);
    run_send_knobs(run);
    if (run_phase(run) == PHASE_HOLDING)
        run_send_hold(run, NULL);
}

static void ask_stages(struct run *run, int replica)
{
    for (int s = 0; s < run->plan.stages_per_replica; s++) {
        struct process *process = process_of(run, replica, s);
        if (process->handle && !process->assigned && process->record->ready == 0)
            forming_assign(run, process);
    }
    forming_tell_roads(run);
}

void joining_advance(struct run *run)
{
    int replica = joiner(run);
    if (replica < 0 || run->ending != ENDING_NOT)
        return;
    const enum joining state = run->leaving.replicas[replica].joining;
    int ready = least_ready(run, replica);
    if (state == JOINING_STARTS)
        ask_stages(run, replica);
    if (state == JOINING_STARTS && ready >= READY_ROADS) {
        for (int s = 0; s < run->plan.stages_per_replica; s++)
            say_join(run, process_of(run, replica, s), replica);
        move(run, replica, JOINING_COPIES);
    } else if (state == JOINING_COPIES && ready >= READY_COPIED) {
        move(run, replica, JOINING_WAITS);
        say_join(run, process_of(run, leaving_lowest(run), 0), replica);
    } else if (state == JOINING_ENTERS && ready == READY_JOINED) {
        joined(run, replica);
    }
}

int joining_entered(struct run *run, struct process *process, const void *payload, struct why *why)
{
    const struct wire_entered *entered = payload;
    if (entered->replica >= run->plan.replicas || process->stage->stage != 0 || entered->step > run->record->state.row.steps)
        return why_set(why, ERR_INVALID, "%s lets replica %u in at step %" PRIu64 ", which cannot be",
                       process->record->row.process, entered->replica, entered->step);
    if (run->leaving.replicas[entered->replica].joining != JOINING_WAITS || entered->life != leaving_life(run, entered->replica))
        return 0; /* the others say it, too, or it is dead */
    run->leaving.replicas[entered->replica].step = entered->step;
    run->leaving.replicas[entered->replica].round = entered->round;
    move(run, entered->replica, JOINING_ENTERS);
    joining_advance(run);
    return 0;
}

bool joining_welcome(struct run *run, struct process *process)
{
    int replica = joiner(run);
    if (process->stage->replica != replica)
        return false;
    joining_advance(run);
    return true;
}

/* ---- what goes wrong ---- */

void joining_failed(struct run *run, int replica, const char *reason)
{
    if (!joining_is_under_way(run, replica))
        return;
    run->leaving.replicas[replica].joining = JOINING_NOT;
    run_say(run, EVENT_WARN, NULL, "join-failed", "replica %d did not join: %s", replica, reason);
    leaving_part(run, replica);
}

/* Roads between it and who is here: one that stays lost ends its life. */
static bool lost_a_sibling(const struct run *run, int replica)
{
    const uint64_t lost_ns = run->leaving.replicas[replica].lost_ns;
    return lost_ns && (run->leaving.replicas[replica].lost_by & joining_members(run)) &&
           clock_now_ns() - lost_ns >= run->timeouts.silent_ns;
}

static void watch(struct run *run, int replica)
{
    enum joining state = run->leaving.replicas[replica].joining;
    uint64_t passed_ns = clock_now_ns() - run->leaving.replicas[replica].since_ns;
    char patience[32], reason[WIRE_TEXT];
    bool bounded = state == JOINING_STARTS || state == JOINING_ENTERS;
    text_from_duration(run->timeouts.form_ns, patience, sizeof patience);
    if (lost_a_sibling(run, replica)) {
        joining_failed(run, replica, "a road to one of its siblings is lost");
    } else if (bounded && passed_ns >= run->timeouts.form_ns) {
        record_text(reason, sizeof reason, "%s within %s", state == JOINING_STARTS ? "it did not load and find its siblings"
                    : "it was let in and did not begin", patience);
        joining_failed(run, replica, reason);
    }
}

void joining_tick(struct run *run)
{
    int replica = joiner(run);
    if (run->plan.replicas < 2 || plan_averages_gradients(&run->profile) || run->ending != ENDING_NOT)
        return;
    if (run_phase(run) != PHASE_TRAINING) { /* nobody trains: time stands still for it, too */
        if (replica >= 0)
            run->leaving.replicas[replica].since_ns = clock_now_ns();
    } else if (replica < 0) {
        look_for_one(run);
    } else {
        joining_advance(run);
        if (joining_is_under_way(run, replica) && run->leaving.replicas[replica].joining == JOINING_WAITS)
            say_join(run, process_of(run, leaving_lowest(run), 0), replica); /* again: the lowest one may be another now */
        if (joining_is_under_way(run, replica))
            watch(run, replica);
    }
}
