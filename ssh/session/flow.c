#include "ssh/session/flow.h"

#define MORE_BYTES ((uint64_t)256 << 10) /* than the road holds; sshd gives room in steps of 96 KiB */

void flow_sent(struct flow *flow, size_t bytes, uint64_t now_ns)
{
    flow->sent += bytes;
    if (flow->mark_ns)
        return;
    flow->mark = flow->sent;
    flow->mark_ns = now_ns;
    flow->mark_taken = flow->taken;
}

/* What was taken meanwhile is what the road held, and what waited behind it: that makes the time longer than the least. When we had little to
 * send it is less than the road can hold, above all at the beginning; so it falls slowly, and not from nothing. */
static void time_mark(struct flow *flow, uint64_t now_ns)
{
    uint64_t took_ns = now_ns > flow->mark_ns ? now_ns - flow->mark_ns : 1;
    if (!flow->least_ns || took_ns < flow->least_ns)
        flow->least_ns = took_ns;
    uint64_t taken = flow->taken - flow->mark_taken;
    uint64_t room = (uint64_t)((double)taken * (double)flow->least_ns / (double)took_ns) + MORE_BYTES, slow = flow->room - flow->room / 8;
    if (flow->room || taken >= MORE_BYTES)
        flow->room = room > slow ? room : slow;
    flow->mark_ns = 0;
}

void flow_window(struct flow *flow, size_t window, uint64_t now_ns)
{
    if (window > flow->window)
        flow->window = window;
    uint64_t flying = flow->window - window, taken = flow->sent > flying ? flow->sent - flying : 0;
    if (taken <= flow->taken)
        return;
    if (!flow->step || taken - flow->taken < flow->step)
        flow->step = (size_t)(taken - flow->taken);
    flow->taken = taken;
    if (flow->mark_ns && taken >= flow->mark)
        time_mark(flow, now_ns);
}

/* A peer that gives room only in large steps would never give any if we waited for it with less than one. Before the first one nobody knows;
 * then the window is what there is. */
size_t flow_room(const struct flow *flow)
{
    uint64_t flying = flow->sent - flow->taken, most = flow->room;
    if (!flow->room)
        return SIZE_MAX;
    if (most < 2 * flow->step)
        most = 2 * flow->step;
    return flying < most ? (size_t)(most - flying) : 0;
}
