/*
 * Panel Events: what happened, newest at the bottom; levels, a filter, repeated events folded into one row, follow.
 */
#include <inttypes.h>
#include <string.h>

#include "console/report.h"
#include "console/view.h"
#include "console/words.h"
#include "ssh/base/mem.h"

enum column { TIME, LEVEL, STEP, SOURCE, CODE, TIMES, TEXT, COLUMNS };

static const struct grid_column columns[COLUMNS] = {
    [TIME] = {.title = "time"},   [LEVEL] = {.title = "level"},  [STEP] = {.title = "step", .right = true, .importance = 1},
    [SOURCE] = {.title = "from"}, [CODE] = {.title = "what", .importance = 2, .least = 8}, [TIMES] = {.title = ""},
    [TEXT] = {.title = "", .least = 44},
};

struct list { /* shown rows: the newest event of each fold, and how many it stands for */
    const struct view *view;
    int *index, *times;
    int count;
};

static bool is_wanted(const struct view *view, const struct wire_event_row *row)
{
    char text[WIRE_TEXT + 4 * WIRE_NAME];
    if (row->level < view->event_level)
        return false;
    snprintf(text, sizeof text, "%s %s %s %s", report_event_level(row->level), row->source, row->code, row->text);
    return view_matches(view, PANEL_EVENTS, text);
}

static bool is_repeated(const struct wire_event_row *one, const struct wire_event_row *other)
{
    return one->level == other->level && strcmp(one->source, other->source) == 0 && strcmp(one->code, other->code) == 0 &&
           strcmp(one->text, other->text) == 0;
}

static struct list list_rows(const struct view *view)
{
    const struct state *state = &view->state;
    struct list list = {view, mem_array(state->event_count + 1, sizeof(int)), mem_array(state->event_count + 1, sizeof(int)), 0};
    for (size_t i = 0; i < state->event_count; i++) {
        if (!is_wanted(view, &state->events[i]))
            continue;
        if (view->fold && list.count && is_repeated(&state->events[list.index[list.count - 1]], &state->events[i])) {
            list.index[list.count - 1] = (int)i;
            list.times[list.count - 1]++;
            continue;
        }
        list.index[list.count] = (int)i;
        list.times[list.count++] = 1;
    }
    return list;
}

static void clear_list(struct list *list)
{
    mem_free(list->index);
    mem_free(list->times);
}

static int ink_of(int level)
{
    return level == EVENT_ALERT ? INK_BAD : level == EVENT_WARN ? INK_WARN : INK_PLAIN;
}

static int cell(int at, int column, char *out, size_t size, void *arg)
{
    const struct list *list = arg;
    const struct wire_event_row *row = &list->view->state.events[list->index[at]];
    switch (column) {
    case TIME:
        words_clock((int64_t)row->wall_ms, out, size);
        return INK_DIM;
    case LEVEL:
        snprintf(out, size, "%s", report_event_level(row->level));
        return ink_of(row->level);
    case STEP:
        if (row->step)
            snprintf(out, size, "%" PRIu64, row->step);
        return INK_DIM;
    case SOURCE:
        snprintf(out, size, "%s", row->source);
        return INK_PLAIN;
    case CODE:
        snprintf(out, size, "%s", row->code);
        return INK_DIM;
    case TIMES:
        if (list->times[at] > 1)
            snprintf(out, size, "×%d", list->times[at]);
        return INK_WARN;
    default:
        snprintf(out, size, "%s", row->text);
        return ink_of(row->level);
    }
}

static void draw_whole(const struct list *list, int at, struct surface *surface, struct area area)
{
    const struct wire_event_row *row = &list->view->state.events[list->index[at]];
    char text[WIRE_TEXT + 3 * WIRE_NAME], date[WORDS];
    surface_fill(surface, (struct area){area.row, area.column, 1, area.columns}, 0x2500, INK_FRAME);
    snprintf(text, sizeof text, "%s %s: %s", words_date((int64_t)row->wall_ms, date, sizeof date), row->source, row->text);
    surface_wrap(surface, (struct area){area.row + 1, area.column + 1, area.rows - 1, area.columns - 2}, ink_of(row->level), text);
}

static void draw(struct view *view, struct surface *surface, struct area area)
{
    static const char *const levels[] = {"all events", "warnings and alerts", "alerts"};
    struct grid_place *place = &view->places[PANEL_EVENTS];
    struct list list = list_rows(view);
    int whole = area.rows >= 14 ? 4 : 0;
    const struct grid grid = {.columns = columns, .column_count = COLUMNS, .rows = list.count, .cell = cell, .arg = &list,
                              .empty = view->state.event_count ? "no event is shown with this level and filter" : "nothing happened yet"};
    if (view->follow)
        place->selected = list.count - 1;
    surface_print(surface, area.row, area.column + 1, area.columns - 2, INK_DIM, "%s%s%s", levels[view->event_level],
                  view->fold ? ", repeated ones folded" : "", view->follow ? ", following" : "");
    grid_draw(&grid, place, surface, (struct area){area.row + 1, area.column + 1, area.rows - 1 - whole, area.columns - 2});
    if (whole && place->selected < list.count)
        draw_whole(&list, place->selected, surface, (struct area){area.row + area.rows - whole, area.column, whole, area.columns});
    clear_list(&list);
}

/* The next row with a warning or an alert in that direction. */
static void find_warning(struct view *view, const struct list *list, int by)
{
    for (int i = view->places[PANEL_EVENTS].selected + by; i >= 0 && i < list->count; i += by) {
        if (view->state.events[list->index[i]].level == EVENT_INFO)
            continue;
        view->places[PANEL_EVENTS].selected = i;
        view->follow = false;
        return;
    }
    view_say(view, INK_WARN, "no more warnings %s", by > 0 ? "below" : "above");
}

static char *all_text(const struct view *view, const struct list *list)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    for (int i = 0; out && i < list->count; i++) {
        const struct wire_event_row *row = &view->state.events[list->index[i]];
        char date[WORDS];
        if (list->times[i] > 1)
            fprintf(out, "%d times, at last ", list->times[i]);
        fprintf(out, "%s %-5s %s %s%s%s\n", words_date((int64_t)row->wall_ms, date, sizeof date), report_event_level(row->level),
                row->source, row->code, row->text[0] ? ": " : "", row->text);
    }
    if (out)
        fclose(out);
    char *own = mem_text(text ? text : "");
    free(text);
    return own;
}

char *view_events_text(const struct view *view)
{
    struct list list = list_rows(view);
    char *text = all_text(view, &list);
    clear_list(&list);
    return text;
}

static void ask_where(struct view *view)
{
    char name[PROMPT_TEXT];
    snprintf(name, sizeof name, "%.60s-events.txt", view->run);
    view_prompt(view, VIEW_SAVE, "save into: ", name);
}

static bool act(struct view *view, enum act act)
{
    struct grid_place *place = &view->places[PANEL_EVENTS];
    struct list list = list_rows(view);
    bool mine = true;
    if (view->follow)
        place->selected = list.count - 1;
    switch (act) {
    case ACT_LEVEL:
        view->event_level = (view->event_level + 1) % (EVENT_ALERT + 1);
        break;
    case ACT_FOLD:
        view->fold = !view->fold;
        break;
    case ACT_FOLLOW:
        view->follow = !view->follow;
        break;
    case ACT_NEXT:
    case ACT_PREVIOUS:
        find_warning(view, &list, act == ACT_NEXT ? 1 : -1);
        break;
    case ACT_PAGER:
        view_wish(view, WISH_PAGER)->text = all_text(view, &list);
        break;
    case ACT_SAVE:
        ask_where(view);
        break;
    default:
        mine = grid_act(place, list.count, act);
        if (mine)
            view->follow = act == ACT_LAST;
    }
    clear_list(&list);
    return mine;
}

static void copy(const struct view *view, char *out, size_t size)
{
    struct list list = list_rows(view);
    int at = view->places[PANEL_EVENTS].selected;
    if (at >= 0 && at < list.count) {
        const struct wire_event_row *row = &view->state.events[list.index[at]];
        snprintf(out, size, "%s %s %s: %s", report_event_level(row->level), row->source, row->code, row->text);
    }
    clear_list(&list);
}

const struct panel_methods panel_events = {.draw = draw, .act = act, .copy = copy};
