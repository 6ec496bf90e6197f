/*
 * Two links joined by a road, in one loop, and what they saw: for tests of ssh/link.
 */
#ifndef KEDGE_TESTS_ENDS_H
#define KEDGE_TESTS_ENDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/link/link.h"
#include "ssh/link/loop.h"
#include "ssh/link/road.h"

#define ENDS_RUN UINT64_C(0x1122334455667788)

struct end {
    struct link *link;
    bool is_up, is_down;
    int down_err;
    char down_reason[1200];
    struct wire_hello peer;
    uint64_t messages[LANE_COUNT];
    uint64_t bytes[LANE_COUNT];
    uint64_t drained;
    /* Called for each message when set; its result is the callback's. */
    int (*on_message)(struct end *end, const struct frame_header *header, const uint8_t *payload, size_t bytes);
    int (*on_up)(struct end *end, struct why *why);
    void (*on_down)(struct end *end);
    void *user;
};

struct link_settings ends_settings(const char *name);
/* A link of `end` over the road; the callbacks fill the end. */
void end_begin(struct end *end, struct loop *loop, struct road *road, const struct link_settings *settings);
void end_free(struct end *end, struct loop *loop); /* and one turn, so that the memory goes */

/* Turn the loop until *flag, at most `limit_ns` (of the clock in use: an owned clock is advanced from timer to timer). */
bool loop_until(struct loop *loop, const bool *flag, uint64_t limit_ns);
void loop_for(struct loop *loop, uint64_t ns);

#endif
