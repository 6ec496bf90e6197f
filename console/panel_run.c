/*
 * Panel Run: the numbers, the topology with its roads, the loss with a mark where a knob changed; frozen, the waterfall of a step.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "console/layout.h"
#include "console/plot.h"
#include "console/topology.h"
#include "console/view.h"
#include "console/waterfall.h"
#include "console/words.h"

#define MARKS 64

static int put_pair(struct surface *surface, struct area area, int row, int at, const char *name, const char *value, int ink)
{
    int end = area.column + area.columns, need = surface_width(name) + 1 + surface_width(value);
    if (at + need > end)
        return at;
    at += surface_text(surface, row, at, end - at, INK_DIM, name) + 1;
    return at + surface_text(surface, row, at, end - at, ink, value) + 3;
}

/* "spent 1.27   now 2.40 an hour   4.10 when all steps are trained" */
static void draw_money(const struct view *view, struct surface *surface, struct area area, int ink)
{
    const struct wire_run_state *run = &view->state.run;
    char text[WORDS], value[2 * WORDS];
    int at = put_pair(surface, area, area.row, area.column, "spent", words_money(&view->style, run->spent, text, sizeof text), ink);
    if (!isfinite(run->spend_per_hour))
        return;
    snprintf(value, sizeof value, "%s an hour", words_money(&view->style, run->spend_per_hour, text, sizeof text));
    at = put_pair(surface, area, area.row, at, "now", value, ink);
    put_pair(surface, area, area.row, at, "in all", words_money(&view->style, run->spend_forecast, text, sizeof text), ink);
}

static void draw_numbers(const struct view *view, struct surface *surface, struct area area)
{
    const struct wire_run_state *run = &view->state.run;
    const struct style *style = &view->style;
    char text[WORDS], first[WORDS], value[3 * WORDS];
    bool stale = view->road.down || view_is_stale(view, state_age_ns(&view->state, view->now_ns));
    int at = area.column + 1, plain = stale ? INK_DIM : INK_PLAIN;
    if (area.rows < 2)
        return;
    at = put_pair(surface, area, area.row, at, "loss", words_real(style, run->loss, 4, text, sizeof text), stale ? INK_DIM : INK_LOSS);
    snprintf(value, sizeof value, "%s", words_real(style, run->validation_loss, 4, text, sizeof text));
    if (isfinite(run->validation_loss))
        snprintf(value + strlen(value), sizeof value - strlen(value), " at step %" PRIu64 ", from %s", run->validation_step,
                 words_real(style, run->first_validation_loss, 4, first, sizeof first));
    at = put_pair(surface, area, area.row, at, "un-masked", value, stale ? INK_DIM : INK_GOOD);
    put_pair(surface, area, area.row, at, "norm", words_real(style, run->gradient_norm, 3, text, sizeof text), plain);
    at = area.column + 1;
    at = put_pair(surface, area, area.row + 1, at, "tokens/s", words_count(style, run->tokens_per_second, text, sizeof text), plain);
    at = put_pair(surface, area, area.row + 1, at, "step", words_duration(style, run->step_seconds, text, sizeof text), plain);
    at = put_pair(surface, area, area.row + 1, at, "mask", words_percent(style, run->mask_rate, text, sizeof text), plain);
    at = put_pair(surface, area, area.row + 1, at, "trained", words_count(style, (double)run->tokens, text, sizeof text), plain);
    if (!view->frozen_tick) /* how long it had trained then is not kept */
        put_pair(surface, area, area.row + 1, at, "in", words_duration(style, (double)run->trained_ns / 1e9, text, sizeof text), plain);
    if (isfinite(run->spent) && area.rows >= 3)
        draw_money(view, surface, (struct area){area.row + 2, area.column + 1, 1, area.columns - 24}, plain);
}

static const char *label_loss(double y, char *out, int size)
{
    snprintf(out, (size_t)size, fabs(y) >= 100 ? "%.0f" : fabs(y) >= 10 ? "%.1f" : "%.3f", y);
    return out;
}

static int find_marks(const struct view *view, struct plot_mark *marks)
{
    int count = 0;
    for (size_t i = view->state.ledger_count; i > 0 && count < MARKS; i--) {
        const struct wire_ledger_row *row = &view->state.ledger[i - 1];
        if (row->state == LEDGER_ACTIVE)
            marks[count++] = (struct plot_mark){(double)row->step, INK_WARN};
    }
    return count;
}

/* "┆ mask.rate 0.95 → 0.9": what the newest mark means. */
static void draw_plot_title(const struct view *view, struct surface *surface, struct area area)
{
    int at = area.column + 1;
    surface_put(surface, area.row, at, 0x2501, INK_LOSS);
    at += 2 + surface_text(surface, area.row, at + 2, 20, INK_DIM, "loss (masked)");
    surface_put(surface, area.row, at + 2, 0x25C6, INK_GOOD);
    at += 4 + surface_text(surface, area.row, at + 4, 20, INK_DIM, "un-masked");
    for (size_t i = view->state.ledger_count; i > 0; i--) {
        const struct wire_ledger_row *row = &view->state.ledger[i - 1];
        if (row->state != LEDGER_ACTIVE)
            continue;
        surface_put(surface, area.row, at + 2, 0x2506, INK_WARN);
        surface_print(surface, area.row, at + 4, area.column + area.columns - at - 5, INK_DIM, "%s %s → %s from step %" PRIu64,
                      row->name, row->old_value, row->new_value, row->step);
        return;
    }
}

static void draw_plot(const struct view *view, struct surface *surface, struct area area)
{
    const struct series *loss = &view->history.loss, *validation = &view->history.validation;
    const struct plot_curve curves[] = {{loss, INK_DIM, PLOT_LINE}, {loss, INK_LOSS, PLOT_SMOOTH}, {validation, INK_GOOD, PLOT_POINTS}};
    struct plot_mark marks[MARKS];
    if (area.rows < 4)
        return;
    draw_plot_title(view, surface, area);
    struct plot plot = {
        .area = {area.row + 1, area.column, area.rows - 1, area.columns - 1},
        .from = validation->count ? 0 : loss->count ? loss->points[0].x : 0,
        .to = fmax((double)view->state.run.step, 1),
        .low = 1, .high = 0,
        .curves = curves, .curve_count = 3,
        .marks = marks, .mark_count = find_marks(view, marks),
        .label = label_loss, .x_unit = "step",
    };
    if (!plot_draw(&plot, surface))
        surface_text(surface, area.row + area.rows / 2, area.column + 2, area.columns - 4, INK_DIM,
                     "the loss is drawn here when the first step is trained");
}

static void draw(struct view *view, struct surface *surface, struct area area)
{
    int stages, replicas;
    topology_size(&view->state, &stages, &replicas);
    struct layout_run layout = layout_run(area, stages, replicas);
    view->stage_first = view->stage_first > stages - layout.stages ? stages - layout.stages : view->stage_first;
    view->stage_first = view->stage_first < 0 ? 0 : view->stage_first;
    view->replica_first = view->replica_first > replicas - layout.replicas ? replicas - layout.replicas : view->replica_first;
    view->replica_first = view->replica_first < 0 ? 0 : view->replica_first;
    draw_numbers(view, surface, layout.numbers);
    if (stages > 0)
        topology_draw(view, &layout, stages, replicas, surface);
    else
        surface_text(surface, layout.topology.row, area.column + 2, area.columns - 4, INK_DIM, "no process is known yet");
    if (view->frozen)
        waterfall_draw(view, surface, (struct area){layout.plot.row, layout.plot.column + 1, layout.plot.rows, layout.plot.columns - 2});
    else
        draw_plot(view, surface, layout.plot);
}

static void freeze(struct view *view)
{
    view->frozen = !view->frozen;
    view->frozen_step = view->frozen_at = view->state.run.step;
    if (view->frozen)
        view_wish(view, WISH_RECALL);
}

static bool act(struct view *view, enum act act)
{
    switch (act) {
    case ACT_FREEZE:
        freeze(view);
        return true;
    case ACT_LEFT:
    case ACT_RIGHT:
        if (view->frozen)
            waterfall_move(view, act == ACT_LEFT ? -1 : 1);
        else
            view->stage_first += act == ACT_LEFT ? -1 : 1;
        return true;
    case ACT_UP:
    case ACT_DOWN:
        view->replica_first += act == ACT_UP ? -1 : 1;
        return true;
    case ACT_PAGE_UP:
    case ACT_PAGE_DOWN:
        if (view->frozen)
            waterfall_move(view, act == ACT_PAGE_UP ? -10 : 10);
        else
            view->replica_first += act == ACT_PAGE_UP ? -4 : 4;
        return true;
    case ACT_FIRST:
    case ACT_LAST:
        view->replica_first = view->stage_first = act == ACT_FIRST ? 0 : 1 << 20;
        return true;
    default:
        return false;
    }
}

static void copy(const struct view *view, char *out, size_t size)
{
    const struct wire_run_state *run = &view->state.run;
    if (view->state.has_run)
        snprintf(out, size, "%s step %" PRIu64 "/%" PRIu64 " loss %.6g validation %.6g tokens/s %.6g", run->run, run->step, run->steps,
                 run->loss, run->validation_loss, run->tokens_per_second);
}

const struct panel_methods panel_run = {.draw = draw, .act = act, .copy = copy};
