/* What an anchor that follows hears of rounds, from the compute thread (gpu/train/follow.h). */
#include "gpu/train/follow.h"
#include "gpu/train/siblings.h"
#include "ssh/base/mem.h"

void siblings_tell_exchange(struct compute *compute, const struct flight *flight, const struct sync_part *parts)
{
    const struct siblings *siblings = compute->siblings;
    struct wire_follow is = {.number = flight->is.round, .fragment = (uint16_t)flight->is.fragment,
                             .exchange = (uint8_t)flight->exchange, .rank = flight->rank, .rate = siblings->outer.rate,
                             .momentum = siblings->outer.momentum};
    bool last = flight->exchange + 1 == sync_exchanges(siblings->sync, flight->is.fragment);
    if (compute->settings.follow)
        follow_round(compute->settings.follow, &is, last, parts, flight->contributors);
}

/* It was skipped, or copied: there are no contributions, and bases may have other ranks than rounds say. */
void siblings_tell_other(struct compute *compute, const struct flight *flight)
{
    if (compute->settings.follow && (flight->failed || flight->foreign))
        follow_lose(compute->settings.follow, flight->is.fragment);
}

uint64_t siblings_follow_memory(const struct compute *compute)
{
    const struct siblings *siblings = compute->siblings;
    if (!compute->settings.follow || !siblings->sync)
        return 0;
    uint64_t bytes = follow_bound(siblings->sync, (int)siblings->fragments.count, siblings->replicas);
    follow_set_bound(compute->settings.follow, bytes);
    return bytes;
}

uint64_t siblings_capture(struct compute *compute, uint64_t version)
{
    const struct siblings *siblings = compute->siblings;
    uint64_t *rounds = mem_array((size_t)siblings->fragments.count, sizeof *rounds);
    for (int f = 0; f < siblings->fragments.count; f++)
        rounds[f] = siblings->ended[f].round;
    uint64_t bytes = follow_version(compute->settings.follow, siblings->sync, version, rounds);
    mem_free(rounds);
    return bytes;
}
