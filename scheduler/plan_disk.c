/* What the run itself writes on a host, at most: logs, the journal, weights. What a start sends there, only the launch knows. */
#include "scheduler/plan.h"

#define LOG_BYTES ((uint64_t)2 * 16 << 20)   /* of a process: its log and the one before (ssh/base/log.h) */
#define JOURNAL_BYTES ((uint64_t)256 << 20)  /* with all the rows that are kept (scheduler/tables.h) */
#define LIFEBOATS 2                          /* the last one, and the one that is being written */
#define STATE_BYTES 128                      /* numbers of stage 0 and the like (gpu/train/save.c) */

static uint64_t cut_bytes(const struct profile *profile, int before)
{
    return plan_saved_boundary(profile, false) + (plan_is_one_way(profile, before) ? 0 : plan_saved_boundary(profile, true));
}

uint64_t plan_set_bytes(const struct profile *profile, const struct plan_stage *stage)
{
    uint64_t bytes = 4 * stage->trained + stage->optimizer_bytes + STATE_BYTES + plan_saved_waiting(profile);
    if (profile->replicas > 1 && !plan_averages_gradients(profile)) /* common copy, momentum; errors and bases, where there are some */
        bytes += 8 * stage->trained + (profile->sync_payload == SEND_POWERSGD || profile->sync_table == TABLE_TOUCHED ? 5 * stage->trained : 0);
    if (stage->stage > 0)
        bytes += cut_bytes(profile, stage->first_layer);
    if (stage->stage + 1 < profile->stages)
        bytes += cut_bytes(profile, stage->first_layer + stage->layers);
    return bytes;
}

/* Sets that are written on the way are of all replicas, others of the one that is the lowest then. */
static uint64_t set_bytes(const struct profile *profile, const struct plan *plan, int host)
{
    uint64_t most = 0, all = 0;
    for (int replica = 0; replica < plan->replicas; replica++) {
        uint64_t bytes = 0;
        for (int i = 0; i < plan->stage_count; i++)
            if (plan->stages[i].replica == replica && plan->stages[i].host == host)
                bytes += plan->stages[i].set_bytes;
        most = bytes > most ? bytes : most;
        all += bytes;
    }
    return profile->checkpoint_every ? all : most;
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
    uint64_t sets = (uint64_t)profile->checkpoint_keep + 1; /* and the one that is being written */
    uint64_t processes = 1 + head + (plan->anchor.there && plan->anchor.host == host);
    for (int i = 0; i < plan->stage_count; i++)
        processes += plan->stages[i].host == host;
    return processes * LOG_BYTES + (head ? JOURNAL_BYTES : 0) + (sets * set_bytes(profile, plan, host)) +
           LIFEBOATS * lifeboat_bytes(profile, plan, host);
}
