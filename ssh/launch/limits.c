#include "ssh/launch/limits.h"

#include <inttypes.h>
#include <stdio.h>

#include "profiles/timeouts.h"
#include "ssh/base/clock.h"

bool limits_fuse(const struct profile *profile, char *out, size_t size)
{
    uint64_t fuse_ns = profile_fuse_ns(profile);
    struct timeouts timeouts = timeouts_derive(profile->timeout_ns);
    if (fuse_ns)
        snprintf(out, size, "%" PRIu64 "ms", (fuse_ns + 2 * timeouts.grace_ns) / CLOCK_MS);
    return fuse_ns;
}

bool limits_disk_budget(const struct profile_host *host, char *out, size_t size)
{
    if (host->disk_budget)
        snprintf(out, size, "%" PRIu64, host->disk_budget);
    return host->disk_budget;
}
