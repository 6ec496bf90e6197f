/* What the run itself writes on a host, at most: logs, the journal, weights. What a start sends there, only the launch knows. */
#include "scheduler/plan.h"

#define LOG_BYTES ((uint64_t)2 * 16 << 20)   /* of a process: its log and the one before (ssh/base/log.h) */
#define JOURNAL_BYTES ((uint64_t)256 << 20)  /* with all the rows that are kept (scheduler/tables.h) */

uint64_t plan_set_bytes(const struct plan_stage *stage)
{
    return 4 * stage->trained + stage->optimizer_bytes + stage->boundary_bytes;
}

/* A set is of all replicas when runs may go on from it (checkpoint.every), else of one, whichever is the lowest then. */
static uint64_t set_bytes(const struct profile *profile, const struct plan *plan, int host)
{
    uint64_t most = 0, sum = 0;
    for (int replica = 0; replica < plan->replicas; replica++) {
        uint64_t bytes = 0;
        for (int i = 0; i < plan->stage_count; i++)
            if (plan->stages[i].replica == replica && plan->stages[i].host == host)
                bytes += plan_set_bytes(&plan->stages[i]);
        most = bytes > most ? bytes : most;
        sum += bytes;
    }
    return profile->checkpoint_every ? sum : most;
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
    uint64_t sets = (uint64_t)profile->checkpoint_keep + 1; /* those that stay, and the one that is being written */
    return processes * LOG_BYTES + (head ? JOURNAL_BYTES : 0) + sets * set_bytes(profile, plan, host) +
           2 * lifeboat_bytes(profile, plan, host);
}
