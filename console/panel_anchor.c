/*
 * Panel Anchor, for runs that have one: how fresh its work is, what travels to it and back, and what it said.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "console/plot.h"
#include "console/view.h"
#include "console/words.h"

static const struct state_process *find_anchor(const struct view *view, int number)
{
    for (size_t i = 0; i < view->state.process_count; i++)
        if (view->state.processes[i].row.role == ROLE_ANCHOR && number-- == 0)
            return &view->state.processes[i];
    return NULL;
}

static int count_anchors(const struct view *view)
{
    int count = 0;
    while (find_anchor(view, count))
        count++;
    return count;
}

/* How many steps the run is ahead of the newest one that the anchor has seen. */
static int draw_freshness(const struct view *view, const struct state_process *anchor, struct surface *surface, struct area area)
{
    const struct wire_run_state *run = &view->state.run;
    char memory[WORDS], age[WORDS];
    uint64_t behind = run->step > anchor->row.step ? run->step - anchor->row.step : 0;
    int row = area.row;
    surface_print(surface, row++, area.column, area.columns, INK_BOLD, "%s on %s", anchor->row.process, anchor->row.host);
    surface_print(surface, row++, area.column, area.columns, INK_PLAIN, "at step %" PRIu64 ", the run at %" PRIu64 ": %" PRIu64
                  " steps behind; 20 to 25 are fresh, 50 are too old", anchor->row.step, run->step, behind);
    if (area.columns > 24)
        surface_bar(surface, row++, area.column, area.columns > 62 ? 62 : area.columns - 2,
                    behind <= 25 ? INK_GOOD : behind < 50 ? INK_WARN : INK_BAD, (double)behind / 50);
    surface_print(surface, row++, area.column, area.columns, INK_DIM, "memory %s, heard %s ago%s%s",
                  words_bytes(&view->style, anchor->row.memory_bytes, memory, sizeof memory),
                  words_age(&view->style, state_process_age_ns(anchor, view->now_ns), age, sizeof age),
                  anchor->row.waiting[0] ? "; " : "", anchor->row.waiting);
    return row + 1;
}

static int draw_roads(const struct view *view, const struct state_process *anchor, struct surface *surface, struct area area, int row)
{
    const char *name = anchor->row.process;
    for (size_t i = 0; i < view->state.road_count && row < area.row + area.rows; i++) {
        const struct wire_road_row *road = &view->state.roads[i].row;
        char rate[WORDS], sent[WORDS];
        if (strcmp(road->from, name) != 0 && strcmp(road->to, name) != 0)
            continue;
        words_rate(&view->style, road->bytes_per_second, rate, sizeof rate);
        words_bytes(&view->style, road->sent_bytes, sent, sizeof sent);
        int used = surface_print(surface, row, area.column, area.columns, INK_PLAIN, "%-6.20s → %-6.20s %-8s %10s %12s ", road->from,
                                 road->to, wire_lane_name(road->lane), rate, sent);
        plot_spark(surface, row++, area.column + used + 1, area.columns - used - 2, INK_RATE, history_rate(&view->history, i),
                   view_tick(view), NAN);
    }
    return row + 1;
}

static void draw_words(const struct view *view, const struct state_process *anchor, struct surface *surface, struct area area, int row)
{
    int room = area.row + area.rows - row;
    for (size_t i = view->state.event_count; i > 0 && room > 0; i--) {
        const struct wire_event_row *event = &view->state.events[i - 1];
        char clock[WORDS];
        if (strcmp(event->source, anchor->row.process) != 0 && strstr(event->code, "anchor") == NULL &&
            strstr(event->code, "snapshot") == NULL)
            continue;
        surface_print(surface, row++, area.column, area.columns, event->level == EVENT_INFO ? INK_DIM : INK_WARN, "%s %s: %s",
                      words_clock((int64_t)event->wall_ms, clock, sizeof clock), event->code, event->text);
        room--;
    }
}

static void draw(struct view *view, struct surface *surface, struct area area)
{
    struct grid_place *place = &view->places[PANEL_ANCHOR];
    int count = count_anchors(view);
    struct area inside = {area.row + 1, area.column + 1, area.rows - 1, area.columns - 2};
    place->selected = place->selected >= count ? count - 1 : place->selected;
    const struct state_process *anchor = find_anchor(view, place->selected < 0 ? 0 : place->selected);
    if (!anchor) {
        surface_text(surface, inside.row, inside.column, inside.columns, INK_DIM, "this run has no anchor");
        return;
    }
    int row = draw_freshness(view, anchor, surface, inside);
    row = draw_roads(view, anchor, surface, inside, row);
    draw_words(view, anchor, surface, inside, row);
}

static bool act(struct view *view, enum act act)
{
    return grid_act(&view->places[PANEL_ANCHOR], count_anchors(view), act);
}

static void copy(const struct view *view, char *out, size_t size)
{
    const struct state_process *anchor = find_anchor(view, view->places[PANEL_ANCHOR].selected);
    if (anchor)
        snprintf(out, size, "%s step %" PRIu64 " of run step %" PRIu64, anchor->row.process, anchor->row.step, view->state.run.step);
}

const struct panel_methods panel_anchor = {.draw = draw, .act = act, .copy = copy};
