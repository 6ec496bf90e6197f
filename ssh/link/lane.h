/*
 * The sending side of a link without its road: a queue per lane, which lane is next, and where its message is cut. Pure: no
 * clock, no descriptor.
 *
 * Order: CONTROL, then ACT, TELEM, SYNC, BULK. A lane that waits while another sends is owed LANE_FLOOR of those bytes,
 * and once that makes a frame it goes first (not before CONTROL): so nothing starves. TELEM replaces: a waiting message
 * of the same type and key (micro_batch) gets the newer payload and keeps its place.
 */
#ifndef KEDGE_LINK_LANE_H
#define KEDGE_LINK_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "ssh/wire/frame.h"
#include "ssh/wire/wire.h"

#define LANE_FLOOR 50 /* one byte in so many */

extern const int lane_order[LANE_COUNT]; /* who goes first */

struct lane_message;
STAILQ_HEAD(lane_queue, lane_message);

struct lane {
    struct lane_queue queue;
    uint64_t queued_bytes, queued_messages; /* with one header a message; what was cut off already is not counted */
    uint64_t sent_bytes, sent_frames, sent_messages, dropped_messages;
    uint32_t paused;   /* bits of enum link_hold set by the owner */
    uint32_t blocked;  /* bits of enum link_hold found when the lane last wanted to send */
    uint64_t owed_bytes;
    bool was_full;     /* a put failed: the owner waits for `drained` */
};

struct lanes {
    struct lane lane[LANE_COUNT];
    size_t queue_max_bytes;
};

struct lane_frame { /* one cut */
    struct frame_header header;
    const uint8_t *payload; /* header.frame_bytes */
    uint8_t *owned;         /* the whole message's memory when this was its last frame; else NULL */
};

void lanes_init(struct lanes *lanes, size_t queue_max_bytes);
void lanes_clear(struct lanes *lanes);
void lane_clear(struct lanes *lanes, int lane);

/* Takes `payload` over, also on failure. ERR_FULL when the lane is at its maximum; an empty lane takes a message of
 * any size. */
int lane_put(struct lanes *lanes, const struct frame_header *header, uint8_t *payload);
/* Is a message of this type waiting, not a byte of it sent? */
bool lane_has(const struct lanes *lanes, int lane, uint16_t type);
bool lanes_empty(const struct lanes *lanes);
/* May this lane send as far as the owner is concerned? */
bool lane_ready(const struct lanes *lanes, int lane);

/* The lane whose turn it is among those in `allowed` (a bit per lane); −1 = none. */
int lane_pick(const struct lanes *lanes, uint32_t allowed, size_t frame_max_bytes);
/* How large the frame would be that lane_cut cuts. */
size_t lane_next_bytes(const struct lanes *lanes, int lane, size_t frame_max_bytes);
/* Cut the next frame of that lane, at most frame_max_bytes with its header. */
void lane_cut(struct lanes *lanes, int lane, size_t frame_max_bytes, struct lane_frame *frame);
void lane_frame_clear(struct lane_frame *frame);
/* True once after the lane sank below half of its maximum when a put had failed. */
bool lane_drained(struct lanes *lanes, int lane);

#endif
