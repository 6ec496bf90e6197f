#include "ssh/link/beat.h"

#include <stddef.h>

struct wire_heartbeat beat_make(struct beat *beat, uint64_t now_ns, uint64_t wall_ns)
{
    beat->answered = beat->peer_sent_ns != 0;
    return (struct wire_heartbeat){
        .sent_ns = now_ns,
        .echo_ns = beat->peer_sent_ns,
        .held_ns = beat->peer_sent_ns ? now_ns - beat->heard_ns : 0,
        .wall_ns = wall_ns,
    };
}

void beat_heard(struct beat *beat, const struct wire_heartbeat *heard, uint64_t now_ns, uint64_t wall_ns)
{
    beat->peer_sent_ns = heard->sent_ns;
    beat->heard_ns = now_ns;
    /* An echo of the future is a lie or a fault; it measures nothing. */
    if (!heard->echo_ns || heard->echo_ns > now_ns || heard->held_ns > now_ns - heard->echo_ns)
        return;
    struct beat_round *round = &beat->rounds[beat->count++ % BEAT_ROUNDS];
    round->took_ns = now_ns - heard->echo_ns - heard->held_ns;
    round->offset_ns = (int64_t)(heard->wall_ns + round->took_ns / 2 - wall_ns);
}

const struct beat_round *beat_best(const struct beat *beat)
{
    unsigned count = beat->count < BEAT_ROUNDS ? beat->count : BEAT_ROUNDS;
    const struct beat_round *best = NULL;
    for (unsigned i = 0; i < count; i++)
        if (!best || beat->rounds[i].took_ns < best->took_ns)
            best = &beat->rounds[i];
    return best;
}

uint64_t beat_rtt_ns(const struct beat *beat)
{
    const struct beat_round *best = beat_best(beat);
    return !best ? 0 : best->took_ns ? best->took_ns : 1;
}
