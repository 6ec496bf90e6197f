/*
 * What of a channel is on its way: sent, and not yet read by the peer's command. It is what the road holds and a little more, often far less
 * than the channel's window: what waits in an sshd is copied there with every packet that comes, which costs it more than deciphering, and
 * what waits in a router delays everybody. Pure.
 */
#ifndef KEDGE_SESSION_FLOW_H
#define KEDGE_SESSION_FLOW_H

#include <stddef.h>
#include <stdint.h>

struct flow {
    uint64_t sent, taken;  /* bytes; taken: the peer gave room for as many again, so its command has read them */
    uint64_t mark;         /* how long does it take until so many are taken? */
    uint64_t mark_ns;      /* sent then; 0 = nothing is timed */
    uint64_t mark_taken;   /* so many were taken by then */
    uint64_t least_ns;     /* that it took; 0 = unknown */
    uint64_t room;         /* so many may be on their way; 0 = unknown */
    size_t window;         /* the most room that there was: sshd gives all of it, but none before the command runs */
    size_t step;           /* the least that it gave at once; 0 = it gave none */
};

void flow_sent(struct flow *flow, size_t bytes, uint64_t now_ns);
/* The peer's window is so large now; said after each of its answers. */
void flow_window(struct flow *flow, size_t window, uint64_t now_ns);
/* So many more bytes may be on their way, besides what the window says. */
size_t flow_room(const struct flow *flow);

#endif
