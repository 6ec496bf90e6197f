/*
 * How fast are the roads between hosts? Each pair once, both directions, a few pairs at a time and each host in one of them only, so that they
 * do not measure each other. At most 16 MiB and about two seconds a direction: bursts that double, timed where they arrive, the second half of
 * the last one counts (the first is TCP growing).
 *
 * It goes over sockets of perl on both hosts, between the addresses that the run will use, not over SSH; one listens where its stages would.
 */
#ifndef KEDGE_LAUNCH_MEASURE_H
#define KEDGE_LAUNCH_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "ssh/link/loop.h"
#include "ssh/session/session.h"

#define MEASURE_WORD 300

struct measure_host {
    const char *name;
    struct session *session;  /* up; NULL = it cannot take part */
    const char *listen;       /* where its stages would */
    const char *reached_at;   /* by others: "HOST:PORT", whose port is replaced unless it is a mapped one */
    bool mapped;              /* that port, and no other */
    bool reached;             /* somebody was let in there */
};

struct measure_pair {
    int one, other;           /* hosts */
    bool done;
    uint64_t rtt_ns;          /* 0 = it was not measured, because: */
    double forward, backward; /* bytes a second, one → other and back */
    char reason[MEASURE_WORD];
};

struct measure;
typedef void measure_cb(const struct measure_pair *pair, int left, void *arg); /* one is done; 0 left: measure_free is allowed */

/* Hosts and pairs must outlive it; the pairs are filled. `count` > 0. */
struct measure *measure_new(struct loop *loop, const struct measure_host *hosts, int host_count, struct measure_pair *pairs, int count,
                            uint64_t greet_ns, measure_cb *cb, void *arg);
void measure_free(struct measure *measure); /* NULL is fine */

#endif
