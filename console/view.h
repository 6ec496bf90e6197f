/*
 * The screen without its terminal: what is shown, what is selected, what is being typed. Pure: rows, keys and times in; a drawing
 * and wishes out. Whoever holds the terminal and the road (screen.c) grants the wishes: send an order, open a run, leave.
 *
 * Nothing here waits, reads or writes, so no road and no disk can make it slow; what can be drawn can be tested without a
 * terminal, at any size and with any bytes.
 */
#ifndef KEDGE_CONSOLE_VIEW_H
#define KEDGE_CONSOLE_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "console/filter.h"
#include "console/form.h"
#include "console/grid.h"
#include "console/history.h"
#include "console/keys.h"
#include "console/prompt.h"
#include "console/state.h"
#include "console/style.h"
#include "console/surface.h"
#include "console/wait.h"
#include "console/window.h"

#define VIEW_TEXT 700
#define VIEW_RUNS 200
#define VIEW_WISHES 8
#define VIEW_LOG (64 * 1024) /* the end of a log that is shown */
#define VIEW_FILTERS (PANEL_COUNT + 1)
#define VIEW_LOG_FILTER PANEL_COUNT /* of the lines of a log */

enum wish_kind {
    WISH_NONE, WISH_ORDER, WISH_LEAVE, WISH_SUSPEND, WISH_REPAINT, WISH_OPEN, WISH_RECALL, WISH_COPY, WISH_PAGER, WISH_RUNS,
    WISH_PROFILES, WISH_READ_PROFILE, WISH_WRITE_PROFILE, WISH_NEW_PROFILE, WISH_CHECK, WISH_PLAN, WISH_LAUNCH,
    WISH_ANSWER, WISH_INTERRUPT, WISH_SAVE, WISH_MOUSE
};

struct wish {
    enum wish_kind kind;
    enum order_kind order;
    char name[PROMPT_TEXT];  /* a run, a setting, a profile, a log */
    char value[PROMPT_TEXT];
    char *text;              /* to copy, to page, an answer; owned, wiped; NULL = none */
};

struct view_run { /* a row of the list of runs */
    char name[64];
    bool running;
    int64_t changed_wall_ms;
};

enum dialog_kind { DIALOG_NONE, DIALOG_ASK, DIALOG_TYPE };

struct dialog {
    enum dialog_kind kind;
    bool yes;                /* which answer has the focus; never at first */
    char title[80], text[4096], twin[160]; /* twin: the command that does the same */
    char must_type[64];      /* of DIALOG_TYPE */
    struct prompt prompt;
    struct wish wish;        /* made when it is answered with yes */
};

enum view_prompt { VIEW_COMMAND, VIEW_FILTER, VIEW_VALUE, VIEW_SETTING, VIEW_NEW, VIEW_SAVE, VIEW_HOST };

struct view {
    struct style style;
    bool read_only, mouse;
    /* what is known */
    char run[64];
    bool has_folder;         /* of this machine: logs and journal can be read */
    struct state state;
    struct history history;
    struct wait_road road;
    char down_reason[VIEW_TEXT];
    struct view_run *runs;
    size_t run_count;
    char **profiles;         /* paths */
    size_t profile_count;
    struct form form;        /* one of them, open */
    struct grid_place form_place;
    char log_name[WIRE_NAME]; /* whose log is in `log`; asked for by panel Hosts */
    char log[VIEW_LOG];
    uint64_t now_ns, now_wall_ms, wall_offset_ms; /* now_wall_ms − now_ns in milliseconds */
    /* what is shown */
    enum panel panel;
    struct grid_place places[PANEL_COUNT];
    struct filter filters[VIEW_FILTERS];
    int event_level;
    bool fold, follow, wrap;
    bool log_alone;           /* panel Hosts: the log has all the room, and the filter keys are its own */
    int stage_first;          /* panel Run: the stage at the left */
    int replica_first;
    int spectrum_layer;       /* panel Anchor: whose spectrum is drawn */
    bool frozen;
    uint64_t frozen_at;       /* the newest step then; 0 when all is here that the journal knows */
    uint64_t frozen_step, frozen_tick; /* tick 0: not known */
    char draft_name[WIRE_NAME], draft[PROMPT_TEXT]; /* panel Knobs: a value that is not proposed yet */
    bool help;
    int help_top;
    struct prompt prompt;
    enum view_prompt prompt_for;
    struct dialog dialog;
    struct window window;     /* something to read, or a command at work */
    char message[VIEW_TEXT];  /* in the last line, for some seconds */
    int message_ink;
    uint64_t message_until_ns;
    char moved_host[WIRE_NAME]; /* of VIEW_HOST: whose place another one takes */
    struct wish wishes[VIEW_WISHES];
    size_t wish_count;
};

void view_init(struct view *view, const struct style *style, bool read_only);
void view_clear(struct view *view);
/* Another run: what was known of the last one is forgotten. "" = none. */
void view_open(struct view *view, const char *run, bool live, bool has_folder);

/* What the wall clock says now: rows are remembered by its seconds. Before the first row, and by every drawing. */
void view_set_clock(struct view *view, uint64_t now_ns, uint64_t now_wall_ms);

/* Each returns true when what is shown may have changed. */
bool view_apply(struct view *view, enum wire_type type, const void *row, uint64_t now_ns);
bool view_press(struct view *view, uint32_t press, uint64_t now_ns);
/* PRESS_CLICK or a wheel at a place of a surface of this size: a tab is opened, a row selected. */
bool view_mouse(struct view *view, uint32_t press, int row, int column, const struct surface *surface, uint64_t now_ns);
void view_down(struct view *view, const char *reason, uint64_t now_ns);
void view_say(struct view *view, enum ink ink, const char *format, ...) __attribute__((format(printf, 3, 4)));

void view_draw(struct view *view, struct surface *surface, uint64_t now_ns, uint64_t now_wall_ms);
/* The oldest wish, false = none. The caller frees wish.text. */
bool view_take(struct view *view, struct wish *wish);

/* ---- for the panels ---- */

struct panel_methods {
    void (*draw)(struct view *view, struct surface *surface, struct area area);
    bool (*act)(struct view *view, enum act act);               /* false: nothing of this panel */
    void (*copy)(const struct view *view, char *out, size_t size); /* the selected row as text */
};
extern const struct panel_methods panel_runs, panel_run, panel_links, panel_anchor, panel_hosts, panel_knobs, panel_events,
    panel_profiles;

#define PANEL_LINKS_SENT 10 /* the column that panel Links is sorted by at first */

/* The events that are shown, as text; mem_free it (panel_events.c). */
char *view_events_text(const struct view *view);
struct wish *view_wish(struct view *view, enum wish_kind kind);
void view_ask(struct view *view, const char *title, const char *text, const char *twin, const struct wish *wish);
void view_ask_typed(struct view *view, const char *title, const char *text, const char *twin, const char *must_type,
                    const struct wish *wish);
void view_prompt(struct view *view, enum view_prompt kind, const char *label, const char *text);
/* The filter that keys mean now. */
struct filter *view_filter(struct view *view);
/* Does the text match the panel's filter? */
bool view_matches(const struct view *view, enum panel panel, const char *text);
/* Bytes a second of a road of the state: now, or in the second of the frozen step. */
double view_rate(const struct view *view, size_t road);
/* Where pictures of rates end: now, in that second, or when the run ended. */
uint64_t view_tick(const struct view *view);
bool view_is_stale(const struct view *view, uint64_t age_ns); /* older than two periods */
/* Acts on a whole run: pause, stop, … (view_run.c). */
bool view_act_on_run(struct view *view, enum act act);
/* Asks: restart, drain, replace of a host (view_host.c); `by` is the other one of ORDER_REPLACE, "" = it is asked for. */
void view_act_on_host(struct view *view, enum order_kind order, const char *host, const char *by);
/* The `index`-th host that could take another's place, NULL = no more. */
const char *view_idle_host(int index, void *arg);
/* A line of the command prompt (view_command.c). */
void view_command(struct view *view, const char *line);
const char *view_complete(int index, void *arg);

#endif
