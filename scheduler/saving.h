/*
 * Sets of weights: RUN/checkpoint/STEP/ has a file of each stage, and manifest.json, written last, makes them a set. What stages say
 * is collected by run_message.c; here are the files. The newest two sets stay: the last one that is known to be whole is never
 * removed before a newer one is.
 */
#ifndef KEDGE_SCHEDULER_SAVING_H
#define KEDGE_SCHEDULER_SAVING_H

#include <stddef.h>

#include "profiles/profile.h"
#include "ssh/base/why.h"
#include "ssh/wire/wire.h"

struct saving { /* of one step, in the making */
    uint64_t step;
    int replica;   /* whose; a set is of one */
    int said;      /* stages that said something of it */
    bool failed;   /* one of them could not */
    bool complete; /* the manifest is there */
    bool has[PROFILE_MAX_STAGES];
    struct wire_saved files[PROFILE_MAX_STAGES];
};

int saving_write_manifest(const char *folder, uint64_t run_id, const struct profile *profile, const struct saving *saving, int stages,
                          struct why *why);

#endif
