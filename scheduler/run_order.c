/*
 * Orders of consoles: each gets its reply at once, in words; what follows from it is seen in the state.
 */
#include <stdarg.h>
#include <stdio.h>

#include "scheduler/run_state.h"
#include "ssh/base/clock.h"
#include "ssh/base/log.h"
#include "ssh/base/text.h"

static void answer(struct wire_reply *reply, int err, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void answer(struct wire_reply *reply, int err, const char *format, ...)
{
    char text[2 * WIRE_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    reply->err = err;
    record_text(reply->text, sizeof reply->text, "%s", text);
}

static void order_set(struct run *run, const struct wire_order *order, struct wire_reply *reply)
{
    struct why why = {0};
    uint64_t ledger = 0;
    if (run->ending != ENDING_NOT) {
        answer(reply, ERR_GONE, "run %s is %s: nothing can be set any more", run->profile.name,
               wire_phase_name(run_phase(run)));
        return;
    }
    int err = knobs_propose(run->knobs, order->name, order->value, order->who, run->record->state.row.step,
                            run->record->state.row.steps, &ledger, &why);
    if (err < 0) {
        answer(reply, err, "%s", why.text);
        return;
    }
    const struct record_ledger *row = record_find_ledger(run->record, ledger);
    if (!row) {
        answer(reply, 0, "%s is %s already", order->name, order->value);
        return;
    }
    reply->ledger = ledger;
    run_say(run, EVENT_INFO, NULL, "knob", "%s sets %s from %s to %s, from step %llu", row->row.who, row->row.name,
            row->row.old_value, row->row.new_value, (unsigned long long)row->from_step);
    answer(reply, 0, "accepted: %s=%s from step %llu", row->row.name, row->row.new_value,
           (unsigned long long)row->from_step);
    run_send_knobs(run);
}

static int count_here(const struct run *run, bool agents)
{
    int count = 0;
    for (size_t i = 0; i < run->processes.count; i++)
        count += (run->processes.all[i].stage == NULL) == agents && run->processes.all[i].handle;
    return count;
}

static void order_stop(struct run *run, const struct wire_order *order, struct wire_reply *reply)
{
    bool now = order->kind == ORDER_STOP_NOW;
    if (run->ending != ENDING_NOT) {
        if (now)
            ending_hurry(run);
        answer(reply, 0, "run %s is %s already%s", run->profile.name, wire_phase_name(run_phase(run)),
               now ? "; what is left is killed now" : "");
        return;
    }
    char reason[WIRE_TEXT], grace[32];
    int stages = count_here(run, false), agents = count_here(run, true);
    text_from_duration(run->timeouts.grace_ns, grace, sizeof grace);
    record_text(reason, sizeof reason, "stopped by %s", order->who);
    run_move(run, PHASE_STOPPING, reason);
    if (now)
        answer(reply, 0, "stopping: %d workers are killed", stages);
    else
        answer(reply, 0, "stopping: %d workers and %d agents are told to end, and killed after %s", stages, agents, grace);
    ending_begin(run, now ? 0 : run->timeouts.grace_ns);
}

static void order_pause(struct run *run, const struct wire_order *order, struct wire_reply *reply)
{
    enum run_phase phase = run_phase(run);
    if (phase == PHASE_HOLDING) {
        answer(reply, 0, "run %s holds already: %s", run->profile.name, run->record->state.row.reason);
    } else if (phase != PHASE_TRAINING) {
        answer(reply, ERR_REFUSED, "run %s is %s; only a run that trains can be paused", run->profile.name,
               wire_phase_name(phase));
    } else {
        char reason[WIRE_TEXT];
        record_text(reason, sizeof reason, "paused by %s; 'kedge resume %s' goes on", order->who, run->profile.name);
        run_hold(run, CAUSE_ORDER, reason);
        answer(reply, 0, "pauses at the next step boundary, after step %llu at the earliest",
               (unsigned long long)run->record->state.row.step);
    }
}

static const struct process *missing(struct run *run)
{
    for (size_t i = run->processes.agents; i < run->processes.count; i++)
        if (!run->processes.all[i].handle && !leaving_has_left(run, run->processes.all[i].stage->replica))
            return &run->processes.all[i];
    return NULL;
}

static void order_resume(struct run *run, const struct wire_order *order, struct wire_reply *reply)
{
    enum run_phase phase = run_phase(run);
    const struct process *away = missing(run);
    if (phase == PHASE_TRAINING) {
        answer(reply, 0, "run %s trains already", run->profile.name);
    } else if (phase != PHASE_HOLDING) {
        answer(reply, ERR_REFUSED, "run %s is %s; only a run that holds can be resumed", run->profile.name,
               wire_phase_name(phase));
    } else if (run->record->state.cause != CAUSE_ORDER) {
        answer(reply, ERR_REFUSED, "cannot resume: %s", run->record->state.row.reason);
    } else if (away) {
        answer(reply, ERR_REFUSED, "cannot resume while %s on host %s is away; try again when it is back",
               away->record->row.process, away->record->row.host);
    } else {
        run_say(run, EVENT_INFO, NULL, "resume", "resumed by %s", order->who);
        run->record->state.cause = CAUSE_NONE;
        run_move(run, PHASE_TRAINING, "");
        run_send_start(run, NULL);
        run_send_knobs(run);
        answer(reply, 0, "goes on from step %llu", (unsigned long long)run->record->state.row.step + 1);
    }
}

/* What comes of it is an event with the code "checkpoint". */
static void order_checkpoint(struct run *run, const struct wire_order *order, struct wire_reply *reply)
{
    enum run_phase phase = run_phase(run);
    const struct process *first = processes_stage(&run->processes, lease_saver(run) * run->plan.stages_per_replica);
    const struct saving *saving = &run->saving;
    uint64_t step = run->record->state.row.step;
    bool there = saving->complete && saving->step == step;
    struct wire_save save = {.from_step = there ? step + 1 : step};
    if (phase != PHASE_TRAINING && !(phase == PHASE_HOLDING && run->record->state.cause == CAUSE_ORDER)) {
        answer(reply, ERR_REFUSED, "run %s is %s; only a run that trains or is paused can write its weights", run->profile.name,
               wire_phase_name(phase));
    } else if (!first->handle) {
        answer(reply, ERR_REFUSED, "%s is away; try again when it is back", first->record->row.process);
    } else if (there && phase == PHASE_HOLDING) {
        answer(reply, 0, "the weights after step %llu are in checkpoint/%llu already", (unsigned long long)step,
               (unsigned long long)step);
        reply->ledger = 1;
    } else {
        run_say(run, EVENT_INFO, NULL, "save", "%s wants the weights", order->who);
        run_send(run, first, WIRE_SAVE, &save);
        run->save_since_ns = clock_now_ns();
        answer(reply, 0, "the weights are written at the next step boundary, after step %llu at the earliest",
               (unsigned long long)save.from_step);
    }
}

void run_order(struct run *run, const struct wire_order *order, struct wire_reply *reply)
{
    static void (*const orders[])(struct run *, const struct wire_order *, struct wire_reply *) = {
        [ORDER_SET] = order_set,     [ORDER_STOP] = order_stop,     [ORDER_STOP_NOW] = order_stop,
        [ORDER_PAUSE] = order_pause, [ORDER_RESUME] = order_resume, [ORDER_CHECKPOINT] = order_checkpoint,
        [ORDER_SNAPSHOT] = anchor_order, [ORDER_RESTART] = moves_order, [ORDER_DRAIN] = moves_order, [ORDER_REPLACE] = moves_order,
        [ORDER_LOGIN] = hosts_order_login,
    };
    *reply = (struct wire_reply){.request = order->request};
    if (order->kind >= sizeof orders / sizeof *orders || !orders[order->kind])
        answer(reply, ERR_INVALID, "order %u is not known to kedged; is this console newer?", order->kind);
    else
        orders[order->kind](run, order, reply);
    log_at(order->kind == ORDER_LOGIN ? LOG_DEBUG : LOG_INFO, "order", "%u by %s: %s%s%s → %s", order->kind, order->who, order->name, order->name[0] ? "=" : "",
           order->value, reply->text);
}
