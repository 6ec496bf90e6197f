/*
 * The lock file of a program that may run once: text "PID START RUN" (start: field 22 of /proc/PID/stat, run: 16 hex
 * digits), held with flock while alive, removed at a clean end. After kill -9 the file stays but is not held, so the next
 * one takes it over; who wants to kill by it compares pid and start time.
 */
#ifndef KEDGE_TRAIN_LOCK_H
#define KEDGE_TRAIN_LOCK_H

#include <stdint.h>

#include "ssh/base/why.h"

struct lock;

/* `who` for the refusal: "an agent of this run on host a". ERR_REFUSED names the pid that holds it. */
int lock_take(const char *path, uint64_t run_id, const char *who, struct lock **lock, struct why *why);
void lock_release(struct lock *lock); /* NULL is fine */

#endif
