/*
 * A token bucket in bytes: the pace of a road, or of a host's uplink shared by several roads. Pure: the caller passes
 * the time. Refill is overflow-safe; the burst is 20 ms of the rate, at least one frame.
 */
#ifndef KEDGE_LINK_PACE_H
#define KEDGE_LINK_PACE_H

#include <stdint.h>

struct pace {
    uint64_t bits_per_second; /* 0 = unlimited */
    uint64_t burst_bytes;
    int64_t tokens;           /* may go below zero by one frame: debt is paid before the next */
    uint64_t filled_ns;
};

void pace_init(struct pace *pace, uint64_t bits_per_second, uint64_t now_ns);
void pace_set(struct pace *pace, uint64_t bits_per_second, uint64_t now_ns);
/* 0 = may send now; else how long to wait. */
uint64_t pace_wait_ns(struct pace *pace, uint64_t now_ns);
/* The same for senders that leave the first half of the burst to others: may send while more than `reserve_bytes` are
 * there (at most half of the burst). Negative for the few bytes that may go into debt. */
uint64_t pace_wait_above_ns(struct pace *pace, int64_t reserve_bytes, uint64_t now_ns);
void pace_spend(struct pace *pace, uint64_t bytes);

#endif
