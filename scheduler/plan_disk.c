/* What the run itself writes on a host, at most: logs, the journal, weights. What a start sends there, only the launch knows. */
#include "scheduler/plan.h"

#define LOG_BYTES ((uint64_t)2 * 16 << 20)   /* of a process: its log and the one before (ssh/base/log.h) */
#define JOURNAL_BYTES ((uint64_t)256 << 20)  /* with all the rows that are kept (scheduler/tables.h) */
#define SETS 2                               /* the last one, and the one that is being written */

/* A set is of one replica, whichever is the lowest then. */
static uint64_t set_bytes(const struct plan *plan, int host)
{
    uint64_t most = 0;
    for (int replica = 0; replica < plan->replicas; replica++) {
        uint64_t bytes = 0;
        for (int i = 0; i < plan->stage_count; i++)
            if (plan->stages[i].replica == replica && plan->stages[i].host == host)
                bytes += 4 * plan->stages[i].trained;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static uint64_t lifeboat_bytes(const struct profile *profile, const struct plan *plan, int host)
{
    uint64_t bytes = 0;
    if (!plan->anchor.there || plan->anchor.host != host || !profile->anchor_lifeboat)
        return 0;
    for (int i = 0; i < plan->stages_per_replica; i++)
        bytes += 2 * plan->stages[i].trained;
    return bytes;
}

uint64_t plan_disk_bytes(const struct profile *profile, const struct plan *plan, int host)
{
    bool head = profile_head(profile) == &profile->hosts[host];
    uint64_t processes = 1 + head + (plan->anchor.there && plan->anchor.host == host);
    for (int i = 0; i < plan->stage_count; i++)
        processes += plan->stages[i].host == host;
    return processes * LOG_BYTES + (head ? JOURNAL_BYTES : 0) + SETS * (set_bytes(plan, host) + lifeboat_bytes(profile, plan, host));
}
