/*
 * A link: one two-way road between two processes of a run, with priority lanes.
 *
 *   users      link_send / message callback
 *   link.c     greeting, heartbeats, lanes CONTROL > ACT > SYNC > BULK, TELEM beside them (latest wins),
 *              frames cut to ~10 ms of the measured rate, counters, hold reasons, pacing
 *   filters    record, slow, tls          (struct road stacked on struct road)
 *   roads      tcp, unix socket, stdio, in-memory pair
 *
 * Priority works only on bytes that the kernel does not have yet: kernel queues are kept short (TCP_NOTSENT_LOWAT, small
 * send buffers on Unix sockets). BULK and SYNC yield to ACT, but a floor keeps BULK from starving (2 % of the bytes).
 *
 * Life: link_new → (greeting: both sides say HELLO) → up callback → message callbacks → down callback, exactly once, also
 * when the link never came up. After down the link sends nothing; the owner calls link_free, inside the callback or later.
 * All calls are on the loop's thread. Every wait has a deadline: the greeting has greet_ns, silence has silent_ns.
 */
#ifndef KEDGE_LINK_LINK_H
#define KEDGE_LINK_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"
#include "ssh/link/loop.h"
#include "ssh/wire/frame.h"
#include "ssh/wire/wire.h"

/* Why a lane does not move now: a bit per reason; work resumes when the last bit clears. */
enum link_hold {
    HOLD_GREETING = 1 << 0,  /* the road does not stand yet */
    HOLD_PACE = 1 << 1,      /* the road's own token bucket is empty */
    HOLD_UPLINK = 1 << 2,    /* the host's uplink bucket is empty */
    HOLD_PRIORITY = 1 << 3,  /* a higher lane is sending */
    HOLD_KERNEL = 1 << 4,    /* the kernel's short queue is full: the road itself is the limit */
    HOLD_OPERATOR = 1 << 5,  /* link_pause by order */
    HOLD_GRANT = 1 << 6,     /* waits for a grant of the scheduler (BULK) */
};
/* "pace", "priority", … of one bit. */
const char *link_hold_name(uint32_t bit);

struct pace; /* a token bucket, ssh/link/pace.h */
struct road; /* the transport and its filters, ssh/link/road.h */
struct link;

struct link_settings {
    uint64_t run_id;         /* every frame must carry it */
    uint32_t incarnation;    /* ours, in every frame */
    struct wire_hello hello; /* ours */
    uint64_t heartbeat_ns;   /* period; also of the RTT measurement */
    uint64_t silent_ns;      /* nothing heard for so long: down with ERR_TIMEOUT */
    uint64_t greet_ns;       /* the road and the peer's HELLO must be there by then */
    uint64_t pace_bps;       /* this road's own limit in bits a second; 0 = none */
    struct pace *uplink;     /* shared by the roads of this process; NULL = none; must outlive the link */
    size_t queue_max_bytes;  /* per lane; 0 = 256 MiB */
};

struct link_counters {
    uint64_t sent_bytes, received_bytes;   /* with frame headers, without TLS and TCP overhead */
    uint64_t sent_frames, received_frames;
    uint64_t sent_messages, received_messages;
    uint64_t queued_bytes, queued_messages;
    uint64_t dropped_messages;             /* TELEM only: replaced by a newer one */
    uint32_t hold_reasons;
};

struct link_callbacks {
    /* The greeting is over. Returning a negative err (with why) refuses the peer: BYE with that text, then down. NULL
     * accepts. */
    int (*up)(struct link *link, const struct wire_hello *peer, void *arg, struct why *why);
    /* One whole message. `payload` is valid during the call. A negative return closes with the reason. */
    int (*message)(struct link *link, const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg,
                   struct why *why);
    /* The end, once. err 0 = the peer said a planned BYE or we closed; else ERR_GONE, ERR_TIMEOUT, ERR_INVALID, ERR_REFUSED,
     * ERR_ABSENT (no host of that name), rarely ERR_SYSTEM.
     * `reason` is a sentence that names the peer. */
    void (*down)(struct link *link, int err, const char *reason, void *arg);
    /* Lane `lane` sank below half of queue_max_bytes after a send returned ERR_FULL. May be NULL. */
    void (*drained)(struct link *link, enum wire_lane lane, void *arg);
};

/* Takes the road over (also on failure it will be freed with the link). Never blocks; never calls back before returning. */
struct link *link_new(struct loop *loop, struct road *road, const struct link_settings *settings,
                      const struct link_callbacks *callbacks, void *arg);
void link_free(struct link *link); /* drops the road at once, no callback; NULL is fine */

/* Queue a message from its struct, on its table lane. step and micro_batch go into the header.
 * 0, ERR_FULL (lane queue at its maximum; nothing was queued), ERR_GONE (down). */
int link_send(struct link *link, enum wire_type type, const void *payload, uint64_t step, uint32_t micro_batch);
/* The same with the payload encoded already; the link takes `payload` over (mem_free) in every case. For big ones. */
int link_send_encoded(struct link *link, enum wire_type type, uint8_t *payload, size_t bytes, uint64_t step,
                      uint32_t micro_batch);
/* Say BYE with a reason (0 = planned), flush what is queued on CONTROL within `linger_ns`, then down. */
void link_close(struct link *link, int err, const char *reason, uint64_t linger_ns);

void link_pause(struct link *link, enum wire_lane lane, enum link_hold reason);  /* set a reason */
void link_resume(struct link *link, enum wire_lane lane, enum link_hold reason); /* clear it */
void link_set_pace(struct link *link, uint64_t bits_per_second);

bool link_is_up(const struct link *link);
const struct wire_hello *link_peer(const struct link *link); /* NULL before up */
uint32_t link_peer_incarnation(const struct link *link);
void link_get_counters(const struct link *link, enum wire_lane lane, struct link_counters *counters);
uint64_t link_rtt_ns(const struct link *link);          /* smallest of the last 8 heartbeats; 0 = unknown */
/* The peer's wall clock less ours, from the smallest of those rounds; false = unknown. */
bool link_clock_offset_ns(const struct link *link, int64_t *offset_ns);
uint64_t link_rate_bps(const struct link *link);        /* measured delivery rate while busy; 0 = unknown */
uint64_t link_heard_ns_ago(const struct link *link);
const char *link_describe(const struct link *link);     /* "tls tcp 127.0.0.1:4711 → r0s1", valid until the next call */

#endif
