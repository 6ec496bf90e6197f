#include "console/waterfall.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "console/words.h"

#define NAME_COLUMNS 8

/* Letters and not colours alone: what is waited for must be told apart on any terminal. */
static const struct { const char *name; uint32_t fill; enum ink ink; } parts[PART_COUNT] = {
    [PART_REST] = {"rest", 0x00B7, INK_DIM},       [PART_DATA] = {"data", 'd', INK_WARN},
    [PART_COMPUTE] = {"computes", 0x2588, INK_GOOD}, [PART_PACK] = {"packs", 0x2592, INK_KEY},
    [PART_SEND] = {"room to send", 's', INK_BAD},  [PART_ACT] = {"activations", 'a', INK_WARN},
    [PART_GRAD] = {"gradient", 'g', INK_LOSS},     [PART_STAMP] = {"stamp", 't', INK_DIM},
    [PART_SYNC] = {"replicas", 'r', INK_RATE},
};

static uint64_t wait_of(const struct history_step *step, int part)
{
    static const int causes[PART_COUNT] = {[PART_DATA] = WAIT_DATA, [PART_SEND] = WAIT_SEND, [PART_ACT] = WAIT_ACT,
                                           [PART_GRAD] = WAIT_GRAD, [PART_STAMP] = WAIT_STAMP, [PART_SYNC] = WAIT_SYNC};
    return causes[part] ? step->wait_ns[causes[part]] : 0;
}

/* ---- when ---- */

/* By kedged's clock, in seconds: its host's clock is so much ahead of that one. */
static double began(const struct view *view, const struct wire_process_row *row, const struct history_step *step)
{
    const struct state_host *host = state_find_host(&view->state, row->host);
    double offset = host && isfinite(host->row.clock_offset) ? host->row.clock_offset : 0;
    return (double)step->began_wall_ns / 1e9 - offset;
}

struct span { /* of the frozen step, all processes together */
    double from, to;
};

static struct span span_of(const struct view *view)
{
    struct span span = {INFINITY, -INFINITY};
    for (size_t i = 0; i < view->state.process_count; i++) {
        const struct wire_process_row *row = &view->state.processes[i].row;
        const struct history_step *step = history_find(&view->history, row->process, view->frozen_step);
        if (!step)
            continue;
        double from = began(view, row, step);
        span.from = fmin(span.from, from);
        span.to = fmax(span.to, from + (double)step->step_ns / 1e9);
    }
    return span;
}

/* ---- a process ---- */

static void draw_bar(const struct history_step *step, double from, const struct span *span, struct surface *surface, int row, int column,
                     int width)
{
    size_t letters = strlen(step->timeline);
    double length = (double)step->step_ns / 1e9;
    for (int i = 0; i < width; i++) {
        double at = span->from + (span->to - span->from) * (i + 0.5) / width - from;
        if (!(at >= 0 && at < length))
            continue;
        size_t letter = (size_t)(at / length * (double)letters);
        int part = wire_part_of_letter(step->timeline[letter < letters ? letter : letters - 1]);
        surface_put(surface, row, column + i, parts[part].fill, parts[part].ink);
    }
}

/* Who a part waits for: "" = nobody in particular. */
static const char *peer_of(const struct view *view, const struct wire_process_row *row, int part)
{
    int stage = row->stage + (part == PART_ACT || part == PART_STAMP ? -1 : part == PART_GRAD ? 1 : 0);
    for (size_t i = 0; i < view->state.process_count && stage != row->stage; i++) {
        const struct wire_process_row *other = &view->state.processes[i].row;
        if (other->role == ROLE_STAGE && other->replica == row->replica && other->stage == stage)
            return other->process;
    }
    return "";
}

/* What cost this process most; PART_ACT when nothing did. */
static int worst_of(const struct history_step *step)
{
    int worst = PART_ACT;
    for (int part = PART_REST; part < PART_COUNT; part++)
        worst = wait_of(step, part) > wait_of(step, worst) ? part : worst;
    return worst;
}

static bool is_nothing(const struct history_step *step, int part)
{
    return wait_of(step, part) * 50 < step->step_ns;
}

void waterfall_waiting(const struct view *view, const struct wire_process_row *process, const struct history_step *step, char *out, size_t size)
{
    int worst = worst_of(step);
    const char *peer = peer_of(view, process, worst);
    char share[WORDS];
    out[0] = '\0';
    if (!is_nothing(step, worst) && step->step_ns)
        snprintf(out, size, "waits for %s%s%s, %s of the step", parts[worst].name, *peer ? " from " : "", peer,
                 words_percent(&view->style, (double)wait_of(step, worst) / (double)step->step_ns, share, sizeof share));
}

/* "1.05 s: 512 ms gradient of r0s1": the cause that cost this process most. */
static void draw_reason(const struct view *view, const struct wire_process_row *process, const struct history_step *step,
                        struct surface *surface, int row, int column, int width)
{
    char time[WORDS], whole[WORDS];
    int worst = worst_of(step);
    words_duration(&view->style, (double)step->step_ns / 1e9, whole, sizeof whole);
    words_duration(&view->style, (double)wait_of(step, worst) / 1e9, time, sizeof time);
    const char *peer = peer_of(view, process, worst);
    if (is_nothing(step, worst))
        surface_print(surface, row, column, width, INK_PLAIN, "%s, no waiting", whole);
    else
        surface_print(surface, row, column, width, INK_PLAIN, "%s: %s %s%s%s%s", whole, time, worst == PART_SEND ? "no " : "",
                      parts[worst].name, *peer ? " of " : "", peer);
}

/* ---- all of them ---- */

static void draw_legend(struct surface *surface, int row, struct area area)
{
    int at = area.column;
    for (int i = 0; i < PART_COUNT; i++) { /* data and rest last */
        int part = (PART_COMPUTE + i) % PART_COUNT;
        int width = surface_width(parts[part].name) + 2;
        if (at + width > area.column + area.columns)
            return;
        surface_put(surface, row, at, parts[part].fill, parts[part].ink);
        surface_text(surface, row, at + 2, width, INK_DIM, parts[part].name);
        at += width + 2;
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

static void draw_heading(const struct view *view, const struct history_step *step, const struct span *span, struct surface *surface,
                         struct area area)
{
    char loss[WORDS], norm[WORDS], when[WORDS], rate[WORDS], length[WORDS];
    words_real(&view->style, step->loss, 4, loss, sizeof loss);
    words_real(&view->style, step->norm, 3, norm, sizeof norm);
    words_clock((int64_t)step->wall_ms, when, sizeof when);
    words_real(&view->style, step->mask_rate, 3, rate, sizeof rate);
    words_duration(&view->style, span->to - span->from, length, sizeof length);
    surface_print(surface, area.row, area.column, area.columns, INK_BOLD,
                  "frozen at step %" PRIu64 " (%s), %s: loss %s, norm %s, mask rate %s, learning rate %.3g", view->frozen_step, when, length,
                  loss, norm, rate, step->learning_rate);
}

void waterfall_draw(struct view *view, struct surface *surface, struct area area)
{
    const struct history_step *any = any_of_step(view);
    int reason = area.columns >= 110 ? 40 : 33, row = 2, bar = area.columns - NAME_COLUMNS - reason - 3;
    if (area.rows < 3)
        return;
    if (!any) {
        surface_print(surface, area.row, area.column, area.columns, INK_WARN,
                      "frozen at step %" PRIu64 ": the journal does not know (any more) where its time went", view->frozen_step);
        return;
    }
    struct span span = span_of(view);
    draw_heading(view, any, &span, surface, area);
    draw_legend(surface, area.row + 1, area);
    for (size_t i = 0; i < view->state.process_count && row < area.rows; i++) {
        const struct wire_process_row *process = &view->state.processes[i].row;
        const struct history_step *step = history_find(&view->history, process->process, view->frozen_step);
        if (!step)
            continue;
        surface_text(surface, area.row + row, area.column, NAME_COLUMNS, INK_BOLD, process->process);
        if (step->timeline[0] && bar > 0)
            draw_bar(step, began(view, process, step), &span, surface, area.row + row, area.column + NAME_COLUMNS + 1, bar);
        draw_reason(view, process, step, surface, area.row + row, area.column + area.columns - reason, reason);
        row++;
    }
}

/* What is drawn beside the waterfall is of the same second. */
void waterfall_find(struct view *view)
{
    view->frozen_tick = history_tick(waterfall_wall_ms(view));
}

uint64_t waterfall_wall_ms(const struct view *view)
{
    const struct history_step *any = view->frozen ? any_of_step(view) : NULL;
    return any ? any->wall_ms : 0;
}

void waterfall_move(struct view *view, int by)
{
    uint64_t oldest, known = history_steps(&view->history, &oldest), step = view->frozen_step;
    uint64_t newest = known > view->frozen_at ? known : view->frozen_at, far = (uint64_t)(by < 0 ? -by : by);
    if (newest == 0)
        return;
    step = by > 0 ? step + far : step > far ? step - far : 0;
    view->frozen_step = step < oldest ? oldest : step > newest ? newest : step;
}

void waterfall_recalled(struct view *view)
{
    view->frozen_at = 0;
    waterfall_move(view, 0);
}
