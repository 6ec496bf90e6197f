/*
 * How the host is that an agent sits on: processors, memory and disk from /proc and the file system, GPUs from nvidia-smi where there is
 * one. Looking never holds the agent up: /proc is memory, nvidia-smi is a child whose words are taken as they come and which is
 * killed when it does not end (a GPU that fell off the bus makes it hang). What is not known is said to be unknown.
 */
#ifndef KEDGE_TRAIN_HEALTH_H
#define KEDGE_TRAIN_HEALTH_H

#include <sys/types.h>

#include "ssh/link/loop.h"
#include "ssh/wire/wire.h"

struct health;

typedef void health_cb(const struct wire_host *host, void *arg);

/* Tells every few seconds, the first time at once. `folder`: of the run, whose file system is looked at. With a `disk_budget`
 * (bytes; 0 = none) the disk is what that leaves of it. */
struct health *health_new(struct loop *loop, const char *folder, uint64_t disk_budget, health_cb *tell, void *arg);
/* What kedge had on the disk at the last look; 0 without a budget. */
uint64_t health_disk_used(const struct health *health);
void health_free(struct health *health); /* kills what it had started; NULL is fine */
void health_look(struct health *health); /* and tell now; NULL is fine */
/* What the GPUs held when they were asked first, which is before anything of ours was started; false = not known. */
bool health_gpus_before(const struct health *health, uint64_t *bytes);
/* Its owner reaps all children; true: this one was ours. */
bool health_reaped(struct health *health, pid_t pid);

/* ---- the pure part ---- */

struct health_busy { /* of /proc/stat: ticks since boot, of all cores */
    uint64_t busy, all;
};

/* False when the text is none. */
bool health_read_stat(const char *text, struct health_busy *busy, uint16_t *cores);
float health_share(const struct health_busy *before, const struct health_busy *now); /* NaN = nothing passed */
void health_read_memory(const char *text, struct wire_host *host);
/* Lines "NAME, UTILISATION, MIB USED, MIB IN ALL, CELSIUS, WATTS". */
void health_read_gpus(const char *text, struct wire_host *host);

#endif
