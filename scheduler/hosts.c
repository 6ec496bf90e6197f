#include "scheduler/hosts.h"

#include <math.h>
#include <string.h>

#include "scheduler/run_state.h"
#include "ssh/base/clock.h"

/* Rows are in the profile's order; those of an adopted run are there already. */
void hosts_begin(struct run *run)
{
    struct record *record = run->record;
    for (int i = 0; i < (int)run->profile.host_count; i++) {
        const struct profile_host *host = &run->profile.hosts[i];
        struct record_host *at = &record->hosts[i];
        if ((size_t)i >= record->host_count) {
            at->row = (struct wire_host){.cpu_share = NAN, .load = NAN, .gpu_share = NAN, .gpu_celsius = NAN, .gpu_watts = NAN,
                                         .clock_offset = (double)NAN, .heard_ns_ago = UINT64_MAX, .login_ns_ago = UINT64_MAX};
            record->host_count++;
        }
        if (at->row.use != HOST_DRAINED)
            at->row.use = host->spare && !moves_has_place(run, i) ? HOST_SPARE : HOST_USED;
        at->row.price_per_hour = host->price_per_hour > 0 ? host->price_per_hour : (double)NAN;
        record_text(at->row.host, sizeof at->row.host, "%s", host->name);
        record_touch(record, &at->version);
    }
}

int hosts_take(struct run *run, struct process *agent, const void *payload, struct why *why)
{
    const struct wire_host *told = payload;
    struct record_host *at = &run->record->hosts[agent->host];
    struct wire_host row = *told;
    (void)why;
    memcpy(row.host, at->row.host, sizeof row.host);
    row.clock_offset = at->row.clock_offset;
    row.rtt_ns = at->row.rtt_ns;
    row.heard_ns_ago = at->row.heard_ns_ago;
    row.processes = at->row.processes;
    row.price_per_hour = at->row.price_per_hour;
    row.use = at->row.use;
    row.login = at->row.login;
    row.login_ns_ago = at->row.login_ns_ago;
    at->row = row;
    record_touch(run->record, &at->version);
    return 0;
}

static uint16_t count_living(const struct run *run, int host)
{
    uint16_t count = 0;
    for (size_t i = 0; i < run->processes.everybody; i++) {
        const struct process *process = &run->processes.all[i];
        enum process_state state = (enum process_state)process->record->row.state;
        bool worker = process->stage || process->is_anchor;
        count = (uint16_t)(count + (worker && process->host == host && (state == PROCESS_STARTED || state == PROCESS_READY)));
    }
    return count;
}

void hosts_refresh(struct run *run)
{
    for (int i = 0; i < (int)run->record->host_count && i < (int)run->processes.agents; i++) {
        const struct process *agent = &run->processes.all[i];
        struct record_host *at = &run->record->hosts[i];
        int64_t offset_ns;
        if (agent->handle && run->sink.clock(agent->handle, &offset_ns, &at->row.rtt_ns, run->arg))
            at->row.clock_offset = (double)offset_ns / 1e9;
        at->row.heard_ns_ago = agent->record->row.heard_ns_ago;
        at->row.processes = count_living(run, i);
        if (at->login_ns)
            at->row.login_ns_ago = clock_now_ns() - at->login_ns;
        record_touch(run->record, &at->version);
    }
}

void hosts_order_login(struct run *run, const struct wire_order *order, struct wire_reply *reply)
{
    struct record *record = run->record;
    bool shut = strcmp(order->value, "shut") == 0;
    size_t i = 0;
    while (i < record->host_count && strcmp(record->hosts[i].row.host, order->name) != 0)
        i++;
    if (i == record->host_count || i >= run->processes.agents || (!shut && strcmp(order->value, "open") != 0)) {
        reply->err = ERR_INVALID;
        record_text(reply->text, sizeof reply->text, "'%s' is no host of this run, or '%s' no word about its login", order->name, order->value);
        return;
    }
    struct record_host *at = &record->hosts[i];
    uint8_t before = at->row.login;
    at->row.login = shut ? LOGIN_SHUT : LOGIN_OPEN;
    at->row.login_ns_ago = 0;
    at->login_ns = clock_now_ns();
    record_touch(record, &at->version);
    if (shut && before != LOGIN_SHUT)
        run_say(run, EVENT_WARN, &run->processes.all[i], "login-shut", "host %s takes no new session, though its roads stand: %s (tried by %s)",
                at->row.host, order->text, order->who);
    else if (!shut && before == LOGIN_SHUT)
        run_say(run, EVENT_INFO, &run->processes.all[i], "login-open", "host %s takes new sessions again (tried by %s)", at->row.host, order->who);
}
