/* See moves.h. */
#include "scheduler/moves.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "scheduler/run_state.h"
#include "ssh/base/clock.h"
#include "ssh/base/text.h"

#define PERIODS 2 /* of sync.every that are waited for a round to end */

static const struct { const char *name, *does, *done; } words[] = {
    [ORDER_RESTART] = {"host.restart", "restarts", "restarted"},
    [ORDER_DRAIN] = {"host.drain", "drains", "drained"},
    [ORDER_REPLACE] = {"host.replace", "replaces", "replaced"},
};

static const char *host_name(const struct run *run, int host)
{
    return run->profile.hosts[host].name;
}

static int find_host(struct run *run, const char *name)
{
    const struct profile_host *host = profile_find_host(&run->profile, name);
    return host ? (int)(host - run->profile.hosts) : -1;
}

static void set_use(struct run *run, int host, enum host_use use)
{
    struct record_host *at = &run->record->hosts[host];
    at->row.use = (uint8_t)use;
    record_touch(run->record, &at->version);
    run->record->urgent = true;
}

/* ---- who is there ---- */

static bool has_anchor(const struct run *run, int host)
{
    return run->plan.anchor.there && run->plan.anchor.host == host;
}

static uint32_t replicas_on(const struct run *run, int host)
{
    uint32_t set = 0;
    for (int i = 0; i < run->plan.stage_count; i++)
        set |= run->plan.stages[i].host == host ? 1u << run->plan.stages[i].replica : 0;
    return set;
}

bool moves_has_place(const struct run *run, int host)
{
    return replicas_on(run, host) || has_anchor(run, host);
}

/* "replica 1", "replicas 0, 2 and the anchor", "" */
static void write_who(const struct run *run, uint32_t replicas, bool anchor, char *out, size_t size)
{
    size_t used = 0;
    bool several = replicas & (replicas - 1);
    out[0] = '\0';
    for (int r = 0; r < run->plan.replicas && used < size; r++)
        if (replicas >> r & 1)
            used += (size_t)snprintf(out + used, size - used, "%s%d", used ? ", " : several ? "replicas " : "replica ", r);
    if (anchor && used < size)
        snprintf(out + used, size - used, "%sthe anchor", used ? " and " : "");
}

static bool is_over(const struct process *process)
{
    return process->record->row.state == PROCESS_EXITED || !process->record->spawned;
}

/* Is something of these replicas, or of the host, still running? */
static bool anybody_left(const struct run *run)
{
    const struct moves *moves = &run->moves;
    for (size_t i = run->processes.agents; i < run->processes.everybody; i++) {
        const struct process *process = &run->processes.all[i];
        bool mine = process->stage ? moves->replicas >> process->stage->replica & 1 : moves->anchor;
        if (mine && !is_over(process))
            return true;
    }
    return false;
}

static bool all_are_back(struct run *run)
{
    const struct process *anchor = processes_anchor(&run->processes);
    return !(run->moves.replicas & ~joining_members(run)) && (!run->moves.anchor || (anchor && anchor->record->ready > 0));
}

bool moves_is_drained(const struct run *run, int host)
{
    return run->record->hosts[host].row.use == HOST_DRAINED;
}

bool moves_holds(const struct run *run, int host)
{
    return (run->moves.state == MOVES_LEAVES && run->moves.host == host) || moves_is_drained(run, host);
}

bool moves_keep_away(const struct run *run, int replica)
{
    for (int i = 0; i < run->plan.stage_count; i++)
        if (run->plan.stages[i].replica == replica && moves_holds(run, run->plan.stages[i].host))
            return true;
    return false;
}

/* ---- what an order may not do ---- */

/* Would weights be lost that nobody else has, or the others have to wait? */
static int check_replicas(const struct run *run, int host, uint32_t replicas, enum order_kind kind, struct why *why)
{
    const char *name = run->profile.name;
    uint32_t here = joining_members(run);
    bool comes_back = kind != ORDER_DRAIN;
    if (!replicas || (!(replicas & here) && !comes_back))
        return 0;
    if (run->plan.replicas == 1)
        return why_set(why, ERR_REFUSED,
                       "host %s has stages of the only replica, whose weights nobody else holds: 'kedge checkpoint %s' and "
                       "'kedge stop %s' end the run, and a profile with model.path = the folder of 'kedge export %s DIR' goes on "
                       "from there", host_name(run, host), name, name, name);
    if (!(here & ~replicas))
        return why_set(why, ERR_REFUSED,
                       "host %s has stages of all replicas that train: nobody would be left; 'kedge checkpoint %s', then "
                       "'kedge stop %s'", host_name(run, host), name, name);
    if ((replicas & here) && plan_averages_gradients(&run->profile))
        return why_set(why, ERR_REFUSED, "replicas that average gradients in every step (sync.every = 1, sync.outer = none) "
                                         "cannot do without each other");
    if ((replicas & here) && !leaving_is_possible(run))
        return why_set(why, ERR_REFUSED, "no replica can leave now: see the state of the run");
    if (comes_back && !joining_is_in_time(run))
        return why_set(why, ERR_REFUSED,
                       "the run ends at step %llu: a replica that leaves now could not come back before",
                       (unsigned long long)run->record->state.row.steps);
    return 0;
}

static int check_target(struct run *run, int host, int to, const char *name, struct why *why)
{
    if (to < 0)
        return why_set(why, ERR_REFUSED,
                       "there is no host '%s' in this run's profile; one that is to wait for this is named there with spare = yes",
                       name);
    if (to == host)
        return why_set(why, ERR_REFUSED,
                       "host %s cannot take its own place; 'kedge restart %s %s' starts its processes again",
                       name, run->profile.name, name);
    if (moves_has_place(run, to))
        return why_set(why, ERR_REFUSED,
                       "host %s has processes of the run: only one that has none (spare = yes, or drained) can take another's "
                       "place", name);
    if (!run->processes.all[to].handle)
        return why_set(why, ERR_REFUSED, "agent@%s is away: nobody could start a process there", name);
    return 0;
}

static int check(struct run *run, const struct wire_order *order, int host, int to, struct why *why)
{
    enum order_kind kind = (enum order_kind)order->kind;
    enum run_phase phase = run_phase(run);
    const struct moves *moves = &run->moves;
    uint32_t replicas = host < 0 ? 0 : replicas_on(run, host);
    bool anything = host >= 0 && moves_has_place(run, host);
    if (host < 0)
        return why_set(why, ERR_REFUSED,
                       "there is no host '%s' in this run; 'kedge hosts %s' lists them", order->name, run->profile.name);
    if (phase != PHASE_TRAINING && !(phase == PHASE_HOLDING && run->record->state.cause == CAUSE_ORDER))
        return why_set(why, ERR_REFUSED,
                       "run %s is %s; hosts can be changed only while it trains or is paused",
                       run->profile.name, wire_phase_name(phase));
    if (moves->state != MOVES_NOT)
        return why_set(why, ERR_REFUSED,
                       "host %s is just being %s; one host at a time", host_name(run, moves->host), words[moves->kind].done);
    if (!anything && kind != ORDER_DRAIN)
        return why_set(why, ERR_REFUSED,
                       "host %s has no process of the run: there is nothing to %s",
                       order->name, kind == ORDER_RESTART ? "restart" : "replace");
    if (kind == ORDER_REPLACE && check_target(run, host, to, order->value, why) < 0)
        return ERR_REFUSED;
    if (!run->processes.all[host].handle && (kind == ORDER_RESTART || (replicas & joining_members(run)) || has_anchor(run, host)))
        return why_set(why, ERR_REFUSED, "agent@%s is away: nobody could end or start a process there", order->name);
    return check_replicas(run, host, replicas, kind, why);
}

/* ---- one after the other ---- */

static void move(struct run *run, enum moves_state state)
{
    run->moves.state = state;
    run->moves.since_ns = clock_now_ns();
}

/* Nothing moves any more. */
static void settle(struct run *run, enum ledger_state state)
{
    struct record_ledger *row = record_find_ledger(run->record, run->moves.ledger);
    if (run->record->hosts[run->moves.host].row.use == HOST_MOVES)
        set_use(run, run->moves.host, HOST_USED);
    run->moves = (struct moves){0};
    run->record->urgent = true;
    if (!row)
        return;
    row->row.state = (uint8_t)state;
    row->row.step = state == LEDGER_ACTIVE ? run->record->state.row.step + 1 : 0;
    record_touch(run->record, &row->version);
}

static void finish(struct run *run)
{
    struct moves *moves = &run->moves;
    const char *host = host_name(run, moves->host), *to = host_name(run, moves->to);
    char who[WIRE_TEXT];
    write_who(run, moves->replicas, moves->anchor, who, sizeof who);
    if (moves->kind == ORDER_DRAIN)
        run_say(run, EVENT_INFO, NULL, "host", "host %s is drained: nothing of the run is there but its agent, and it may be switched off", host);
    else if (moves->kind == ORDER_REPLACE)
        run_say(run, EVENT_INFO, NULL, "host", "host %s has taken the place of host %s: %s; that one is drained", to, host, who);
    else
        run_say(run, EVENT_INFO, NULL, "host", "host %s is restarted: %s", host, who);
    if (moves->anchor && moves->kind == ORDER_DRAIN)
        record_text(anchor_row(run)->saying, sizeof anchor_row(run)->saying, "its host is drained");
    settle(run, LEDGER_ACTIVE);
}

static void give_up(struct run *run, const char *reason)
{
    struct moves *moves = &run->moves;
    run_say(run, EVENT_ALERT, NULL, "host", "host %s: %s", host_name(run, moves->to), reason);
    settle(run, LEDGER_REFUSED);
}

/* What was planned for the one belongs to the other. */
static void change_places(struct run *run)
{
    const struct moves *moves = &run->moves;
    for (size_t i = run->processes.agents; i < run->processes.everybody; i++) {
        struct process *process = &run->processes.all[i];
        if (process->host != moves->host)
            continue;
        process->host = moves->to;
        process->record->nonce = 0;
        record_text(process->record->row.host, sizeof process->record->row.host, "%s", host_name(run, moves->to));
        record_touch(run->record, &process->record->version);
        if (process->stage)
            plan_move_stage(&run->profile, plan_cores(), &run->plan, (int)(process->stage - run->plan.stages), moves->to);
        else
            plan_move_anchor(&run->profile, &run->plan, moves->to);
    }
    if (moves->anchor)
        record_text(anchor_row(run)->host, sizeof anchor_row(run)->host, "%s", host_name(run, moves->to));
    set_use(run, moves->host, HOST_DRAINED);
}

static void leave(struct run *run)
{
    struct moves *moves = &run->moves;
    const struct record_ledger *row = record_find_ledger(run->record, moves->ledger);
    char reason[WIRE_TEXT];
    record_text(reason, sizeof reason, "%s %s host %s", row ? row->row.who : "somebody", words[moves->kind].does, host_name(run, moves->host));
    move(run, MOVES_LEAVES);
    for (int r = 0; r < run->plan.replicas; r++) {
        if (!(moves->replicas >> r & 1))
            continue;
        run->leaving.replicas[r].lives = (struct lives){0}; /* this end is not its own */
        run->leaving.replicas[r].wanted = moves->kind != ORDER_DRAIN;
        joining_failed(run, r, reason);
        if (!leaving_ordered(run, r, reason)) {
            give_up(run, "no replica can leave now");
            return;
        }
    }
    if (moves->anchor) {
        struct process *anchor = processes_anchor(&run->processes);
        struct wire_signal order = {.incarnation = anchor->record->row.incarnation, .signal = SIGKILL};
        record_text(order.process, sizeof order.process, "%s", anchor->record->row.process);
        run->anchor.lives = (struct lives){0};
        run_send(run, processes_agent(&run->processes, anchor), WIRE_SIGNAL, &order);
    }
}

/* So long a round may take: some periods of steps, or as long as a dead one would take to be noticed. */
uint64_t moves_patience_ns(const struct run *run)
{
    const struct profile *profile = knobs_profile(run->knobs);
    double step_seconds = run->record->state.row.step_seconds, steps = (double)(PERIODS * profile->sync_every + profile->sync_overlap);
    double seconds = isfinite(step_seconds) ? steps * step_seconds : 0;
    return run->timeouts.silent_ns + (uint64_t)(fmin(seconds, 86400) * (double)CLOCK_SECOND);
}

static bool round_is_over(const struct run *run)
{
    for (int s = 0; s < run->plan.stages_per_replica; s++)
        if (!drift_is_over(&run->drift, s, run->moves.round))
            return false;
    return run->moves.round > 0;
}

/* Its replicas, those that are here, may go now. */
static void wait_for_round(struct run *run)
{
    const struct moves *moves = &run->moves;
    uint32_t here = moves->replicas & joining_members(run);
    bool late = clock_now_ns() - moves->since_ns >= moves_patience_ns(run);
    if (late && here)
        run_say(run, EVENT_WARN, NULL, "host", "host %s: no round of its replicas has ended everywhere; what they trained since their last one is lost",
                host_name(run, moves->host));
    if (late || !here || run_phase(run) != PHASE_TRAINING || round_is_over(run))
        leave(run);
}

static void wait_for_ends(struct run *run)
{
    struct moves *moves = &run->moves;
    for (int r = 0; r < run->plan.replicas; r++)
        if (moves->replicas >> r & 1)
            leaving_kill(run, r); /* an agent that was away has not heard it */
    if (anybody_left(run) && clock_now_ns() - moves->since_ns < run->timeouts.form_ns)
        return;
    if (anybody_left(run)) {
        give_up(run, "its processes do not end; its agent may be away");
        return;
    }
    if (moves->kind == ORDER_DRAIN) {
        set_use(run, moves->host, HOST_DRAINED);
        finish(run);
        return;
    }
    if (moves->kind == ORDER_REPLACE)
        change_places(run);
    set_use(run, moves->to, HOST_USED);
    move(run, MOVES_COMES);
}

static void wait_for_return(struct run *run)
{
    struct moves *moves = &run->moves;
    bool joins = run_phase(run) != PHASE_TRAINING, over = run->anchor.lives.over && moves->anchor;
    for (int r = 0; r < run->plan.replicas; r++) {
        joins |= joining_is_under_way(run, r);
        over |= (moves->replicas >> r & 1) && run->leaving.replicas[r].lives.over;
    }
    if (joins)
        moves->since_ns = clock_now_ns();
    if (all_are_back(run))
        finish(run);
    else if (over)
        give_up(run, "its processes end again and again; the others go on without them");
    else if (clock_now_ns() - moves->since_ns >= run->timeouts.form_ns)
        give_up(run, "its processes have not come back in time; they are still taken when they do");
}

void moves_tick(struct run *run)
{
    static void (*const waits[])(struct run *run) = {
        [MOVES_WAITS] = wait_for_round, [MOVES_LEAVES] = wait_for_ends, [MOVES_COMES] = wait_for_return};
    if (run->moves.state == MOVES_NOT)
        return;
    if (run->ending != ENDING_NOT)
        give_up(run, "the run ends");
    else
        waits[run->moves.state](run);
}

void moves_round(struct run *run, int replica, uint64_t round)
{
    struct moves *moves = &run->moves;
    if (moves->state != MOVES_WAITS)
        return;
    if ((moves->replicas >> replica & 1) && !moves->round)
        moves->round = round;
    if (round_is_over(run))
        leave(run);
}

/* ---- the order ---- */

static void begin(struct run *run, enum order_kind kind, int host, int to, uint64_t ledger)
{
    run->moves = (struct moves){.kind = kind, .host = host, .to = kind == ORDER_REPLACE ? to : host, .ledger = ledger,
                                .replicas = replicas_on(run, host), .anchor = has_anchor(run, host)};
    move(run, MOVES_WAITS);
    set_use(run, host, HOST_MOVES);
}

void moves_order(struct run *run, const struct wire_order *order, struct wire_reply *reply)
{
    int host = find_host(run, order->name), to = order->kind == ORDER_REPLACE ? find_host(run, order->value) : host;
    struct why why = {0};
    if (order->kind == ORDER_DRAIN && host >= 0 && moves_is_drained(run, host)) {
        record_text(reply->text, sizeof reply->text, "host %s is drained already", order->name);
        return;
    }
    if (check(run, order, host, to, &why) < 0) {
        reply->err = why.err;
        record_text(reply->text, sizeof reply->text, "%s", why.text);
        return;
    }
    struct record_ledger *row = record_add_ledger(run->record);
    const struct wire_host *old = &run->record->hosts[host].row;
    char who[WIRE_TEXT];
    row->from_step = run->record->state.row.step + 1;
    row->row.state = LEDGER_PROPOSED;
    record_text(row->row.name, sizeof row->row.name, "%s", words[order->kind].name);
    record_text(row->row.old_value, sizeof row->row.old_value, "%s", old->host);
    record_text(row->row.new_value, sizeof row->row.new_value, "%s", order->kind == ORDER_REPLACE ? order->value : words[order->kind].done);
    record_text(row->row.who, sizeof row->row.who, "%s", order->who);
    reply->ledger = row->row.id;
    begin(run, (enum order_kind)order->kind, host, to, row->row.id);
    write_who(run, run->moves.replicas, run->moves.anchor, who, sizeof who);
    run_say(run, EVENT_INFO, NULL, "host", "%s %s host %s%s%s%s%s", order->who, words[order->kind].does, order->name,
            order->kind == ORDER_REPLACE ? " by host " : "", order->value, who[0] ? ": " : "", who);
    record_text(reply->text, sizeof reply->text, "accepted; on it: %s%s", who[0] ? who : "nothing of the run",
                run->moves.replicas ? ", which leaves when a round has ended" : "");
    moves_tick(run);
}

/* ---- another kedged ---- */

void moves_restore_places(struct run *run)
{
    const struct record *record = run->record;
    for (size_t i = 0; i < record->process_count; i++) {
        const struct wire_process_row *row = &record->processes[i].row;
        int host = find_host(run, row->host);
        if (host < 0)
            continue;
        if (row->role == ROLE_ANCHOR && run->plan.anchor.there)
            plan_move_anchor(&run->profile, &run->plan, host);
        for (int s = 0; s < run->plan.stage_count; s++)
            if (strcmp(run->plan.stages[s].process, row->process) == 0)
                plan_move_stage(&run->profile, plan_cores(), &run->plan, s, host);
    }
}

/* A row that is neither active nor refused: what it asks for is done from the beginning, which is harmless, or was nearly done. */
static void take_up(struct run *run, const struct record_ledger *row, enum order_kind kind)
{
    int host = find_host(run, row->row.old_value), to = kind == ORDER_REPLACE ? find_host(run, row->row.new_value) : host;
    if (host < 0 || to < 0)
        return;
    bool went = kind == ORDER_REPLACE && !moves_has_place(run, host);
    begin(run, kind, host, to, row->row.id);
    if (!went)
        return;
    run->moves.replicas = replicas_on(run, to);
    run->moves.anchor = has_anchor(run, to);
    for (int r = 0; r < run->plan.replicas; r++)
        run->leaving.replicas[r].wanted |= run->moves.replicas >> r & 1;
    set_use(run, host, HOST_DRAINED);
    move(run, MOVES_COMES);
}

void moves_adopt(struct run *run)
{
    struct record *record = run->record;
    uint64_t first = record->newest_ledger > RECORD_LEDGER ? record->newest_ledger - RECORD_LEDGER + 1 : 1;
    for (uint64_t id = first; id <= record->newest_ledger; id++) {
        struct record_ledger *row = record_find_ledger(record, id);
        for (int kind = ORDER_RESTART; row && kind <= ORDER_REPLACE; kind++)
            if (row->row.state == LEDGER_PROPOSED && strcmp(row->row.name, words[kind].name) == 0)
                take_up(run, row, (enum order_kind)kind);
    }
}
