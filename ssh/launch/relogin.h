/*
 * Does a host still let us in? Roads that stand say nothing about it: a provider that rewrites the authorised keys, a full table of
 * sessions or a changed firewall are noticed only by who logs in anew. So every host over SSH is logged in to again, apart from all that
 * stands, once a period, one after the other within it; each has its own deadline.
 *
 * A refusal counts at once, an attempt that fails otherwise when the next one fails, too. A host that does not let us in is asked again
 * after half a period, then twice as late each time, at most after four periods. One where a person would have to type something is not
 * asked: that is nobody's health.
 */
#ifndef KEDGE_LAUNCH_RELOGIN_H
#define KEDGE_LAUNCH_RELOGIN_H

#include <stdint.h>

#include "profiles/profile.h"
#include "ssh/link/loop.h"

struct relogin;

/* After each attempt that counts: err 0, or why not (a sentence that names the host). Do not free it from there. */
typedef void relogin_cb(const char *host, int err, const char *reason, void *arg);

/* `profile` is read here only. NULL when it has no host over SSH. `period_ns`: the first round begins at once. */
struct relogin *relogin_new(struct loop *loop, const struct profile *profile, uint64_t period_ns, relogin_cb *cb, void *arg);
void relogin_free(struct relogin *relogin); /* at once; NULL is fine */

#endif
