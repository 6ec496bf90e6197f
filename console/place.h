/*
 * Where a run is: "RUN", whose folder is on this machine (its scheduler may be on a host, as its profile says), or "HOST:RUN",
 * which is known on that host only; HOST is anything that ssh understands.
 *
 *   place_find → place_open (a client, over the socket here or over SSH: `kedged bridge` on the head) → client_free
 */
#ifndef KEDGE_CONSOLE_PLACE_H
#define KEDGE_CONSOLE_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "console/client.h"
#include "ssh/base/why.h"
#include "ssh/launch/runs.h"
#include "ssh/link/loop.h"
#include "ssh/session/reach.h"

struct place {
    char name[300];         /* as it was said */
    char run[64];
    char folder[RUNS_PATH]; /* here; "" for HOST:RUN */
    bool far;               /* the scheduler is on a host: `reach` says how it is reached */
    struct reach_settings reach;
    uint64_t run_id;
    struct timeouts timeouts;
};

/* No network but for HOST:RUN, which asks that host for the run's id (seconds at most, then the reason). */
int place_find(struct loop *loop, const char *name, struct place *place, struct why *why);
/* Never waits: the road comes up, or goes down, as any other. Unknown hosts are refused unless callbacks->ask is there. */
struct client *place_open(struct loop *loop, const struct place *place, bool follow, uint64_t from_event,
                          const struct client_callbacks *callbacks, void *arg, struct why *why);

#endif
