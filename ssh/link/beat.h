/*
 * Heartbeats: what goes into one, and what comes out: the round trip, and how far the peer's wall clock is from ours. Pure.
 *
 * Each beat echoes the newest one of the peer with the time it was held here, so the two clocks need not agree. The
 * smallest of the last rounds is the road's own, the others had to wait somewhere; it tells best when the beat was sent, too: half of it
 * ago.
 */
#ifndef KEDGE_LINK_BEAT_H
#define KEDGE_LINK_BEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "ssh/wire/wire.h"

#define BEAT_ROUNDS 8

struct beat_round {
    uint64_t took_ns;
    int64_t offset_ns; /* the peer's wall clock − ours */
};

struct beat {
    uint64_t peer_sent_ns, heard_ns; /* the peer's newest: by its clock, by ours; 0 = none yet */
    bool answered;                   /* one of its beats was echoed */
    struct beat_round rounds[BEAT_ROUNDS];
    unsigned count;
};

struct wire_heartbeat beat_make(struct beat *beat, uint64_t now_ns, uint64_t wall_ns);
void beat_heard(struct beat *beat, const struct wire_heartbeat *heard, uint64_t now_ns, uint64_t wall_ns);
/* The smallest of the last rounds, NULL = none is known. */
const struct beat_round *beat_best(const struct beat *beat);
uint64_t beat_rtt_ns(const struct beat *beat); /* 0 = unknown */

#endif
