/*
 * What is left of a run on its hosts over SSH, ended by (pid, start time, mark): all hosts at once. For this machine:
 * ssh/launch/clean.h.
 */
#ifndef KEDGE_LAUNCH_SWEEP_H
#define KEDGE_LAUNCH_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "profiles/profile.h"
#include "ssh/base/why.h"
#include "ssh/link/loop.h"
#include "ssh/session/session.h"

struct sweep;

struct sweep_callbacks {
    /* A host is done: `err` 0 with `ended` processes that were still there, else why it could not be swept. */
    void (*host)(const struct profile_host *host, int err, int ended, const char *reason, void *arg);
    /* All are done: the first trouble, or 0. sweep_free is allowed. */
    void (*done)(int err, const char *reason, void *arg);
    void (*ask)(struct session *session, const struct session_question *question, void *arg); /* may be NULL */
};

/* `only` (may be NULL): one flag for each host of the profile. False when no host of the profile is to be swept. */
bool sweep_wanted(const struct profile *profile, const bool *only);
/* `profile` must outlive it. `folder` is the run's, here: it has the nonces of the hosts (nonce.h), and is told whose are gone; ""
 * when there is none. A machine that lacks its nonce is ERR_REFUSED, and nothing is ended there. */
struct sweep *sweep_new(struct loop *loop, const struct profile *profile, const char *folder, uint64_t run_id, const bool *only, uint64_t grace_ns,
                        const char *save, const struct sweep_callbacks *callbacks, void *arg);
void sweep_free(struct sweep *sweep); /* NULL is fine */

#endif
