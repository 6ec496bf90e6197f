/*
 * One host over SSH on its way into a run:
 *
 *   REACHING (session up: connect, trust, login) → LOOKING (what is it, what is there, has it room) → PUSHING (each parcel that is not
 *   there) → DELIVERING (credentials by stdin, 0600) → PREPARED → STARTING (the agent's first line) → READY
 *
 * and FAILED from everywhere. A session that breaks while files travel is opened anew, and they go on where they were.
 * What is started there is in a session of its own and does not need ours.
 */
#ifndef KEDGE_LAUNCH_REMOTE_H
#define KEDGE_LAUNCH_REMOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "profiles/profile.h"
#include "ssh/base/why.h"
#include "ssh/launch/parcel.h"
#include "ssh/link/loop.h"
#include "ssh/session/reach.h"

struct remote_settings {
    const struct profile *profile;
    const struct profile_host *host;
    const char *folder;        /* the run's, here */
    uint64_t run_id;
    struct reach_settings reach;
    bool head;                 /* kedged runs there: it gets the profile, and kedged's credentials */
    bool agent;                /* an agent will run there */
    const struct parcel *programs, *text, *checkpoint, *adapter; /* count 0 = none */
    const char *text_value;    /* of parcel_text */
    unsigned glibc;            /* that the programs need (needed.h) */
};

struct remote;

struct remote_callbacks {
    void (*phase)(struct remote *remote, const char *text, void *arg); /* for people */
    void (*prepared)(struct remote *remote, void *arg);
    /* kedged or the agent said ready; `text` as it said it */
    void (*started)(struct remote *remote, bool head, const char *text, void *arg);
    /* Once; the whole sentence. Nothing follows. */
    void (*failed)(struct remote *remote, int err, const char *reason, void *arg);
    void (*ask)(struct session *session, const struct session_question *question, void *arg); /* may be NULL */
};

/* All is copied but profile, host and parcels. Begins at once; every callback comes from the loop. */
struct remote *remote_new(struct loop *loop, const struct remote_settings *settings, const struct remote_callbacks *callbacks,
                          void *arg);
/* When prepared. */
void remote_start_head(struct remote *remote, uint64_t deadline_ns);
void remote_start_agent(struct remote *remote, const char *head_address, uint64_t deadline_ns);
bool remote_is_reached(const struct remote *remote); /* its login came about */
const char *remote_address(const struct remote *remote); /* host name by which SSH reaches it; "" before that is known */
void remote_free(struct remote *remote); /* ends nothing that was started there; NULL is fine */

#endif
