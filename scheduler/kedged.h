/*
 * The scheduler of one run as a process: it joins the pure run to roads, journal, consoles and signals, and decides nothing
 * itself.
 */
#ifndef KEDGE_SCHEDULER_KEDGED_H
#define KEDGE_SCHEDULER_KEDGED_H

#include "ssh/base/why.h"

/* Schedule the run in FOLDER until it is over. Calls `ready` with the control address when everything stands; before that, a
 * failure is returned with its sentence. */
int kedged_run(const char *folder, void (*ready)(const char *address), struct why *why);

#endif
