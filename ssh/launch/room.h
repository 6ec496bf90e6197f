/*
 * Room on a host's disk: what kedge has there, what a start would send on top, and what host.disk_budget says to that. Asked before
 * the first byte is sent, and by `kedge check`.
 */
#ifndef KEDGE_LAUNCH_ROOM_H
#define KEDGE_LAUNCH_ROOM_H

#include <stddef.h>
#include <stdint.h>

#include "profiles/profile.h"
#include "ssh/base/why.h"
#include "ssh/launch/parcel.h"

enum part { PART_PROGRAMS, PART_TEXT, PART_CHECKPOINT, PART_ADAPTER, PARTS }; /* what a host is sent, in this order */

const char *room_place(enum part part); /* its folder below D: "programs" */

/* Behind script_of_run's variables: says "used=KIB", of all runs and what they share, and "missing=KIB", of the parcels that are
 * not there whole. A parcel may be NULL or empty. mem_free it. */
char *room_script(const struct parcel *const parcels[PARTS]);

struct room { /* KiB */
    uint64_t used, missing, run; /* run: what the run writes there itself; 0 where that is not asked */
};
/* The answer of that script alone; ERR_INVALID. */
int room_read(const char *output, struct room *room, struct why *why);
/* 0, or ERR_FULL with the remedy when a start would go beyond the budget. A host without a budget has room. */
int room_check(const struct profile_host *host, const struct room *room, struct why *why);

#endif
