/*
 * One base number in the profile (run.timeout), every other deadline derived from it and strictly nested:
 *
 *   2·heartbeat < silent < redial < greet < grace < form < lease
 *
 * A user who stretches the base stretches all of them in order; there is nothing else to set. With the default of 10 s: 1 s,
 * 2.5 s, 5 s, 10 s, 15 s, 2 min, 10 min.
 */
#ifndef KEDGE_PROFILES_TIMEOUTS_H
#define KEDGE_PROFILES_TIMEOUTS_H

#include <stdbool.h>
#include <stdint.h>

struct timeouts {
    uint64_t heartbeat_ns; /* period of heartbeats */
    uint64_t silent_ns;    /* two periods and a little: the peer counts as gone */
    uint64_t redial_ns;    /* longest pause between two attempts to dial */
    uint64_t greet_ns;     /* the base: connect + TLS + HELLO */
    uint64_t grace_ns;     /* TERM → KILL */
    uint64_t form_ns;      /* from SPAWN until all roads stand; model loading included */
    uint64_t lease_ns;     /* a worker without its scheduler for so long goes headless */
};

/* From 1 ms to 1 day the order holds and nothing overflows; the row run.timeout keeps users within that. */
struct timeouts timeouts_derive(uint64_t base_ns);
bool timeouts_in_order(const struct timeouts *timeouts);

#endif
