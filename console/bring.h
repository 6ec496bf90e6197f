/*
 * The newest whole set of weights of a run, brought from its hosts into the run's folder here: each stage wrote its own where it
 * runs. Files that are here already are not sent again; each appears when all of it is written, the manifest last.
 */
#ifndef KEDGE_CONSOLE_BRING_H
#define KEDGE_CONSOLE_BRING_H

#include "ssh/base/why.h"

/* Nothing to do, and 0, when no host of the run is over SSH. Says on standard error what is under way. */
int bring_set(const char *run, struct why *why);

#endif
