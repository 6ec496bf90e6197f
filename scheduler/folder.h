/*
 * What the scheduler reads from a run's folder: its identity and its profile.
 */
#ifndef KEDGE_SCHEDULER_FOLDER_H
#define KEDGE_SCHEDULER_FOLDER_H

#include <stdint.h>

#include "profiles/profile.h"
#include "ssh/base/why.h"

#define FOLDER_PATH 1024

/* FOLDER/run.id: 16 hex digits. */
int folder_read_id(const char *folder, uint64_t *run_id, struct why *why);
/* FOLDER/run.ini, complaints as one sentence. */
int folder_read_profile(const char *folder, struct profile *profile, struct why *why);
/* The first of the complaints as a reason, and how many there are. */
int folder_complain(const struct complaints *complaints, struct why *why);

#endif
