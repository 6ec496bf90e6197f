#include "console/replay.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "console/waterfall.h"
#include "ssh/base/mem.h"

/* ---- the run ---- */

struct sums { /* over the processes that tell of the step */
    double loss, norm, seconds;
    int losses, norms, steps;
    uint64_t tokens;
    double mask_rate;
};

static struct sums sum_of(const struct view *view)
{
    struct sums sums = {.mask_rate = NAN};
    for (size_t i = 0; i < view->state.process_count; i++) {
        const struct wire_process_row *row = &view->state.processes[i].row;
        const struct history_step *step = history_find(&view->history, row->process, view->frozen_step);
        if (!step)
            continue;
        sums.loss += isfinite(step->loss) ? step->loss : 0;
        sums.losses += isfinite(step->loss);
        sums.norm += isfinite(step->norm) ? step->norm : 0;
        sums.norms += isfinite(step->norm);
        sums.seconds += (double)step->step_ns / 1e9;
        sums.steps++;
        sums.tokens += row->stage == 0 ? step->tokens : 0;
        sums.mask_rate = isfinite(step->mask_rate) ? step->mask_rate : sums.mask_rate;
    }
    return sums;
}

static void show_run(const struct view *view, struct wire_run_state *run)
{
    struct sums sums = sum_of(view);
    uint64_t passed = run->step > view->frozen_step ? run->step - view->frozen_step : 0;
    double seconds = sums.steps ? sums.seconds / sums.steps : (double)NAN;
    run->step = view->frozen_step;
    run->loss = sums.losses ? sums.loss / sums.losses : (double)NAN;
    run->gradient_norm = sums.norms ? sums.norm / sums.norms : (double)NAN;
    run->step_seconds = seconds;
    run->tokens_per_second = seconds > 0 ? (double)sums.tokens / seconds : (double)NAN;
    run->mask_rate = sums.mask_rate;
    run->tokens = run->tokens > passed * sums.tokens ? run->tokens - passed * sums.tokens : 0; /* all steps have as many */
    run->trained_ns = 0;
    run->spent = run->spend_per_hour = run->spend_forecast = (double)NAN;
    const struct series_point *validation = series_at(&view->history.validation, (double)run->step);
    run->validation_loss = validation ? validation->y : (double)NAN;
    run->validation_step = validation ? (uint64_t)validation->x : 0;
}

/* ---- processes and hosts ---- */

static void show_process(const struct view *view, struct state_process *process)
{
    struct wire_process_row *row = &process->row;
    const struct history_step *step = history_find(&view->history, row->process, view->frozen_step);
    bool worker = row->role == ROLE_STAGE || row->role == ROLE_ANCHOR;
    row->waiting[0] = '\0';
    row->compute_share = (double)NAN;
    if (!worker)
        return;
    row->heard_ns_ago = 0;
    process->heard_ns = view->now_ns;
    row->step = step ? view->frozen_step : 0;
    row->state = step ? PROCESS_READY : row->state;
    row->compute_share = step && step->step_ns ? (double)step->compute_ns / (double)step->step_ns : (double)NAN;
    if (step)
        waterfall_waiting(view, row, step, row->waiting, sizeof row->waiting);
    else
        snprintf(row->waiting, sizeof row->waiting, "nothing is known of it at step %" PRIu64, view->frozen_step);
}

static void show_host(const struct view *view, uint64_t wall_ms, struct state_host *host)
{
    const struct wire_host *then = history_host(&view->history, host->row.host, wall_ms);
    struct wire_host unknown = {.cpu_share = NAN, .load = NAN, .gpu_share = NAN, .gpu_celsius = NAN, .gpu_watts = NAN,
                                .clock_offset = host->row.clock_offset, .heard_ns_ago = UINT64_MAX, .price_per_hour = host->row.price_per_hour,
                                .use = host->row.use};
    memcpy(unknown.host, host->row.host, sizeof unknown.host);
    host->row = then ? *then : unknown;
    host->heard_ns = view->now_ns;
}

/* Rates are kept by the second; why a road was held, and how long its way was, is not. */
static void show_road(const struct view *view, size_t number, struct state_road *road)
{
    road->row.bytes_per_second = trail_get(history_rate(&view->history, number), view->frozen_tick, 0);
    road->row.hold_reasons = 0;
    road->row.queued_bytes = road->row.rtt_ns = 0;
    road->heard_ns = view->now_ns;
}

/* ---- the anchor ---- */

static void show_anchor(const struct view *view, uint64_t wall_ms, struct state *state)
{
    const struct wire_anchor_row *then = history_anchor(&view->history, wall_ms);
    struct wire_anchor_row unknown = {
        .target = state->anchor.target, .follows = state->anchor.follows,
        .staleness = (double)NAN, .age = (double)NAN, .mix = (double)NAN, .eta_seconds = (double)NAN,
        .delta_share = (double)NAN, .cosine = (double)NAN, .inside = (double)NAN, .norm_ratio = (double)NAN, .changed = (double)NAN,
        .noise = (double)NAN, .compute_seconds = (double)NAN, .validation_loss = (double)NAN, .price_per_hour = (double)NAN};
    memcpy(unknown.host, state->anchor.host, sizeof unknown.host);
    snprintf(unknown.saying, sizeof unknown.saying, "nothing is known of it at step %" PRIu64, view->frozen_step);
    state->anchor = then ? *then : unknown;
    for (int i = 0; i < MATRIX_CLASSES; i++)
        if (state->meters[i].step > view->frozen_step)
            state->meters[i].step = 0;
    state->spectrum_count = 0; /* only the newest are kept */
}

/* ---- all of it ---- */

static void *copy_of(const void *rows, size_t count, size_t bytes_each)
{
    void *copy = mem_array(count + 1, bytes_each);
    memcpy(copy, rows ? rows : copy, count * bytes_each);
    return copy;
}

void replay_begin(struct replay *replay, struct view *view)
{
    struct state *state = &view->state;
    uint64_t wall_ms = waterfall_wall_ms(view);
    *replay = (struct replay){.on = view->frozen && view->frozen_tick, .live = *state};
    if (!replay->on)
        return;
    state->processes = copy_of(state->processes, state->process_count, sizeof *state->processes);
    state->roads = copy_of(state->roads, state->road_count, sizeof *state->roads);
    state->hosts = copy_of(state->hosts, state->host_count, sizeof *state->hosts);
    show_run(view, &state->run);
    for (size_t i = 0; i < state->process_count; i++)
        show_process(view, &state->processes[i]);
    for (size_t i = 0; i < state->host_count; i++)
        show_host(view, wall_ms, &state->hosts[i]);
    for (size_t i = 0; i < state->road_count; i++)
        show_road(view, i, &state->roads[i]);
    if (state->has_anchor)
        show_anchor(view, wall_ms, state);
}

void replay_end(struct replay *replay, struct view *view)
{
    if (!replay->on)
        return;
    mem_free(view->state.processes);
    mem_free(view->state.roads);
    mem_free(view->state.hosts);
    view->state = replay->live;
}
