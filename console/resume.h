/*
 * `kedge run PROFILE --resume[=STEP]`: which set of the run's folder it goes on from, and whether it may.
 */
#ifndef KEDGE_CONSOLE_RESUME_H
#define KEDGE_CONSOLE_RESUME_H

#include <stdbool.h>
#include <stdint.h>

#include "profiles/profile.h"
#include "ssh/base/why.h"

/* `word`: the step of a set, or NULL for the newest. Every file that is here is read; those on
 * hosts are read there, by the processes that go on from them. Live settings that
 * the run was given since it began are written into `profile`, and said unless `quiet`. Refuses with the set or the setting by name. */
int resume_find(const char *word, struct profile *profile, bool quiet, uint64_t *step, struct why *why);

#endif
