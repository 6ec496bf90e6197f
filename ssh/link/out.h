/*
 * From lanes to a road: some frames at a time are made ready and written. What is ready cannot be overtaken any more,
 * so it is never more than about 10 ms of the road's rate. Small frames are copied together into the stage, so that
 * they share system calls and TLS records; of a large one only the header and what fills a record are copied, the rest
 * stays where it lies.
 */
#ifndef KEDGE_LINK_OUT_H
#define KEDGE_LINK_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/link/lane.h"
#include "ssh/link/pace.h"
#include "ssh/link/rate.h"
#include "ssh/link/road.h"

#define OUT_STAGE_BYTES 65536

struct out {
    struct lanes lanes;
    struct rate rate;
    struct pace pace;           /* the road's own */
    struct pace *uplink;        /* shared; may be NULL */
    size_t queue_bytes;         /* as told to the road */
    bool spent;                 /* since the last wait for a bucket */
    uint64_t held_ns[LANE_COUNT]; /* since when the uplink's reserve holds the lane; 0 = it does not */
    size_t stage_used, stage_sent;
    struct lane_frame frame;    /* its payload behind what was copied into the stage, from frame_sent on */
    size_t frame_sent;
    uint8_t stage[OUT_STAGE_BYTES];
};

void out_init(struct out *out, size_t queue_max_bytes, uint64_t pace_bps, struct pace *uplink);
void out_clear(struct out *out);
/* Put a frame in front of all lanes, unasked: the HELLO. The stage must be empty. */
void out_stage_first(struct out *out, const struct frame_header *header, const uint8_t *payload);
bool out_staged(const struct out *out); /* a frame is being written */

enum out_state {
    OUT_IDLE, /* nothing that may be sent */
    OUT_ROAD, /* the road takes no more now, or has had its share of this turn: continue when it is writable */
    OUT_WAIT, /* a bucket is empty: continue after *wait_ns */
};
/* Write what the lanes in `allowed` (a bit per lane) have. enum out_state, or a negative err of the road. */
int out_flush(struct out *out, struct road *road, uint32_t allowed, uint64_t *wait_ns, struct why *why);

#endif
