/*
 * The keys: one table. Dispatch, the hints in the last line, the help overlay and the section KEYS of man/kedge.1 read the same
 * rows, so nothing has to be kept in step.
 *
 * A press is a character, or one of enum press beyond Unicode.
 */
#ifndef KEDGE_CONSOLE_KEYS_H
#define KEDGE_CONSOLE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum press {
    PRESS_NONE = 0, PRESS_TAB = '\t', PRESS_ENTER = '\r', PRESS_ESCAPE = 27, PRESS_ERASE = 127,
    PRESS_UP = 0x110000, PRESS_DOWN, PRESS_LEFT, PRESS_RIGHT, PRESS_HOME, PRESS_END, PRESS_PAGE_UP, PRESS_PAGE_DOWN,
    PRESS_BACK_TAB, PRESS_DELETE, PRESS_F1,
    PRESS_CLICK, PRESS_WHEEL_UP, PRESS_WHEEL_DOWN /* of a mouse: view_mouse */
};
#define PRESS_CONTROL(letter) ((letter) & 31)

enum panel { PANEL_RUNS, PANEL_RUN, PANEL_LINKS, PANEL_ANCHOR, PANEL_HOSTS, PANEL_KNOBS, PANEL_EVENTS, PANEL_PROFILES, PANEL_COUNT };
#define ON(panel) (1u << (panel))
#define ON_ANY ((1u << PANEL_COUNT) - 1)
/* A run is open; rows can be filtered. */
#define ON_RUN (ON(PANEL_RUN) | ON(PANEL_LINKS) | ON(PANEL_ANCHOR) | ON(PANEL_HOSTS) | ON(PANEL_KNOBS) | ON(PANEL_EVENTS))
#define ON_FILTER (ON(PANEL_LINKS) | ON(PANEL_HOSTS) | ON(PANEL_EVENTS))

enum act {
    ACT_NONE,
    ACT_UP, ACT_DOWN, ACT_PAGE_UP, ACT_PAGE_DOWN, ACT_FIRST, ACT_LAST, ACT_LEFT, ACT_RIGHT, ACT_OPEN,
    ACT_SORT, ACT_SORT_BACK, ACT_REVERSE, ACT_FILTER, ACT_NOT, ACT_NEXT, ACT_PREVIOUS, ACT_LEVEL, ACT_FOLD, ACT_FOLLOW, ACT_WRAP,
    ACT_MORE, ACT_LESS, ACT_UNDO, ACT_FREEZE, ACT_PAGER, ACT_SAVE,
    ACT_PAUSE, ACT_CHECKPOINT, ACT_STOP, ACT_KILL, ACT_RESTART, ACT_DRAIN, ACT_REPLACE, ACT_NEW, ACT_CHECK, ACT_PLAN, ACT_LAUNCH, ACT_WRITE,
    /* everywhere, done by view.c itself */
    ACT_NEXT_PANEL, ACT_PREVIOUS_PANEL, ACT_RUNS, ACT_PANEL_RUN, ACT_PANEL_LINKS, ACT_PANEL_ANCHOR, ACT_PANEL_HOSTS,
    ACT_PANEL_KNOBS, ACT_PANEL_EVENTS, ACT_PANEL_PROFILES, ACT_COMMAND, ACT_COPY, ACT_HELP, ACT_BACK, ACT_REPAINT,
    ACT_SUSPEND, ACT_MOUSE, ACT_QUIT, ACT_COUNT
};

struct key {
    enum act act;
    uint32_t panels;    /* where it works */
    uint32_t presses[4];/* 0 = no more */
    const char *shown;  /* "Up, k" */
    const char *help;   /* what it does, one line */
    const char *hint;   /* one or two words for the last line; NULL = not there */
    bool changes;       /* changes a run or a file: not with --read-only */
};

const struct key *keys_all(size_t *count);
/* The row of a press on a panel, NULL when it means nothing there. */
const struct key *keys_find(enum panel panel, uint32_t press);
/* "Links": of a panel, for titles, the command line and the manual. */
const char *keys_panel_name(enum panel panel);
char keys_panel_digit(enum panel panel);
/* The rows of a panel alone (`everywhere` false) or those that are the same on all. */
bool keys_is_everywhere(const struct key *key);
void keys_print_mdoc(FILE *out);

#endif
