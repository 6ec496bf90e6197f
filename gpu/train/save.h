/*
 * What a process writes of a checkpoint set, and how it goes on from it (save.c). Compute thread, but for save_remove.
 */
#ifndef KEDGE_TRAIN_SAVE_H
#define KEDGE_TRAIN_SAVE_H

#include "gpu/train/inside.h"

/* Memory for the copy, if the profile writes sets while it trains. */
int save_load(struct compute *compute, struct why *why);
void save_free(struct compute *compute);
/* After loading: what the ASSIGN says to go on from; nothing when it says nothing. Refuses with the reason. */
int save_resume(struct compute *compute, struct why *why);
/* Of the step of the pass. What becomes of it is told to kedged, and a failure ends nothing. */
void save_set(struct compute *compute);
/* Has the thread that writes come to its end? With `wait` it has when this returns. */
void save_look(struct compute *compute, bool wait);

#endif
