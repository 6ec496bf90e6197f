/*
 * Consoles that look at a run: state, then the stream of changes, and their orders. They come and go and nobody waits for
 * them.
 *
 * A viewer remembers the version of the record that it has seen; four times a second it gets the rows that are newer. Rows
 * whose newest value is enough go on TELEM and replace each other; events, ledger and replies go on CONTROL, and a viewer
 * whose queue of those is full is dropped. The same code serves a live run and the record of a past one.
 */
#ifndef KEDGE_SCHEDULER_VIEWERS_H
#define KEDGE_SCHEDULER_VIEWERS_H

#include <stddef.h>
#include <stdint.h>

#include "scheduler/record.h"
#include "ssh/link/link.h"
#include "ssh/link/loop.h"
#include "ssh/link/road.h"

struct viewers;

#define VIEWERS_MAX 64
#define VIEWERS_TICK_NS (250 * CLOCK_MS)

/* Answer an order at once. */
typedef void viewers_order_cb(const struct wire_order *order, struct wire_reply *reply, void *arg);

/* `settings` are copied; their queue_max_bytes is what a viewer may lag behind. */
struct viewers *viewers_new(struct loop *loop, struct record *record, const struct link_settings *settings,
                            viewers_order_cb *order, void *arg);
void viewers_free(struct viewers *viewers);                      /* drops those that are left; NULL is fine */
void viewers_add(struct viewers *viewers, struct road *road);    /* takes the road over */
void viewers_tick(struct viewers *viewers);                      /* call it every VIEWERS_TICK_NS */
size_t viewers_count(const struct viewers *viewers);
/* Send what is new and take nobody any more; the following ticks say goodbye to those who have it all, and to all when
 * `linger_ns` is over. */
void viewers_end(struct viewers *viewers, const char *reason, uint64_t linger_ns);

#endif
