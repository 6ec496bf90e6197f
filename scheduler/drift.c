#include "scheduler/drift.h"

int drift_check(struct drift *drift, int stage, int replica, const struct wire_outer *outer)
{
    struct drift_word *word = &drift->words[stage][outer->round % DRIFT_ROUNDS];
    if (!word->known || outer->round > word->outer.round) {
        *word = (struct drift_word){.known = true, .replica = replica, .same = 1, .outer = *outer};
        return -1;
    }
    if (outer->round < word->outer.round || word->told)
        return -1; /* too late to be compared, or said already */
    if (outer->hash == word->outer.hash && outer->fragment == word->outer.fragment && outer->skipped == word->outer.skipped) {
        drift->agreed += ++word->same == outer->contributors; /* one that has left since then says nothing */
        return -1;
    }
    word->told = true;
    return word->replica;
}

bool drift_is_over(const struct drift *drift, int stage, uint64_t round)
{
    const struct drift_word *word = &drift->words[stage][round % DRIFT_ROUNDS];
    return word->known && (word->outer.round > round || (word->outer.round == round && word->same >= word->outer.contributors));
}
