/*
 * host.disk_budget: what kedge may have on a host's disk. Counted is what lies in the folder of all runs and in the one that runs
 * share (programs, text, checkpoints), as the launch counts it there (ssh/launch/room.h); whoever writes something large asks first.
 */
#ifndef KEDGE_TRAIN_DISK_H
#define KEDGE_TRAIN_DISK_H

#include <stdint.h>

#include "profiles/profile.h"
#include "ssh/base/why.h"

/* What kedge has on this machine. `run_folder`: absolute. */
uint64_t disk_used(const char *run_folder);
/* May `bytes` more be written by a process of this host? 0, or ERR_FULL with the remedy. A host without a budget may. */
int disk_check(const struct profile *profile, const char *host, const char *run_folder, uint64_t bytes, struct why *why);
/* What the budget leaves of a disk, so that a host's disk is shown against it. 0: no budget, nothing changes. */
void disk_narrow(uint64_t budget, uint64_t used, uint64_t *all_bytes, uint64_t *free_bytes);

#endif
