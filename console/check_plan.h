/* What `kedge check` asks the plan of a profile (kedged plan), which nobody but the scheduler can make. */
#ifndef KEDGE_CONSOLE_CHECK_PLAN_H
#define KEDGE_CONSOLE_CHECK_PLAN_H

#include <jansson.h>

#include "profiles/profile.h"
#include "ssh/base/why.h"

json_t *check_plan_read(const char *file, struct why *why); /* NULL: why not; json_decref it */
/* What the run writes on a host at most: bytes; 0 when the plan does not say. `plan` may be NULL. */
uint64_t check_plan_disk(const json_t *plan, const struct profile_host *host);

#endif
