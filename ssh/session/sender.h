/*
 * A shell on a host that takes orders of one file (orders.h): told the next one whenever it has sent the last, it sends those bytes, as they
 * are or compressed. Which bytes, and what the host's answers mean, is its owner's business.
 */
#ifndef KEDGE_SESSION_SENDER_H
#define KEDGE_SESSION_SENDER_H

#include <stdbool.h>
#include <stdint.h>

#include "ssh/session/compress.h"
#include "ssh/session/session.h"
#include "ssh/session/shell.h"
#include "ssh/session/source.h"
#include "ssh/session/units.h"

#define SENDER_PACKED_UNITS 4 /* most of an order that is compressed: it waits in memory */

struct order {
    uint64_t begin, bytes;
    struct compress *compress; /* NULL = as they are */
};

/* The same for a sender and for a twin (twin.h). */
struct sender_callbacks {
    /* It has nothing to send: order now, or later and poke. False: it was freed. */
    bool (*wants)(void *arg);
    enum shell_next (*line)(const char *line, void *arg); /* the host said it */
    void (*packed)(uint64_t took_ns, void *arg);          /* for so long its loop compressed; may be NULL */
    /* Once. `err` and `status` as of a shell; also when the file cannot be read (status −1). It may be freed. */
    void (*ended)(int err, int status, const char *reason, void *arg);
};

struct sender;

/* `command`: of orders.h. `source`, and the compress of each order, outlive it. Callbacks come from the session's loop. */
struct sender *sender_new(struct session *session, const char *command, uint64_t open_ns, const struct source *source,
                          const struct sender_callbacks *callbacks, void *arg);
void sender_free(struct sender *sender); /* NULL is fine */
/* When it wants one; NULL = there is none any more: the shell's input ends. */
void sender_order(struct sender *sender, const struct order *order);
void sender_put(struct sender *sender, const char *line); /* a line as it is, when no order is under way */
void sender_poke(struct sender *sender);                  /* it may want again */
uint64_t sender_moved_ns(const struct sender *sender);    /* as shell_moved_ns */
uint64_t sender_least_ns(const struct sender *sender);    /* as channel_least_ns */

#endif
