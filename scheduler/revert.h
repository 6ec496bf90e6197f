/*
 * Taking back what a run does not bear: for revert.steps steps after a live setting was changed, loss and gradient norm must stay
 * within a band around what they were before it; else the setting goes back, by "auto-revert", through the ledger like any change.
 *
 *   revert_arm (a change is active: its band is written into its ledger row) → revert_step, each step → REVERT_BACK: the caller
 *   proposes the old values of all that is still watched, newest first: nobody knows which of them it was.
 *
 * Pure. The band lives in the ledger row, so it is in the journal, a new kedged goes on watching, and every console shows it.
 * Not decided by single steps: what is compared are means of several.
 */
#ifndef KEDGE_SCHEDULER_REVERT_H
#define KEDGE_SCHEDULER_REVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profiles/profile.h"
#include "scheduler/record.h"

#define REVERT_WHO "auto-revert"
#define REVERT_BEFORE 10 /* steps whose mean is the middle of the band */
#define REVERT_AFTER 5   /* steps whose mean is judged, and at least… */
#define REVERT_LEAST 3   /* …so many, unless one of them is not finite */

struct revert {
    struct { uint64_t step; double loss, norm; } steps[REVERT_BEFORE + REVERT_AFTER]; /* a ring */
    uint64_t count; /* only grows; slot = count mod size */
};

enum revert_verdict {
    REVERT_NOTHING,
    REVERT_KEPT, /* the last step of its watch is over, within the band */
    REVERT_BACK, /* it left the band, as `words` say */
};

/* Begin to watch a row that has become active; false: revert.steps is 0, it is a reversal itself, or kedged applies it. `words`: how. */
bool revert_arm(struct revert *revert, const struct profile *settings, struct record *record, struct record_ledger *row, char *words,
                size_t size);
/* A step of the run was trained. */
void revert_step(struct revert *revert, uint64_t step, double loss, double norm);
/* Judge one row that is watched, after the newest step; it is not watched any more unless REVERT_NOTHING. */
enum revert_verdict revert_judge(const struct revert *revert, struct record *record, struct record_ledger *row, char *words, size_t size);
/* The newest row below `below` that is watched; NULL = none. Begin with UINT64_MAX. */
struct record_ledger *revert_watched(struct record *record, uint64_t below);

#endif
