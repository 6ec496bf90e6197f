/*
 * From a road to whole messages: reads in bounded turns, into the message itself where it is large, and counts.
 */
#ifndef KEDGE_LINK_IN_H
#define KEDGE_LINK_IN_H

#include <stddef.h>
#include <stdint.h>

#include "ssh/link/road.h"
#include "ssh/wire/frame.h"
#include "ssh/wire/wire.h"

struct in {
    struct frame_parser *parser;
    uint8_t *bytes;    /* [IN_READ_BYTES] */
    uint64_t heard_ns; /* the last bytes came */
    uint64_t messages[LANE_COUNT];
};

void in_init(struct in *in, uint64_t run_id, frame_message_cb *message, void *arg);
void in_clear(struct in *in); /* not inside the message callback */

enum in_state {
    IN_EMPTY,   /* the road has no more now */
    IN_MORE,    /* some came; call again, unless the message callback ended the link */
    IN_ENDED,   /* the road ended: *err and why say how */
    IN_REFUSED, /* what came is not allowed, or the message callback said so */
};

/* One read. */
enum in_state in_read(struct in *in, struct road *road, size_t *count, int *err, struct why *why);
/* One read, unlooked at: the peer is being parted from. */
enum in_state in_drop(struct in *in, struct road *road, size_t *count, int *err, struct why *why);

#endif
