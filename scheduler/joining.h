/*
 * A replica that has left comes back (gpu/train/join.c has the other half). Nobody waits for it until it is let in, and then
 * not longer than a deadline.
 *
 *   left ──all its processes are gone, all siblings know, a life is left──▶ starts
 *        SPAWN, ASSIGN with the others as members, ROAD to both ends: loaded, its roads stand ──▶ JOIN to its stages
 *   copies ──all its stages have what the others had──▶ JOIN to the first stage of the lowest replica
 *   waits  ──ENTERED: from step F on it is counted──▶ enters ──all its stages have the rest──▶ START F: it is here
 *
 * What goes wrong on the way ends this life: it is killed and leaves as any replica does. One joins at a time.
 */
#ifndef KEDGE_SCHEDULER_JOINING_H
#define KEDGE_SCHEDULER_JOINING_H

#include <stdbool.h>
#include <stdint.h>

#include "ssh/base/why.h"

struct run;
struct process;

enum joining { JOINING_NOT, JOINING_STARTS, JOINING_COPIES, JOINING_WAITS, JOINING_ENTERS };

void joining_tick(struct run *run);
void joining_advance(struct run *run); /* one of its processes has got on */
void joining_failed(struct run *run, int replica, const char *reason); /* if it joins */
bool joining_is_under_way(const struct run *run, int replica);
int joining_entered(struct run *run, struct process *process, const void *payload, struct why *why);
/* A process has a road to us again; false: it does not belong to one that joins. */
bool joining_welcome(struct run *run, struct process *process);
bool joining_is_in_time(const struct run *run); /* enough steps are left for a replica to come back */
uint32_t joining_members(const struct run *run); /* a bit per replica that is here */

#endif
