/*
 * The end of a host's lease (host.lease_until): who owns the host takes it back then, and what it holds is gone. So before that
 *
 *   ──left ≤ margin──▶ saves    a set of weights is written, by replicas that have no stage on the host, if there are any
 *   ──it is whole, or could not be, or left ≤ leave──▶ leaves
 *        with other replicas, or when only the anchor is there: the host is drained (moves.h), and the others go on
 *        else: the run is stopped; its last event names the set
 *   ──it is whole, and by the time that it took left > margin──▶ nothing to do yet
 *
 * margin = save + leave. save = three times what the newest set took from the wish to its manifest, or, while there is none, its
 * bytes at 20 MB/s; two steps; and run.timeout, for what comes in between. leave = what draining or stopping may take at most; for
 * a stop also the time that the host's part of the set needs to be fetched at its uplink (200 Mbit/s when that is not given).
 *
 * The wall clock is asked once, when kedged begins; from then on it is the monotonic one that counts.
 */
#ifndef KEDGE_SCHEDULER_LEASE_H
#define KEDGE_SCHEDULER_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "profiles/profile.h"

struct run;

enum lease_state { LEASE_NOT, LEASE_SAVES, LEASE_LEAVES };

struct lease { /* of the host whose turn it is */
    enum lease_state state;
    int host;
    bool told;                        /* that it cannot be drained */
    uint64_t step;                    /* LEASE_SAVES: a set of this step or a later one is waited for */
    uint64_t until_ns[PROFILE_HOSTS]; /* 0 = never */
};

void lease_begin(struct run *run);
void lease_tick(struct run *run);
/* Whose weights a set is made of: the lowest replica that is here, but not one on the host that goes when there is another. */
int lease_saver(const struct run *run);

/* ---- the pure part ---- */

struct lease_facts {
    double saved_seconds; /* that the newest set took; NaN = none was written yet */
    double step_seconds;  /* NaN = not known */
    uint64_t set_bytes;   /* of the largest part that a host writes; 0 = nothing of a set is on the host that goes, nor needed */
    uint64_t timeout_ns;   /* run.timeout */
    uint64_t leave_ns;
};

uint64_t lease_margin_ns(const struct lease_facts *facts);
/* `left_ns` until its end, negative when that is past. `saved`: the set is whole, or will not be. */
enum lease_state lease_due(int64_t left_ns, const struct lease_facts *facts, bool saved);

#endif
