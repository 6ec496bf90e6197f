#include "console/wait.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "console/words.h"
#include "ssh/base/clock.h"

#define QUIET_NS (3 * CLOCK_SECOND) /* a scheduler speaks once a second */

/* "…, 31 % of the step" at the end of a process's own word. */
static int percent_of(const char *waiting)
{
    const char *comma = strrchr(waiting, ',');
    long percent = comma ? strtol(comma + 1, NULL, 10) : 0;
    return percent > 0 && percent <= 100 ? (int)percent : 0;
}

static const struct state_process *longest_wait(const struct state *state)
{
    const struct state_process *longest = NULL;
    for (size_t i = 0; i < state->process_count; i++) {
        const struct state_process *process = &state->processes[i];
        if (process->row.waiting[0] && process->row.state == PROCESS_READY &&
            (!longest || percent_of(process->row.waiting) > percent_of(longest->row.waiting)))
            longest = process;
    }
    return longest;
}

/* The busiest road that ends at the one who waits, and comes from whom its sentence names. */
static const struct wire_road_row *road_of_wait(const struct state *state, const struct state_process *process)
{
    const struct wire_road_row *found = NULL;
    for (size_t i = 0; i < state->road_count; i++) {
        const struct wire_road_row *row = &state->roads[i].row;
        if (strcmp(row->to, process->row.process) != 0 || !isfinite(row->bytes_per_second))
            continue;
        const char *named = strstr(process->row.waiting, row->from);
        size_t length = strlen(row->from);
        if (!length || !named || (named[length] >= '0' && named[length] <= '9'))
            continue;
        if (!found || row->bytes_per_second > found->bytes_per_second)
            found = row;
    }
    return found;
}

static void explain_training(const struct state *state, const struct style *style, char *out, size_t size)
{
    const struct state_process *process = longest_wait(state);
    char rate[WORDS], capacity[WORDS], rtt[WORDS];
    if (!process) {
        snprintf(out, size, "all stages compute; nobody waits for anybody longer than 1 %% of a step");
        return;
    }
    int used = snprintf(out, size, "%s %s", process->row.process, process->row.waiting);
    const struct wire_road_row *road = road_of_wait(state, process);
    if (!road || used < 0 || (size_t)used >= size)
        return;
    words_rate(style, road->bytes_per_second, rate, sizeof rate);
    used += snprintf(out + used, size - (size_t)used, ": that road carries %s", rate);
    if (road->capacity_bps && (size_t)used < size)
        used += snprintf(out + used, size - (size_t)used, " of %s",
                         words_rate(style, (double)road->capacity_bps / 8, capacity, sizeof capacity));
    if (road->rtt_ns && (size_t)used < size)
        snprintf(out + used, size - (size_t)used, ", %s there and back",
                 words_duration(style, (double)road->rtt_ns / 1e9, rtt, sizeof rtt));
}

static const char *next_of(int phase)
{
    switch (phase) {
    case PHASE_FORMING:
        return "forming: the run begins when all processes stand and are joined by roads";
    case PHASE_HOLDING:
        return "holding: everything is kept in memory; P resumes";
    case PHASE_FINISHED:
        return "finished: all steps are trained and the weights are written";
    case PHASE_STOPPING:
        return "stopping: the processes end after their step";
    case PHASE_STOPPED:
        return "stopped: nothing of the run is left but its record";
    default:
        return "nothing is known yet";
    }
}

static enum paint explain_run(const struct state *state, const struct style *style, char *out, size_t size)
{
    const struct wire_run_state *run = &state->run;
    enum paint paint = run->phase == PHASE_HOLDING ? PAINT_BAD : run->phase == PHASE_STOPPED ? PAINT_WARN : PAINT_NONE;
    if (run->reason[0] && run->phase != PHASE_TRAINING)
        snprintf(out, size, "%s: %s", wire_phase_name(run->phase), run->reason);
    else if (run->phase == PHASE_TRAINING)
        explain_training(state, style, out, size);
    else
        snprintf(out, size, "%s", next_of(run->phase));
    return paint;
}

enum paint wait_explain(const struct state *state, const struct wait_road *road, const struct style *style, uint64_t now_ns,
                        char *out, size_t size)
{
    char age[WORDS];
    uint64_t old_ns = state_age_ns(state, now_ns);
    if (road->down && !road->live && !state->has_run) {
        snprintf(out, size, "there is nothing to show: %s", road->down_reason);
        return PAINT_BAD;
    }
    if (road->down && !state_is_over(state)) {
        words_age(style, now_ns - road->down_since_ns, age, sizeof age);
        snprintf(out, size, "no road to the scheduler for %s (%s); the workers train on, this console tries again", age,
                 road->down_reason);
        return PAINT_BAD;
    }
    if (!state->has_run) {
        snprintf(out, size, "waiting for the first word of the scheduler");
        return PAINT_WARN;
    }
    if (road->live && old_ns > QUIET_NS && !state_is_over(state)) {
        words_age(style, old_ns, age, sizeof age);
        snprintf(out, size, "last word from the scheduler %s ago; the values are from then, the run goes on without us", age);
        return PAINT_WARN;
    }
    return explain_run(state, style, out, size);
}
