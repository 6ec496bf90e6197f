/*
 * Directions that have come from the anchor and are not in use yet. The loop thread puts them in, matrix by matrix; the
 * compute thread takes a whole version at the step whose stamp names it. A version counts when all matrices of the stage are
 * here. Bounded: the oldest that nobody asked for makes room.
 */
#ifndef KEDGE_TRAIN_BASES_H
#define KEDGE_TRAIN_BASES_H

#include <stdbool.h>

#include "gpu/train/matrices.h"

#define BASES_MOST 8 /* versions that wait */

struct bases;

struct bases_set { /* of one version; owned by who has it */
    uint64_t version;
    int count;
    struct bases_matrix {
        int64_t rank;
        double energy;
        uint8_t *body; /* as wire_basis.body */
    } * matrices;
};

struct bases *bases_new(const struct stage_shape *shape, int64_t rank);
void bases_free(struct bases *bases);
int bases_matrices(const struct bases *bases);
uint64_t bases_memory(const struct stage_shape *shape, int64_t rank); /* of so many versions as may wait */

/* Takes a copy of the body. 1: the version is whole now; 0; ERR_INVALID: not what this stage can use. */
int bases_put(struct bases *bases, const struct wire_basis *basis, struct why *why);
/* Gives the version away and forgets all older ones; false when it is not here whole. */
bool bases_take(struct bases *bases, uint64_t version, struct bases_set *set);
void bases_set_clear(struct bases_set *set);

#endif
