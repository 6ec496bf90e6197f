#include "console/view.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "console/chrome.h"
#include "console/layout.h"
#include "console/replay.h"
#include "console/waterfall.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"

#define MESSAGE_NS (6 * CLOCK_SECOND)

static const struct panel_methods *const panels[PANEL_COUNT] = {
    [PANEL_RUNS] = &panel_runs,     [PANEL_RUN] = &panel_run,     [PANEL_LINKS] = &panel_links, [PANEL_ANCHOR] = &panel_anchor,
    [PANEL_HOSTS] = &panel_hosts, [PANEL_KNOBS] = &panel_knobs, [PANEL_EVENTS] = &panel_events, [PANEL_PROFILES] = &panel_profiles,
};

/* ---- life ---- */

void view_init(struct view *view, const struct style *style, bool read_only)
{
    memset(view, 0, sizeof *view);
    view->style = *style;
    view->read_only = read_only;
    view->fold = view->follow = true;
    view->places[PANEL_LINKS].sorted = PANEL_LINKS_SENT + 1;
    state_init(&view->state);
}

static void close_dialog(struct view *view)
{
    mem_free(view->dialog.wish.text);
    memset(&view->dialog, 0, sizeof view->dialog);
}

void view_clear(struct view *view)
{
    struct wish wish;
    while (view_take(view, &wish))
        mem_free(wish.text);
    close_dialog(view);
    window_close(&view->window);
    for (int i = 0; i < VIEW_FILTERS; i++)
        filter_clear(&view->filters[i]);
    history_clear(&view->history);
    state_clear(&view->state);
    mem_free(view->runs);
    form_clear(&view->form);
    for (size_t i = 0; i < view->profile_count; i++)
        mem_free(view->profiles[i]);
    mem_free(view->profiles);
    memset(view, 0, sizeof *view);
}

void view_open(struct view *view, const char *run, bool live, bool has_folder)
{
    snprintf(view->run, sizeof view->run, "%s", run);
    view->has_folder = has_folder;
    view->road = (struct wait_road){.live = live, .down_reason = view->down_reason};
    view->down_reason[0] = '\0';
    state_clear(&view->state);
    history_clear(&view->history);
    view->frozen = false;
    view->draft_name[0] = view->log_name[0] = view->log[0] = '\0';
    view->stage_first = view->replica_first = 0;
    view->panel = run[0] ? PANEL_RUN : PANEL_RUNS;
}

/* ---- from the road ---- */

/* A run that was started anew under the same name is another run: nothing of the last one may be mixed into it. */
static void forget_another_run(struct view *view, const struct wire_run_state *run)
{
    if (!view->state.has_run || view->state.run.run_id == run->run_id)
        return;
    state_clear(&view->state);
    history_clear(&view->history);
    view->frozen = false;
}

bool view_apply(struct view *view, enum wire_type type, const void *row, uint64_t now_ns)
{
    view->now_ns = now_ns;
    if (type == WIRE_REPLY) {
        const struct wire_reply *reply = row;
        view_say(view, reply->err ? INK_BAD : INK_GOOD, "%s%s", reply->err ? "refused: " : "",
                 reply->text[0] ? reply->text : "accepted");
        return true;
    }
    if (type == WIRE_RUN_STATE)
        forget_another_run(view, row);
    if (state_apply(&view->state, type, row, now_ns, NULL) != 0)
        return false;
    history_apply(&view->history, &view->state, type, row, history_tick(now_ns / CLOCK_MS + view->wall_offset_ms));
    view->road.down = false;
    return true;
}

void view_down(struct view *view, const char *reason, uint64_t now_ns)
{
    snprintf(view->down_reason, sizeof view->down_reason, "%s", reason);
    if (!view->road.down)
        view->road.down_since_ns = now_ns;
    view->road.down = true;
    view->road.down_reason = view->down_reason;
}

void view_say(struct view *view, enum ink ink, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(view->message, sizeof view->message, format, arguments);
    va_end(arguments);
    view->message_ink = (int)ink;
    view->message_until_ns = view->now_ns + MESSAGE_NS;
}

void view_set_clock(struct view *view, uint64_t now_ns, uint64_t now_wall_ms)
{
    view->now_ns = now_ns;
    view->now_wall_ms = now_wall_ms;
    view->wall_offset_ms = now_wall_ms - now_ns / CLOCK_MS;
}

double view_rate(const struct view *view, size_t road)
{
    return view->frozen_tick ? trail_get(history_rate(&view->history, road), view->frozen_tick, 0) : view->state.roads[road].row.bytes_per_second;
}

uint64_t view_tick(const struct view *view)
{
    if (view->frozen_tick)
        return view->frozen_tick;
    bool goes_on = view->road.live && !state_is_over(&view->state);
    return goes_on ? history_tick(view->now_wall_ms) : view->history.newest_tick;
}

bool view_is_stale(const struct view *view, uint64_t age_ns)
{
    return view->road.live && !state_is_over(&view->state) && age_ns > 3 * CLOCK_SECOND;
}

bool view_matches(const struct view *view, enum panel panel, const char *text)
{
    return filter_match(&view->filters[panel], text);
}

struct filter *view_filter(struct view *view)
{
    return &view->filters[view->panel == PANEL_HOSTS && view->log_alone ? VIEW_LOG_FILTER : (int)view->panel];
}

/* ---- wishes ---- */

struct wish *view_wish(struct view *view, enum wish_kind kind)
{
    static struct wish lost;
    if (view->wish_count == VIEW_WISHES) { /* nobody grants them: more would not help */
        mem_free(lost.text);
        lost = (struct wish){.kind = WISH_NONE};
        return &lost;
    }
    struct wish *wish = &view->wishes[view->wish_count++];
    *wish = (struct wish){.kind = kind};
    return wish;
}

bool view_take(struct view *view, struct wish *wish)
{
    if (!view->wish_count)
        return false;
    *wish = view->wishes[0];
    view->wish_count--;
    memmove(view->wishes, view->wishes + 1, view->wish_count * sizeof *wish);
    view->wishes[view->wish_count] = (struct wish){.kind = WISH_NONE};
    return true;
}

/* ---- dialogs ---- */

static void copy(struct view *view, const char *text)
{
    view_wish(view, WISH_COPY)->text = mem_text(text);
    view_say(view, INK_PLAIN, "copied to the terminal's clipboard");
}

static void begin_dialog(struct view *view, enum dialog_kind kind, const char *title, const char *text, const char *twin,
                         const struct wish *wish)
{
    struct wish own = *wish;
    close_dialog(view);
    view->dialog.kind = kind;
    view->dialog.wish = own;
    snprintf(view->dialog.title, sizeof view->dialog.title, "%s", title);
    snprintf(view->dialog.text, sizeof view->dialog.text, "%s", text);
    snprintf(view->dialog.twin, sizeof view->dialog.twin, "%s", twin);
}

void view_ask(struct view *view, const char *title, const char *text, const char *twin, const struct wish *wish)
{
    begin_dialog(view, DIALOG_ASK, title, text, twin, wish);
}

void view_ask_typed(struct view *view, const char *title, const char *text, const char *twin, const char *must_type,
                    const struct wish *wish)
{
    begin_dialog(view, DIALOG_TYPE, title, text, twin, wish);
    snprintf(view->dialog.must_type, sizeof view->dialog.must_type, "%s", must_type);
    prompt_open(&view->dialog.prompt, "name: ", "");
}

static void grant(struct view *view)
{
    struct wish *wish = view_wish(view, view->dialog.wish.kind);
    *wish = view->dialog.wish;
    view->dialog.wish.text = NULL;
    close_dialog(view);
}

static void press_ask(struct view *view, uint32_t press)
{
    struct dialog *dialog = &view->dialog;
    if (press == 'y' || (press == PRESS_ENTER && dialog->yes))
        grant(view);
    else if (press == 'c' && dialog->twin[0])
        copy(view, dialog->twin);
    else if (press == PRESS_LEFT || press == PRESS_RIGHT || press == PRESS_TAB || press == 'h' || press == 'l')
        dialog->yes = !dialog->yes;
    else if (press == PRESS_ENTER || press == PRESS_ESCAPE || press == 'n' || press == 'q')
        close_dialog(view);
}

static void press_typed(struct view *view, uint32_t press)
{
    struct dialog *dialog = &view->dialog;
    switch (prompt_press(&dialog->prompt, press)) {
    case PROMPT_LEFT:
        close_dialog(view);
        break;
    case PROMPT_DONE:
        if (strcmp(dialog->prompt.text, dialog->must_type) == 0) {
            grant(view);
        } else {
            close_dialog(view);
            view_say(view, INK_WARN, "that is not its name: nothing was done");
        }
        break;
    case PROMPT_TYPING:
        break;
    }
}

static void press_dialog(struct view *view, uint32_t press)
{
    if (view->dialog.kind == DIALOG_ASK)
        press_ask(view, press);
    else
        press_typed(view, press);
}

static void press_window(struct view *view, uint32_t press)
{
    const struct key *key = keys_find(view->panel, press);
    struct window *window = &view->window;
    enum window_end end = window_press(window, press, key ? key->act : ACT_NONE);
    if (end == WINDOW_ANSWERED)
        view_wish(view, WISH_ANSWER)->text = mem_text(window->prompt.text);
    else if (end == WINDOW_LEFT && window->running)
        view_wish(view, WISH_INTERRUPT);
    else if (end == WINDOW_LEFT)
        window_close(window);
    if (end != WINDOW_STAYS)
        window_forget_answer(window);
}

/* ---- prompts ---- */

void view_prompt(struct view *view, enum view_prompt kind, const char *label, const char *text)
{
    view->prompt_for = kind;
    view->prompt.complete = kind == VIEW_COMMAND ? view_complete : kind == VIEW_HOST ? view_idle_host : NULL;
    view->prompt.complete_arg = view;
    prompt_open(&view->prompt, label, text);
}

static void take_setting(struct view *view, const char *value)
{
    struct why why = {0};
    size_t row = (size_t)view->form_place.selected;
    if (row < view->form.count && form_set(&view->form, row, value, &why) != 0)
        view_say(view, INK_BAD, "%s", why.text);
}

static void end_prompt(struct view *view, enum prompt_end end)
{
    struct filter *filter = view_filter(view);
    const char *text = view->prompt.text;
    if (view->prompt_for == VIEW_FILTER) { /* it works while it is typed */
        if (!filter_set(filter, end == PROMPT_LEFT ? "" : text) && end == PROMPT_DONE)
            view_say(view, INK_WARN, "'%s' is no regular expression: it is searched for as it stands", text);
    } else if (end == PROMPT_DONE && view->prompt_for == VIEW_COMMAND) {
        view_command(view, text);
    } else if (end == PROMPT_DONE && view->prompt_for == VIEW_VALUE) {
        snprintf(view->draft, sizeof view->draft, "%s", text);
        panels[PANEL_KNOBS]->act(view, ACT_OPEN);
    } else if (end == PROMPT_DONE && view->prompt_for == VIEW_SETTING) {
        take_setting(view, text);
    } else if (end == PROMPT_DONE && view->prompt_for == VIEW_NEW && text[0]) {
        struct wish *wish = view_wish(view, WISH_NEW_PROFILE);
        snprintf(wish->name, sizeof wish->name, "%s", text);
    } else if (end == PROMPT_DONE && view->prompt_for == VIEW_SAVE && text[0]) {
        struct wish *wish = view_wish(view, WISH_SAVE);
        snprintf(wish->name, sizeof wish->name, "%s", text);
        wish->text = view_events_text(view);
    } else if (end == PROMPT_DONE && view->prompt_for == VIEW_HOST && text[0]) {
        view_act_on_host(view, ORDER_REPLACE, view->moved_host, text);
    } else if (end == PROMPT_LEFT && view->prompt_for == VIEW_VALUE) {
        view->draft_name[0] = '\0';
    }
}

/* ---- keys ---- */

static void turn_to(struct view *view, enum panel panel)
{
    if (panel != PANEL_RUNS && panel != PANEL_PROFILES && !view->run[0]) {
        view_say(view, INK_WARN, "no run is open: choose one with Enter");
        return;
    }
    if (panel == PANEL_ANCHOR && !chrome_has_panel(view, panel)) {
        view_say(view, INK_WARN, "this run has no anchor");
        return;
    }
    if (panel == PANEL_RUNS)
        view_wish(view, WISH_RUNS);
    if (panel == PANEL_PROFILES && !view->form.path[0])
        view_wish(view, WISH_PROFILES);
    view->panel = panel;
}

static void turn_by(struct view *view, int by)
{
    int panel = (int)view->panel;
    do
        panel = (panel + by + PANEL_COUNT) % PANEL_COUNT;
    while (!chrome_has_panel(view, (enum panel)panel));
    turn_to(view, (enum panel)panel);
}

static void close_form(struct view *view)
{
    struct wish wish = {.kind = WISH_PROFILES};
    if (form_changes(&view->form))
        view_ask(view, "Drop the changes?", "The profile was changed here and not written. Its file stays as it is.", "", &wish);
    else
        *view_wish(view, WISH_PROFILES) = wish;
}

/* Esc undoes one thing at a time: what is most in front first. */
static void go_back(struct view *view)
{
    struct filter *filter = view_filter(view);
    if (view->draft_name[0])
        view->draft_name[0] = '\0';
    else if (view->frozen)
        view->frozen = false;
    else if (filter->pattern[0])
        filter_set(filter, "");
    else if (view->panel == PANEL_PROFILES && view->form.path[0])
        close_form(view);
    else if (view->panel == PANEL_HOSTS && view->log_alone)
        view->log_alone = false;
    else if (view->run[0])
        view->panel = PANEL_RUN;
    else
        view->panel = PANEL_RUNS;
}

static void copy_row(struct view *view)
{
    char text[1024] = "";
    panels[view->panel]->copy(view, text, sizeof text);
    if (!text[0]) {
        view_say(view, INK_WARN, "nothing is selected here");
        return;
    }
    copy(view, text);
}

static bool act_everywhere(struct view *view, enum act act)
{
    switch (act) {
    case ACT_NEXT_PANEL:
        turn_by(view, 1);
        return true;
    case ACT_PREVIOUS_PANEL:
        turn_by(view, -1);
        return true;
    case ACT_COMMAND:
        view_prompt(view, VIEW_COMMAND, ":", "");
        return true;
    case ACT_COPY:
        copy_row(view);
        return true;
    case ACT_HELP:
        view->help = true;
        view->help_top = 0;
        return true;
    case ACT_BACK:
        go_back(view);
        return true;
    case ACT_REPAINT:
        view_wish(view, WISH_REPAINT);
        return true;
    case ACT_SUSPEND:
        view_wish(view, WISH_SUSPEND);
        return true;
    case ACT_MOUSE:
        view->mouse = !view->mouse;
        view_wish(view, WISH_MOUSE);
        view_say(view, INK_PLAIN, view->mouse ? "clicks select, the wheel scrolls; m gives the mouse back"
                                              : "the mouse is the terminal's own");
        return true;
    case ACT_QUIT:
        view_wish(view, WISH_LEAVE);
        return true;
    default:
        if (act < ACT_RUNS || act >= ACT_RUNS + PANEL_COUNT)
            return false;
        turn_to(view, (enum panel)(PANEL_RUNS + (act - ACT_RUNS)));
        return true;
    }
}

static bool act_on_filter(struct view *view, enum act act)
{
    struct filter *filter = view_filter(view);
    if (act == ACT_FILTER)
        view_prompt(view, VIEW_FILTER, filter->inverse ? "rows without: " : "rows with: ", filter->pattern);
    else if (act == ACT_NOT)
        filter->inverse = !filter->inverse;
    else
        return false;
    return true;
}

static bool press_help(struct view *view, uint32_t press)
{
    const struct key *key = keys_find(view->panel, press);
    struct grid_place place = {.selected = view->help_top, .page = 10};
    if (key && (key->act == ACT_HELP || key->act == ACT_BACK || key->act == ACT_QUIT))
        view->help = false;
    else if (key && key->act != ACT_LAST && grid_act(&place, 1000, key->act))
        view->help_top = place.selected;
    return true;
}

bool view_press(struct view *view, uint32_t press, uint64_t now_ns)
{
    view->now_ns = now_ns;
    view->message_until_ns = 0;
    if (view->dialog.kind) {
        press_dialog(view, press);
        return true;
    }
    if (view->window.open) {
        press_window(view, press);
        return true;
    }
    if (view->prompt.open) {
        end_prompt(view, prompt_press(&view->prompt, press));
        return true;
    }
    if (view->help)
        return press_help(view, press);
    const struct key *key = keys_find(view->panel, press);
    if (!key)
        return false;
    if (key->changes && view->read_only) {
        view_say(view, INK_WARN, "this console only looks (--read-only)");
        return true;
    }
    return act_everywhere(view, key->act) || act_on_filter(view, key->act) || panels[view->panel]->act(view, key->act) ||
           view_act_on_run(view, key->act);
}

/* A click goes the way of the keys that lead to the same row. */
static bool select_row(struct view *view, int row)
{
    bool form = view->panel == PANEL_PROFILES && view->form.path[0];
    const struct grid_place *place = form ? &view->form_place : &view->places[view->panel];
    if (row < place->row || row >= place->row + place->rows)
        return false;
    int by = place->top + row - place->row - place->selected;
    for (int i = by < 0 ? -by : by; i > 0; i--)
        panels[view->panel]->act(view, by < 0 ? ACT_UP : ACT_DOWN);
    return true;
}

bool view_mouse(struct view *view, uint32_t press, int row, int column, const struct surface *surface, uint64_t now_ns)
{
    struct layout layout = layout_screen(surface->rows, surface->columns);
    bool over = view->dialog.kind || view->prompt.open;
    view->now_ns = now_ns;
    if (layout.too_small || over)
        return false;
    if (press != PRESS_CLICK)
        return view_press(view, press == PRESS_WHEEL_UP ? PRESS_UP : PRESS_DOWN, now_ns);
    if (view->window.open || view->help)
        return false;
    if (row != layout.tabs.row)
        return select_row(view, row);
    enum panel panel = chrome_tab_at(view, layout.tabs, column);
    if (panel != PANEL_COUNT)
        turn_to(view, panel);
    return true;
}

/* ---- drawing ---- */

void view_draw(struct view *view, struct surface *surface, uint64_t now_ns, uint64_t now_wall_ms)
{
    struct layout layout = layout_screen(surface->rows, surface->columns);
    struct replay replay;
    view_set_clock(view, now_ns, now_wall_ms);
    surface_wipe(surface);
    if (layout.too_small) {
        chrome_too_small(view, surface);
        return;
    }
    waterfall_find(view);
    replay_begin(&replay, view);
    chrome_title(view, surface, layout.title);
    chrome_tabs(view, surface, layout.tabs);
    panels[view->panel]->draw(view, surface, layout.body);
    chrome_wait(view, surface, layout.wait);
    replay_end(&replay, view);
    chrome_hints(view, surface, layout.hints);
    if (view->help)
        chrome_help(view, surface, layout.body);
    if (view->window.open)
        window_draw(&view->window, surface, layout.body);
    if (view->dialog.kind)
        chrome_dialog(view, surface, layout.body);
}
