/*
 * What has come from the anchor and is not in use yet: directions of gradients, matrix by matrix, and statistics of the stage's
 * boundaries, part by part. The loop thread puts them in; the compute thread takes a whole version at the step whose stamp names
 * it. A version counts when all that the stage awaits is here. Bounded: the oldest that nobody asked for makes room.
 */
#ifndef KEDGE_TRAIN_BASES_H
#define KEDGE_TRAIN_BASES_H

#include <stdbool.h>

#include "gpu/math/codec.h"
#include "gpu/train/matrices.h"

#define BASES_MOST 8 /* versions that wait */

#define BASES_PARTS 4 /* of statistics: two boundaries, two ways */

struct bases;

struct bases_part { /* statistics that are awaited */
    struct codec_settings settings;
    enum codec_way way;
};

struct bases_set { /* of one version; owned by who has it */
    uint64_t version;
    int count;
    struct bases_matrix {
        int64_t rank;
        double energy;
        uint8_t *body; /* as wire_basis.body */
    } * matrices;
    uint8_t *states[BASES_PARTS]; /* as codec_import takes them, in the order of bases_new's parts */
};

/* `rank` of the directions, 0: whole gradients are awaited in their place, -1: neither. parts[count], at most BASES_PARTS; the settings' pointers are not kept. */
struct bases *bases_new(const struct stage_shape *shape, int64_t rank, const struct bases_part *parts, int count);
void bases_free(struct bases *bases);
const struct bases_part *bases_part(const struct bases *bases, int index); /* NULL: there are not so many */

/* Take a copy of the body. 1: the version is whole now; 0; ERR_INVALID: not what this stage can use. */
int bases_put(struct bases *bases, const struct wire_basis *basis, struct why *why);
int bases_put_statistics(struct bases *bases, const struct wire_statistics *statistics, struct why *why);
/* Gives the version away and forgets all older ones; false when it is not here whole. */
bool bases_take(struct bases *bases, uint64_t version, struct bases_set *set);
void bases_set_clear(struct bases_set *set);

#endif
