/*
 * Sets of weights: RUN/checkpoint/STEP/ has a file of each stage, and manifest.json, written last, makes them a set. What stages say
 * is collected by run_message.c; here are the files. The newest sets stay, checkpoint.keep of them: the last one that is known to be whole
 * is never removed before a newer one is.
 */
#ifndef KEDGE_SCHEDULER_SAVING_H
#define KEDGE_SCHEDULER_SAVING_H

#include <stddef.h>

#include "profiles/profile.h"
#include "scheduler/plan.h"
#include "ssh/base/why.h"
#include "ssh/wire/wire.h"

struct saving { /* of one step, in the making */
    uint64_t step;
    int replica;   /* whose, when it is of one alone */
    int said;      /* processes that said something of it */
    bool failed;   /* one of them could not */
    bool all;      /* it is of all replicas */
    bool complete; /* the manifest is there */
    bool has[PROFILE_MAX_STAGES]; /* by the number of the process in the plan */
    struct wire_saved files[PROFILE_MAX_STAGES];
};

/* What a manifest says beside its files. `live`: the profile with the values that 'kedge set' has given it since. */
struct saving_run {
    uint64_t run_id;
    const struct profile *profile, *live;
    const struct plan *plan;
    const struct wire_run_state *state;
};

/* The step of the oldest whole set in the folder; 0: there is none. */
uint64_t saving_oldest(const char *folder);
int saving_write_manifest(const char *folder, const struct saving_run *run, const struct saving *saving, struct why *why);

/* ---- a run that goes on from a set: RUN/resume has its step, written by the console, which has read all of it ---- */
struct saving_resumed {
    struct saving set; /* complete; step 0: there is none */
    uint64_t trained_ns;
    double first_validation_loss; /* NaN = unknown */
};
/* Of the plan's stages? On success the set is this run's: its manifest says so. `resumed` is all zeros where there is no RUN/resume. Sets of
 * later steps are put aside, into checkpoint.1. */
int saving_resume(const char *folder, const struct saving_run *run, struct saving_resumed *resumed, struct why *why);

#endif
