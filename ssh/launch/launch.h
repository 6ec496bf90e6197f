/*
 * Starting the programs of a run that is prepared (ssh/launch/prepare.h): kedged, then one agent per host, each host a
 * state machine of its own so that a slow or broken one neither delays nor hides the others.
 *
 *   LAUNCH_WAITING (kedged's control address is not known yet) → LAUNCH_STARTING (its ready line is awaited)
 *   → LAUNCH_READY | LAUNCH_FAILED
 *
 * Here only hosts of kind `local` exist; a remote kind adds its own way of starting and keeps these states.
 * The launcher lets go of what it started: killing the console ends nothing.
 */
#ifndef KEDGE_LAUNCH_LAUNCH_H
#define KEDGE_LAUNCH_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profiles/profile.h"
#include "ssh/base/why.h"
#include "ssh/link/loop.h"

enum launch_state { LAUNCH_WAITING, LAUNCH_STARTING, LAUNCH_READY, LAUNCH_FAILED };

struct launch;

struct launch_callbacks {
    /* "kedged" or "agent@HOST" went to `state`; `text` is its address, or why it failed. */
    void (*changed)(const char *what, enum launch_state state, const char *text, void *arg);
    /* All stand (err 0), or one failed (ERR_GONE: a matter of its host, whatever the reason) and no other is still starting:
     * then the caller cleans (ssh/launch/clean.h). */
    void (*done)(int err, const char *reason, void *arg);
};

/* Begins at once; callbacks come from the loop. `profile` must outlive the launch. With `only_head` no agent is started:
 * a new kedged takes back the agents that live (ssh/launch/holders.h). */
struct launch *launch_new(struct loop *loop, const struct profile *profile, const char *folder, uint64_t run_id,
                          bool only_head, const struct launch_callbacks *callbacks, void *arg, struct why *why);
void launch_free(struct launch *launch); /* ends nothing that was started; NULL is fine */

#endif
