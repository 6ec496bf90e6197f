#include "console/state.h"

#include <math.h>
#include <string.h>

#include "ssh/base/mem.h"

void state_init(struct state *state)
{
    memset(state, 0, sizeof *state);
}

void state_clear(struct state *state)
{
    mem_free(state->processes);
    mem_free(state->roads);
    mem_free(state->knobs);
    mem_free(state->hosts);
    mem_free(state->spectra);
    mem_free(state->ledger);
    mem_free(state->events);
    memset(state, 0, sizeof *state);
}

/* Room for one more row at the end, or NULL when there are `most` already. */
static void *add_row(struct state *state, void **rows, size_t *count, size_t most, size_t bytes_each)
{
    if (*count == most) {
        state->dropped++;
        return NULL;
    }
    *rows = mem_grow(*rows, *count + 1, bytes_each);
    void *row = (char *)*rows + *count * bytes_each;
    memset(row, 0, bytes_each);
    (*count)++;
    return row;
}

/* The same for a ring: the oldest row makes room. */
static void *add_newest(struct state *state, void **rows, size_t *count, size_t most, size_t bytes_each)
{
    if (*count == most) {
        memmove(*rows, (char *)*rows + bytes_each, (most - 1) * bytes_each);
        (*count)--;
    }
    return add_row(state, rows, count, most, bytes_each);
}

/* Rows come in the order of the scheduler's: the one behind the last is tried first, so that many cost no more than few. */
static void apply_process(struct state *state, const struct wire_process_row *row, uint64_t now_ns)
{
    struct state_process *at = NULL;
    for (size_t i = 0; i < state->process_count && !at; i++) {
        size_t next = (state->process_hint + 1 + i) % state->process_count;
        if (strcmp(state->processes[next].row.process, row->process) == 0)
            at = &state->processes[next];
    }
    if (!at)
        at = add_row(state, (void **)&state->processes, &state->process_count, STATE_PROCESSES, sizeof *at);
    if (!at)
        return;
    *at = (struct state_process){*row, now_ns};
    state->process_hint = (size_t)(at - state->processes);
}

size_t state_find_road(const struct state *state, const char *from, const char *to, unsigned lane)
{
    for (size_t i = 0; i < state->road_count; i++) {
        size_t next = (state->road_hint + 1 + i) % state->road_count;
        const struct wire_road_row *row = &state->roads[next].row;
        if (row->lane == lane && strcmp(row->from, from) == 0 && strcmp(row->to, to) == 0)
            return next;
    }
    return state->road_count;
}

static void apply_road(struct state *state, const struct wire_road_row *row, uint64_t now_ns)
{
    size_t at = state_find_road(state, row->from, row->to, row->lane);
    state->road_hint = at;
    if (at == state->road_count && !add_row(state, (void **)&state->roads, &state->road_count, STATE_ROADS, sizeof *state->roads))
        return;
    state->roads[at] = (struct state_road){*row, now_ns};
}

static void apply_knob(struct state *state, const struct wire_knob_row *row)
{
    struct wire_knob_row *at = NULL;
    for (size_t i = 0; i < state->knob_count && !at; i++)
        if (strcmp(state->knobs[i].name, row->name) == 0)
            at = &state->knobs[i];
    if (!at)
        at = add_row(state, (void **)&state->knobs, &state->knob_count, STATE_KNOBS, sizeof *at);
    if (at)
        *at = *row;
}

static void apply_host(struct state *state, const struct wire_host *row, uint64_t now_ns)
{
    struct state_host *at = (struct state_host *)(uintptr_t)state_find_host(state, row->host);
    if (!at)
        at = add_row(state, (void **)&state->hosts, &state->host_count, STATE_HOSTS, sizeof *at);
    if (at)
        *at = (struct state_host){*row, now_ns};
}

static void apply_spectrum(struct state *state, const struct wire_spectrum *row)
{
    struct wire_spectrum *at = (struct wire_spectrum *)(uintptr_t)state_find_spectrum(state, row->layer, row->matrix_class);
    if (!at)
        at = add_row(state, (void **)&state->spectra, &state->spectrum_count, STATE_SPECTRA, sizeof *at);
    if (at)
        *at = *row;
}

static void apply_ledger(struct state *state, const struct wire_ledger_row *row)
{
    struct wire_ledger_row *at = NULL;
    for (size_t i = 0; i < state->ledger_count && !at; i++)
        if (state->ledger[i].id == row->id)
            at = &state->ledger[i];
    if (!at)
        at = add_newest(state, (void **)&state->ledger, &state->ledger_count, STATE_LEDGER, sizeof *at);
    *at = *row;
}

static void apply_event(struct state *state, const struct wire_event_row *row)
{
    for (size_t i = state->event_count; i > 0; i--)
        if (state->events[i - 1].id == row->id)
            return; /* a reconnected watch may repeat some */
    struct wire_event_row *at = add_newest(state, (void **)&state->events, &state->event_count, STATE_EVENTS, sizeof *at);
    *at = *row;
}

int state_apply(struct state *state, enum wire_type type, const void *row, uint64_t now_ns, struct why *why)
{
    switch (type) {
    case WIRE_RUN_STATE:
        state->run = *(const struct wire_run_state *)row;
        state->has_run = true;
        state->run_heard_ns = now_ns;
        return 0;
    case WIRE_PROCESS_ROW:
        apply_process(state, row, now_ns);
        return 0;
    case WIRE_ROAD_ROW:
        apply_road(state, row, now_ns);
        return 0;
    case WIRE_KNOB_ROW:
        apply_knob(state, row);
        return 0;
    case WIRE_HOST_ROW:
        apply_host(state, row, now_ns);
        return 0;
    case WIRE_SPECTRUM_ROW:
        apply_spectrum(state, row);
        return 0;
    case WIRE_LEDGER_ROW:
        apply_ledger(state, row);
        return 0;
    case WIRE_EVENT_ROW:
        apply_event(state, row);
        return 0;
    case WIRE_ANCHOR_ROW:
        state->anchor = *(const struct wire_anchor_row *)row;
        state->has_anchor = true;
        return 0;
    case WIRE_METER_ROW:
        state->meters[((const struct wire_meter *)row)->matrix_class] = *(const struct wire_meter *)row;
        return 0;
    case WIRE_STATE_END:
        state->complete = true;
        return 0;
    default:
        return why_set(why, ERR_INVALID, "message type %d is not for a console", (int)type);
    }
}

uint64_t state_age_ns(const struct state *state, uint64_t now_ns)
{
    return state->has_run ? now_ns - state->run_heard_ns : UINT64_MAX;
}

static uint64_t age_ns(uint64_t told_ns, uint64_t since_ns)
{
    return told_ns > UINT64_MAX - since_ns ? UINT64_MAX : told_ns + since_ns;
}

uint64_t state_process_age_ns(const struct state_process *process, uint64_t now_ns)
{
    return age_ns(process->row.heard_ns_ago, now_ns - process->heard_ns);
}

uint64_t state_host_age_ns(const struct state_host *host, uint64_t now_ns)
{
    return age_ns(host->row.heard_ns_ago, now_ns - host->heard_ns);
}

const struct state_host *state_find_host(const struct state *state, const char *name)
{
    for (size_t i = 0; i < state->host_count; i++)
        if (strcmp(state->hosts[i].row.host, name) == 0)
            return &state->hosts[i];
    return NULL;
}

double state_eta_seconds(const struct state *state)
{
    const struct wire_run_state *run = &state->run;
    if (!state->has_run || run->phase != PHASE_TRAINING || !isfinite(run->step_seconds) || run->step > run->steps)
        return NAN;
    return (double)(run->steps - run->step) * run->step_seconds;
}

const struct wire_spectrum *state_find_spectrum(const struct state *state, unsigned layer, unsigned matrix_class)
{
    for (size_t i = 0; i < state->spectrum_count; i++)
        if (state->spectra[i].layer == layer && state->spectra[i].matrix_class == matrix_class)
            return &state->spectra[i];
    return NULL;
}

const struct wire_ledger_row *state_find_ledger(const struct state *state, uint64_t id)
{
    for (size_t i = 0; i < state->ledger_count; i++)
        if (state->ledger[i].id == id)
            return &state->ledger[i];
    return NULL;
}

const struct wire_knob_row *state_find_knob(const struct state *state, const char *name)
{
    for (size_t i = 0; i < state->knob_count; i++)
        if (strcmp(state->knobs[i].name, name) == 0)
            return &state->knobs[i];
    return NULL;
}

bool state_is_over(const struct state *state)
{
    return state->has_run && (state->run.phase == PHASE_FINISHED || state->run.phase == PHASE_STOPPED);
}
