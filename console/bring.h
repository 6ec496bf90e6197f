/*
 * The newest whole set of weights of a run, brought from its hosts into the run's folder here: each stage wrote its own where it
 * runs. Files that are here already are not sent again; each appears when all of it is written, the manifest last.
 */
#ifndef KEDGE_CONSOLE_BRING_H
#define KEDGE_CONSOLE_BRING_H

#include "ssh/base/why.h"

/* The manifest alone, of the newest set: nothing to do, and 0, when the scheduler is here, or there is no set. */
int bring_manifest(const char *run, struct why *why);
/* Nothing to do, and 0, when no host of the run is over SSH. Says on standard error what is under way. */
int bring_set(const char *run, struct why *why);

#endif
