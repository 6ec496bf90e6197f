#include "scheduler/lease.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "scheduler/run_state.h"
#include "ssh/base/clock.h"
#include "ssh/base/text.h"

#define SAVES 3            /* times as long as the newest set took */
#define UNMEASURED 20e6    /* bytes a second: a slow disk */
#define UPLINK 25e6        /* bytes a second, where host.uplink does not say */
#define MOST_SECONDS 86400.0
#define LAST_WORDS_NS (4 * CLOCK_SECOND)

/* ---- when ---- */

static uint64_t nanoseconds(double seconds)
{
    return (uint64_t)(fmin(seconds, MOST_SECONDS) * (double)CLOCK_SECOND);
}

static uint64_t save_ns(const struct lease_facts *facts)
{
    double seconds = isfinite(facts->saved_seconds) ? SAVES * facts->saved_seconds : (double)facts->set_bytes / UNMEASURED;
    double steps = isfinite(facts->step_seconds) ? 2 * facts->step_seconds : 0;
    return facts->set_bytes ? facts->timeout_ns + nanoseconds(seconds + steps) : 0;
}

uint64_t lease_margin_ns(const struct lease_facts *facts)
{
    return save_ns(facts) + facts->leave_ns;
}

enum lease_state lease_due(int64_t left_ns, const struct lease_facts *facts, bool saved)
{
    if (left_ns > 0 && (uint64_t)left_ns > lease_margin_ns(facts))
        return LEASE_NOT;
    bool late = left_ns <= 0 || (uint64_t)left_ns <= facts->leave_ns;
    return saved || late || !facts->set_bytes ? LEASE_LEAVES : LEASE_SAVES;
}

/* ---- what is there ---- */

static const struct profile_host *host_of(const struct run *run, int host)
{
    return &run->profile.hosts[host];
}

static bool is_head(const struct run *run, int host)
{
    return profile_head(&run->profile) == host_of(run, host);
}

static bool has_replica(const struct run *run, int replica, int host)
{
    for (int i = 0; i < run->plan.stage_count; i++)
        if (run->plan.stages[i].replica == replica && run->plan.stages[i].host == host)
            return true;
    return false;
}

/* Has it stages of a replica that trains? */
static bool trains(const struct run *run, int host)
{
    for (int r = 0; r < run->plan.replicas; r++)
        if ((joining_members(run) >> r & 1) && has_replica(run, r, host))
            return true;
    return false;
}

int lease_saver(const struct run *run)
{
    int lowest = leaving_lowest(run);
    for (int r = lowest; run->lease.state != LEASE_NOT && r < run->plan.replicas; r++)
        if ((joining_members(run) >> r & 1) && !has_replica(run, r, run->lease.host))
            return r;
    return lowest;
}

/* Of a set of this replica: what one host writes. */
static uint64_t part_bytes(const struct run *run, int replica, int host)
{
    uint64_t bytes = 0;
    for (int i = 0; i < run->plan.stage_count; i++)
        if (run->plan.stages[i].replica == replica && run->plan.stages[i].host == host)
            bytes += run->plan.stages[i].set_bytes;
    return bytes;
}

static uint64_t largest_part(const struct run *run)
{
    uint64_t most = 0;
    for (int host = 0; host < (int)run->profile.host_count; host++) {
        uint64_t bytes = part_bytes(run, lease_saver(run), host);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Can the others go on without it? Then it is drained; what the drain itself refuses ends the run all the same. */
static bool can_be_spared(const struct run *run, int host)
{
    uint32_t here = joining_members(run), left = here;
    for (int r = 0; r < run->plan.replicas; r++)
        if (has_replica(run, r, host))
            left &= ~(1u << r);
    return !is_head(run, host) && (left == here || (left && !plan_averages_gradients(&run->profile)));
}

static struct lease_facts facts_of(const struct run *run, int host)
{
    const struct timeouts *timeouts = &run->timeouts;
    bool spared = can_be_spared(run, host);
    struct lease_facts facts = {.saved_seconds = run->saved_ns ? (double)run->saved_ns / 1e9 : (double)NAN,
                                .step_seconds = run->record->state.row.step_seconds,
                                .timeout_ns = timeouts->greet_ns,
                                .set_bytes = trains(run, host) || !spared ? largest_part(run) : 0};
    double uplink = host_of(run, host)->uplink_bps ? (double)host_of(run, host)->uplink_bps / 8 : UPLINK;
    facts.leave_ns = timeouts->grace_ns + timeouts->silent_ns + LAST_WORDS_NS;
    facts.leave_ns += spared ? moves_patience_ns(run) : nanoseconds((double)part_bytes(run, lease_saver(run), host) / uplink);
    return facts;
}

static int64_t left_ns(const struct run *run, int host)
{
    return (int64_t)(run->lease.until_ns[host] - clock_now_ns());
}

static bool is_of_interest(const struct run *run, int host)
{
    return run->lease.until_ns[host] && (is_head(run, host) || (moves_has_place(run, host) && !moves_is_drained(run, host)));
}

/* ---- what is done ---- */

/* "the lease of host b ends at 2026-12-01T08:00:00Z" */
static void write_end(const struct run *run, int host, char *out, size_t size)
{
    char end[32];
    snprintf(out, size, "the lease of host %s %s at %s", host_of(run, host)->name, left_ns(run, host) > 0 ? "ends" : "ended",
             text_from_time(host_of(run, host)->lease_until_s, end, sizeof end));
}

/* Is a set there that is as new as was wanted, or will there be none? */
static bool is_settled(const struct run *run)
{
    const struct saving *saving = &run->saving;
    return (saving->complete && saving->step >= run->lease.step) || sets_failed(run, run->lease.step);
}

static void stop(struct run *run)
{
    const struct lease *lease = &run->lease;
    const struct saving *saving = &run->saving;
    char reason[WIRE_TEXT], end[160];
    write_end(run, lease->host, end, sizeof end);
    if (saving->complete)
        record_text(reason, sizeof reason, "%s; the weights after step %llu are in checkpoint/%llu: 'kedge export %s DIR' takes them "
                    "out before the host is gone", end, (unsigned long long)saving->step, (unsigned long long)saving->step,
                    run->profile.name);
    else
        record_text(reason, sizeof reason, "%s; no new weights could be saved", end);
    run_move(run, PHASE_STOPPING, reason);
    ending_begin(run, run->timeouts.grace_ns);
}

static bool drain(struct run *run, struct wire_reply *reply)
{
    struct wire_order order = {.kind = ORDER_DRAIN};
    record_text(order.name, sizeof order.name, "%s", host_of(run, run->lease.host)->name);
    record_text(order.who, sizeof order.who, "the lease of host %.40s", host_of(run, run->lease.host)->name);
    run_order(run, &order, reply);
    return reply->err == 0;
}

static void leave(struct run *run)
{
    struct lease *lease = &run->lease;
    const struct moves *moves = &run->moves;
    struct wire_reply reply = {0};
    bool mine = moves->state != MOVES_NOT && moves->host == lease->host && moves->kind == ORDER_DRAIN;
    if (moves_is_drained(run, lease->host) && !is_head(run, lease->host)) {
        lease->state = LEASE_NOT;
        return;
    }
    if (mine || (moves->state != MOVES_NOT && left_ns(run, lease->host) > 0))
        return; /* it is on its way, or has to wait for another host's move */
    if (!can_be_spared(run, lease->host)) {
        stop(run);
        return;
    }
    if (drain(run, &reply))
        return;
    if (!lease->told)
        run_say(run, EVENT_ALERT, NULL, "lease", "host %s cannot be drained: %s", host_of(run, lease->host)->name, reply.text);
    lease->told = true; /* and is tried again, until it is gone: then its replica is lost as any other */
    if (left_ns(run, lease->host) <= 0) {
        lease->until_ns[lease->host] = 0;
        lease->state = LEASE_NOT;
    }
}

static void save(struct run *run)
{
    struct lease *lease = &run->lease;
    struct wire_order order = {.kind = ORDER_CHECKPOINT};
    struct wire_reply reply;
    lease->step = run->record->state.row.step;
    record_text(order.who, sizeof order.who, "the lease of host %.40s", host_of(run, lease->host)->name);
    run_order(run, &order, &reply);
    if (!reply.err)
        return;
    run_say(run, EVENT_ALERT, NULL, "lease", "the weights cannot be saved: %s", reply.text);
    lease->state = LEASE_LEAVES;
    leave(run);
}

static void take(struct run *run, int host)
{
    struct lease *lease = &run->lease;
    struct lease_facts facts = facts_of(run, host);
    enum lease_state due = lease_due(left_ns(run, host), &facts, false);
    char end[160], left[32] = "";
    if (due == LEASE_NOT)
        return;
    lease->host = host;
    lease->state = due;
    lease->told = false;
    write_end(run, host, end, sizeof end);
    if (left_ns(run, host) > 0)
        text_from_duration((uint64_t)left_ns(run, host), left, sizeof left);
    run_say(run, EVENT_WARN, NULL, "lease", "%s%s%s: %s%s", end, left[0] ? ", in " : "", left,
            due == LEASE_SAVES ? "the weights are saved, then " : "",
            can_be_spared(run, host) ? "the host is drained" : "the run is stopped");
    if (due == LEASE_SAVES && run_phase(run) != PHASE_FORMING)
        save(run);
    else
        leave(run);
}

/* The one whose lease ends first. */
static int next_host(const struct run *run)
{
    int next = -1;
    for (int host = 0; host < (int)run->profile.host_count; host++)
        if (is_of_interest(run, host) && (next < 0 || run->lease.until_ns[host] < run->lease.until_ns[next]))
            next = host;
    return next;
}

/* Where nothing had been measured before, this set may have been much quicker than was feared: then there is time left to train. */
static void wait_for_set(struct run *run)
{
    struct lease *lease = &run->lease;
    struct lease_facts facts = facts_of(run, lease->host);
    bool settled = is_settled(run);
    enum lease_state due = lease_due(left_ns(run, lease->host), &facts, settled);
    char margin[32];
    if (!settled && due == LEASE_LEAVES)
        run_say(run, EVENT_ALERT, NULL, "lease", "the weights were not saved in time before the lease of host %s ends",
                host_of(run, lease->host)->name);
    if (settled && due == LEASE_NOT)
        run_say(run, EVENT_INFO, NULL, "lease", "the weights are saved, quicker than was feared: until %s before the lease of host %s ends "
                "all goes on", text_from_duration(lease_margin_ns(&facts), margin, sizeof margin), host_of(run, lease->host)->name);
    if (settled || due == LEASE_LEAVES)
        lease->state = due;
}

void lease_tick(struct run *run)
{
    struct lease *lease = &run->lease;
    if (run->ending != ENDING_NOT)
        return;
    if (lease->state == LEASE_NOT) {
        int host = next_host(run);
        if (host >= 0)
            take(run, host);
        return;
    }
    if (lease->state == LEASE_SAVES)
        wait_for_set(run);
    if (lease->state == LEASE_LEAVES)
        leave(run);
}

void lease_begin(struct run *run)
{
    uint64_t wall_ms = clock_wall_ms(), now_ns = clock_now_ns();
    for (int host = 0; host < (int)run->profile.host_count; host++) {
        uint64_t until_ms = host_of(run, host)->lease_until_s * 1000;
        if (until_ms) /* 1: long over; 0 would be never */
            run->lease.until_ns[host] = until_ms > wall_ms ? now_ns + (until_ms - wall_ms) * CLOCK_MS : now_ns > 1 ? now_ns - 1 : 1;
    }
}
