#include "scheduler/processes.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "ssh/base/text.h"

static struct process *add(struct processes *processes, struct record *record, const char *name, int host,
                           const struct plan_stage *stage, bool is_anchor)
{
    struct process *process = &processes->all[processes->count++];
    struct record_process *row = record_find_process(record, name);
    if (!row) {
        row = &record->processes[record->process_count++];
        *row = (struct record_process){.row = {.role = stage ? ROLE_STAGE : is_anchor ? ROLE_ANCHOR : ROLE_AGENT,
                                               .incarnation = 1,
                                               .heard_ns_ago = UINT64_MAX,
                                               .compute_share = (double)NAN}};
        record_text(row->row.process, sizeof row->row.process, "%s", name);
        record_text(row->row.host, sizeof row->row.host, "%s", processes->profile->hosts[host].name);
    }
    if (stage) {
        row->row.replica = (uint16_t)stage->replica;
        row->row.stage = (uint16_t)stage->stage;
        row->row.first_layer = (uint16_t)stage->first_layer;
        row->row.layers = (uint16_t)stage->layers;
    }
    record_touch(record, &row->version);
    *process = (struct process){.record = row, .stage = stage, .host = host, .is_anchor = is_anchor};
    if (row->row.state == PROCESS_EXITED)
        record_text(process->ending, sizeof process->ending, "%s", row->row.waiting);
    return process;
}

void processes_init(struct processes *processes, const struct profile *profile, const struct plan *plan,
                    struct record *record, uint64_t now_ns)
{
    *processes = (struct processes){.profile = profile, .plan = plan};
    for (int64_t i = 0; i < profile->host_count; i++) {
        char name[WIRE_NAME + 8];
        snprintf(name, sizeof name, "agent@%s", profile->hosts[i].name);
        add(processes, record, name, (int)i, NULL, false);
    }
    processes->agents = processes->count;
    for (int i = 0; i < plan->stage_count; i++)
        add(processes, record, plan->stages[i].process, plan->stages[i].host, &plan->stages[i], false);
    processes->everybody = processes->count;
    if (plan->anchor.there) { /* behind those that are waited for */
        add(processes, record, "anchor", plan->anchor.host, NULL, true);
        processes->everybody = processes->count--;
    }
    for (size_t i = 0; i < processes->everybody; i++)
        if (processes->all[i].record->row.pid > 0 && processes->all[i].record->row.state != PROCESS_EXITED)
            processes->all[i].gone_ns = now_ns; /* was here before we began: has to come back */
}

struct process *processes_find(struct processes *processes, const char *name)
{
    for (size_t i = 0; i < processes->everybody; i++)
        if (strcmp(processes->all[i].record->row.process, name) == 0)
            return &processes->all[i];
    return NULL;
}

struct process *processes_of_handle(struct processes *processes, const void *handle)
{
    for (size_t i = 0; i < processes->everybody; i++)
        if (processes->all[i].handle == handle)
            return &processes->all[i];
    return NULL;
}

struct process *processes_agent(struct processes *processes, const struct process *stage)
{
    return &processes->all[stage->host];
}

struct process *processes_anchor(struct processes *processes)
{
    return processes->everybody > processes->count ? &processes->all[processes->count] : NULL;
}

struct process *processes_stage(struct processes *processes, int index)
{
    return &processes->all[processes->agents + (size_t)index];
}

static struct process *check_name(struct processes *processes, const struct wire_hello *hello, struct why *why)
{
    struct process *process = processes_find(processes, hello->name);
    if (!process) {
        const char *names[RECORD_PROCESSES];
        for (size_t i = 0; i < processes->count; i++)
            names[i] = processes->all[i].record->row.process;
        const char *nearest = text_nearest(hello->name, names, processes->count);
        why_set(why, ERR_REFUSED, "'%s' on host %s is no process of run %s%s%s; it has %zu agents and %d stages",
                hello->name, hello->host, processes->profile->name, nearest ? "; the nearest name is " : "",
                nearest ? nearest : "", processes->agents, processes->plan->stage_count);
    }
    return process;
}

static int check_host(const struct process *process, const struct wire_hello *hello, uint64_t profile_hash, struct why *why)
{
    const struct wire_process_row *row = &process->record->row;
    if (hello->role != row->role)
        return why_set(why, ERR_REFUSED, "%s says that its role is %s, but it is %s", row->process,
                       wire_role_name(hello->role), wire_role_name(row->role));
    if (strcmp(hello->host, row->host) != 0)
        return why_set(why, ERR_REFUSED, "%s belongs on host %s, but host %s speaks for it", row->process, row->host,
                       hello->host);
    if (hello->profile_hash != 0 && hello->profile_hash != profile_hash)
        return why_set(
            why, ERR_REFUSED,
            "%s on host %s works by another profile (hash %016llx, this run has %016llx); stop it and start the run again",
            row->process, row->host, (unsigned long long)hello->profile_hash, (unsigned long long)profile_hash);
    if (process->record->nonce != 0 && hello->host_nonce != 0 && hello->host_nonce != process->record->nonce)
        return why_set(why, ERR_REFUSED, "host %s is another machine than before (its address was given away?)", row->host);
    return 0;
}

static int check_life(const struct process *process, const struct wire_hello *hello, uint32_t incarnation, struct why *why)
{
    const struct wire_process_row *row = &process->record->row;
    if (incarnation < row->incarnation)
        return why_set(why, ERR_REFUSED, "incarnation %u of %s on host %s is too old, %u has taken its place", incarnation,
                       row->process, row->host, row->incarnation);
    bool worker = process->stage || process->is_anchor;
    if (worker && incarnation > row->incarnation)
        return why_set(why, ERR_REFUSED, "incarnation %u of %s on host %s was never asked for, the newest is %u",
                       incarnation, row->process, row->host, row->incarnation);
    if (worker && !process->record->spawned)
        return why_set(why, ERR_REFUSED, "%s on host %s was not asked to start yet", row->process, row->host);
    if (worker && row->state == PROCESS_EXITED)
        return why_set(why, ERR_REFUSED, "incarnation %u of %s on host %s is over: %s", incarnation, row->process, row->host,
                       process->ending[0] ? process->ending : "its agent reported its end");
    if (process->handle && hello->pid != row->pid)
        return why_set(why, ERR_REFUSED, "%s on host %s is here already as pid %u; pid %u is one too many", row->process,
                       row->host, row->pid, hello->pid);
    return 0;
}

struct process *processes_check(struct processes *processes, const struct wire_hello *hello, uint32_t incarnation,
                                uint64_t profile_hash, struct why *why)
{
    struct process *process = check_name(processes, hello, why);
    if (!process || check_host(process, hello, profile_hash, why) < 0 || check_life(process, hello, incarnation, why) < 0)
        return NULL;
    return process;
}

void processes_renew(struct record *record, struct process *process)
{
    struct record_process *row = process->record;
    row->row.incarnation++;
    row->row.state = PROCESS_WANTED;
    row->row.pid = 0;
    row->ready = row->spawned = row->done = 0;
    row->announce[0] = '\0';
    record_touch(record, &row->version);
    process->handle = NULL;
    process->assigned = process->said_bye = process->gone_told = false;
    process->gone_ns = process->sampled_ns = 0;
    process->ending[0] = '\0';
}

void process_ending(const struct process *process, const struct wire_process *report, char *out, size_t size)
{
    const struct wire_process_row *row = &process->record->row;
    const char *words = report->signal > 0 ? sigdescr_np(report->signal) : NULL;
    if (report->signal == SIGKILL || report->signal == SIGTERM || (report->signal != 0 && !report->reason[0]))
        record_text(out, size, "%s on host %s was killed by signal %d (%s)", row->process, row->host, report->signal,
                    words ? words : "unknown");
    else if (report->signal != 0) /* it crashed: its last words matter */
        record_text(out, size, "%s on host %s was %s", row->process, row->host, report->reason);
    else
        record_text(out, size, "%s on host %s ended with exit code %d%s%s", row->process, row->host, report->exit_code,
                    report->reason[0] ? ": " : "", report->reason);
}

void process_address(const struct processes *processes, const struct process *process, const char *address, char *out,
                     size_t size)
{
    const char *colon = strrchr(address, ':');
    uint64_t port = 0, nth = 0;
    for (const struct process *other = &processes->all[processes->agents]; other < process; other++)
        nth += other->host == process->host;
    if (!colon || text_to_u64(colon + 1, &port) < 0 || port == 0)
        record_text(out, size, "%s", address);
    else
        record_text(out, size, "%.*s:%llu", (int)(colon - address), address, (unsigned long long)(port + nth));
}
