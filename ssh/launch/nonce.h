/*
 * How a machine is told from another one that was given its address, with the same host key (images are copied with theirs) and
 * a run of the same name on it: a start leaves a random word there, nonce@HOST in the run's folder, and everybody who comes for
 * this run asks for it first. Here, nonce@HOST also says whether something of the run may still live there.
 *
 * It stands beside the locks and not in them: they go with their process, and what was stopped must be told apart, too.
 */
#ifndef KEDGE_LAUNCH_NONCE_H
#define KEDGE_LAUNCH_NONCE_H

#include <stdbool.h>
#include <stdint.h>

#include "ssh/base/why.h"

/* In front of what a script of the run says when it is on another machine. */
#define NONCE_STRANGER "another machine"

struct nonce {
    uint64_t word; /* 0 = none: the host is not asked for one */
    bool left;     /* a start left it there, and nobody has seen since that all of the run is gone */
};

/* Of the run in `folder`. A missing or broken file is {0}. */
struct nonce nonce_read(const char *folder, const char *host);
/* Make one unless there is one: it outlives starts, so that what an earlier start left can still be ended. */
int nonce_make(const char *folder, const char *host, struct why *why);
int nonce_set_left(const char *folder, const char *host, bool left, struct why *why);

/* In front of a script for this host (script.h): on another machine it ends with a sentence on standard error. mem_free it. */
char *nonce_guard(const char *folder, const char *host);
/* A guard's sentence in what a host said: then it is a matter of trust. */
int nonce_err(int err, const char *reason);

#endif
