/*
 * How fast a road really takes bytes, measured only while it is the road that makes us wait. Pure.
 *
 * A window begins when the road would not take more (its short queue is full) and what it takes from then on is what it
 * delivers.
 */
#ifndef KEDGE_LINK_RATE_H
#define KEDGE_LINK_RATE_H

#include <stdbool.h>
#include <stdint.h>

struct rate {
    bool busy;
    uint64_t begin_ns, bytes;  /* of the window */
    uint64_t bits_per_second;  /* smoothed; 0 = unknown */
};

void rate_add(struct rate *rate, uint64_t bytes);     /* the road took so many */
void rate_busy(struct rate *rate, uint64_t now_ns);   /* the road takes no more now */
void rate_idle(struct rate *rate, uint64_t now_ns);   /* there is nothing to send */

#endif
