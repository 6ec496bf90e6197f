/*
 * A surface on a real terminal, and keys from it, through ncurses. One at a time.
 *
 * Whatever ends this program, the terminal is given back as it was: a clean end, SIGTERM and SIGHUP (by the loop), a bug or a fault (by a
 * handler that only writes what was prepared), kill -9 (by a child of ours that waits for just that; guard.h).
 */
#ifndef KEDGE_CONSOLE_TERMINAL_H
#define KEDGE_CONSOLE_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>

#include "console/surface.h"
#include "ssh/base/why.h"

struct terminal;

/* How inks look: as the number of colours allows, with attributes only, without telling red from green, or for a light background (preferences.h);
 * AUTO is LIGHT where COLORFGBG says that the background is. */
enum theme { THEME_AUTO, THEME_MONO, THEME_SAFE, THEME_LIGHT, THEME_COUNT };
const char *terminal_theme_name(enum theme theme); /* NULL beyond the last */

/* ERR_REFUSED with the reason when there is no terminal that could show a screen (TERM unknown, not a terminal). */
int terminal_open(struct terminal **terminal, bool color, enum theme theme, struct why *why);
void terminal_close(struct terminal *terminal); /* NULL is fine */

void terminal_size(const struct terminal *terminal, int *rows, int *columns); /* as the kernel says now */
/* Only what differs from the last drawing is sent. */
void terminal_draw(struct terminal *terminal, const struct surface *surface);
void terminal_repaint(struct terminal *terminal); /* the next drawing sends everything */
/* The next key that is there already; PRESS_NONE when there is none. Never waits. `gone`: the terminal has hung up. */
uint32_t terminal_press(struct terminal *terminal, bool *gone);
/* Where the last click was. */
void terminal_where(const struct terminal *terminal, int *row, int *column);
/* Whether clicks and the wheel come as presses; at first they do not, and the terminal is never told anything about a mouse. */
void terminal_mouse(struct terminal *terminal, bool wanted);
/* Give the terminal back for a while (Ctrl-Z, a pager), and take it again. */
void terminal_leave(struct terminal *terminal);
void terminal_enter(struct terminal *terminal);
/* Into the clipboard of the terminal, by OSC 52; it may refuse, nobody says so. */
void terminal_copy(struct terminal *terminal, const char *text);

#endif
