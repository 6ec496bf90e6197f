/*
 * Checkpoint sets in the making: what processes say of their files, until all have. Workers write while they train on, so one may speak of
 * a step before others have spoken of the one before it: several sets are in the making at a time.
 *
 * A set of which a run can go on is of all processes; those that are written by order, and the last one, are of the lowest replica alone
 * where there are several: weights to take home.
 */
#include <stdio.h>
#include <string.h>

#include "scheduler/run_state.h"
#include "ssh/base/clock.h"
#include "ssh/base/text.h"

/* Those that have left write nothing. */
static bool is_awaited(const struct run *run, const struct saving *set, int process)
{
    int replica = run->plan.stages[process].replica;
    return set->all ? !leaving_has_left(run, replica) : replica == set->replica;
}

static bool all_said(const struct run *run, const struct saving *set)
{
    for (int i = 0; i < run->plan.stage_count; i++)
        if (is_awaited(run, set, i) && !set->has[i])
            return false;
    return true;
}

/* Of that step, or the place of the oldest one. */
static struct saving *making_of(struct run *run, uint64_t step)
{
    struct saving *oldest = &run->making[0];
    for (int i = 0; i < SETS_MAKING; i++) {
        if (run->making[i].step == step && run->making[i].said)
            return &run->making[i];
        if (run->making[i].step < oldest->step)
            oldest = &run->making[i];
    }
    return oldest;
}

bool sets_last_is_under_way(const struct run *run)
{
    const struct saving *last = NULL;
    for (int i = 0; i < SETS_MAKING; i++)
        if (run->making[i].said && run->making[i].step == run->record->state.row.steps)
            last = &run->making[i];
    return leaving_count(run) < run->plan.replicas && (!last || !all_said(run, last));
}

bool sets_failed(const struct run *run, uint64_t from_step)
{
    for (int i = 0; i < SETS_MAKING; i++)
        if (run->making[i].failed && run->making[i].step >= from_step && all_said(run, &run->making[i]))
            return true;
    return false;
}

/* Workers remove what kedged has removed here. */
static void tell_kept(struct run *run)
{
    struct wire_kept kept = {.from_step = run->sink.oldest_set ? run->sink.oldest_set(run->arg) : 0};
    if (kept.from_step)
        run_send_stages(run, WIRE_KEPT, &kept);
}

static void finish(struct run *run, struct saving *set)
{
    struct why why = {0};
    char size[32], held[32], elapsed[32];
    uint64_t bytes = 0, held_ns = 0, elapsed_ns = 0;
    int files = 0;
    for (int i = 0; i < run->plan.stage_count; i++) {
        const struct wire_saved *file = &set->files[i];
        files += set->has[i];
        bytes += file->bytes;
        held_ns = file->held_ns > held_ns ? file->held_ns : held_ns;
        elapsed_ns = file->elapsed_ns > elapsed_ns ? file->elapsed_ns : elapsed_ns;
    }
    text_from_bytes(bytes, size, sizeof size);
    text_from_duration(held_ns / CLOCK_MS * CLOCK_MS, held, sizeof held);
    text_from_duration(elapsed_ns / CLOCK_MS * CLOCK_MS, elapsed, sizeof elapsed);
    set->complete = run->sink.saved(set, run->arg, &why) == 0;
    if (!set->complete) {
        run_say(run, EVENT_ALERT, NULL, "checkpoint", "the weights after step %llu are no set: %s", (unsigned long long)set->step, why.text);
        return;
    }
    run_say(run, EVENT_INFO, NULL, "checkpoint", "the weights after step %llu are in checkpoint/%llu: %d files, %s, in %s, for %s of which training "
            "stood still; 'kedge export %s DIR' takes them out", (unsigned long long)set->step, (unsigned long long)set->step, files, size,
            elapsed, held, run->profile.name);
    run->saving = *set;
    uint64_t wished_ns = run->save_since_ns ? clock_now_ns() - run->save_since_ns : 0;
    run->saved_ns = wished_ns > elapsed_ns ? wished_ns : elapsed_ns;
    run->save_since_ns = 0;
    tell_kept(run);
}

int sets_saved(struct run *run, struct process *process, const void *payload, struct why *why)
{
    const struct wire_saved *saved = payload;
    int index = (int)(process->stage - run->plan.stages);
    if (saved->step > run->record->state.row.steps || strchr(saved->file, '/') || !saved->file[0])
        return why_set(why, ERR_INVALID, "%s saved '%s' after step %llu, which nobody asked for", process->record->row.process,
                       saved->file, (unsigned long long)saved->step);
    if (leaving_has_left(run, process->stage->replica) || (run->saving.complete && saved->step < run->saving.step))
        return 0;
    struct saving *set = making_of(run, saved->step);
    bool known = set->said && set->step == saved->step, same = (set->all && saved->all) || set->replica == process->stage->replica;
    if (known && (set->complete || (same && set->has[index] && !all_said(run, set))))
        return 0; /* said again */
    if (!known && set->step > saved->step)
        return 0; /* old news */
    if (!known || !same || all_said(run, set)) /* also of a step that failed, or whose replica died meanwhile: another try */
        *set = (struct saving){.step = saved->step, .replica = process->stage->replica, .all = saved->all};
    set->has[index] = true;
    set->files[index] = *saved;
    set->said++;
    if (saved->reason[0]) {
        set->failed = true;
        run_say(run, EVENT_ALERT, NULL, "checkpoint", "the weights after step %llu are not saved, older sets stay: %s on host %s: %s",
                (unsigned long long)saved->step, process->record->row.process, process->record->row.host, saved->reason);
    }
    if (all_said(run, set) && !set->failed)
        finish(run, set);
    run_check_done(run);
    return 0;
}
