/*
 * What a stage and its siblings have in common, in a checkpoint set: common copy, outer momentum, bases, what is left of what this replica
 * wanted to send, and what replicas have agreed about. Sets are written after steps when no exchange is under way, which all replicas
 * tell from the step alone; so nothing that was sent is in them, and nothing is missing.
 */
#include <string.h>

#include "gpu/train/siblings.h"
#include "ssh/base/mem.h"

struct saved { /* then ended[fragments], then sync_save */
    uint64_t fragments, every, since, number, began;
    uint32_t rank;
    float rate, alpha;
    uint32_t unused;
};

bool siblings_are_still(const struct compute *compute, uint64_t step)
{
    const struct siblings *siblings = compute->siblings;
    struct fragment_round round;
    if (!siblings || !siblings->sync)
        return true;
    for (int i = 0; i < siblings->flights; i++)
        if (siblings->flight[i].used && siblings->flight[i].is.applied > step)
            return false;
    return !fragments_sent_at(&siblings->next.fragments, step, &round) || round.applied <= step;
}

static size_t ended_bytes(const struct siblings *siblings)
{
    return (size_t)siblings->fragments.count * sizeof *siblings->ended;
}

size_t siblings_save_bytes(const struct compute *compute)
{
    const struct siblings *siblings = compute->siblings;
    return siblings && siblings->sync ? sizeof(struct saved) + ended_bytes(siblings) + sync_save_bytes(siblings->sync) : 0;
}

void siblings_save(const struct compute *compute, uint8_t *out)
{
    const struct siblings *siblings = compute->siblings;
    const struct fragments *fragments = &siblings->fragments;
    struct saved saved = {.fragments = (uint64_t)fragments->count, .every = (uint64_t)fragments->every, .since = fragments->since,
                          .number = fragments->number, .began = siblings->began, .rank = compute->pass.stamp.sync_rank,
                          .rate = siblings->outer.rate, .alpha = siblings->outer.alpha};
    memcpy(out, &saved, sizeof saved);
    memcpy(out + sizeof saved, siblings->ended, ended_bytes(siblings));
    sync_save(siblings->sync, out + sizeof saved + ended_bytes(siblings));
}

int siblings_resume(struct compute *compute, uint64_t step, const uint8_t *bytes, size_t count, struct why *why)
{
    struct siblings *siblings = compute->siblings;
    struct saved saved;
    size_t before = sizeof saved + ended_bytes(siblings);
    if (count < before)
        return why_set(why, ERR_INVALID, "what it has of its siblings is cut off");
    memcpy(&saved, bytes, sizeof saved);
    struct wire_enter enter = {.replica = (uint16_t)siblings->self, .step = step + 1, .sync_every = (uint32_t)saved.every,
                               .sync_rank = (uint16_t)saved.rank, .sync_rate = saved.rate, .sync_merge = saved.alpha,
                               .sync_since = saved.since, .sync_number = saved.number};
    if (saved.fragments != (uint64_t)siblings->fragments.count || saved.began > step || saved.since > step || saved.every > UINT32_MAX ||
        saved.rank > UINT16_MAX)
        return why_set(why, ERR_INVALID, "what it has of its siblings makes no sense");
    int err = agree_enter(compute, &enter);
    if (err)
        return why_set(why, err, "what its siblings had agreed about is not possible here");
    siblings->began = saved.began;
    memcpy(siblings->ended, bytes + sizeof saved, ended_bytes(siblings));
    return sync_load(siblings->sync, bytes + before, count - before, why);
}
