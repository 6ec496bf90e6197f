/*
 * A parcel to a host: nothing when it is there whole; else one pusher at a time (a lock that the host's kernel drops when the
 * session dies, so no lock is ever stale), room on the disk looked at first, then the files, each resumable and verified
 * (ssh/session/upload.h), and last the mark that says whole.
 */
#ifndef KEDGE_LAUNCH_PUSH_H
#define KEDGE_LAUNCH_PUSH_H

#include <stdbool.h>
#include <stdint.h>

#include "ssh/base/why.h"
#include "ssh/launch/parcel.h"
#include "ssh/link/loop.h"
#include "ssh/session/session.h"

struct push;

struct push_callbacks {
    /* `text`: "sending programs, 12.1 MiB of 80 MiB at 22 MB/s, 3 s left", at most twice a second */
    void (*progress)(struct push *push, const char *text, void *arg);
    /* Once. `sent` false: it was there. ERR_FULL: the host's disk. push_free is allowed. */
    void (*done)(struct push *push, int err, bool sent, const char *reason, void *arg);
};

/* `folder`: absolute path on the host, ending in the parcel's id. `programs`: that of our programs there, NULL = not there yet; copied.
 * The parcel is packed, and outlives the push. */
struct push *push_new(struct loop *loop, struct session *session, const struct parcel *parcel, const char *folder,
                      const char *programs, uint64_t stall_ns, const struct push_callbacks *callbacks, void *arg);
void push_free(struct push *push); /* what has arrived stays for the next try; NULL is fine */

#endif
