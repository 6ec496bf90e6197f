/* The hosts of a run: what their agents say of them, with what only kedged knows: clocks, silence, processes, prices. */
#ifndef KEDGE_SCHEDULER_HOSTS_H
#define KEDGE_SCHEDULER_HOSTS_H

#include "scheduler/processes.h"

struct run;

void hosts_begin(struct run *run); /* a row for every host of the profile */
int hosts_take(struct run *run, struct process *agent, const void *payload, struct why *why);
void hosts_refresh(struct run *run);
/* ORDER_LOGIN: a console says whether a host takes new sessions. A change is an event. */
void hosts_order_login(struct run *run, const struct wire_order *order, struct wire_reply *reply);

#endif
