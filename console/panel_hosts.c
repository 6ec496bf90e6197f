/*
 * Panel Hosts: a row per host, a row per process with what it waits for, and the end of the selected one's log.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "console/hosts.h"
#include "console/report.h"
#include "console/view.h"
#include "console/words.h"
#include "ssh/base/mem.h"

enum column { PROCESS, HOST, STATE, LAYERS, STEP, COMPUTES, MEMORY, PID, HEARD, WAITING, COLUMNS };

static const struct grid_column columns[COLUMNS] = {
    [PROCESS] = {.title = "process"}, [HOST] = {.title = "host", .least = 4}, [STATE] = {.title = "state"},
    [LAYERS] = {.title = "layers", .importance = 5}, [STEP] = {.title = "step", .right = true, .importance = 4},
    [COMPUTES] = {.title = "computes", .right = true, .importance = 1}, [MEMORY] = {.title = "memory", .right = true, .importance = 2},
    [PID] = {.title = "pid", .right = true, .importance = 6}, [HEARD] = {.title = "heard", .right = true},
    [WAITING] = {.title = "waits", .least = 12, .importance = 3},
};

struct entry {
    int process;
    double key;
};

struct list {
    const struct view *view;
    struct entry *entries;
    int count;
};

static double number_of(const struct view *view, int process, int column)
{
    const struct state_process *at = &view->state.processes[process];
    switch (column) {
    case STEP:
        return (double)at->row.step;
    case COMPUTES:
        return at->row.compute_share;
    case MEMORY:
        return (double)at->row.memory_bytes;
    case PID:
        return at->row.pid;
    case HEARD:
        return (double)state_process_age_ns(at, view->now_ns);
    case STATE:
        return at->row.state;
    default:
        return at->row.first_layer;
    }
}

static int compare(const void *one, const void *other, void *arg)
{
    const struct list *list = arg;
    const struct grid_place *place = &list->view->places[PANEL_HOSTS];
    const struct entry *a = one, *b = other;
    const struct wire_process_row *first = &list->view->state.processes[a->process].row;
    const struct wire_process_row *second = &list->view->state.processes[b->process].row;
    int column = place->sorted - 1, order = 0;
    if (column == PROCESS || column == HOST || column == WAITING)
        order = column == PROCESS ? strverscmp(first->process, second->process)
                : column == HOST  ? strverscmp(first->host, second->host)
                                  : strcmp(second->waiting, first->waiting);
    else if (column >= 0)
        order = isnan(a->key) || isnan(b->key) ? isnan(a->key) - isnan(b->key) : (a->key < b->key) - (a->key > b->key);
    if (place->reverse)
        order = -order;
    return order ? order : a->process - b->process;
}

static struct list list_rows(const struct view *view)
{
    struct list list = {view, mem_array(view->state.process_count + 1, sizeof *list.entries), 0};
    int column = view->places[PANEL_HOSTS].sorted - 1;
    for (size_t i = 0; i < view->state.process_count; i++) {
        const struct wire_process_row *row = &view->state.processes[i].row;
        char text[3 * WIRE_NAME + WIRE_TEXT];
        snprintf(text, sizeof text, "%s host=%s role=%s %s %s", row->process, row->host, wire_role_name(row->role),
                 report_process_state(row->state), row->waiting);
        if (view_matches(view, PANEL_HOSTS, text))
            list.entries[list.count++] = (struct entry){(int)i, column >= 0 ? number_of(view, (int)i, column) : 0};
    }
    qsort_r(list.entries, (size_t)list.count, sizeof *list.entries, compare, &list);
    return list;
}

static void find_chosen(const struct list *list, struct grid_place *place)
{
    for (int i = 0; i < list->count; i++)
        if (list->entries[i].process + 1 == place->chosen)
            place->selected = i;
}

/* A word and a glyph for a state: colour alone says nothing to some. */
static int state_cell(const struct wire_process_row *row, bool stale, bool over, char *out, size_t size)
{
    static const char *const glyphs[] = {[PROCESS_WANTED] = "○", [PROCESS_STARTED] = "○", [PROCESS_READY] = "●", [PROCESS_EXITED] = "✗"};
    snprintf(out, size, "%s %s", row->state <= PROCESS_EXITED ? glyphs[row->state] : "?", report_process_state(row->state));
    if (row->state == PROCESS_EXITED && over) {
        snprintf(out, size, "○ ended");
        return INK_DIM;
    }
    return row->state == PROCESS_EXITED ? INK_BAD : row->state != PROCESS_READY ? INK_WARN : stale ? INK_DIM : INK_GOOD;
}

static int cell(int at, int column, char *out, size_t size, void *arg)
{
    const struct list *list = arg;
    const struct view *view = list->view;
    const struct state_process *process = &view->state.processes[list->entries[at].process];
    const struct wire_process_row *row = &process->row;
    uint64_t age_ns = state_process_age_ns(process, view->now_ns);
    bool stale = view_is_stale(view, age_ns), worker = row->role == ROLE_STAGE || row->role == ROLE_ANCHOR;
    switch (column) {
    case PROCESS:
        snprintf(out, size, "%s", row->process);
        return INK_BOLD;
    case HOST:
        snprintf(out, size, "%s", row->host);
        return INK_PLAIN;
    case STATE:
        return state_cell(row, stale, state_is_over(&view->state), out, size);
    case LAYERS:
        if (row->layers)
            snprintf(out, size, "%u%s%u", row->first_layer, style_glyph(&view->style, GLYPH_RANGE), row->first_layer + row->layers - 1u);
        return INK_DIM;
    case STEP:
        if (worker)
            snprintf(out, size, "%" PRIu64, row->step);
        return stale ? INK_DIM : INK_PLAIN;
    case COMPUTES:
        if (worker)
            words_percent(&view->style, row->compute_share, out, size);
        return stale ? INK_DIM : INK_PLAIN;
    case MEMORY:
        if (worker)
            words_bytes(&view->style, row->memory_bytes, out, size);
        return stale ? INK_DIM : INK_PLAIN;
    case PID:
        if (row->pid)
            snprintf(out, size, "%u", row->pid);
        return INK_DIM;
    case HEARD:
        if (row->state != PROCESS_EXITED)
            words_age(&view->style, age_ns, out, size);
        return stale ? INK_WARN : INK_DIM;
    default:
        if (!state_is_over(&view->state))
            snprintf(out, size, "%s", strncmp(row->waiting, "waits for ", 10) == 0 ? row->waiting + 10 : row->waiting);
        return stale ? INK_DIM : INK_PLAIN;
    }
}

/* ---- hosts ---- */

static const struct { int least, importance; } host_columns[HOSTS_COLUMNS] = {
    [HOSTS_NAME] = {4, 0}, [HOSTS_USE] = {0, 0}, [HOSTS_CPU] = {0, 0}, [HOSTS_LOAD] = {0, 8}, [HOSTS_MEMORY] = {0, 2}, [HOSTS_DISK] = {0, 1},
    [HOSTS_GPU] = {0, 1}, [HOSTS_GPU_MEMORY] = {0, 3}, [HOSTS_HEAT] = {0, 4}, [HOSTS_POWER] = {0, 6}, [HOSTS_CLOCK] = {0, 1},
    [HOSTS_HEARD] = {0, 0}, [HOSTS_LOGIN] = {0, 0}, [HOSTS_PROCESSES] = {0, 5}, [HOSTS_PRICE] = {0, 7},
};

static int host_cell(int at, int column, char *out, size_t size, void *arg)
{
    const struct view *view = arg;
    const struct state_host *host = &view->state.hosts[at];
    bool worries = hosts_cell(&view->state, (size_t)at, (enum hosts_column)column, &view->style, view->now_ns, out, size);
    bool stale = view_is_stale(view, state_host_age_ns(host, view->now_ns));
    return stale ? INK_DIM : worries ? INK_WARN : column == HOSTS_NAME ? INK_BOLD : INK_PLAIN;
}

/* The host of the selected process is in sight. Returns the rows that were used. */
static int draw_hosts(struct view *view, const struct list *list, struct surface *surface, struct area area)
{
    struct grid_column shown[HOSTS_COLUMNS];
    int count = (int)view->state.host_count, most = area.rows / 4, at = view->places[PANEL_HOSTS].selected;
    struct grid_place place = {0};
    if (!count || most < 2)
        return 0;
    for (int column = 0; column < HOSTS_COLUMNS; column++)
        shown[column] = (struct grid_column){.title = hosts_title((enum hosts_column)column), .right = column > HOSTS_USE,
                                             .least = host_columns[column].least, .importance = host_columns[column].importance};
    for (int i = 0; i < count && at < list->count; i++)
        if (strcmp(view->state.hosts[i].row.host, view->state.processes[list->entries[at].process].row.host) == 0)
            place.selected = i;
    const struct grid grid = {.columns = shown, .column_count = HOSTS_COLUMNS, .rows = count, .cell = host_cell, .arg = view,
                              .empty = "", .no_focus = true};
    int rows = count + 1 < most ? count + 1 : most;
    grid_draw(&grid, &place, surface, (struct area){area.row, area.column + 1, rows, area.columns - 2});
    return rows + 1;
}

/* ---- the log ---- */

/* "2026-11-29T19:48:59.123456Z info …": the day and the microseconds are the same on all rows, or nobody's question. */
static void cut_line(const char *from, int length, char *out, size_t size)
{
    if (length > 28 && from[10] == 'T' && from[26] == 'Z')
        snprintf(out, size, "%.8s%.*s", from + 11, length - 27, from + 27);
    else
        snprintf(out, size, "%.*s", length, from);
}

/* From the end: as many whole lines as fit; a wrapped line takes several rows. */
static void draw_log(struct view *view, struct surface *surface, struct area area)
{
    const char *end = view->log + strlen(view->log);
    const struct filter *filter = &view->filters[VIEW_LOG_FILTER];
    int row = area.rows;
    surface_fill(surface, (struct area){area.row, area.column, 1, area.columns}, 0x2500, INK_FRAME);
    int at = area.column + 1;
    at += surface_print(surface, area.row, at, area.columns - 2, INK_FRAME, " log of %s ", view->log_name);
    if (filter->pattern[0])
        surface_print(surface, area.row, at, area.column + area.columns - 1 - at, INK_KEY, "lines %s %s ", filter->inverse ? "without" : "with",
                      filter->pattern);
    if (!view->has_folder || !view->log[0]) {
        surface_text(surface, area.row + 1, area.column + 1, area.columns - 2, INK_DIM,
                     view->has_folder ? "its log is empty, or on its host only" : "logs are on the machine of the run: kedge logs");
        return;
    }
    while (row > 1 && end > view->log) {
        const char *begin = end - 1;
        char line[2100];
        while (begin > view->log && begin[-1] != '\n')
            begin--;
        cut_line(begin, (int)(end - 1 - begin), line, sizeof line);
        end = begin;
        if (!filter_match(filter, line))
            continue;
        int width = surface_width(line), room = area.columns - 2 > 0 ? area.columns - 2 : 1;
        int rows = view->wrap && width > room ? (width + room - 1) / room + 1 : 1;
        rows = rows > row - 1 ? row - 1 : rows;
        row -= rows;
        int ink = strstr(line, " error ") ? INK_BAD : strstr(line, " warn ") ? INK_WARN : INK_PLAIN;
        if (rows > 1)
            surface_wrap(surface, (struct area){area.row + row, area.column + 1, rows, room}, ink, line);
        else
            surface_text(surface, area.row + row, area.column + 1, room, ink, line);
    }
    if (row == area.rows)
        surface_text(surface, area.row + 1, area.column + 1, area.columns - 2, INK_DIM, "no line of its end matches");
}

static void choose_log(struct view *view, const struct list *list)
{
    int at = view->places[PANEL_HOSTS].selected;
    const char *process = at < list->count ? view->state.processes[list->entries[at].process].row.process : "";
    if (strcmp(view->log_name, process) == 0)
        return;
    snprintf(view->log_name, sizeof view->log_name, "%s", process); /* screen.c reads it now and once a second */
    view->log[0] = '\0';
}

static void draw(struct view *view, struct surface *surface, struct area area)
{
    struct grid_place *place = &view->places[PANEL_HOSTS];
    struct list list = list_rows(view);
    find_chosen(&list, place);
    if (view->log_alone) {
        choose_log(view, &list);
        draw_log(view, surface, area);
        mem_free(list.entries);
        return;
    }
    int used = draw_hosts(view, &list, surface, area);
    area.row += used;
    area.rows -= used;
    int most = area.rows - (area.rows >= 12 ? area.rows / 2 : 0), rows = list.count + 2 < most ? list.count + 2 : most;
    const struct grid grid = {.columns = columns, .column_count = COLUMNS, .rows = list.count, .cell = cell, .arg = &list,
                              .empty = view->state.process_count ? "no process matches" : "no process is known yet"};
    grid_draw(&grid, place, surface, (struct area){area.row, area.column + 1, rows, area.columns - 2});
    choose_log(view, &list);
    if (area.rows - rows >= 3)
        draw_log(view, surface, (struct area){area.row + rows, area.column, area.rows - rows, area.columns});
    mem_free(list.entries);
}

static bool move(struct view *view, enum act act)
{
    struct grid_place *place = &view->places[PANEL_HOSTS];
    struct list list = list_rows(view);
    find_chosen(&list, place);
    bool mine = grid_act(place, list.count, act);
    if (mine && place->selected < list.count)
        place->chosen = list.entries[place->selected].process + 1;
    if (mine)
        choose_log(view, &list);
    mem_free(list.entries);
    return mine;
}

static void act_on_host(struct view *view, enum order_kind order)
{
    struct list list = list_rows(view);
    int at = view->places[PANEL_HOSTS].selected;
    find_chosen(&list, &view->places[PANEL_HOSTS]);
    if (at < list.count)
        view_act_on_host(view, order, view->state.processes[list.entries[at].process].row.host, "");
    else
        view_say(view, INK_WARN, "no host is selected");
    mem_free(list.entries);
}

static bool act(struct view *view, enum act act)
{
    struct grid_place *place = &view->places[PANEL_HOSTS];
    switch (act) {
    case ACT_SORT:
        place->sorted = (place->sorted + 1) % (COLUMNS + 1);
        return true;
    case ACT_SORT_BACK:
        place->sorted = (place->sorted + COLUMNS) % (COLUMNS + 1);
        return true;
    case ACT_REVERSE:
        place->reverse = !place->reverse;
        return true;
    case ACT_WRAP:
        view->wrap = !view->wrap;
        return true;
    case ACT_OPEN:
        view->log_alone = !view->log_alone;
        return true;
    case ACT_RESTART:
        act_on_host(view, ORDER_RESTART);
        return true;
    case ACT_DRAIN:
        act_on_host(view, ORDER_DRAIN);
        return true;
    case ACT_REPLACE:
        act_on_host(view, ORDER_REPLACE);
        return true;
    case ACT_PAGER:
        if (view->has_folder && view->log_name[0]) {
            struct wish *wish = view_wish(view, WISH_PAGER);
            snprintf(wish->name, sizeof wish->name, "%s", view->log_name);
        }
        return true;
    default:
        return move(view, act);
    }
}

static void copy(const struct view *view, char *out, size_t size)
{
    struct list list = list_rows(view);
    int at = view->places[PANEL_HOSTS].selected;
    if (at < list.count) {
        const struct wire_process_row *row = &view->state.processes[list.entries[at].process].row;
        snprintf(out, size, "%s on %s, pid %u, %s", row->process, row->host, row->pid, report_process_state(row->state));
    }
    mem_free(list.entries);
}

const struct panel_methods panel_hosts = {.draw = draw, .act = act, .copy = copy};
