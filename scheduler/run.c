#include "scheduler/run.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "scheduler/run_state.h"
#include "ssh/base/clock.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define REFRESH_NS CLOCK_SECOND
#define STALE_NS (5 * CLOCK_SECOND) /* a stage with no sample for so long and for three steps has something to say */

enum run_phase run_phase(const struct run *run)
{
    return (enum run_phase)run->record->state.row.phase;
}

static uint64_t trained_ns(const struct run *run)
{
    return run->trained_before_ns + (run->training_since_ns > 0 ? clock_now_ns() - run->training_since_ns : 0);
}

void run_set_reason(struct run *run, const char *reason)
{
    struct record_state *state = &run->record->state;
    if (strcmp(state->row.reason, reason) == 0)
        return;
    record_text(state->row.reason, sizeof state->row.reason, "%s", reason);
    record_touch(run->record, &state->version);
}

void run_say(struct run *run, enum event_level level, const struct process *process, const char *code, const char *format,
             ...)
{
    struct wire_event_row row = {.step = run->record->state.row.step, .level = (uint8_t)level};
    char text[2 * WIRE_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    record_text(row.text, sizeof row.text, "%s", text);
    record_text(row.code, sizeof row.code, "%s", code);
    record_text(row.source, sizeof row.source, "%s", process ? process->record->row.process : "kedged");
    row.incarnation = process ? process->record->row.incarnation : 1;
    events_add(run->events, &row, clock_now_ns());
}

static void count_money(struct run *run)
{
    money_refresh(&run->profile, run->record, clock_wall_ms(), run_phase(run) == PHASE_FINISHED || run_phase(run) == PHASE_STOPPED);
}

void run_move(struct run *run, enum run_phase phase, const char *reason)
{
    static const uint32_t may_follow[] = {
        [0] = 1u << PHASE_FORMING,
        [PHASE_FORMING] = 1u << PHASE_TRAINING | 1u << PHASE_STOPPING,
        [PHASE_TRAINING] = 1u << PHASE_HOLDING | 1u << PHASE_FINISHED | 1u << PHASE_STOPPING,
        [PHASE_HOLDING] = 1u << PHASE_TRAINING | 1u << PHASE_FINISHED | 1u << PHASE_STOPPING,
        [PHASE_STOPPING] = 1u << PHASE_STOPPED,
        [PHASE_FINISHED] = 0,
        [PHASE_STOPPED] = 0,
    };
    struct record_state *state = &run->record->state;
    enum run_phase old = run_phase(run);
    if (!(may_follow[old] >> phase & 1))
        BUG("run phase %s → %s", wire_phase_name(old), wire_phase_name(phase));
    run->trained_before_ns = trained_ns(run);
    run->training_since_ns = phase == PHASE_TRAINING ? clock_now_ns() : 0;
    state->row.phase = (uint8_t)phase;
    record_text(state->row.reason, sizeof state->row.reason, "%s", reason);
    record_touch(run->record, &state->version);
    count_money(run);
    run->record->urgent = true;
    bool bad = phase == PHASE_HOLDING && state->cause > CAUSE_ORDER;
    run_say(run, bad ? EVENT_ALERT : EVENT_INFO, NULL, "phase", "%s → %s%s%s", old ? wire_phase_name(old) : "new",
            wire_phase_name(phase), reason[0] ? ": " : "", reason);
}

void process_set_state(struct run *run, struct process *process, enum process_state state)
{
    static const char *const names[] = {"wanted", "started", "ready", "exited"};
    struct wire_process_row *row = &process->record->row;
    if (row->state == state)
        return;
    log_at(LOG_INFO, "process", "%s on host %s: %s → %s", row->process, row->host, names[row->state], names[state]);
    row->state = (uint8_t)state;
    record_touch(run->record, &process->record->version);
    run->record->urgent = true;
}

/* ---- what goes out ---- */

void run_send(struct run *run, const struct process *process, enum wire_type type, const void *payload)
{
    if (process->handle)
        run->sink.send(process->handle, type, payload, run->arg);
}

void run_send_stages(struct run *run, enum wire_type type, const void *payload)
{
    for (size_t i = run->processes.agents; i < run->processes.count; i++)
        run_send(run, &run->processes.all[i], type, payload);
}

void run_send_start(struct run *run, const struct process *process)
{
    const struct wire_run_state *state = &run->record->state.row;
    struct wire_start start = {.first_step = state->step + 1, .last_step = state->steps + 1};
    if (process)
        run_send(run, process, WIRE_START, &start);
    else
        run_send_stages(run, WIRE_START, &start);
}

static void send_knobs_to(struct run *run, const struct process *process)
{
    struct wire_knob knob = {.ledger = 0};
    while (knobs_pending(run->knobs, process->stage->replica, knob.ledger, &knob))
        run_send(run, process, WIRE_KNOB, &knob);
}

/* Pending changes wait until their stage 0 trains; said twice they do no harm. */
void run_send_knobs(struct run *run)
{
    if (run_phase(run) != PHASE_TRAINING && run_phase(run) != PHASE_HOLDING)
        return;
    for (size_t i = run->processes.agents; i < run->processes.count; i++)
        if (run->processes.all[i].stage->stage == 0)
            send_knobs_to(run, &run->processes.all[i]);
}

void run_send_hold(struct run *run, const struct process *process)
{
    struct wire_hold hold;
    record_text(hold.reason, sizeof hold.reason, "%s", run->record->state.row.reason);
    if (process)
        run_send(run, process, WIRE_HOLD, &hold);
    else
        run_send_stages(run, WIRE_HOLD, &hold);
}

void run_hold(struct run *run, enum hold_cause cause, const char *reason)
{
    enum hold_cause old = (enum hold_cause)run->record->state.cause;
    if (run_phase(run) == PHASE_HOLDING && cause <= old)
        return;
    run->record->state.cause = (uint8_t)cause;
    if (run_phase(run) == PHASE_HOLDING) {
        run_set_reason(run, reason);
        run_say(run, EVENT_ALERT, NULL, "holds", "%s", reason);
        return;
    }
    run_move(run, PHASE_HOLDING, reason);
    run_send_hold(run, NULL);
}

/* ---- hello and goodbye ---- */

int run_hello(struct run *run, void *handle, const struct wire_hello *hello, uint32_t incarnation, struct why *why)
{
    struct why own = {0};
    struct process *process = processes_check(&run->processes, hello, incarnation, run->profile_hash, &own);
    if (!process) {
        run_say(run, EVENT_WARN, NULL, "refused", "%s", own.text);
        return why_set(why, own.err, "%s", own.text);
    }
    if (process->handle)
        run->sink.close(process->handle, 0, "this process has a newer road", run->arg);
    struct record_process *row = process->record;
    bool back = process->handle || process->gone_ns > 0;
    process->handle = handle;
    process->said_bye = process->gone_told = false;
    process->gone_ns = 0;
    row->row.pid = hello->pid;
    row->row.incarnation = incarnation;
    row->nonce = hello->host_nonce ? hello->host_nonce : row->nonce;
    record_text(row->announce, sizeof row->announce, "%s", hello->announce);
    record_touch(run->record, &row->version);
    bool ready = process->stage ? row->ready >= READY_ROADS : !process->is_anchor || row->ready == READY_LOADED;
    process_set_state(run, process, ready ? PROCESS_READY : PROCESS_STARTED);
    run_say(run, EVENT_INFO, process, "hello", "%s on host %s says hello%s, pid %u", row->row.process, row->row.host,
            back ? " again" : "", hello->pid);
    return 0;
}

void run_welcome(struct run *run, void *handle)
{
    struct process *process = processes_of_handle(&run->processes, handle);
    if (!process)
        return;
    if (run->ending == ENDING_NOT && (process->is_anchor || process->stage))
        anchor_welcome(run, process);
    if (run->ending != ENDING_NOT) {
        ending_welcome(run, process);
    } else if (run_phase(run) == PHASE_FORMING) {
        forming_advance(run);
    } else if (process->stage && leaving_has_left(run, process->stage->replica)) {
        joining_welcome(run, process); /* else it is about to be killed */
    } else if (process->stage) {
        if (run_phase(run) == PHASE_HOLDING)
            run_send_hold(run, process);
        else
            run_send_start(run, process);
        if (process->stage->stage == 0)
            send_knobs_to(run, process);
        leaving_welcome(run, process);
        joining_advance(run);
    }
}

/* What was sent on the lost road may not have arrived: forming says it again. */
static void forget_sent(struct run *run, struct process *process)
{
    process->assigned = false;
    for (int i = 0; i < run->plan.road_count; i++)
        if (process->record->ready < READY_ROADS && (processes_stage(&run->processes, run->plan.roads[i].from) == process ||
                                                      processes_stage(&run->processes, run->plan.roads[i].to) == process))
            run->road_told[i] = false;
}

void run_gone(struct run *run, void *handle, int err, const char *reason)
{
    struct process *process = processes_of_handle(&run->processes, handle);
    if (!process)
        return;
    const struct wire_process_row *row = &process->record->row;
    process->handle = NULL;
    process->said_bye = err == 0;
    process->gone_ns = clock_now_ns();
    if (process->stage)
        forget_sent(run, process);
    else if (process->is_anchor)
        process->assigned = false;
    else if (run->ending != ENDING_NOT && err == 0)
        process_set_state(run, process, PROCESS_EXITED);
    bool expected = run->ending != ENDING_NOT || row->state == PROCESS_EXITED || moves_is_drained(run, process->host);
    /* The reason of a link names the peer. */
    run_say(run, expected ? EVENT_INFO : EVENT_WARN, process, err == 0 ? "goodbye" : "control-lost", "%s", reason);
    if (run->ending != ENDING_NOT)
        ending_advance(run);
}

void run_note(struct run *run, enum event_level level, const char *code, const char *text)
{
    run_say(run, level, NULL, code, "%s", text);
}

/* ---- time ---- */

static void refresh_training_sentence(const struct run *run, const struct process *process, char *out, size_t size)
{
    uint64_t quiet = process->sampled_ns > 0 ? clock_now_ns() - process->sampled_ns : 0;
    char since[32];
    if (quiet > STALE_NS && quiet > 3 * process->sample.step_ns) {
        text_from_duration(quiet, since, sizeof since);
        record_text(out, size, "no step has ended for %s", since);
    } else if (process->sampled_ns > 0) {
        numbers_waiting(&run->plan, (int)(process->stage - run->plan.stages), &process->sample, out, size);
    }
}

static void refresh_process(struct run *run, struct process *process)
{
    struct wire_process_row *row = &process->record->row;
    uint64_t now_ns = clock_now_ns();
    char since[32];
    if (process->handle)
        row->heard_ns_ago = run->sink.heard_ns_ago(process->handle, run->arg);
    else if (process->gone_ns > 0)
        row->heard_ns_ago = now_ns - process->gone_ns;
    row->waiting[0] = '\0';
    if (row->state == PROCESS_EXITED) {
        record_text(row->waiting, sizeof row->waiting, "%s", process->ending);
    } else if (!process->handle && process->gone_ns > 0) {
        text_from_duration(now_ns - process->gone_ns, since, sizeof since);
        record_text(row->waiting, sizeof row->waiting, "not heard of for %s", since);
    } else if (run_phase(run) == PHASE_FORMING) {
        forming_waiting(run, process, row->waiting, sizeof row->waiting);
    } else if (run_phase(run) == PHASE_TRAINING && process->stage) {
        refresh_training_sentence(run, process, row->waiting, sizeof row->waiting);
    }
    record_touch(run->record, &process->record->version);
}

/* "r0s1 on host b has not been heard of for 12 s; …": nobody knows more. */
static void describe_silence(const struct process *process, char *out, size_t size)
{
    char since[32];
    text_from_duration(clock_now_ns() - process->gone_ns, since, sizeof since);
    record_text(out, size, "%s on host %s has not been heard of for %s; %s", process->record->row.process,
                process->record->row.host, since,
                process->stage ? "it may train on and come back" : "its workers train on without it");
}

/* While training: who is silent. A lease without news is an alert, and training goes on as far as we know. */
static void watch_silence(struct run *run)
{
    const struct process *worst = NULL;
    char text[WIRE_TEXT] = "";
    for (size_t i = 0; i < run->processes.count; i++) {
        struct process *process = &run->processes.all[i];
        if (process->handle || process->gone_ns == 0 || process->record->row.state == PROCESS_EXITED || moves_is_drained(run, process->host))
            continue;
        if (!worst || process->gone_ns < worst->gone_ns)
            worst = process;
        if (process->gone_told || clock_now_ns() - process->gone_ns < run->timeouts.lease_ns)
            continue;
        process->gone_told = true;
        describe_silence(process, text, sizeof text);
        run_say(run, EVENT_ALERT, process, "silent", "%s", text);
    }
    text[0] = '\0';
    if (worst)
        describe_silence(worst, text, sizeof text);
    run_set_reason(run, text);
}

static void refresh(struct run *run)
{
    struct record_state *state = &run->record->state;
    run->refreshed_ns = clock_now_ns();
    numbers_tick(run->numbers, run->refreshed_ns);
    if (run_phase(run) == PHASE_FORMING)
        forming_deadline(run);
    if (run_phase(run) == PHASE_TRAINING)
        watch_silence(run);
    leaving_tick(run);
    moves_tick(run);
    joining_tick(run);
    lease_tick(run);
    for (size_t i = 0; i < run->processes.everybody; i++)
        refresh_process(run, &run->processes.all[i]);
    hosts_refresh(run);
    state->row.trained_ns = trained_ns(run);
    state->row.mask_rate = knobs_profile(run->knobs)->mask_rate;
    state->wall_ms = clock_wall_ms();
    count_money(run);
    record_touch(run->record, &state->version);
}

void run_tick(struct run *run)
{
    uint64_t now_ns = clock_now_ns();
    events_tick(run->events, now_ns);
    if (run->ending != ENDING_NOT && run->ending != ENDING_OVER)
        ending_advance(run);
    if (run_phase(run) == PHASE_FORMING && now_ns >= run->deadline_ns)
        forming_deadline(run);
    anchor_tick(run);
    if (now_ns - run->refreshed_ns >= REFRESH_NS)
        refresh(run);
}

bool run_is_over(const struct run *run)
{
    return run->ending == ENDING_OVER;
}

/* ---- life ---- */

/* A run that was under way when its scheduler ended: go on from what the journal knows. */
static void adopt(struct run *run)
{
    enum run_phase phase = run_phase(run);
    run->trained_before_ns = run->record->state.row.trained_ns;
    run->training_since_ns = phase == PHASE_TRAINING ? clock_now_ns() : 0;
    run_say(run, EVENT_WARN, NULL, "adopt",
            "kedged started again; the run was %s at step %llu, processes are taken back as they come",
            wire_phase_name(phase), (unsigned long long)run->record->state.row.step);
    leaving_adopt(run);
    moves_adopt(run);
    if (phase == PHASE_STOPPING || phase == PHASE_FINISHED) {
        run->ending = ENDING_WORKERS;
        record_text(run->end_reason, sizeof run->end_reason, "%s", run->record->state.row.reason);
        char *awaited = strstr(run->end_reason, "; waits for ");
        if (awaited)
            *awaited = '\0';
        run->grace_ms = (uint32_t)(run->timeouts.grace_ns / CLOCK_MS);
        run->deadline_ns = run->since_ns + run->timeouts.grace_ns + run->timeouts.redial_ns;
    }
}

/* Steps of the set count as trained; its files are told with the ASSIGN. */
static void go_on(struct run *run, const struct saving_resumed *resumed)
{
    struct wire_run_state *state = &run->record->state.row;
    state->step = resumed->set.step;
    state->first_validation_loss = resumed->first_validation_loss;
    run->saving = resumed->set;
    run->trained_before_ns = resumed->trained_ns;
    run_say(run, EVENT_INFO, NULL, "resume", "goes on from checkpoint/%llu, with step %llu of %llu", (unsigned long long)state->step,
            (unsigned long long)state->step + 1, (unsigned long long)state->steps);
}

const struct profile *run_profile(const struct run *run)
{
    return knobs_profile(run->knobs);
}

struct run *run_new(const struct profile *profile, const struct plan *plan, uint64_t run_id, struct record *record,
                    const struct saving_resumed *resumed, const struct run_sink *sink, void *arg)
{
    struct run *run = mem_new(sizeof *run);
    run->profile = *profile;
    run->plan = *plan;
    run->timeouts = timeouts_derive(profile->timeout_ns);
    run->profile_hash = record->profile_hash = profile_hash(profile);
    run->record = record;
    run->sink = *sink;
    run->arg = arg;
    run->since_ns = run->refreshed_ns = clock_now_ns();
    run->deadline_ns = run->since_ns + run->timeouts.form_ns;
    run->events = events_new(record);
    run->knobs = knobs_new(profile, plan->replicas, record);
    run->numbers = numbers_new(&run->plan, record);
    moves_restore_places(run);
    processes_init(&run->processes, &run->profile, &run->plan, record, run->since_ns);
    hosts_begin(run);
    lease_begin(run);
    anchor_begin(run);
    struct wire_run_state *state = &record->state.row;
    if (state->phase != 0) {
        if (resumed && resumed->set.step == state->step)
            run->saving = resumed->set;
        adopt(run);
    } else {
        record_text(state->run, sizeof state->run, "%s", profile->name);
        state->run_id = run_id;
        state->steps = (uint64_t)profile->steps;
        state->started_wall_ms = clock_wall_ms();
        if (resumed && resumed->set.step)
            go_on(run, resumed);
        run_move(run, PHASE_FORMING, "");
        forming_deadline(run);
    }
    refresh(run);
    return run;
}

void run_free(struct run *run)
{
    if (!run)
        return;
    numbers_free(run->numbers);
    knobs_free(run->knobs);
    events_free(run->events);
    mem_free(run);
}
