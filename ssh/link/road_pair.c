/*
 * Two roads in memory: what one end writes, the other reads. Each direction is a buffer of at most `room` bytes that
 * belongs to the reader's end. `ready` comes through loop_later, so that it is never called inside another road call.
 */
#include <stdio.h>
#include <string.h>

#include "ssh/base/buf.h"
#include "ssh/base/mem.h"
#include "ssh/link/road.h"

struct road_pair {
    struct road road;
    struct loop *loop;
    struct road_pair *peer; /* NULL when it was freed */
    struct buf incoming;    /* written by the peer */
    bool want_read, want_write;
    bool finished;          /* the peer will write no more */
    bool ready_coming;      /* a loop_later is under way */
    bool freed;
};

static bool road_pair_can_read(const struct road_pair *road)
{
    return buf_used(&road->incoming) || road->finished || !road->peer;
}

static bool road_pair_can_write(const struct road_pair *road)
{
    return !road->peer || buf_used(&road->peer->incoming) < road->peer->incoming.max;
}

static void road_pair_now(void *arg)
{
    struct road_pair *road = arg;
    road->ready_coming = false;
    if (road->freed) {
        mem_free(road);
        return;
    }
    bool due = (road->want_read && road_pair_can_read(road)) || (road->want_write && road_pair_can_write(road));
    if (!due || !road->road.ready)
        return;
    /* Level, not edge: look again in the next turn. */
    road->ready_coming = true;
    loop_later(road->loop, road_pair_now, road);
    road->road.ready(road->road.ready_arg);
}

static void road_pair_check(struct road_pair *road)
{
    if (!road || road->ready_coming || road->freed)
        return;
    if ((road->want_read && road_pair_can_read(road)) || (road->want_write && road_pair_can_write(road))) {
        road->ready_coming = true;
        loop_later(road->loop, road_pair_now, road);
    }
}

static int road_pair_start(struct road *base, struct why *why)
{
    (void)base, (void)why;
    return 0;
}

static void road_pair_want(struct road *base, bool read, bool write)
{
    struct road_pair *road = (struct road_pair *)base;
    road->want_read = read;
    road->want_write = write;
    road_pair_check(road);
}

static ssize_t road_pair_read(struct road *base, uint8_t *bytes, size_t room, struct why *why)
{
    struct road_pair *road = (struct road_pair *)base;
    size_t count = buf_used(&road->incoming);
    if (count == 0)
        return road->finished || !road->peer ? why_set(why, ERR_GONE, "closed the connection") : ERR_AGAIN;
    if (count > room)
        count = room;
    memcpy(bytes, buf_peek(&road->incoming), count);
    buf_consume(&road->incoming, count);
    road_pair_check(road->peer);
    return (ssize_t)count;
}

static ssize_t road_pair_write(struct road *base, const uint8_t *bytes, size_t count, struct why *why)
{
    struct road_pair *road = (struct road_pair *)base;
    if (!road->peer)
        return why_set(why, ERR_GONE, "closed the connection");
    struct buf *to = &road->peer->incoming;
    size_t room = to->max - buf_used(to);
    if (room == 0)
        return ERR_AGAIN;
    if (count > room)
        count = room;
    buf_put(to, bytes, count);
    road_pair_check(road->peer);
    return (ssize_t)count;
}

static int road_pair_finish(struct road *base, struct why *why)
{
    (void)why;
    struct road_pair *road = (struct road_pair *)base;
    if (road->peer) {
        road->peer->finished = true;
        road_pair_check(road->peer);
    }
    return 0;
}

static void road_pair_free(struct road *base)
{
    struct road_pair *road = (struct road_pair *)base;
    struct road_pair *peer = road->peer;
    buf_clear(&road->incoming);
    road->freed = true;
    if (peer) {
        peer->peer = NULL;
        road_pair_check(peer);
    }
    if (!road->ready_coming)
        mem_free(road);
}

static void road_pair_describe(const struct road *base, char *out, size_t size)
{
    (void)base;
    snprintf(out, size, "pair");
}

static const struct road_ops road_pair_ops = {
    .name = "pair",
    .start = road_pair_start,
    .want = road_pair_want,
    .read = road_pair_read,
    .write = road_pair_write,
    .finish = road_pair_finish,
    .free = road_pair_free,
    .describe = road_pair_describe,
};

static struct road_pair *road_pair_new(struct loop *loop, size_t room)
{
    struct road_pair *road = mem_new(sizeof *road);
    *road = (struct road_pair){.road.ops = &road_pair_ops, .loop = loop};
    buf_init(&road->incoming, room);
    return road;
}

void road_pair(struct loop *loop, size_t room, struct road **one, struct road **other)
{
    struct road_pair *left = road_pair_new(loop, room), *right = road_pair_new(loop, room);
    left->peer = right;
    right->peer = left;
    *one = &left->road;
    *other = &right->road;
}
