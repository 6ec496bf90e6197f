/*
 * A file to a host, large or small: not SFTP, whose small writes wait for the far end, but plain pipes.
 *
 * Standing shells on the host, each with a channel and its own 2 MiB window, take orders: so many bytes for that place. dd, or our worker
 * where it is, writes them to FILE.part, FILE.part.list notes them, and the shell says so (orders.h). Orders grow until one takes about a
 * second: where little gets through little is lost, and where much does nobody waits for answers. So the progress shown is what has
 * arrived; an upload that broke off, of the same file, goes on where it was; and a channel that is slow delays nobody.
 * Where it turns out that the road takes more than one processor enciphers, a second session helps, on a thread of its own (twin.h).
 * An order is sent compressed, when the host has our programs, zstd or gzip, and a sample says that this is quicker on this road
 * (compress.h).
 * A sum is made while sending, here on a thread of its own (sum.h) and, by one more shell that follows what has arrived, there: XXH3 where
 * our worker is, else SHA-256. Only when they are the same is FILE.part renamed to FILE. A FILE that is there already, with the same content,
 * is not sent.
 *
 * Nothing moved for stall_ns: it ends with ERR_TIMEOUT, and the owner begins again with a new session.
 */
#ifndef KEDGE_SESSION_UPLOAD_H
#define KEDGE_SESSION_UPLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ssh/base/why.h"
#include "ssh/session/session.h"

#define UPLOAD_STREAMS 4 /* most channels */
#define UPLOAD_TWIN_RATE 150e6 /* bytes a second: what a road of a Gbit/s does not reach */

enum upload_phase { UPLOAD_LOOKING, UPLOAD_COMPARING, UPLOAD_SENDING, UPLOAD_VERIFYING, UPLOAD_DONE };
const char *upload_phase_name(enum upload_phase phase); /* "looking", … */

struct upload_progress {
    enum upload_phase phase;
    uint64_t total_bytes;
    uint64_t resumed_bytes; /* were there before */
    uint64_t arrived_bytes; /* with those; all of these are bytes of the file */
    uint64_t sent_bytes;    /* what the road took for those that were not there before: less, where compressing pays */
    double rate;            /* bytes of the file a second, of the last seconds; 0 = unknown */
    uint64_t eta_ns;        /* 0 = unknown */
    uint64_t stalled_ns;    /* nothing moved for so long; 0 = it moves */
};

struct upload_settings {
    const char *local, *remote; /* paths; the remote folder is made. Copied. */
    const char *programs;       /* the folder there that has kedge-worker, which undoes the best frames; NULL = none. Copied. */
    mode_t mode;
    uint64_t stall_ns;          /* also the deadline of looking */
    uint64_t verify_ns;         /* deadline of the host's own hash, on top of stall_ns, per GiB */
    double twin_rate;           /* so fast, in bytes a second, a twin helps; 0 = UPLOAD_TWIN_RATE */
};

struct upload;

struct upload_callbacks {
    /* twice a second, and when all is there; may be NULL */
    void (*progress)(struct upload *upload, const struct upload_progress *progress, void *arg);
    /* Once. ERR_FULL: the host's disk is full. `sent` false: it was there already. */
    void (*done)(struct upload *upload, int err, bool sent, const char *reason, void *arg);
};

/* The session must be up and outlive the upload. Callbacks come from the loop; upload_free is allowed in `done`. */
struct upload *upload_new(struct loop *loop, struct session *session, const struct upload_settings *settings,
                          const struct upload_callbacks *callbacks, void *arg, struct why *why);
void upload_free(struct upload *upload); /* NULL is fine; what has arrived stays there for the next try */

#endif
