/*
 * Panel Profiles: the profiles that are found by name, and one of them as a form: each setting with its value, help and range, what is
 * wrong with a value beside it while it is typed, what was changed before it is written; check, plan and launch.
 */
#include <string.h>

#include "console/view.h"
#include "console/words.h"
#include "ssh/base/mem.h"

enum list_column { NAME, WHERE, LIST_COLUMNS };
enum form_column { SETTING, VALUE, UNIT, RANGE, FORM_COLUMNS };

static const struct grid_column list_columns[LIST_COLUMNS] = {
    [NAME] = {.title = "profile"}, [WHERE] = {.title = "file", .least = 20},
};
static const struct grid_column form_columns[FORM_COLUMNS] = {
    [SETTING] = {.title = "setting"}, [VALUE] = {.title = "value", .least = 12}, [UNIT] = {.title = "unit", .importance = 2},
    [RANGE] = {.title = "range", .importance = 1, .least = 12},
};

static bool is_form(const struct view *view)
{
    return view->form.path[0];
}

static int list_cell(int row, int column, char *out, size_t size, void *arg)
{
    const struct view *view = arg;
    const char *path = view->profiles[row], *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    if (column == NAME)
        snprintf(out, size, "%.*s", (int)(strlen(base) > 4 ? strlen(base) - 4 : strlen(base)), base);
    else
        snprintf(out, size, "%s", path);
    return column == NAME ? INK_BOLD : INK_DIM;
}

static int form_cell(int at, int column, char *out, size_t size, void *arg)
{
    const struct view *view = arg;
    const struct form_row *row = &view->form.rows[at];
    bool changed = form_is_changed(&view->form, (size_t)at);
    switch (column) {
    case SETTING:
        snprintf(out, size, "%s%s", row->name, changed ? " *" : "");
        return changed ? INK_KEY : INK_PLAIN;
    case VALUE:
        snprintf(out, size, "%s", row->value[0] ? row->value : "(empty)");
        return changed ? INK_KEY : row->given ? INK_BOLD : INK_DIM; /* defaults are grey */
    case UNIT:
        snprintf(out, size, "%s", row->field->unit);
        return INK_DIM;
    default:
        field_range(row->field, out, size);
        return INK_DIM;
    }
}

/* Help of the selected row; while its value is typed, what is wrong with it. */
static void draw_about(const struct view *view, int at, struct surface *surface, struct area area)
{
    const struct form_row *row = &view->form.rows[at];
    struct why why = {0};
    char range[200];
    surface_fill(surface, (struct area){area.row, area.column, 1, area.columns}, 0x2500, INK_FRAME);
    field_range(row->field, range, sizeof range);
    surface_print(surface, area.row, area.column + 1, area.columns - 2, INK_FRAME, " %s: %s %s%s", row->name, range, row->field->unit,
                  row->field->live ? " (may change while a run goes on) " : " ");
    int used = surface_wrap(surface, (struct area){area.row + 1, area.column + 1, area.rows - 2, area.columns - 2}, INK_PLAIN,
                            row->field->help);
    struct area below = {area.row + 1 + used, area.column + 1, area.rows - 1 - used, area.columns - 2};
    if (view->prompt.open && view->prompt_for == VIEW_SETTING && form_try(&view->form, (size_t)at, view->prompt.text, &why) != 0)
        surface_wrap(surface, below, INK_BAD, why.text);
    else if (view->prompt.open && view->prompt_for == VIEW_SETTING)
        surface_text(surface, below.row, below.column, below.columns, INK_GOOD, "✓ Enter takes it, Esc leaves it");
    else if (form_changes(&view->form))
        surface_print(surface, below.row, below.column, below.columns, INK_KEY, "%zu changed: W shows them and writes the file",
                      form_changes(&view->form));
}

static void draw_form(struct view *view, struct surface *surface, struct area area)
{
    struct grid_place *place = &view->form_place;
    int about = area.rows >= 14 ? 5 : 4;
    const struct grid grid = {.columns = form_columns, .column_count = FORM_COLUMNS, .rows = (int)view->form.count, .cell = form_cell,
                              .arg = view, .empty = "nothing"};
    surface_print(surface, area.row, area.column + 1, area.columns - 2, INK_BOLD, "%s", view->form.path);
    grid_draw(&grid, place, surface, (struct area){area.row + 1, area.column + 1, area.rows - 1 - about, area.columns - 2});
    if (place->selected < (int)view->form.count)
        draw_about(view, place->selected, surface, (struct area){area.row + area.rows - about, area.column, about, area.columns});
}

static void draw(struct view *view, struct surface *surface, struct area area)
{
    const struct grid grid = {.columns = list_columns, .column_count = LIST_COLUMNS, .rows = (int)view->profile_count, .cell = list_cell,
                              .arg = view, .empty = "no profile is found: n makes one from a template"};
    if (is_form(view))
        draw_form(view, surface, area);
    else
        grid_draw(&grid, &view->places[PANEL_PROFILES], surface,
                  (struct area){area.row + 1, area.column + 1, area.rows - 1, area.columns - 2});
}

/* ---- acts ---- */

/* The profile that is open, or selected in the list. */
static const char *chosen(const struct view *view)
{
    int at = view->places[PANEL_PROFILES].selected;
    return is_form(view) ? view->form.path : at < (int)view->profile_count ? view->profiles[at] : NULL;
}

static void wish_for(struct view *view, enum wish_kind kind)
{
    const char *path = chosen(view);
    if (!path) {
        view_say(view, INK_WARN, "no profile is selected");
        return;
    }
    struct wish *wish = view_wish(view, kind);
    snprintf(wish->name, sizeof wish->name, "%s", path);
}

static void edit(struct view *view)
{
    char label[FORM_NAME + 4];
    size_t at = (size_t)view->form_place.selected;
    if (view->read_only) {
        view_say(view, INK_WARN, "this console only looks (--read-only)");
        return;
    }
    if (at >= view->form.count)
        return;
    snprintf(label, sizeof label, "%s = ", view->form.rows[at].name);
    view_prompt(view, VIEW_SETTING, label, view->form.rows[at].value);
}

static void ask_write(struct view *view)
{
    struct wish wish = {.kind = WISH_WRITE_PROFILE};
    if (!is_form(view) || !form_changes(&view->form)) {
        view_say(view, INK_WARN, "nothing was changed");
        return;
    }
    char *diff = form_diff(&view->form);
    snprintf(wish.name, sizeof wish.name, "%s", view->form.path);
    view_ask(view, "Write these changes? Comments stay.", diff, "", &wish);
    mem_free(diff);
}

static void ask_launch(struct view *view)
{
    struct wish wish = {.kind = WISH_LAUNCH};
    char twin[160];
    const char *path = chosen(view);
    if (is_form(view) && form_changes(&view->form)) {
        view_say(view, INK_WARN, "there are changes that are not written: W writes them, Esc drops them");
    } else if (!path) {
        view_say(view, INK_WARN, "no profile is selected");
    } else {
        snprintf(wish.name, sizeof wish.name, "%s", path);
        snprintf(twin, sizeof twin, "kedge run %.140s", path);
        view_ask(view, "Launch this run?", "Its programs are started on the hosts of the profile; then the screen shows it. Until they stand, "
                                           "Esc takes all back.", twin, &wish);
    }
}

static bool act(struct view *view, enum act act)
{
    switch (act) {
    case ACT_OPEN:
        if (is_form(view))
            edit(view);
        else
            wish_for(view, WISH_READ_PROFILE);
        return true;
    case ACT_NEW:
        view_prompt(view, VIEW_NEW, "name of the new profile: ", "");
        return true;
    case ACT_CHECK:
        wish_for(view, WISH_CHECK);
        return true;
    case ACT_PLAN:
        wish_for(view, WISH_PLAN);
        return true;
    case ACT_WRITE:
        ask_write(view);
        return true;
    case ACT_LAUNCH:
        ask_launch(view);
        return true;
    default:
        return is_form(view) ? grid_act(&view->form_place, (int)view->form.count, act)
                             : grid_act(&view->places[PANEL_PROFILES], (int)view->profile_count, act);
    }
}

static void copy(const struct view *view, char *out, size_t size)
{
    int at = view->form_place.selected;
    const char *path = chosen(view);
    if (is_form(view) && at < (int)view->form.count)
        snprintf(out, size, "%s=%s", view->form.rows[at].name, view->form.rows[at].value);
    else if (path)
        snprintf(out, size, "%s", path);
}

const struct panel_methods panel_profiles = {.draw = draw, .act = act, .copy = copy};
