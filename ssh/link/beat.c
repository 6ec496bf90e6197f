#include "ssh/link/beat.h"

struct wire_heartbeat beat_make(struct beat *beat, uint64_t now_ns)
{
    beat->answered = beat->peer_sent_ns != 0;
    return (struct wire_heartbeat){
        .sent_ns = now_ns,
        .echo_ns = beat->peer_sent_ns,
        .held_ns = beat->peer_sent_ns ? now_ns - beat->heard_ns : 0,
    };
}

void beat_heard(struct beat *beat, const struct wire_heartbeat *heard, uint64_t now_ns)
{
    beat->peer_sent_ns = heard->sent_ns;
    beat->heard_ns = now_ns;
    /* An echo of the future is a lie or a fault; it measures nothing. */
    if (heard->echo_ns && heard->echo_ns <= now_ns && heard->held_ns <= now_ns - heard->echo_ns)
        beat->rounds_ns[beat->count++ % BEAT_ROUNDS] = now_ns - heard->echo_ns - heard->held_ns;
}

uint64_t beat_rtt_ns(const struct beat *beat)
{
    unsigned count = beat->count < BEAT_ROUNDS ? beat->count : BEAT_ROUNDS;
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < count; i++)
        if (beat->rounds_ns[i] < least)
            least = beat->rounds_ns[i];
    return count == 0 ? 0 : least ? least : 1;
}
