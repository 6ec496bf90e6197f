/*
 * Starting the programs of a run that is prepared (ssh/launch/prepare.h): kedged, then one agent per host, each host a
 * state machine of its own so that a slow or broken one neither delays nor hides the others.
 *
 *   LAUNCH_WAITING (kedged's control address is not known yet) → LAUNCH_STARTING (its ready line is awaited)
 *   → LAUNCH_READY | LAUNCH_FAILED
 *   A host over SSH begins with LAUNCH_PREPARING (ssh/launch/remote.h: login, programs, credentials), which needs no kedged.
 *
 * kedged is started when all hosts are prepared, because from then on they have its deadlines to come; a host that does not even answer holds
 * nobody up. It runs on this machine, or on the host of run.head. The launcher lets go of what it started: killing the console ends
 * nothing.
 */
#ifndef KEDGE_LAUNCH_LAUNCH_H
#define KEDGE_LAUNCH_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profiles/profile.h"
#include "ssh/base/why.h"
#include "ssh/link/loop.h"
#include "ssh/session/session.h"

enum launch_state { LAUNCH_WAITING, LAUNCH_PREPARING, LAUNCH_STARTING, LAUNCH_READY, LAUNCH_FAILED };

struct launch;

struct launch_options {
    bool only_head;  /* no agent is started: a new kedged takes back those that live (ssh/launch/holders.h) */
    bool accept_new; /* keys of hosts that nobody knows yet are taken, and noted */
};

struct launch_callbacks {
    /* "kedged" or "agent@HOST" went to `state`; `text` is its address, or why it failed, or what is being done (LAUNCH_PREPARING,
     * again and again). */
    void (*changed)(const char *what, enum launch_state state, const char *text, void *arg);
    /* All stand (err 0), or one failed (ERR_GONE: a matter of its host, whatever the reason; ERR_REFUSED: of trust) and no other
     * is still starting: then the caller cleans (ssh/launch/clean.h, ssh/launch/sweep.h). */
    void (*done)(int err, const char *reason, void *arg);
    void (*ask)(struct session *session, const struct session_question *question, void *arg); /* NULL = nobody is here */
};

/* What a profile with hosts over SSH leaves open and ssh knows: how the others reach a host that listens on all its addresses.
 * Before prepare_run, which writes it down. Refuses what cannot work: hosts that listen for themselves only. */
int launch_resolve(struct profile *profile, struct why *why);

/* Begins at once; callbacks come from the loop. `profile` must outlive the launch. */
struct launch *launch_new(struct loop *loop, const struct profile *profile, const char *folder, uint64_t run_id,
                          const struct launch_options *options, const struct launch_callbacks *callbacks, void *arg,
                          struct why *why);
/* Per host of the profile: may something of the run live there? For sweep_new. */
const bool *launch_touched(const struct launch *launch);
void launch_free(struct launch *launch); /* ends nothing that was started; NULL is fine */

#endif
