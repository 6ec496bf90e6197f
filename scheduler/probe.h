/*
 * The shape of a checkpoint, asked of `kedge-worker probe PATH` (nobody but the worker reads a model folder): only for
 * `kedged plan`, a run's own profile has the shape in it already.
 */
#ifndef KEDGE_SCHEDULER_PROBE_H
#define KEDGE_SCHEDULER_PROBE_H

#include "profiles/profile.h"
#include "ssh/base/why.h"

/* Sets the model rows that the probe prints; unchanged on failure. */
int probe_model(struct profile *profile, struct why *why);

#endif
