/*
 * What must be there before the first program of a run starts: the folder, the credentials, the copy of the profile.
 * Two consoles that start the same run at the same time are kept apart by a lock on the folder itself, which leaves no file.
 */
#ifndef KEDGE_LAUNCH_PREPARE_H
#define KEDGE_LAUNCH_PREPARE_H

#include <stddef.h>
#include <stdint.h>

#include "profiles/profile.h"
#include "ssh/base/why.h"

/* `resume_step`: the set of the run's folder that it goes on from, which stays; 0 = none, and all of them are put aside.
 * Make the run's folder: creds, run.ini (the text of `source` with the run's name and what the checkpoint says of its
 * shape), run.id with a new id. The previous run's journal and logs stay. Refused when anything of the run is alive. */
int prepare_run(const struct profile *profile, const char *source, uint64_t resume_step, char *folder, size_t folder_size, uint64_t *run_id,
                   struct why *why);
/* Ask `kedge-worker probe model.path lora.path` for the shape of a checkpoint and its adapters and set it in the profile. */
int prepare_probe_model(struct profile *profile, struct why *why);
/* The path of a program beside this one; ERR_SYSTEM with the remedy when it is not there. */
int prepare_sibling(const char *program, char *out, size_t size, struct why *why);

#endif
