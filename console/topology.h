/*
 * The run as a drawing: replicas are rows, stages columns, the road to the next stage stands between two of them. Pure.
 */
#ifndef KEDGE_CONSOLE_TOPOLOGY_H
#define KEDGE_CONSOLE_TOPOLOGY_H

#include "console/layout.h"
#include "console/view.h"

/* Stages of a replica and replicas, as the processes say; 0 before any is known. */
void topology_size(const struct state *state, int *stages, int *replicas);
void topology_draw(const struct view *view, const struct layout_run *layout, int stages, int replicas, struct surface *surface);

#endif
