/*
 * Which channels of a token cross a masked boundary: a pure function of (seed, step, boundary, micro-batch, token), so both
 * ends of the road compute it, in any order and as often as they like, and no index travels.
 *
 * The width is cut into `keep` strata and one channel of each is taken: the kept channels are spread evenly and their number
 * is exact.
 *
 *   stratum i           channels [⌊i·width/keep⌋, ⌊(i+1)·width/keep⌋)
 *   draw of stratum i   word i mod 4 of Philox4x32-10(counter, key)
 *   channel             first of the stratum + ⌊draw · width of the stratum / 2^32⌋
 *
 *   counter[0] = draw block = i / 4          counter[2] = boundary · 2^20 + micro_batch
 *   counter[1] = token index                 counter[3] = low 32 bits of the step
 *   key[0] = low 32 bits of the seed         key[1] = high 32 bits of the seed xor high 32 bits of the step
 *
 * This is part of the wire: a change of it is a change of the protocol version.
 */
#ifndef KEDGE_MATH_MASK_H
#define KEDGE_MATH_MASK_H

#include <stdint.h>

#include "gpu/math/ops.h"
#include "gpu/math/philox.h"

enum {
    MASK_MAX_WIDTH = 65535, /* channels travel inside the program as uint16_t */
    MASK_MAX_MICRO_BATCH = (1 << 20) - 1,
    MASK_MAX_BOUNDARY = (1 << 12) - 1,
};

static inline int64_t mask_stratum_first(int64_t stratum, int64_t width, int64_t keep)
{
    return stratum * width / keep;
}

static inline int64_t mask_stratum_width(int64_t stratum, int64_t width, int64_t keep)
{
    return mask_stratum_first(stratum + 1, width, keep) - mask_stratum_first(stratum, width, keep);
}

/* What is the same for all tokens and draws of one use: fills key[2], counter[2] and counter[3]. */
static inline void mask_stream(const struct mask_key *from, uint32_t key[2], uint32_t counter[4])
{
    key[0] = (uint32_t)from->seed;
    key[1] = (uint32_t)(from->seed >> 32) ^ (uint32_t)(from->step >> 32);
    counter[2] = from->boundary << 20 | from->micro_batch;
    counter[3] = (uint32_t)from->step;
}

#endif
