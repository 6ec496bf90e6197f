/*
 * `kedged bridge`: a console on stdin and stdout. It is joined to the run's socket when a kedged answers there; else it is
 * served the recorded last state of the run from the journal, in the same language.
 */
#ifndef KEDGE_SCHEDULER_BRIDGE_H
#define KEDGE_SCHEDULER_BRIDGE_H

#include "ssh/base/why.h"

int bridge_run(const char *folder, struct why *why);

#endif
