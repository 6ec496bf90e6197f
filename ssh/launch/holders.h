/*
 * Who of a run is alive on this machine. Two sources, and neither is a name:
 * lock files "PID START RUN" (START = field 22 of /proc/PID/stat), where a process counts only when all three agree, since
 * pid numbers are used again; and the mark KEDGE_RUN=<run id> in the environment, which the launcher gives to all it starts
 * and children inherit, so that a worker is found even when its agent was killed.
 */
#ifndef KEDGE_LAUNCH_HOLDERS_H
#define KEDGE_LAUNCH_HOLDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HOLDERS_MOST 256 /* processes of one run on this machine */

struct holder {
    char name[80];  /* "kedged", "agent@here", or "process" for one that only carries the run's mark */
    pid_t pid;
    uint64_t start; /* ticks since boot */
};

/* The living processes of the run; how many. */
size_t holders_find(const char *folder, uint64_t run_id, struct holder *holders, size_t room);
bool holders_live(const struct holder *holder); /* zombies do not live */
/* Start time of a process, 0 when there is none or it is a zombie. */
uint64_t holders_start_of(pid_t pid);

/* Sockets and locks in the folder that nobody holds. Removes them when `remove`; returns how many there are. */
int holders_leftover_files(const char *folder, bool remove);

#endif
