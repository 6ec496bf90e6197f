/*
 * Panel Links: a row per road and lane, sorted and filtered; the history of the selected one, with the dense figure beside it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "console/plot.h"
#include "console/report.h"
#include "console/view.h"
#include "console/words.h"
#include "ssh/base/mem.h"

enum column { FROM, TO, LANE, NOW, MEAN, PEAK, CAPACITY, RTT, QUEUE, HELD, BYTES, DENSE, PRICE, COLUMNS };

static const struct grid_column columns[COLUMNS] = {
    [FROM] = {.title = "from", .least = 5},
    [TO] = {.title = "to", .least = 5},
    [LANE] = {.title = "lane"},
    [NOW] = {.title = "now", .right = true},
    [MEAN] = {.title = "mean", .right = true, .importance = 7},
    [PEAK] = {.title = "peak", .right = true, .importance = 6},
    [CAPACITY] = {.title = "capacity", .right = true, .importance = 4},
    [RTT] = {.title = "rtt", .right = true, .importance = 2},
    [QUEUE] = {.title = "queue", .right = true, .importance = 5},
    [HELD] = {.title = "held by", .importance = 3, .least = 8},
    [BYTES] = {.title = "sent", .right = true, .importance = 1},
    [DENSE] = {.title = "of dense", .right = true, .importance = 1},
    [PRICE] = {.title = "an hour", .right = true, .importance = 6}, /* in money */
};

_Static_assert(BYTES == PANEL_LINKS_SENT, "view.c sorts by it");

struct entry {
    int road; /* in the state */
    double key;
};

struct list { /* which rows of the state are shown, in which order */
    const struct view *view;
    struct entry *entries;
    int count;
};

static double share_of_dense(const struct wire_road_row *row)
{
    if (!row->dense_bytes || row->sent_bytes < row->evaluation_bytes)
        return NAN;
    return (double)(row->sent_bytes - row->evaluation_bytes) / (double)row->dense_bytes;
}

static double number_of(const struct view *view, int road, int column)
{
    const struct wire_road_row *row = &view->state.roads[road].row;
    const struct trail *trail = history_rate(&view->history, (size_t)road);
    uint64_t tick = view_tick(view);
    switch (column) {
    case NOW:
        return view_rate(view, (size_t)road);
    case MEAN:
        return trail_mean(trail, tick, TRAIL_POINTS);
    case PEAK:
        return trail_peak(trail, tick, TRAIL_POINTS);
    case CAPACITY:
        return row->capacity_bps ? (double)row->capacity_bps / 8 : NAN;
    case RTT:
        return row->rtt_ns ? (double)row->rtt_ns / 1e9 : NAN;
    case QUEUE:
        return (double)row->queued_bytes;
    case BYTES:
        return (double)row->sent_bytes;
    case DENSE:
        return share_of_dense(row);
    case PRICE:
        return row->price_per_hour;
    case LANE:
        return row->lane;
    default:
        return row->hold_reasons;
    }
}

static int compare(const void *one, const void *other, void *arg)
{
    const struct list *list = arg;
    const struct grid_place *place = &list->view->places[PANEL_LINKS];
    const struct entry *a = one, *b = other;
    const struct wire_road_row *first = &list->view->state.roads[a->road].row, *second = &list->view->state.roads[b->road].row;
    int column = place->sorted - 1, order = 0;
    if (column == FROM || column == TO)
        order = strverscmp(column == FROM ? first->from : first->to, column == FROM ? second->from : second->to);
    else if (column >= 0) /* the greatest first, what is not known last */
        order = isnan(a->key) || isnan(b->key) ? isnan(a->key) - isnan(b->key) : (a->key < b->key) - (a->key > b->key);
    if (place->reverse)
        order = -order;
    return order ? order : a->road - b->road;
}

static struct list list_rows(const struct view *view)
{
    struct list list = {view, mem_array(view->state.road_count + 1, sizeof *list.entries), 0};
    int column = view->places[PANEL_LINKS].sorted - 1;
    for (size_t i = 0; i < view->state.road_count; i++) {
        const struct wire_road_row *row = &view->state.roads[i].row;
        char text[2 * WIRE_NAME + 64];
        snprintf(text, sizeof text, "%s %s %s", row->from, row->to, wire_lane_name(row->lane));
        if (view_matches(view, PANEL_LINKS, text))
            list.entries[list.count++] = (struct entry){(int)i, column > TO ? number_of(view, (int)i, column) : 0};
    }
    qsort_r(list.entries, (size_t)list.count, sizeof *list.entries, compare, &list);
    return list;
}

/* The road that was chosen stays chosen when others pass it by. */
static void find_chosen(const struct list *list, struct grid_place *place)
{
    for (int i = 0; i < list->count; i++)
        if (list->entries[i].road + 1 == place->chosen)
            place->selected = i;
}

static void choose(const struct list *list, struct grid_place *place)
{
    if (place->selected >= list->count)
        place->selected = list->count ? list->count - 1 : 0;
    place->chosen = list->count ? list->entries[place->selected].road + 1 : 0;
}

static int cell(int at, int column, char *out, size_t size, void *arg)
{
    const struct list *list = arg;
    const struct view *view = list->view;
    const struct state_road *road = &view->state.roads[list->entries[at].road];
    double value = column == FROM || column == TO || column == HELD ? 0 : number_of(view, list->entries[at].road, column);
    bool stale = view_is_stale(view, view->now_ns - road->heard_ns) && (column == NOW || column == QUEUE || column == HELD || column == PRICE);
    switch (column) {
    case FROM:
    case TO:
        snprintf(out, size, "%s", column == FROM ? road->row.from : road->row.to);
        return INK_PLAIN;
    case LANE:
        snprintf(out, size, "%s", wire_lane_name(road->row.lane));
        return INK_DIM;
    case NOW:
    case MEAN:
    case PEAK:
    case CAPACITY:
        words_rate(&view->style, value, out, size);
        return stale ? INK_DIM : column == NOW ? INK_RATE : INK_PLAIN;
    case RTT:
        words_duration(&view->style, value, out, size);
        return INK_PLAIN;
    case HELD:
        report_holds(road->row.hold_reasons, out, size);
        return stale ? INK_DIM : INK_WARN;
    case DENSE:
        words_percent(&view->style, value, out, size);
        return INK_GOOD;
    case PRICE:
        words_money(&view->style, value, out, size);
        return stale ? INK_DIM : INK_PLAIN;
    default:
        words_bytes(&view->style, (uint64_t)value, out, size);
        return stale || value == 0 ? INK_DIM : INK_PLAIN;
    }
}

/* ---- the selected road ---- */

static void draw_history(const struct view *view, int road, struct surface *surface, struct area area)
{
    const struct wire_road_row *row = &view->state.roads[road].row;
    const struct trail *trail = history_rate(&view->history, (size_t)road);
    char top[WORDS], sent[WORDS], dense[WORDS], share[WORDS], price[WORDS];
    int labels = 12;
    struct area plot = {area.row + 1, area.column + labels, area.rows - 2, area.columns - labels - 1};
    if (area.rows < 4)
        return;
    int used = surface_print(surface, area.row, area.column + 1, area.columns - 2, INK_BOLD, "%s → %s %s", row->from, row->to,
                             wire_lane_name(row->lane));
    words_bytes(&view->style, row->sent_bytes - (row->evaluation_bytes < row->sent_bytes ? row->evaluation_bytes : 0), sent, sizeof sent);
    words_bytes(&view->style, row->dense_bytes, dense, sizeof dense);
    words_percent(&view->style, share_of_dense(row), share, sizeof share);
    used += row->dense_bytes ? 3 + surface_print(surface, area.row, area.column + used + 4, area.columns - used - 5, INK_DIM,
                                                 "sent %s, %s of dense bf16's %s", sent, share, dense) : 0;
    if (isfinite(row->price_per_hour))
        surface_print(surface, area.row, area.column + used + 4, area.columns - used - 5, INK_PLAIN, "%s an hour",
                      words_money(&view->style, row->price_per_hour, price, sizeof price));
    double most = plot_columns(surface, plot, INK_RATE, trail, view_tick(view), NAN);
    if (!isfinite(most)) {
        surface_text(surface, plot.row, plot.column, plot.columns, INK_DIM, "its rate is drawn here as it is heard");
        return;
    }
    for (int i = 0; i < plot.rows; i++)
        surface_put(surface, plot.row + i, plot.column - 1, 0x2502, INK_FRAME);
    surface_right(surface, plot.row, area.column, labels - 2, INK_DIM, words_rate(&view->style, most, top, sizeof top));
    if (plot.rows > 2)
        surface_right(surface, plot.row + plot.rows - 1, area.column, labels - 2, INK_DIM, "0");
    surface_print(surface, plot.row + plot.rows, plot.column, plot.columns, INK_DIM, "%d s ago", plot.columns);
    surface_right(surface, plot.row + plot.rows, plot.column, plot.columns, INK_DIM, "now");
}

static void draw(struct view *view, struct surface *surface, struct area area)
{
    struct grid_place *place = &view->places[PANEL_LINKS];
    struct list list = list_rows(view);
    find_chosen(&list, place);
    int history = area.rows >= 36 ? 12 : area.rows >= 18 ? 8 : area.rows >= 14 ? 6 : 0;
    const struct grid grid = {.columns = columns, .column_count = COLUMNS, .rows = list.count, .cell = cell, .arg = &list,
                              .empty = view->state.road_count ? "no road matches" : "no road stands yet"};
    int needed = list.count + 3;
    int rows = needed < area.rows - history ? needed : area.rows - history; /* few roads leave more to the picture */
    grid_draw(&grid, place, surface, (struct area){area.row, area.column + 1, rows, area.columns - 2});
    if (place->selected < list.count && history)
        draw_history(view, list.entries[place->selected].road, surface,
                     (struct area){area.row + rows, area.column, area.rows - rows, area.columns});
    mem_free(list.entries);
}

static bool act(struct view *view, enum act act)
{
    struct grid_place *place = &view->places[PANEL_LINKS];
    if (act == ACT_SORT) {
        place->sorted = (place->sorted + 1) % (COLUMNS + 1);
    } else if (act == ACT_SORT_BACK) {
        place->sorted = (place->sorted + COLUMNS) % (COLUMNS + 1);
    } else if (act == ACT_REVERSE) {
        place->reverse = !place->reverse;
    } else {
        struct list list = list_rows(view);
        find_chosen(&list, place);
        bool mine = grid_act(place, list.count, act);
        choose(&list, place);
        mem_free(list.entries);
        return mine;
    }
    return true;
}

static void copy(const struct view *view, char *out, size_t size)
{
    struct list list = list_rows(view);
    int at = view->places[PANEL_LINKS].selected;
    size_t used = 0;
    for (int column = 0; column < COLUMNS && at < list.count; column++) {
        char text[GRID_CELL] = "";
        cell(at, column, text, sizeof text, &list);
        int got = snprintf(out + used, size - used, "%s%s", column ? "\t" : "", text);
        used = got < 0 || used + (size_t)got >= size ? size - 1 : used + (size_t)got;
    }
    mem_free(list.entries);
}

const struct panel_methods panel_links = {.draw = draw, .act = act, .copy = copy};
