/*
 * What an agent may do, as it is told when it is started, on a host or here. Pure.
 */
#ifndef KEDGE_LAUNCH_LIMITS_H
#define KEDGE_LAUNCH_LIMITS_H

#include <stdbool.h>
#include <stddef.h>

#include "profiles/profile.h"

/* The fuse of an agent as it is told ("7230000ms"): a little behind kedged's own, which ends the run in good order. False = none. */
bool limits_fuse(const struct profile *profile, char *out, size_t size);
/* The bytes of its host.disk_budget as an agent is told. False = none. */
bool limits_disk_budget(const struct profile_host *host, char *out, size_t size);

#endif
