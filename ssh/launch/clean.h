/*
 * Ending what is left of a run on this machine, without the scheduler's help: TERM to kedged and the agents (agents end
 * their own workers), then after a grace KILL to all that still lives, then the sockets and locks that nobody holds.
 *
 * A step machine: the caller calls clean_step every ~50 ms with the time until it says 0. Who is ours: ssh/launch/holders.h.
 */
#ifndef KEDGE_LAUNCH_CLEAN_H
#define KEDGE_LAUNCH_CLEAN_H

#include <stdint.h>

#include "ssh/base/why.h"
#include "ssh/launch/holders.h"
#include "ssh/launch/runs.h"

struct clean {
    char folder[RUNS_PATH];
    uint64_t run_id;
    uint64_t grace_ns;  /* TERM → KILL */
    uint64_t began_ns, killed_ns;
    struct holder living[HOLDERS_MOST]; /* as of the last step */
    size_t living_count;
    int ended;          /* processes that lived at the first step */
};

void clean_init(struct clean *clean, const char *folder, uint64_t run_id, uint64_t grace_ns);
/* 0: nothing of the run is left. ERR_AGAIN: call again. ERR_TIMEOUT: something survives KILL; `why` names it. */
int clean_step(struct clean *clean, uint64_t now_ns, struct why *why);

#endif
