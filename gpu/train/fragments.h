/*
 * Which part of the weights moves between replicas at which step: a pure function of the agreed global step, so replicas
 * that joined late or missed a round can never wait for different things.
 *
 * The layers of a stage are cut into P fragments; fragment f is sent after the optimiser step of every training step t with
 * t mod H = ⌊f·H/P⌋ and applied τ steps later. It is first sent when at least H/2 steps are behind it (a younger
 * pseudo-gradient is mostly noise), and not at all when it could not be applied any more before the last step, which is
 * followed by a full exchange.
 *
 * Every step has at most one round; rounds are numbered P·⌊t/H⌋ + f: 1 apart from one to the next, the same on all replicas.
 *
 * H may change while a run goes on. From the step of the change on nothing is sent any more until all that is under way has
 * been applied; there the new schedule begins as the first one did at step 0, and rounds are numbered on.
 */
#ifndef KEDGE_TRAIN_FRAGMENTS_H
#define KEDGE_TRAIN_FRAGMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "ssh/base/why.h"

enum fragment_pattern { FRAGMENTS_STRIDED, FRAGMENTS_SEQUENTIAL };

struct fragments {
    int64_t every;   /* H */
    int64_t count;   /* P, 1 … H */
    int64_t overlap; /* τ, 0 … H − 1 */
    int pattern;     /* enum fragment_pattern */
    uint64_t last;   /* last training step; UINT64_MAX = not known */
    uint64_t since;  /* t counts from after this step, */
    uint64_t number; /* and rounds from this number: both 0 until H changes */
};

struct fragment_round {
    uint64_t round;
    uint64_t sent, applied; /* after the optimiser steps of these training steps */
    int fragment;
};

int fragments_check(const struct fragments *fragments, struct why *why);
/* Of layer i of a stage with so many layers. What belongs to no layer (embedding, last norm, head) moves with the last
 * fragment. */
int fragments_of_layer(const struct fragments *fragments, int64_t layer, int64_t layers);
/* The round that is sent after step t; false when there is none. */
bool fragments_sent_at(const struct fragments *fragments, uint64_t step, struct fragment_round *round);
/* The round that is due after step t. */
bool fragments_applied_at(const struct fragments *fragments, uint64_t step, struct fragment_round *round);
/* The least number of a round that is sent after step t or a later one. */
uint64_t fragments_first_round(const struct fragments *fragments, uint64_t step);
/* Most rounds that are under way at a time. */
int fragments_in_flight(const struct fragments *fragments);
/* A number above those of all rounds up to the last step: the full exchange at the end counts from here. */
uint64_t fragments_end(const struct fragments *fragments);
/* The schedule with another H for what is sent after steps > `step`. */
struct fragments fragments_change(const struct fragments *fragments, uint64_t step, int64_t every);

#endif
