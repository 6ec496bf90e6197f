/*
 * RUN/kedged.lock: who schedules this run. Held with flock as long as the process lives, so a killed one leaves a lock that
 * nobody holds and the next one takes over. Its text, "PID START RUN", is for those who look for the process (START: field
 * 22 of /proc/PID/stat).
 */
#ifndef KEDGE_SCHEDULER_LOCK_H
#define KEDGE_SCHEDULER_LOCK_H

#include <stdint.h>

#include "ssh/base/why.h"

/* A descriptor, or ERR_REFUSED with the pid of the holder. */
int lock_take(const char *path, uint64_t run_id, struct why *why);
/* Remove the file and let go. */
void lock_remove(const char *path, int fd);

#endif
