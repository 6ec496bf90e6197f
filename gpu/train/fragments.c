/* See fragments.h. */
#include "gpu/train/fragments.h"

#include <inttypes.h>

int fragments_check(const struct fragments *fragments, struct why *why)
{
    int64_t every = fragments->every;
    if (every < 1 || fragments->count < 1 || fragments->count > every)
        return why_set(why, ERR_INVALID, "%" PRId64 " fragments in %" PRId64 " steps: at least 1, and at most one a step",
                       fragments->count, every);
    if (fragments->overlap < 0 || fragments->overlap >= every)
        return why_set(why, ERR_INVALID,
                       "an overlap of %" PRId64 " steps: it must be shorter than the %" PRId64 " steps after which the "
                       "same fragment moves again", fragments->overlap, every);
    return 0;
}

int fragments_of_layer(const struct fragments *fragments, int64_t layer, int64_t layers)
{
    if (fragments->pattern == FRAGMENTS_SEQUENTIAL)
        return (int)(layer * fragments->count / layers);
    return (int)(layer % fragments->count);
}

static int64_t offset(const struct fragments *fragments, int64_t fragment)
{
    return fragment * fragments->every / fragments->count;
}

bool fragments_sent_at(const struct fragments *fragments, uint64_t step, struct fragment_round *round)
{
    uint64_t every = (uint64_t)fragments->every, counted = step > fragments->since ? step - fragments->since : 0;
    uint64_t place = counted % every;
    if (counted < 1 || counted < every / 2 || step + (uint64_t)fragments->overlap > fragments->last)
        return false;
    /* The only fragment whose offset can be here. */
    int64_t fragment = ((int64_t)place * fragments->count + fragments->every - 1) / fragments->every;
    if (fragment >= fragments->count || offset(fragments, fragment) != (int64_t)place)
        return false;
    *round = (struct fragment_round){
        .round = fragments->number + (uint64_t)fragments->count * (counted / every) + (uint64_t)fragment,
        .sent = step,
        .applied = step + (uint64_t)fragments->overlap,
        .fragment = (int)fragment,
    };
    return true;
}

bool fragments_applied_at(const struct fragments *fragments, uint64_t step, struct fragment_round *round)
{
    return step >= (uint64_t)fragments->overlap && fragments_sent_at(fragments, step - (uint64_t)fragments->overlap, round);
}

uint64_t fragments_first_round(const struct fragments *fragments, uint64_t step)
{
    uint64_t every = (uint64_t)fragments->every, count = (uint64_t)fragments->count;
    uint64_t counted = step > fragments->since ? step - fragments->since : 0;
    return fragments->number + count * (counted / every) + (counted % every * count + every - 1) / every;
}

int fragments_in_flight(const struct fragments *fragments)
{
    int64_t most = 1;
    /* From a round on, those that are sent before it is due: what is due is applied before the next one is sent. */
    for (int64_t f = 0; f < fragments->count; f++) {
        int64_t under_way = 1;
        for (int64_t next = f + 1; next < f + fragments->count; next++) {
            int64_t lap = next >= fragments->count ? fragments->every : 0;
            under_way += offset(fragments, next % fragments->count) + lap - offset(fragments, f) < fragments->overlap;
        }
        most = under_way > most ? under_way : most;
    }
    return (int)most;
}

/* Above the numbers of all that is sent up to this step. */
static uint64_t number_after(const struct fragments *fragments, uint64_t step)
{
    uint64_t counted = step > fragments->since ? step - fragments->since : 0;
    return fragments->number + (uint64_t)fragments->count * (counted / (uint64_t)fragments->every + 1);
}

uint64_t fragments_end(const struct fragments *fragments)
{
    return number_after(fragments, fragments->last);
}

struct fragments fragments_change(const struct fragments *fragments, uint64_t step, int64_t every)
{
    struct fragments changed = *fragments;
    uint64_t applied = step + (uint64_t)fragments->overlap;
    changed.every = every;
    changed.since = applied > fragments->since ? applied : fragments->since;
    changed.number = number_after(fragments, step);
    return changed;
}
