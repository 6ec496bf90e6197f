/*
 * Do the replicas still have the same common weights? After each round every stage tells the hash of its common copy; the first word
 * about a round is what the siblings are compared with. A pure core with fixed memory: the newest rounds of each stage are known.
 */
#ifndef KEDGE_SCHEDULER_DRIFT_H
#define KEDGE_SCHEDULER_DRIFT_H

#include "profiles/profile.h"
#include "ssh/wire/wire.h"

#define DRIFT_ROUNDS 32 /* of a stage; siblings are never so many rounds apart */

struct drift {
    uint64_t agreed; /* rounds of a stage that all replicas ended with the same hash */
    struct drift_word {
        bool known, told;
        int replica, same; /* same: how many said this */
        struct wire_outer outer;
    } words[PROFILE_MAX_STAGES][DRIFT_ROUNDS];
};

/* Have all that took part in it said that this round of a stage is over? */
bool drift_is_over(const struct drift *drift, int stage, uint64_t round);
/* The replica that said something else about this round; −1: nobody did, or it was told already. */
int drift_check(struct drift *drift, int stage, int replica, const struct wire_outer *outer);

#endif
