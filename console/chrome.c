#include "console/chrome.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "console/layout.h"
#include "console/words.h"
#include "ssh/base/clock.h"

bool chrome_has_panel(const struct view *view, enum panel panel)
{
    if (panel == PANEL_ANCHOR)
        return view->state.has_anchor;
    return panel == PANEL_RUNS || panel == PANEL_PROFILES || view->run[0];
}

uint32_t chrome_phase_glyph(int phase, enum ink *ink)
{
    switch (phase) {
    case PHASE_TRAINING:
        *ink = INK_GOOD;
        return 0x25CF;
    case PHASE_FINISHED:
        *ink = INK_GOOD;
        return 0x2713;
    case PHASE_HOLDING:
        *ink = INK_BAD;
        return 0x2717;
    case PHASE_STOPPED:
        *ink = INK_DIM;
        return 0x25CB;
    default:
        *ink = INK_WARN;
        return 0x25CB;
    }
}

/* ---- title ---- */

static int put_phase(const struct view *view, struct surface *surface, struct area area, int at)
{
    enum ink ink;
    const struct wire_run_state *run = &view->state.run;
    uint32_t glyph = chrome_phase_glyph(run->phase, &ink);
    bool stale = view->road.down || view_is_stale(view, state_age_ns(&view->state, view->now_ns));
    surface_put(surface, area.row, at, glyph, stale ? INK_DIM : ink);
    return at + 2 + surface_text(surface, area.row, at + 2, 12, stale ? INK_DIM : ink, wire_phase_name(run->phase));
}

static void put_step(const struct view *view, struct surface *surface, struct area area, int at)
{
    const struct wire_run_state *run = &view->state.run;
    char eta[WORDS];
    int end = area.column + area.columns;
    double share = run->steps ? (double)run->step / (double)run->steps : 0;
    at += 2 + surface_print(surface, area.row, at + 2, end - at - 2, INK_PLAIN, "step %" PRIu64 " of %" PRIu64, run->step,
                            run->steps);
    int bar = area.columns >= 120 ? 20 : 8;
    if (at + bar + 16 < end) {
        surface_bar(surface, area.row, at + 2, bar, INK_GOOD, share);
        at += 2 + bar;
        at += surface_print(surface, area.row, at + 1, 6, INK_PLAIN, "%.0f %%", floor(share * 100)) + 1;
    }
    double seconds = state_eta_seconds(&view->state);
    words_duration(&view->style, seconds, eta, sizeof eta);
    if (isfinite(seconds) && at + 6 + surface_width(eta) <= end)
        surface_print(surface, area.row, at + 2, end - at - 2, INK_PLAIN, "ETA %s", eta);
}

/* What must not be overlooked stands at the right, and takes its room first. */
static void find_badges(const struct view *view, char *out, size_t size)
{
    char age[WORDS];
    uint64_t old_ns = state_age_ns(&view->state, view->now_ns);
    snprintf(out, size, "%s%s", view->read_only ? "[read-only] " : "", view->frozen && view->panel != PANEL_RUN ? "[frozen] " : "");
    size_t used = strlen(out);
    if (view->run[0] && !view->road.live)
        snprintf(out + used, size - used, "record ");
    else if (view->state.has_run && old_ns > 2 * CLOCK_SECOND && !state_is_over(&view->state))
        snprintf(out + used, size - used, "%s old ", words_age(&view->style, old_ns, age, sizeof age));
    else if (view->state.has_run && view->state.run.viewers > 1)
        snprintf(out + used, size - used, "%u consoles ", view->state.run.viewers);
}

void chrome_title(struct view *view, struct surface *surface, struct area area)
{
    char badges[160];
    find_badges(view, badges, sizeof badges);
    int width = surface_width(badges);
    surface_right(surface, area.row, area.column, area.columns, INK_WARN, badges);
    area.columns -= width + (width > 0);
    int at = area.column + surface_text(surface, area.row, area.column, area.columns, INK_BOLD, " kedge  ");
    if (view->run[0])
        at += surface_text(surface, area.row, at, area.columns < 60 ? 12 : 24, INK_BOLD, view->run) + 2;
    if (view->state.has_run)
        put_step(view, surface, area, put_phase(view, surface, area, at));
}

/* ---- tabs ---- */

/* The text of a tab; "" when it is not there. */
static void tab_text(const struct view *view, enum panel panel, const char *pad, char *out, size_t size)
{
    out[0] = '\0';
    if (chrome_has_panel(view, panel))
        snprintf(out, size, "%s%c %s%s", pad, keys_panel_digit(panel), keys_panel_name(panel), pad);
}

static const char *tab_pad(const struct view *view, int columns)
{
    int wanted = 1;
    for (int panel = 0; panel < PANEL_COUNT; panel++)
        wanted += chrome_has_panel(view, (enum panel)panel) ? surface_width(keys_panel_name((enum panel)panel)) + 5 : 0;
    return wanted <= columns ? " " : "";
}

enum panel chrome_tab_at(const struct view *view, struct area area, int column)
{
    int at = area.column + 1;
    char text[32];
    for (int panel = 0; panel < PANEL_COUNT; panel++) {
        tab_text(view, (enum panel)panel, tab_pad(view, area.columns), text, sizeof text);
        int width = surface_width(text);
        if (column >= at && column < at + width)
            return (enum panel)panel;
        at += width + (width > 0);
    }
    return PANEL_COUNT;
}

void chrome_tabs(const struct view *view, struct surface *surface, struct area area)
{
    int at = area.column + 1, end = area.column + area.columns;
    const char *pad = tab_pad(view, area.columns);
    surface_fill(surface, area, 0x2500, INK_FRAME);
    for (int panel = 0; panel < PANEL_COUNT; panel++) {
        char text[32];
        tab_text(view, (enum panel)panel, pad, text, sizeof text);
        if (!text[0])
            continue;
        int used = surface_text(surface, area.row, at, end - at - 1, panel == (int)view->panel ? INK_BOLD : INK_PLAIN, text);
        if (panel == (int)view->panel)
            surface_focus(surface, area.row, at, used);
        at += used + 1;
    }
    const struct filter *filter = &view->filters[view->panel];
    if (filter->pattern[0] && at + 12 < end)
        surface_print(surface, area.row, at + 1, end - at - 2, INK_WARN, " %s %s ", filter->inverse ? "without" : "with",
                      filter->pattern);
}

/* ---- the two last lines ---- */

void chrome_wait(const struct view *view, struct surface *surface, struct area area)
{
    char text[1200];
    if (!view->run[0])
        return;
    enum paint paint = wait_explain(&view->state, &view->road, &view->style, view->now_ns, text, sizeof text);
    int ink = paint == PAINT_BAD ? INK_BAD : paint == PAINT_WARN ? INK_WARN : INK_PLAIN;
    surface_put(surface, area.row, area.column + 1, 0x25B8, INK_KEY);
    surface_wrap(surface, (struct area){area.row, area.column + 3, area.rows, area.columns - 4}, ink, text);
}

static int put_hint(struct surface *surface, int row, int at, int room, const char *hint, bool allowed)
{
    const char *blank = strchr(hint, ' ');
    if (!blank || surface_width(hint) + 2 > room)
        return 0;
    char press[24];
    snprintf(press, sizeof press, "%.*s", (int)(blank - hint), hint);
    int used = surface_text(surface, row, at, room, allowed ? INK_KEY : INK_DIM, press);
    return used + surface_text(surface, row, at + used, room - used, allowed ? INK_PLAIN : INK_DIM, blank) + 2;
}

void chrome_hints(struct view *view, struct surface *surface, struct area area)
{
    int at = area.column + 1, end = area.column + area.columns;
    size_t count;
    const struct key *keys = keys_all(&count);
    if (view->prompt.open) {
        prompt_draw(&view->prompt, surface, area.row, area.column + 1, area.columns - 2, INK_PLAIN);
        return;
    }
    if (view->message_until_ns > view->now_ns) {
        surface_text(surface, area.row, at, area.columns - 2, view->message_ink, view->message);
        return;
    }
    for (int everywhere = 0; everywhere < 2; everywhere++) /* the view's own first, but room for help and the way out */
        for (size_t i = 0; i < count; i++) {
            int room = end - at - (everywhere ? 0 : 28);
            if (!keys[i].hint || !(keys[i].panels & ON(view->panel)) || keys_is_everywhere(&keys[i]) != (bool)everywhere)
                continue;
            bool over = (keys[i].panels & ON_RUN) && (!view->road.live || state_is_over(&view->state));
            at += put_hint(surface, area.row, at, room, keys[i].hint, !(keys[i].changes && (view->read_only || over)));
        }
}

/* ---- over the panel ---- */

static struct area centred(struct area area, int rows, int columns)
{
    rows = rows > area.rows ? area.rows : rows;
    columns = columns > area.columns ? area.columns : columns;
    return (struct area){area.row + (area.rows - rows) / 2, area.column + (area.columns - columns) / 2, rows, columns};
}

static struct area window(struct surface *surface, struct area area, const char *title)
{
    surface_fill(surface, area, ' ', INK_PLAIN);
    struct area inside = surface_box(surface, area, title, INK_FRAME);
    return (struct area){inside.row, inside.column + 1, inside.rows, inside.columns - 2};
}

void chrome_help(struct view *view, struct surface *surface, struct area area)
{
    size_t count;
    const struct key *keys = keys_all(&count), *shown[128];
    char title[80];
    int rows = 0;
    for (int everywhere = 0; everywhere < 2; everywhere++)
        for (size_t i = 0; i < count && rows < 128; i++)
            if ((keys[i].panels & ON(view->panel)) && keys_is_everywhere(&keys[i]) == (bool)everywhere)
                shown[rows++] = &keys[i];
    snprintf(title, sizeof title, "Keys of %s (Esc closes, Down for more)", keys_panel_name(view->panel));
    struct area inside = window(surface, centred(area, rows + 2, area.columns > 100 ? 100 : area.columns), title);
    int most = rows - inside.rows;
    view->help_top = view->help_top > most ? most : view->help_top;
    view->help_top = view->help_top < 0 ? 0 : view->help_top;
    for (int i = 0; i < inside.rows && view->help_top + i < rows; i++) {
        const struct key *key = shown[view->help_top + i];
        bool allowed = !(key->changes && view->read_only);
        surface_text(surface, inside.row + i, inside.column, 13, allowed ? INK_KEY : INK_DIM, key->shown);
        surface_text(surface, inside.row + i, inside.column + 14, inside.columns - 14, allowed ? INK_PLAIN : INK_DIM, key->help);
    }
}

/* Line by line, each broken where it must be; returns the rows that were used. */
static int draw_lines(const char *text, struct surface *surface, struct area area)
{
    int row = 0;
    while (*text && row < area.rows) {
        char line[VIEW_TEXT];
        size_t length = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, text);
        row += surface_wrap(surface, (struct area){area.row + row, area.column, area.rows - row, area.columns}, INK_PLAIN, line);
        text += length + (text[length] == '\n');
    }
    return row;
}

void chrome_dialog(struct view *view, struct surface *surface, struct area area)
{
    struct dialog *dialog = &view->dialog;
    int lines = 1;
    for (const char *c = dialog->text; *c; c++)
        lines += *c == '\n';
    struct area inside = window(surface, centred(area, lines > 4 ? lines + 6 : 10, 66), dialog->title);
    int row = inside.row;
    row += draw_lines(dialog->text, surface, (struct area){row, inside.column, inside.rows - 3, inside.columns}) + 1;
    if (dialog->twin[0] && row < inside.row + inside.rows - 1)
        surface_print(surface, row, inside.column, inside.columns, INK_DIM, "the same%s: %s",
                      dialog->kind == DIALOG_ASK ? " (c copies)" : "", dialog->twin);
    row = inside.row + inside.rows - 1;
    if (dialog->kind == DIALOG_TYPE) {
        surface_print(surface, row - 1, inside.column, inside.columns, INK_WARN, "type %s to do it, Esc to leave it", dialog->must_type);
        prompt_draw(&dialog->prompt, surface, row, inside.column, inside.columns, INK_BOLD);
        return;
    }
    int at = inside.column + surface_text(surface, row, inside.column, 12, INK_BOLD, "  Cancel  ");
    surface_text(surface, row, at + 3, 12, INK_BOLD, "  Yes (y)  ");
    if (dialog->yes)
        surface_focus(surface, row, at + 3, 11);
    else
        surface_focus(surface, row, inside.column, 10);
}

void chrome_too_small(const struct view *view, struct surface *surface)
{
    char text[160];
    surface_wrap(surface, (struct area){0, 0, surface->rows, surface->columns}, INK_BOLD,
                 view->run[0] ? "too small to show the run" : "too small");
    snprintf(text, sizeof text, "%d x %d here, %d x %d needed", surface->columns, surface->rows, LAYOUT_LEAST_COLUMNS,
             LAYOUT_LEAST_ROWS);
    surface_wrap(surface, (struct area){1, 0, surface->rows - 1, surface->columns}, INK_PLAIN, text);
    if (view->state.has_run && surface->rows > 4)
        surface_print(surface, 3, 0, surface->columns, INK_PLAIN, "%s %s step %" PRIu64 "/%" PRIu64, view->run,
                      wire_phase_name(view->state.run.phase), view->state.run.step, view->state.run.steps);
    if (surface->rows > 5)
        surface_text(surface, 4, 0, surface->columns, INK_DIM, "q leaves");
}
