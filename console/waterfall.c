#include "console/waterfall.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "console/words.h"

static const struct { const char *name; uint32_t fill; enum ink ink; } parts[] = {
    {"computes", 0x2588, INK_GOOD},
    [WAIT_ACT] = {"activations", 0x2592, INK_WARN},
    [WAIT_GRAD] = {"gradient", 0x2593, INK_LOSS},
    [WAIT_STAMP] = {"stamp", 0x2591, INK_DIM},
    [WAIT_SEND] = {"room to send", 0x2592, INK_BAD},
    [WAIT_DATA] = {"data", 0x2591, INK_WARN},
    [WAIT_SYNC] = {"replicas", 0x2593, INK_RATE},
};

static uint64_t part_ns(const struct history_step *step, int part)
{
    return part == 0 ? step->compute_ns : step->wait_ns[part];
}

/* The longest step of all processes is the whole width. */
static uint64_t longest_ns(const struct view *view)
{
    uint64_t longest = 1;
    for (size_t i = 0; i < view->state.process_count; i++) {
        const struct history_step *step = history_find(&view->history, view->state.processes[i].row.process, view->frozen_step);
        if (step && step->step_ns > longest)
            longest = step->step_ns;
    }
    return longest;
}

static void draw_bar(const struct history_step *step, uint64_t longest, struct surface *surface, int row, int column, int width)
{
    double scale = (double)width / (double)longest, at = 0;
    for (int part = 0; part < WAIT_CAUSES; part++) {
        double end = at + (double)part_ns(step, part) * scale;
        for (int i = (int)lround(at); i < (int)lround(fmin(end, width)); i++)
            surface_put(surface, row, column + i, parts[part].fill, parts[part].ink);
        at = fmin(end, width);
    }
    for (int i = (int)lround(at); i < (int)lround(fmin((double)step->step_ns * scale, width)); i++)
        surface_put(surface, row, column + i, 0x00B7, INK_DIM); /* neither: packing, bookkeeping */
}

/* The cause that cost this process most, in words. */
static void draw_reason(const struct view *view, const struct history_step *step, struct surface *surface, int row, int column,
                        int width)
{
    char time[WORDS], whole[WORDS];
    int worst = WAIT_ACT;
    for (int part = WAIT_ACT; part < WAIT_CAUSES; part++)
        worst = part_ns(step, part) > part_ns(step, worst) ? part : worst;
    words_duration(&view->style, (double)step->step_ns / 1e9, whole, sizeof whole);
    words_duration(&view->style, (double)part_ns(step, worst) / 1e9, time, sizeof time);
    if (part_ns(step, worst) * 50 < step->step_ns)
        surface_print(surface, row, column, width, INK_PLAIN, "%s, all of it computing", whole);
    else
        surface_print(surface, row, column, width, INK_PLAIN, "%s, %s %s %s", whole, time,
                      worst == WAIT_SEND ? "without" : "for", parts[worst].name);
}

static void draw_legend(struct surface *surface, int row, struct area area)
{
    int at = area.column;
    for (int part = 0; part < WAIT_CAUSES && at + 16 < area.column + area.columns; part++) {
        surface_put(surface, row, at, parts[part].fill, parts[part].ink);
        at += 2 + surface_text(surface, row, at + 2, 14, INK_DIM, parts[part].name) + 2;
    }
}

static const struct history_step *any_of_step(const struct view *view)
{
    const struct history_step *found = NULL;
    for (size_t i = 0; i < view->state.process_count; i++) {
        const struct history_step *step = history_find(&view->history, view->state.processes[i].row.process, view->frozen_step);
        if (step && (!found || isfinite(step->norm)))
            found = step;
    }
    return found;
}

static void draw_heading(const struct view *view, const struct history_step *step, struct surface *surface, struct area area)
{
    char loss[WORDS], norm[WORDS], when[WORDS], rate[WORDS];
    words_real(&view->style, step->loss, 4, loss, sizeof loss);
    words_real(&view->style, step->norm, 3, norm, sizeof norm);
    words_clock((int64_t)step->wall_ms, when, sizeof when);
    words_real(&view->style, step->mask_rate, 3, rate, sizeof rate);
    surface_print(surface, area.row, area.column, area.columns, INK_BOLD,
                  "frozen at step %" PRIu64 " (%s): loss %s, norm %s, mask rate %s, learning rate %.3g", view->frozen_step, when, loss,
                  norm, rate, step->learning_rate);
}

void waterfall_draw(struct view *view, struct surface *surface, struct area area)
{
    const struct history_step *any = any_of_step(view);
    int name = 8, reason = area.columns >= 110 ? 36 : 30, row = 2;
    if (area.rows < 3)
        return;
    if (!any) {
        surface_print(surface, area.row, area.column, area.columns, INK_WARN,
                      "frozen at step %" PRIu64 ": the journal does not know (any more) where its time went", view->frozen_step);
        return;
    }
    draw_heading(view, any, surface, area);
    draw_legend(surface, area.row + 1, area);
    uint64_t longest = longest_ns(view);
    for (size_t i = 0; i < view->state.process_count && row < area.rows; i++) {
        const char *process = view->state.processes[i].row.process;
        const struct history_step *step = history_find(&view->history, process, view->frozen_step);
        if (!step)
            continue;
        int bar = area.columns - name - reason - 3;
        surface_text(surface, area.row + row, area.column, name, INK_BOLD, process);
        draw_bar(step, longest, surface, area.row + row, area.column + name + 1, bar > 0 ? bar : 0);
        draw_reason(view, step, surface, area.row + row, area.column + area.columns - reason, reason);
        row++;
    }
}

void waterfall_move(struct view *view, int by)
{
    uint64_t oldest, newest = history_steps(&view->history, &oldest), step = view->frozen_step;
    if (!newest)
        return;
    if (by < 0)
        step = step > oldest - (uint64_t)by - 1 && step > (uint64_t)-by ? step - (uint64_t)-by : oldest;
    else
        step += (uint64_t)by;
    view->frozen_step = step < oldest ? oldest : step > newest ? newest : step;
}
