/*
 * Where the time of a step went, from its begin to its end, in few letters: for people who ask why one step took so long. Pure and
 * bounded: at most TIMELINE_CELLS cells of equal length; a step that is longer than they are gets cells of twice the length.
 *
 * What happened is told in pieces: each `note` says how much of every part there has been so far, and at what time of the step; what the
 * parts do not explain is the rest. Within a piece the parts stand in the order of enum step_part.
 */
#ifndef KEDGE_TRAIN_TIMELINE_H
#define KEDGE_TRAIN_TIMELINE_H

#include <stdint.h>

#include "ssh/wire/wire.h"

#define TIMELINE_CELLS (WIRE_NAME - 4) /* a multiple of 2 */
#define TIMELINE_CELL_NS UINT64_C(20000) /* the shortest */

struct timeline {
    uint64_t cell_ns;                 /* 0 = nothing yet */
    uint64_t at_ns;                   /* since the begin */
    uint64_t told_ns[PART_COUNT];     /* by the newest note */
    uint64_t cells[TIMELINE_CELLS][PART_COUNT];
};

void timeline_note(struct timeline *line, const uint64_t parts_ns[PART_COUNT], uint64_t at_ns);
/* The letter of the part that took most of each cell (wire_part_letter); "" when nothing was noted. */
void timeline_write(const struct timeline *line, char out[WIRE_NAME]);

#endif
