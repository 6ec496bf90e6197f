/*
 * What surrounds every panel: title, tabs, the sentence, the hints; and what lies over it: help and dialogs. Pure.
 */
#ifndef KEDGE_CONSOLE_CHROME_H
#define KEDGE_CONSOLE_CHROME_H

#include "console/view.h"

bool chrome_has_panel(const struct view *view, enum panel panel); /* an anchor's only when the run has one */
void chrome_title(struct view *view, struct surface *surface, struct area area);
/* The tab in that column, PANEL_COUNT when there is none. */
enum panel chrome_tab_at(const struct view *view, struct area area, int column);
void chrome_tabs(const struct view *view, struct surface *surface, struct area area);
void chrome_wait(const struct view *view, struct surface *surface, struct area area);
void chrome_hints(struct view *view, struct surface *surface, struct area area);
void chrome_help(struct view *view, struct surface *surface, struct area area);
void chrome_dialog(struct view *view, struct surface *surface, struct area area);
void chrome_too_small(const struct view *view, struct surface *surface);

/* ● and its kin: a glyph and an ink for a phase; colour is never the only difference. */
uint32_t chrome_phase_glyph(int phase, enum ink *ink);

#endif
