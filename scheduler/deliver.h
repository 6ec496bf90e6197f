/*
 * When snapshots are taken and how fast they travel, and what is found of them back: just fast enough that it is in use
 * `staleness` steps after the snapshot, and never so fast that activations and sync lose their road. A floor keeps a
 * snapshot from starving. Pure arithmetic; scheduler/anchor.c and anchor_pace.c ask and obey.
 */
#ifndef KEDGE_SCHEDULER_DELIVER_H
#define KEDGE_SCHEDULER_DELIVER_H

#include <stdbool.h>
#include <stdint.h>

struct deliver_goal {
    uint64_t version;   /* the step that began with those weights */
    uint64_t staleness; /* steps from it to the first use */
    double step;        /* now; its fraction counts */
    double step_seconds;
    double compute_seconds; /* of the anchor; 0 = unknown */
    bool computed;          /* this version: only its way back is left */
};

struct deliver_time { /* seconds */
    double left;      /* for travelling; negative: it is late */
    double least;     /* that all of it takes, however late: a burst holds up activations */
};

struct deliver_road {     /* of one stage to the anchor, or back */
    uint64_t whole_bytes; /* that travel on it of one version */
    uint64_t left_bytes;  /* of these, as far as one can know */
    double capacity_bps;  /* 0 = unknown */
    double busy_bps;      /* what other lanes and roads of the same host need */
};

struct deliver_pace {
    double rate_bps;
    double seconds;  /* until it is through at that rate */
    bool limited;    /* the goal wants more than the road has left */
};

struct deliver_directions { /* what the anchor found of one version */
    uint64_t version;       /* 0: free */
    uint64_t holders;       /* bit per stage */
    uint64_t told_from;     /* the step from which it was said to be used; 0 = nobody was told */
};

/* For both ways, out and back. */
struct deliver_time deliver_time(const struct deliver_goal *goal);
/*
 * Of that time what the way out has, when so much is left of it. Both ways go at one rate, the lowest that is in time. Where
 * the anchor's road has no room for that rate, the way back gets longer, and what goes out goes faster.
 */
struct deliver_time deliver_time_out(const struct deliver_time *both, const struct deliver_road *back, uint64_t out_bytes);
void deliver_pace(const struct deliver_road *road, const struct deliver_time *time, struct deliver_pace *pace);
/* The step from which directions of this version are used, when all stages hold them after step `newest`. */
uint64_t deliver_use_step(uint64_t version, uint64_t staleness, uint64_t newest);
/*
 * Which of `all` is told now, and from which step it is used; −1: none. The newest that `everyone` holds and whose time has come, one
 * at a time: a stage gives up what is older than what it takes. What was told and not used when its step has passed was too old for
 * the stages, and holds up nobody.
 */
int deliver_choose(const struct deliver_directions *all, int count, uint64_t everyone, uint64_t used, uint64_t staleness,
                   uint64_t newest, uint64_t *from);
/* Is it time for the next snapshot? `last` 0: there was none. */
bool deliver_is_due(uint64_t last, uint64_t every, uint64_t newest);

#endif
