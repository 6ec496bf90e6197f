/*
 * The anchor as kedged sees it: a process that is started with the run and again when it ends, roads to it, snapshots that
 * are ordered and paced, directions that are agreed on, and what people are told of all that. Nothing of the run ever waits
 * for it.
 *
 *   due ──CAPTURE──▶ captured ──GRANT…──▶ flipped (whole at the anchor) ──▶ computed ──▶ all stages hold the directions
 *    ──USE from a step on──▶ used
 *
 * A version that does not get on is given up when the next one is due and it is older than anchor.limit.
 */
#ifndef KEDGE_SCHEDULER_ANCHOR_H
#define KEDGE_SCHEDULER_ANCHOR_H

#include "scheduler/deliver.h"
#include "scheduler/lives.h"
#include "scheduler/processes.h"
#include "ssh/wire/wire.h"

#define ANCHOR_PENDING 8

struct run;

struct anchor_part { /* of the snapshot on its way, of one stage of the replica that sends it */
    bool captured;
    uint64_t full_bytes, sent_bytes, granted_bytes;
    uint64_t known_bytes; /* that will travel; 0 = not known */
    double done; /* share of its chunks */
};

struct anchor {
    bool asked; /* SPAWN was sent for this incarnation */
    struct lives lives;
    int sender; /* the replica that snapshots come from: the lowest that was there when one was needed */
    bool road_told[PROFILE_MAX_STAGES];
    bool ordered; /* a capture is ordered, and no stage has said it yet */
    uint64_t ordered_step;
    bool wanted;         /* by a person, or in place of one that was damaged */
    bool damaged;        /* the one before was */
    uint64_t version;    /* on its way; 0 = none */
    uint64_t last;       /* newest that was captured */
    struct anchor_part parts[PROFILE_MAX_STAGES];
    bool late_told;
    double share, compute_seconds; /* the lesser of the last two measured; 0 = unknown */
    uint64_t granted_ns;
    uint64_t back; /* the newest version that was whole at the anchor: what comes of it travels, or has */
    struct deliver_directions pending[ANCHOR_PENDING];
    uint64_t used;
    struct wire_meter meters[PROFILE_MAX_STAGES][MATRIX_CLASSES];
};

void anchor_begin(struct run *run);
void anchor_tick(struct run *run);                             /* starts it, orders, grants, tells */
void anchor_step(struct run *run);                             /* a training step has ended: what is due by steps */
void anchor_welcome(struct run *run, struct process *process); /* it, or a stage, has a road to us (again) */
void anchor_forget(struct run *run, int replica); /* it begins again: no road, no directions */
void anchor_ready(struct run *run, struct process *process);
void anchor_ended(struct run *run);
int anchor_mark(struct run *run, struct process *process, const void *payload, struct why *why);
int anchor_meter(struct run *run, struct process *process, const void *payload, struct why *why);
int anchor_spectrum(struct run *run, struct process *process, const void *payload, struct why *why);
int anchor_sample(struct run *run, const struct wire_sample *sample, struct why *why);
void anchor_order(struct run *run, const struct wire_order *order, struct wire_reply *reply); /* a snapshot now */
struct wire_anchor_row *anchor_row(struct run *run); /* of the record, about to change */
struct process *anchor_sender_stage(struct run *run, int stage); /* of the replica that sends snapshots */

/* ---- anchor_numbers.c ---- */
void anchor_tell_progress(struct run *run); /* of the snapshot on its way */
void anchor_tell_returned(struct run *run); /* of what comes back */

/* ---- anchor_pace.c ---- */
void anchor_pace_out(struct run *run); /* a version is on its way: what its stages may send, and how fast */
void anchor_pace_back(struct run *run, uint64_t version); /* it is whole at the anchor */
void anchor_pace_computed(struct run *run, uint64_t version);
void anchor_pace_look(struct run *run); /* now and then */

#endif
