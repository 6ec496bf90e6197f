/*
 * Where the time of one step went: a row a process, what it did and waited for from left to right, all on one clock. Pure.
 */
#ifndef KEDGE_CONSOLE_WATERFALL_H
#define KEDGE_CONSOLE_WATERFALL_H

#include "console/view.h"

/* Finds the second of the frozen step: view_tick and view_rate tell of it. */
void waterfall_find(struct view *view);
void waterfall_draw(struct view *view, struct surface *surface, struct area area);
uint64_t waterfall_wall_ms(const struct view *view); /* when the frozen step ended; 0 = not known */
/* "waits for gradient from r0s1, 31 % of the step": what cost this process most. */
void waterfall_waiting(const struct view *view, const struct wire_process_row *process, const struct history_step *step, char *out, size_t size);
/* The frozen step moves by so many; stays within what the journal knows, or may know while it is still read from its oldest step on. */
void waterfall_move(struct view *view, int by);
/* All that the journal has is here: a step that it had not yet, and was frozen at, is its newest one. */
void waterfall_recalled(struct view *view);

#endif
