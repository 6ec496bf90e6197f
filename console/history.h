/*
 * What a console remembers of a run beyond the newest rows: the loss by step, the rate of every road by second, and where the
 * time of each recent step went. Fed by the rows as they come, and by the journal (`kedged history`), which knows what was before
 * this console began to look. Pure and bounded.
 */
#ifndef KEDGE_CONSOLE_HISTORY_H
#define KEDGE_CONSOLE_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#include "console/series.h"
#include "console/state.h"

#define HISTORY_STATES 4096 /* of hosts together, of the anchor */
#define HISTORY_STEPS 4096 /* samples of steps, of all processes together */

struct history_step { /* one step of one process, from the journal */
    char process[WIRE_NAME];
    uint64_t wall_ms, step;
    double loss, norm, learning_rate, mask_rate;
    uint64_t tokens, step_ns, compute_ns;
    uint64_t wait_ns[WAIT_CAUSES]; /* by enum wait_cause */
    uint64_t pack_ns, began_wall_ns; /* the latter by its host's clock */
    char timeline[WIRE_NAME];      /* as wire_sample has it; "-" = not known */
};

struct history_host { /* how a host was, from the journal */
    uint64_t wall_ms;
    struct wire_host row;
};

struct history_anchor {
    uint64_t wall_ms;
    struct wire_anchor_row row;
};

struct history {
    struct series loss, validation, norm, anchor_loss;
    struct trail speed;      /* tokens a second */
    struct trail **rates;    /* beside state->roads; NULL = nothing yet */
    size_t rate_count;
    uint64_t newest_tick;    /* of any rate: where the pictures of a run that is over end */
    struct history_step *steps; /* a ring: slot = number mod HISTORY_STEPS */
    uint64_t step_count;        /* only grows */
    struct history_host *hosts; /* rings as well */
    struct history_anchor *anchors;
    uint64_t hosts_told, anchors_told;
};

void history_clear(struct history *history); /* frees; empty again */
/* A row that the state has just taken. */
void history_apply(struct history *history, const struct state *state, enum wire_type type, const void *row, uint64_t tick);
/* The journal will be read (again): what it said of single steps comes anew. */
void history_forget_steps(struct history *history);
/* A line of `kedged history`; what is not understood is left out. */
void history_recall(struct history *history, const struct state *state, const char *line);

/* Ticks of trails are seconds of the wall clock: a journal and a console agree on them, whenever either began. */
uint64_t history_tick(uint64_t wall_ms);
const struct trail *history_rate(const struct history *history, size_t road); /* never NULL */
/* The newest sample of a process at a step, NULL when it is not (or no more) known. */
const struct history_step *history_find(const struct history *history, const char *process, uint64_t step);
/* How a host, or the anchor, was at that time: the newest word before it, NULL when none is known of the minute before. */
const struct wire_host *history_host(const struct history *history, const char *host, uint64_t wall_ms);
const struct wire_anchor_row *history_anchor(const struct history *history, uint64_t wall_ms);
/* Smallest and greatest step that any sample is of; 0 when there is none. */
uint64_t history_steps(const struct history *history, uint64_t *oldest);

#endif
