#include "console/history.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ssh/base/mem.h"

#define STATE_MS 60000 /* what is older is not of the same time */

void history_clear(struct history *history)
{
    series_clear(&history->loss);
    series_clear(&history->validation);
    series_clear(&history->norm);
    series_clear(&history->anchor_loss);
    for (size_t i = 0; i < history->rate_count; i++)
        mem_free(history->rates[i]);
    mem_free(history->rates);
    mem_free(history->steps);
    mem_free(history->hosts);
    mem_free(history->anchors);
    memset(history, 0, sizeof *history);
}

uint64_t history_tick(uint64_t wall_ms)
{
    return wall_ms / 1000;
}

static struct trail *rate_of(struct history *history, size_t road)
{
    if (road >= history->rate_count) {
        history->rates = mem_grow(history->rates, road + 1, sizeof *history->rates);
        for (; history->rate_count <= road; history->rate_count++)
            history->rates[history->rate_count] = NULL;
    }
    if (!history->rates[road])
        history->rates[road] = mem_new(sizeof **history->rates);
    return history->rates[road];
}

static void put_rate(struct history *history, size_t road, uint64_t tick, double rate)
{
    trail_put(rate_of(history, road), tick, rate);
    history->newest_tick = tick > history->newest_tick ? tick : history->newest_tick;
}

const struct trail *history_rate(const struct history *history, size_t road)
{
    static const struct trail nothing;
    return road < history->rate_count && history->rates[road] ? history->rates[road] : &nothing;
}

void history_apply(struct history *history, const struct state *state, enum wire_type type, const void *row, uint64_t tick)
{
    const struct wire_run_state *run = row;
    const struct wire_road_row *road = row;
    if (type == WIRE_ROAD_ROW && state->road_hint < state->road_count && isfinite(road->bytes_per_second))
        put_rate(history, state->road_hint, tick, road->bytes_per_second);
    if (type == WIRE_ANCHOR_ROW && ((const struct wire_anchor_row *)row)->validation_version)
        series_add(&history->anchor_loss, (double)((const struct wire_anchor_row *)row)->validation_version - 1,
                   ((const struct wire_anchor_row *)row)->validation_loss);
    if (type != WIRE_RUN_STATE)
        return;
    trail_put(&history->speed, tick, run->tokens_per_second);
    if (run->step) {
        series_add(&history->loss, (double)run->step, run->loss);
        series_add(&history->norm, (double)run->step, run->gradient_norm);
    }
    if (isfinite(run->first_validation_loss))
        series_insert(&history->validation, 0, run->first_validation_loss);
    if (isfinite(run->validation_loss))
        series_add(&history->validation, (double)run->validation_step, run->validation_loss);
}

/* ---- the journal ---- */

void history_forget_steps(struct history *history)
{
    history->step_count = history->hosts_told = history->anchors_told = 0;
}

static void recall_step(struct history *history, const char *line)
{
    struct history_step step = {.loss = NAN};
    unsigned kind;
    int got = sscanf(line, "step %" SCNu64 " %63s %" SCNu64 " %u %lf %lf %lf %lf %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                     " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %63s",
                     &step.wall_ms, step.process, &step.step, &kind, &step.loss, &step.norm, &step.learning_rate,
                     &step.mask_rate, &step.tokens, &step.step_ns, &step.compute_ns, &step.wait_ns[WAIT_ACT],
                     &step.wait_ns[WAIT_GRAD], &step.wait_ns[WAIT_STAMP], &step.wait_ns[WAIT_SEND], &step.wait_ns[WAIT_DATA],
                     &step.wait_ns[WAIT_SYNC], &step.pack_ns, &step.began_wall_ns, step.timeline);
    if (got != 20)
        return;
    if (kind != STAMP_TRAIN)
        return;
    if (!history->steps)
        history->steps = mem_array(HISTORY_STEPS, sizeof *history->steps);
    history->steps[history->step_count++ % HISTORY_STEPS] = step;
}

static void recall_loss(struct history *history, const char *line)
{
    uint64_t step;
    unsigned kind;
    double loss, norm;
    if (sscanf(line, "loss %" SCNu64 " %u %lf %lf", &step, &kind, &loss, &norm) != 4 || !isfinite(loss))
        return;
    series_insert(kind == STAMP_EVALUATE ? &history->validation : &history->loss, (double)step, loss);
    if (kind != STAMP_EVALUATE && isfinite(norm))
        series_insert(&history->norm, (double)step, norm);
}

static void recall_rate(struct history *history, const struct state *state, const char *line)
{
    char from[WIRE_NAME], to[WIRE_NAME];
    uint64_t wall_ms;
    unsigned lane;
    double rate;
    if (sscanf(line, "rate %" SCNu64 " %63s %63s %u %lf", &wall_ms, from, to, &lane, &rate) != 5)
        return;
    size_t road = state_find_road(state, from, to, lane);
    if (road < state->road_count)
        put_rate(history, road, history_tick(wall_ms), rate);
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "row WALL_MS TYPE HEX": as hostile as anything that comes from a road, and read by the same decoder. */
static void recall_row(struct history *history, const char *line)
{
    uint64_t wall_ms;
    unsigned type;
    int at = 0;
    uint8_t bytes[2048];
    size_t count = 0;
    union {
        struct wire_host host;
        struct wire_anchor_row anchor;
    } row;
    if (sscanf(line, "row %" SCNu64 " %u %n", &wall_ms, &type, &at) < 2 || !at || (type != WIRE_HOST_ROW && type != WIRE_ANCHOR_ROW))
        return;
    for (const char *hex = line + at; digit(hex[0]) >= 0 && digit(hex[1]) >= 0 && count < sizeof bytes; hex += 2)
        bytes[count++] = (uint8_t)(16 * digit(hex[0]) + digit(hex[1]));
    if (wire_decode((uint16_t)type, bytes, count, &row, NULL) < 0)
        return;
    if (type == WIRE_HOST_ROW) {
        if (!history->hosts)
            history->hosts = mem_array(HISTORY_STATES, sizeof *history->hosts);
        history->hosts[history->hosts_told++ % HISTORY_STATES] = (struct history_host){wall_ms, row.host};
    } else {
        if (!history->anchors)
            history->anchors = mem_array(HISTORY_STATES, sizeof *history->anchors);
        history->anchors[history->anchors_told++ % HISTORY_STATES] = (struct history_anchor){wall_ms, row.anchor};
    }
}

void history_recall(struct history *history, const struct state *state, const char *line)
{
    if (strncmp(line, "loss ", 5) == 0)
        recall_loss(history, line);
    else if (strncmp(line, "step ", 5) == 0)
        recall_step(history, line);
    else if (strncmp(line, "rate ", 5) == 0)
        recall_rate(history, state, line);
    else if (strncmp(line, "row ", 4) == 0)
        recall_row(history, line);
}

/* ---- looking back ---- */

static uint64_t kept(const struct history *history)
{
    return history->step_count < HISTORY_STEPS ? history->step_count : HISTORY_STEPS;
}

const struct history_step *history_find(const struct history *history, const char *process, uint64_t step)
{
    for (uint64_t i = 1; i <= kept(history); i++) {
        const struct history_step *at = &history->steps[(history->step_count - i) % HISTORY_STEPS];
        if (at->step == step && strcmp(at->process, process) == 0)
            return at;
    }
    return NULL;
}

static bool is_of_then(uint64_t told_ms, uint64_t wall_ms)
{
    return told_ms <= wall_ms && told_ms + STATE_MS > wall_ms; /* a second old at most, while the journal is written; never newer */
}

const struct wire_host *history_host(const struct history *history, const char *host, uint64_t wall_ms)
{
    const struct history_host *found = NULL;
    for (uint64_t i = 0; i < history->hosts_told && i < HISTORY_STATES; i++) {
        const struct history_host *at = &history->hosts[i];
        if (is_of_then(at->wall_ms, wall_ms) && strcmp(at->row.host, host) == 0 && (!found || at->wall_ms > found->wall_ms))
            found = at;
    }
    return found ? &found->row : NULL;
}

const struct wire_anchor_row *history_anchor(const struct history *history, uint64_t wall_ms)
{
    const struct history_anchor *found = NULL;
    for (uint64_t i = 0; i < history->anchors_told && i < HISTORY_STATES; i++)
        if (is_of_then(history->anchors[i].wall_ms, wall_ms) && (!found || history->anchors[i].wall_ms > found->wall_ms))
            found = &history->anchors[i];
    return found ? &found->row : NULL;
}

uint64_t history_steps(const struct history *history, uint64_t *oldest)
{
    uint64_t newest = 0;
    *oldest = 0;
    for (uint64_t i = 0; i < kept(history); i++) {
        uint64_t step = history->steps[i].step;
        newest = step > newest ? step : newest;
        *oldest = *oldest == 0 || step < *oldest ? step : *oldest;
    }
    return newest;
}
