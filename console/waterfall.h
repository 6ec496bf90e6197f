/*
 * Where the time of one step went: a row a process, its step as a bar of computing and of each kind of waiting. Pure.
 */
#ifndef KEDGE_CONSOLE_WATERFALL_H
#define KEDGE_CONSOLE_WATERFALL_H

#include "console/view.h"

void waterfall_draw(struct view *view, struct surface *surface, struct area area);
/* The frozen step moves by so many; stays within what the journal knows. */
void waterfall_move(struct view *view, int by);

#endif
