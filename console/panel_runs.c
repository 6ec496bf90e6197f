/*
 * Panel Runs: what runs there are on this machine; Enter opens one.
 */
#include <string.h>

#include "console/view.h"
#include "console/words.h"

static const struct grid_column columns[] = {
    {.title = "run", .least = 10}, {.title = "state"}, {.title = "changed", .right = true},
};

static int cell(int row, int column, char *out, size_t size, void *arg)
{
    const struct view *view = arg;
    const struct view_run *run = &view->runs[row];
    char age[WORDS];
    double seconds = (double)((int64_t)view->now_wall_ms - run->changed_wall_ms) / 1000;
    if (column == 0)
        snprintf(out, size, "%s", run->name);
    else if (column == 1)
        snprintf(out, size, "%s", run->running ? "● going" : "○ record");
    else
        snprintf(out, size, "%s ago", words_duration(&view->style, seconds < 0 ? 0 : seconds, age, sizeof age));
    return column == 1 && run->running ? INK_GOOD : run->running ? INK_PLAIN : INK_DIM;
}

static void draw(struct view *view, struct surface *surface, struct area area)
{
    const struct grid grid = {.columns = columns, .column_count = 3, .rows = (int)view->run_count, .cell = cell, .arg = view,
                              .empty = "no runs yet"};
    struct area list = {area.row + 1, area.column + 1, area.rows - 1, area.columns - 2};
    if (!view->run_count) {
        static const char *const steps[] = {"kedge new NAME          write a commented profile, NAME.ini",
                                            "kedge check NAME.ini    validate it",
                                            "kedge plan NAME.ini     what will run where, and what it costs",
                                            "kedge run NAME.ini      start it and watch"};
        surface_text(surface, list.row, list.column, list.columns, INK_BOLD, "no runs yet");
        for (int i = 0; i < 4; i++)
            surface_text(surface, list.row + 2 + i, list.column + 2, list.columns - 2, INK_PLAIN, steps[i]);
        return;
    }
    grid_draw(&grid, &view->places[PANEL_RUNS], surface, list);
}

static bool act(struct view *view, enum act act)
{
    struct grid_place *place = &view->places[PANEL_RUNS];
    if (act == ACT_OPEN && place->selected < (int)view->run_count) {
        struct wish *wish = view_wish(view, WISH_OPEN);
        snprintf(wish->name, sizeof wish->name, "%s", view->runs[place->selected].name);
        return true;
    }
    return grid_act(place, (int)view->run_count, act);
}

static void copy(const struct view *view, char *out, size_t size)
{
    int row = view->places[PANEL_RUNS].selected;
    if (row < (int)view->run_count)
        snprintf(out, size, "%s", view->runs[row].name);
}

const struct panel_methods panel_runs = {.draw = draw, .act = act, .copy = copy};
