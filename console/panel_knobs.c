/*
 * Panel Knobs: every live setting of the table, with what is proposed and what is in use, a draft of one's own, what the draft
 * would do, and the ledger of all changes.
 */
#include <inttypes.h>
#include <string.h>

#include "console/knob.h"
#include "console/report.h"
#include "console/view.h"
#include "console/words.h"

enum column { NAME, VALUE, STATE, RANGE, HELP, COLUMNS };

static const struct grid_column columns[COLUMNS] = {
    [NAME] = {.title = "setting"},
    [VALUE] = {.title = "value", .right = true},
    [STATE] = {.title = "state"},
    [RANGE] = {.title = "range", .importance = 1},
    [HELP] = {.title = "what it does", .importance = 2, .least = 20},
};

static bool is_drafted(const struct view *view, const struct wire_knob_row *knob)
{
    return strcmp(view->draft_name, knob->name) == 0;
}

static int cell(int row, int column, char *out, size_t size, void *arg)
{
    const struct view *view = arg;
    const struct wire_knob_row *knob = &view->state.knobs[row];
    const struct field *field = field_find(knob->name);
    switch (column) {
    case NAME:
        snprintf(out, size, "%s", knob->name);
        return INK_BOLD;
    case VALUE:
        snprintf(out, size, "%s", knob->value);
        return INK_PLAIN;
    case STATE:
        if (is_drafted(view, knob))
            snprintf(out, size, "→ %s drafted", view->draft);
        else if (knob->pending)
            snprintf(out, size, "→ %s proposed", knob->pending_value);
        else
            snprintf(out, size, "in use");
        return is_drafted(view, knob) ? INK_KEY : knob->pending ? INK_WARN : INK_GOOD;
    case RANGE:
        if (field)
            field_range(field, out, size);
        return INK_DIM;
    default:
        snprintf(out, size, "%s", field ? field->help : "");
        return INK_DIM;
    }
}

/* ---- the ledger ---- */

enum ledger_column { WHEN, WHAT, OLD, NEW, HOW, WHO, LEDGER_COLUMNS };

static const struct grid_column ledger_columns[LEDGER_COLUMNS] = {
    [WHEN] = {.title = "when"}, [WHAT] = {.title = "setting"}, [OLD] = {.title = "from", .right = true},
    [NEW] = {.title = "to", .right = true}, [HOW] = {.title = "state"}, [WHO] = {.title = "who", .least = 8, .importance = 1},
};

static int ledger_cell(int at, int column, char *out, size_t size, void *arg)
{
    const struct view *view = arg;
    const struct wire_ledger_row *row = &view->state.ledger[view->state.ledger_count - 1 - (size_t)at]; /* newest first */
    switch (column) {
    case WHEN:
        words_clock((int64_t)row->wall_ms, out, size);
        return INK_DIM;
    case WHAT:
        snprintf(out, size, "%s", row->name);
        return INK_PLAIN;
    case OLD:
    case NEW:
        snprintf(out, size, "%s", column == OLD ? row->old_value : row->new_value);
        return INK_PLAIN;
    case HOW:
        if (row->state == LEDGER_ACTIVE)
            snprintf(out, size, "active from step %" PRIu64 "%s", row->step, row->watched_until ? ", watched" : "");
        else
            snprintf(out, size, "%s", report_ledger_state(row->state));
        return row->state == LEDGER_ACTIVE ? INK_GOOD : row->state == LEDGER_REFUSED ? INK_BAD : INK_WARN;
    default:
        snprintf(out, size, "%s", row->who);
        return INK_DIM;
    }
}

/* ---- drawing ---- */

/* Two rows at most, and none beyond the area. */
static struct area two_rows(struct area area, int row)
{
    int left = area.row + area.rows - row;
    return (struct area){row, area.column, left < 2 ? left : 2, area.columns};
}

/* Its newest change may be taken back by kedged (revert.steps). */
static int draw_watch(const struct view *view, const char *name, struct surface *surface, struct area area)
{
    char text[500];
    for (size_t i = view->state.ledger_count; i > 0; i--) {
        const struct wire_ledger_row *row = &view->state.ledger[i - 1];
        if (strcmp(row->name, name) != 0 || !row->watched_until)
            continue;
        snprintf(text, sizeof text, "watched until step %" PRIu64 ": goes back to %s when the loss is above %.4g (now %.4g) or the "
                 "gradient norm above %.4g (now %.4g)", row->watched_until, row->old_value, row->loss_most, view->state.run.loss,
                 row->norm_most, view->state.run.gradient_norm);
        return surface_wrap(surface, area, INK_WARN, text);
    }
    return 0;
}

/* What the selected setting is, and what its draft would do. */
static int draw_about(const struct view *view, const struct wire_knob_row *knob, struct surface *surface, struct area area)
{
    const struct field *field = field_find(knob->name);
    char text[500];
    int row = area.row;
    if (field)
        row += surface_wrap(surface, two_rows(area, row), INK_DIM, field->help);
    row += draw_watch(view, knob->name, surface, two_rows(area, row));
    if (!is_drafted(view, knob))
        return row;
    struct why why = {0};
    if (field && !knob_check(field, view->draft, &why)) {
        row += surface_wrap(surface, two_rows(area, row), INK_BAD, why.text);
        return row;
    }
    knob_preview(&view->state, &view->style, knob->name, view->draft, text, sizeof text);
    row += surface_wrap(surface, two_rows(area, row), INK_PLAIN, text);
    surface_print(surface, row, area.column, area.columns, INK_KEY, "Enter proposes %s = %s, Esc drops it", knob->name, view->draft);
    return row + 1;
}

static void draw(struct view *view, struct surface *surface, struct area area)
{
    struct grid_place *place = &view->places[PANEL_KNOBS], ledger_place = {0};
    int count = (int)view->state.knob_count, rows = count + 1 < area.rows / 2 ? count + 1 : area.rows / 2;
    const struct grid grid = {.columns = columns, .column_count = COLUMNS, .rows = count, .cell = cell, .arg = view,
                              .empty = "no live setting is known yet"};
    rows = rows < 2 ? 2 : rows;
    grid_draw(&grid, place, surface, (struct area){area.row, area.column + 1, rows, area.columns - 2});
    int row = area.row + rows + 1;
    if (place->selected < count)
        row = draw_about(view, &view->state.knobs[place->selected], surface,
                         (struct area){row, area.column + 1, area.row + area.rows - row, area.columns - 2}) + 1;
    const struct grid ledger = {.columns = ledger_columns, .column_count = LEDGER_COLUMNS, .rows = (int)view->state.ledger_count,
                                .cell = ledger_cell, .arg = view, .empty = "no setting was changed yet", .no_focus = true};
    if (row + 2 <= area.row + area.rows) {
        surface_text(surface, row, area.column + 1, area.columns - 2, INK_BOLD, "ledger");
        grid_draw(&ledger, &ledger_place, surface,
                  (struct area){row + 1, area.column + 1, area.row + area.rows - row - 1, area.columns - 2});
    }
}

/* ---- acts ---- */

static void draft(struct view *view, const char *name, const char *value)
{
    snprintf(view->draft_name, sizeof view->draft_name, "%s", name);
    snprintf(view->draft, sizeof view->draft, "%s", value);
}

static void step(struct view *view, const struct wire_knob_row *knob, bool up)
{
    const struct field *field = field_find(knob->name);
    char next[WIRE_NAME];
    const char *from = is_drafted(view, knob) ? view->draft : knob->pending ? knob->pending_value : knob->value;
    if (field && knob_step(field, from, up, next, sizeof next))
        draft(view, knob->name, next);
    else
        view_say(view, INK_WARN, "%s goes no further %s", knob->name, up ? "up" : "down");
}

/* The same rows that the scheduler will check with: what is wrong is said here and sent nowhere. */
static void propose(struct view *view, const struct wire_knob_row *knob)
{
    struct why why = {0};
    const struct field *field = field_find(knob->name);
    if (!view->road.live) {
        view_say(view, INK_WARN, "the run is not going: nothing can be changed");
    } else if (field && !knob_check(field, view->draft, &why)) {
        view_say(view, INK_BAD, "%s", why.text);
        return; /* the draft stays: it is nearly right */
    } else {
        struct wish *wish = view_wish(view, WISH_ORDER);
        wish->order = ORDER_SET;
        snprintf(wish->name, sizeof wish->name, "%s", knob->name);
        snprintf(wish->value, sizeof wish->value, "%s", view->draft);
    }
    view->draft_name[0] = '\0';
}

static void undo(struct view *view)
{
    for (size_t i = view->state.ledger_count; i > 0; i--) {
        const struct wire_ledger_row *row = &view->state.ledger[i - 1];
        if (row->state == LEDGER_REFUSED)
            continue;
        draft(view, row->name, row->old_value);
        for (size_t j = 0; j < view->state.knob_count; j++)
            if (strcmp(view->state.knobs[j].name, row->name) == 0)
                view->places[PANEL_KNOBS].selected = (int)j;
        return;
    }
    view_say(view, INK_WARN, "there is no change to undo");
}

static bool act(struct view *view, enum act act)
{
    struct grid_place *place = &view->places[PANEL_KNOBS];
    int count = (int)view->state.knob_count;
    if (act == ACT_UNDO) {
        undo(view);
        return true;
    }
    if (act == ACT_OPEN || act == ACT_MORE || act == ACT_LESS) {
        if (place->selected >= count)
            return true;
        const struct wire_knob_row *knob = &view->state.knobs[place->selected];
        if (act != ACT_OPEN) {
            step(view, knob, act == ACT_MORE);
        } else if (is_drafted(view, knob)) {
            propose(view, knob);
        } else {
            char label[WIRE_NAME + 8];
            snprintf(label, sizeof label, "%s = ", knob->name);
            draft(view, knob->name, knob->value);
            view_prompt(view, VIEW_VALUE, label, knob->value);
        }
        return true;
    }
    if (!grid_act(place, count, act))
        return false;
    view->draft_name[0] = '\0'; /* a draft belongs to the row it was made on */
    return true;
}

static void copy(const struct view *view, char *out, size_t size)
{
    int at = view->places[PANEL_KNOBS].selected;
    if (at < (int)view->state.knob_count)
        snprintf(out, size, "%s=%s", view->state.knobs[at].name, view->state.knobs[at].value);
}

const struct panel_methods panel_knobs = {.draw = draw, .act = act, .copy = copy};
