/*
 * The learning rate as a pure function of the step: linear warm-up, then constant or cosine. Steps count from 1; the first
 * step has 1/warmup of the base rate, step `warmup` the whole of it, and the last step of a cosine final_share of it. The
 * base is live.
 */
#ifndef KEDGE_TRAIN_RATE_H
#define KEDGE_TRAIN_RATE_H

#include <stdbool.h>
#include <stdint.h>

struct rate {
    bool cosine; /* else constant */
    uint64_t warmup, steps;
    double final_share;
};

/* The factor of the base learning rate, 0 < factor ≤ 1 (0 where final_share is 0 and the step is the last). */
double rate_factor(const struct rate *rate, uint64_t step);

#endif
