/*
 * How often something that ended may be started again: a few times within some minutes, each time after a longer pause. The
 * anchor and replicas have one of these. Pure.
 */
#ifndef KEDGE_SCHEDULER_LIVES_H
#define KEDGE_SCHEDULER_LIVES_H

#include <stdbool.h>
#include <stdint.h>

#define LIVES_MOST 3 /* starts within ten minutes; then it stays down */

struct lives {
    uint64_t started_ns[LIVES_MOST]; /* 0 = never */
    bool over;                       /* it ended too often; never taken back */
};

/* May it start now? Then this is a start. It is not to be asked any more when lives->over is set. */
bool lives_take(struct lives *lives, uint64_t now_ns);

#endif
