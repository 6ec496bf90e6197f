/*
 * What agents and workers say, and what follows from it. Each message has a row: who may say it, and the function that takes
 * it. A function that returns a negative err has met something that a sane process does not say: its road is closed with the
 * reason.
 */
#include <math.h>
#include <signal.h>
#include <string.h>

#include "scheduler/run_state.h"
#include "ssh/base/clock.h"
#include "ssh/base/text.h"

static void stage_ended(struct run *run, struct process *process)
{
    char reason[WIRE_TEXT];
    bool left = leaving_has_left(run, process->stage->replica);
    bool expected = run->ending != ENDING_NOT || process->record->done || left;
    run_say(run, expected ? EVENT_INFO : EVENT_ALERT, process, "process-exit", "%s", process->ending);
    if (run->ending != ENDING_NOT) {
        ending_advance(run);
    } else if (run_phase(run) == PHASE_FORMING) {
        record_text(reason, sizeof reason, "%s; log/%s.log in the run's folder tells more", process->ending,
                    process->record->row.process);
        run_move(run, PHASE_STOPPING, reason);
        ending_begin(run, run->timeouts.grace_ns);
    } else if (left) {
        joining_failed(run, process->stage->replica, process->ending);
    } else if (!process->record->done && !leaving_begin(run, process->stage->replica, process->ending)) {
        record_text(reason, sizeof reason, "%s; 'kedge stop %s' ends the run", process->ending, run->profile.name);
        run_hold(run, CAUSE_PROCESS, reason);
    }
}

static int on_process(struct run *run, struct process *agent, const void *payload, struct why *why)
{
    const struct wire_process *told = payload;
    struct wire_process quiet = *told, *report = &quiet;
    struct process *process = processes_find(&run->processes, report->process);
    if (run->ending != ENDING_NOT && report->exit_code == 0)
        quiet.reason[0] = '\0'; /* it did as it was told: its last words are none */
    if (process && process->host != agent->host && report->incarnation < process->record->row.incarnation)
        return 0; /* it has moved to another host since */
    if (!process || (!process->stage && !process->is_anchor) || process->host != agent->host)
        return why_set(why, ERR_INVALID, "%s reports '%s', which is no process of its host", agent->record->row.process,
                       report->process);
    struct wire_process_row *row = &process->record->row;
    char ending[WIRE_TEXT];
    if (report->incarnation != row->incarnation) {
        process_ending(process, report, ending, sizeof ending);
        run_say(run, EVENT_INFO, process, "old-incarnation", "incarnation %u: %s", report->incarnation,
                report->state == PROCESS_EXITED ? ending : "still there");
        return 0;
    }
    if (row->state == PROCESS_EXITED)
        return 0; /* said again */
    if (report->state == PROCESS_STARTED) {
        row->pid = report->pid;
        process->record->spawned = 1;
        if (row->state == PROCESS_WANTED)
            process_set_state(run, process, PROCESS_STARTED);
        record_touch(run->record, &process->record->version);
        return 0;
    }
    if (report->state != PROCESS_EXITED)
        return why_set(why, ERR_INVALID, "%s reports %s in state %u", agent->record->row.process, row->process,
                       report->state);
    process_ending(process, report, process->ending, sizeof process->ending);
    record_text(row->waiting, sizeof row->waiting, "%s", process->ending);
    process_set_state(run, process, PROCESS_EXITED);
    if (process->is_anchor)
        anchor_ended(run);
    else
        stage_ended(run, process);
    return 0;
}

static int on_ready(struct run *run, struct process *process, const void *payload, struct why *why)
{
    const struct wire_ready *ready = payload;
    struct record_process *row = process->record;
    char memory[32];
    (void)why;
    row->row.memory_bytes = ready->memory_bytes;
    if (ready->state > row->ready) {
        row->ready = ready->state;
        run->record->urgent = true;
        text_from_bytes(ready->memory_bytes, memory, sizeof memory);
        if (process->is_anchor)
            run_say(run, EVENT_INFO, process, "loaded", "the anchor on host %s holds the whole model: %llu parameters, %s", row->row.host,
                    (unsigned long long)ready->parameters, memory);
        else if (ready->state == READY_LOADED)
            run_say(run, EVENT_INFO, process, "loaded", "%s on host %s holds layers %u–%u: %llu parameters in %s",
                    row->row.process, row->row.host, row->row.first_layer, row->row.first_layer + row->row.layers - 1u,
                    (unsigned long long)ready->parameters, memory);
        else
            process_set_state(run, process, PROCESS_READY);
    }
    record_touch(run->record, &row->version);
    if (process->is_anchor)
        anchor_ready(run, process);
    else if (run_phase(run) == PHASE_FORMING)
        forming_advance(run);
    else
        joining_advance(run);
    return 0;
}

static int on_event(struct run *run, struct process *process, const void *payload, struct why *why)
{
    static const struct {
        const char *code;
        enum hold_cause cause;
    } holds[] = {{"peer-lost", CAUSE_ROAD}, {"drift", CAUSE_DRIFT}, {"frozen", CAUSE_ORDER}}; /* frozen: people may resume */
    const struct wire_event *event = payload;
    (void)why;
    struct wire_event_row row = {
        .step = event->step, .level = event->level, .incarnation = process->record->row.incarnation};
    record_text(row.source, sizeof row.source, "%s", process->record->row.process);
    record_text(row.code, sizeof row.code, "%s", event->code);
    record_text(row.text, sizeof row.text, "%s", event->text);
    if (run->ending != ENDING_NOT || (process->stage && leaving_has_left(run, process->stage->replica)))
        row.level = EVENT_INFO; /* roads end when processes do */
    events_add(run->events, &row, clock_now_ns());
    if (event->level != EVENT_ALERT || !process->stage || (run_phase(run) != PHASE_TRAINING && run_phase(run) != PHASE_HOLDING))
        return 0;
    for (size_t i = 0; i < sizeof holds / sizeof *holds; i++) {
        if (strcmp(event->code, holds[i].code) != 0)
            continue;
        char reason[WIRE_TEXT];
        record_text(reason, sizeof reason, "%s on host %s: %s", row.source, process->record->row.host, row.text);
        if (leaving_has_left(run, process->stage->replica)) {
            joining_failed(run, process->stage->replica, reason);
            return 0;
        }
        if (holds[i].cause == CAUSE_ROAD && leaving_broken(run, process->stage->replica, reason))
            return 0;
        record_text(reason, sizeof reason, "%s on host %s: %s; 'kedge stop %s' ends the run", row.source,
                    process->record->row.host, row.text, run->profile.name);
        run_hold(run, holds[i].cause, reason);
    }
    return 0;
}

void run_check_done(struct run *run)
{
    for (size_t i = run->processes.agents; i < run->processes.count; i++)
        if (!run->processes.all[i].record->done && !leaving_has_left(run, run->processes.all[i].stage->replica))
            return;
    if (sets_last_is_under_way(run))
        return;
    bool trains = run_phase(run) == PHASE_TRAINING ||
                  (run_phase(run) == PHASE_HOLDING && run->record->state.cause == CAUSE_ORDER);
    if (trains && run->ending == ENDING_NOT) {
        char reason[WIRE_TEXT];
        record_text(reason, sizeof reason, "all %llu steps are trained", (unsigned long long)run->record->state.row.steps);
        if (run->plan.replicas > 1)
            run_say(run, EVENT_INFO, NULL, "sync", "%llu rounds of %d stages ended with the same weights on all %s%d replicas",
                    (unsigned long long)run->drift.agreed, run->plan.stages_per_replica,
                    leaving_count(run) < run->plan.replicas ? "that took part of " : "", run->plan.replicas);
        run_move(run, PHASE_FINISHED, reason);
        ending_begin(run, run->timeouts.grace_ns);
    }
}

static int on_done(struct run *run, struct process *process, const void *payload, struct why *why)
{
    (void)payload;
    (void)why;
    process->record->done = 1;
    record_touch(run->record, &process->record->version);
    run_check_done(run);
    return 0;
}

/* Siblings that do not have the same common copy any more would train two models: hold at once. */
static int on_outer(struct run *run, struct process *process, const void *payload, struct why *why)
{
    const struct wire_outer *outer = payload;
    const struct plan_stage *stage = process->stage;
    char reason[WIRE_TEXT];
    (void)why;
    if (leaving_has_left(run, stage->replica))
        return 0;
    int other = drift_check(&run->drift, stage->stage, stage->replica, outer);
    moves_round(run, stage->replica, outer->round);
    if (outer->skipped)
        run_say(run, EVENT_WARN, process, "round-skipped", "round %llu of fragment %u of stage %d was refused and changed nothing",
                (unsigned long long)outer->round, outer->fragment, stage->stage);
    if (other < 0)
        return 0;
    record_text(reason, sizeof reason, "replicas %d and %d do not agree about stage %d, fragment %u, since round %llu; 'kedge stop %s' "
                "ends the run", other, stage->replica, stage->stage, outer->fragment, (unsigned long long)outer->round,
                run->profile.name);
    run_say(run, EVENT_ALERT, process, "drift", "%s", reason);
    if (run->ending == ENDING_NOT && (run_phase(run) == PHASE_TRAINING || run_phase(run) == PHASE_HOLDING))
        run_hold(run, CAUSE_DRIFT, reason);
    return 0;
}

/* What is in use now is watched, if people want that (revert.steps). */
static void watch_change(struct run *run, struct record_ledger *row)
{
    char words[WIRE_TEXT];
    if (revert_arm(&run->revert, knobs_profile(run->knobs), run->record, row, words, sizeof words))
        run_say(run, EVENT_INFO, NULL, "revert", "%s", words);
}

static int on_knob_used(struct run *run, struct process *process, const void *payload, struct why *why)
{
    const struct wire_knob_used *used = payload;
    struct why own = {0};
    uint64_t replaced = 0;
    if (process->stage->stage != 0)
        return why_set(why, ERR_INVALID, "%s is not the first stage and says KNOB_USED", process->record->row.process);
    struct record_ledger *row = record_find_ledger(run->record, used->ledger);
    bool waited = row && row->row.state == LEDGER_PROPOSED;
    if (knobs_used(run->knobs, process->stage->replica, used, &replaced, &own) < 0) {
        run_say(run, EVENT_ALERT, process, "knob", "%s", own.text);
        return 0;
    }
    run_say(run, EVENT_INFO, process, "knob", "%s is %s from step %llu on", used->name, used->value,
            (unsigned long long)used->step);
    if (replaced > 0)
        run_say(run, EVENT_INFO, process, "knob", "ledger row %llu was replaced by row %llu before any step used it",
                (unsigned long long)replaced, (unsigned long long)used->ledger);
    if (waited && row->row.state == LEDGER_ACTIVE) /* not what is only said again */
        watch_change(run, row);
    return 0;
}

static void take_back(struct run *run, const struct record_ledger *row)
{
    struct wire_order order = {.kind = ORDER_SET, .who = REVERT_WHO};
    struct wire_reply reply;
    record_text(order.name, sizeof order.name, "%s", row->row.name);
    record_text(order.value, sizeof order.value, "%s", row->row.old_value);
    run_order(run, &order, &reply);
    if (reply.err)
        run_say(run, EVENT_WARN, NULL, "revert", "%s could not go back to %s: %s", order.name, order.value, reply.text);
}

/* One change that the run does not bear takes back all that are watched: nobody knows which of them it was. */
static void judge_changes(struct run *run)
{
    const struct wire_run_state *state = &run->record->state.row;
    char words[WIRE_TEXT];
    bool back = false;
    revert_step(&run->revert, state->step, state->loss, state->gradient_norm);
    for (struct record_ledger *row = revert_watched(run->record, UINT64_MAX); row; row = revert_watched(run->record, row->row.id)) {
        enum revert_verdict verdict = revert_judge(&run->revert, run->record, row, words, sizeof words);
        if (verdict == REVERT_NOTHING)
            continue;
        run_say(run, verdict == REVERT_BACK ? EVENT_ALERT : EVENT_INFO, NULL, "revert", "%s", words);
        if (verdict == REVERT_BACK)
            take_back(run, row);
        back |= verdict == REVERT_BACK;
    }
    for (struct record_ledger *row; back && (row = revert_watched(run->record, UINT64_MAX));) {
        row->row.watched_until = 0;
        record_touch(run->record, &row->version);
        take_back(run, row);
    }
}

static int on_sample(struct run *run, struct process *process, const void *payload, struct why *why)
{
    const struct wire_sample *sample = payload;
    if (process->is_anchor) {
        run->sink.sample(process->record->row.process, sample, run->arg);
        return anchor_sample(run, sample, why);
    }
    struct wire_process_row *row = &process->record->row;
    if (sample->step > run->record->state.row.steps)
        return why_set(why, ERR_INVALID, "%s samples step %llu of a run of %llu", row->process,
                       (unsigned long long)sample->step, (unsigned long long)run->record->state.row.steps);
    uint64_t step = run->record->state.row.step;
    numbers_sample(run->numbers, (int)(process->stage - run->plan.stages), sample);
    if (run->record->state.row.step > step)
        judge_changes(run);
    if (process->stage->stage == run->plan.stages_per_replica - 1 && sample->kind == STAMP_TRAIN)
        anchor_step(run);
    run->sink.sample(row->process, sample, run->arg);
    if (sample->kind != STAMP_TRAIN)
        return 0;
    process->sample = *sample;
    process->sampled_ns = clock_now_ns();
    row->step = sample->step > row->step ? sample->step : row->step;
    row->memory_bytes = sample->memory_bytes;
    row->compute_share = sample->step_ns > 0 ? (double)sample->compute_ns / (double)sample->step_ns : (double)NAN;
    numbers_waiting(&run->plan, (int)(process->stage - run->plan.stages), sample, row->waiting, sizeof row->waiting);
    record_touch(run->record, &process->record->version);
    return 0;
}

static int on_road_sample(struct run *run, struct process *process, const void *payload, struct why *why)
{
    const struct wire_road_sample *sample = payload;
    const struct process *peer = processes_find(&run->processes, sample->peer);
    if (!peer || (!peer->stage && !peer->is_anchor))
        return why_set(why, ERR_INVALID, "%s samples a road to '%s', which is no stage of this run",
                       process->record->row.process, sample->peer);
    numbers_road_sample(run->numbers, process->record->row.process, sample, clock_now_ns());
    run->sink.road_sample(process->record->row.process, sample, run->arg);
    return 0;
}

int run_message(struct run *run, void *handle, enum wire_type type, const void *payload, struct why *why)
{
    static const struct {
        enum wire_type type;
        uint8_t agent, stage, anchor; /* who may say it */
        int (*take)(struct run *run, struct process *process, const void *payload, struct why *why);
    } messages[] = {
        {WIRE_PROCESS, 1, 0, 0, on_process}, {WIRE_HOST, 1, 0, 0, hosts_take}, {WIRE_SPECTRUM, 0, 0, 1, anchor_spectrum}, {WIRE_EVENT, 1, 1, 1, on_event},
        {WIRE_READY, 0, 1, 1, on_ready},     {WIRE_DONE, 0, 1, 0, on_done},
        {WIRE_SAMPLE, 0, 1, 1, on_sample},   {WIRE_ROAD_SAMPLE, 0, 1, 1, on_road_sample},
        {WIRE_KNOB_USED, 0, 1, 0, on_knob_used}, {WIRE_SAVED, 0, 1, 0, sets_saved}, {WIRE_OUTER, 0, 1, 0, on_outer},
        {WIRE_MARK, 0, 1, 1, anchor_mark},   {WIRE_METER, 0, 1, 0, anchor_meter},
        {WIRE_PART, 0, 1, 0, leaving_lost},  {WIRE_PARTED, 0, 1, 0, leaving_parted},
        {WIRE_ENTERED, 0, 1, 0, joining_entered},
    };
    struct process *process = processes_of_handle(&run->processes, handle);
    if (!process)
        return why_set(why, ERR_GONE, "this road has no process (any more)");
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
        if (messages[i].type == type && (process->stage ? messages[i].stage : process->is_anchor ? messages[i].anchor : messages[i].agent))
            return messages[i].take(run, process, payload, why);
    const struct wire_message *message = wire_find((uint16_t)type);
    return why_set(why, ERR_INVALID, "%s may not say %s to kedged", process->record->row.process,
                   message ? message->name : "that");
}
