/*
 * `kedged history --folder RUN`: what a screen needs of the past of a run, from its journal, as short lines:
 *
 *   loss STEP KIND LOSS NORM
 *   step WALL_MS PROCESS STEP KIND LOSS NORM LEARNING_RATE MASK_RATE TOKENS STEP_NS COMPUTE_NS WAIT_NS×6 (act grad stamp send data sync)
 *   rate WALL_MS FROM TO LANE BYTES_PER_SECOND
 *
 * The losses of the whole run, thinned out evenly; whole samples of the newest steps only; rates of the last minutes. "nan" is not known.
 */
#ifndef KEDGE_SCHEDULER_HISTORY_H
#define KEDGE_SCHEDULER_HISTORY_H

#include <stdio.h>

#include "ssh/base/why.h"

int history_print(const char *folder, FILE *out, struct why *why);

#endif
