/*
 * Profiles on their way to a run: new, plan, and the reading that `run` shares with them: all complaints at once,
 * each with file:line, before anything is started.
 */
#ifndef KEDGE_CONSOLE_DRAFT_H
#define KEDGE_CONSOLE_DRAFT_H

#include <stddef.h>

#include "console/args.h"
#include "console/style.h"
#include "profiles/profile.h"
#include "ssh/base/why.h"

/* Read, ask the checkpoint for its shape, check; complaints go to standard error. 0 or an exit code. `found`: the file. */
int draft_read(const char *name, struct profile *profile, char *found, size_t found_size);
/* Only read: for a copy that was checked when it was made. The first complaint goes into `why`. */
int draft_read_quietly(const char *path, struct profile *profile, struct why *why);

/* A new profile NAME.ini from a template; its path. */
int draft_make(const char *name, const char *from, char *path, size_t path_size, struct why *why);

int draft_new(const struct args *args, const struct style *style);
int draft_plan(const struct args *args, const struct style *style);

#endif
