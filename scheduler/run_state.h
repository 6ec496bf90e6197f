/*
 * The inside of a run, shared by run.c (phases, roads, time), run_message.c, run_order.c, forming.c and ending.c only. The
 * phase is changed by run_move and nowhere else.
 */
#ifndef KEDGE_SCHEDULER_RUN_STATE_H
#define KEDGE_SCHEDULER_RUN_STATE_H

#include "profiles/timeouts.h"
#include "scheduler/anchor.h"
#include "scheduler/drift.h"
#include "scheduler/events.h"
#include "scheduler/hosts.h"
#include "scheduler/joining.h"
#include "scheduler/knobs.h"
#include "scheduler/lease.h"
#include "scheduler/leaving.h"
#include "scheduler/money.h"
#include "scheduler/moves.h"
#include "scheduler/numbers.h"
#include "scheduler/processes.h"
#include "scheduler/revert.h"
#include "scheduler/run.h"

#define SETS_MAKING 4 /* checkpoint sets of which processes have begun to speak */

/* How far the end of a run is: what is awaited. */
enum ending {
    ENDING_NOT,
    ENDING_WORKERS, /* stages were told to stop → all are gone, or the grace is over */
    ENDING_AGENTS,  /* agents were told to stop what is left → all are gone, or the grace is over */
    ENDING_OVER,
};

struct run {
    struct profile profile;
    struct plan plan;
    struct timeouts timeouts;
    uint64_t profile_hash;
    struct record *record;
    struct run_sink sink;
    void *arg;
    struct processes processes;
    struct events *events;
    struct knobs *knobs;
    struct numbers *numbers;
    struct revert revert;
    struct drift drift;
    struct anchor anchor;
    struct leaving leaving;
    struct moves moves;
    struct lease lease;
    uint64_t since_ns, deadline_ns; /* of forming or ending: what is awaited now */
    uint64_t training_since_ns;     /* 0 = not training */
    uint64_t trained_before_ns;     /* before that */
    uint64_t refreshed_ns;          /* when ages and sentences were made new */
    uint32_t grace_ms;
    char end_reason[WIRE_TEXT];     /* why the run ends; the state's reason also says who is awaited */
    struct saving saving;           /* the newest set; or, while it forms, what it goes on from */
    struct saving making[SETS_MAKING];
    uint64_t save_since_ns;         /* of a set that was wished for; 0 = of none */
    uint64_t saved_ns;              /* that the newest set took, from the wish to its manifest if it was wished for; 0 = not known */
    bool road_told[PLAN_ROADS]; /* of the plan's roads: both ends have been told */
    enum ending ending;
};

/* ---- run.c ---- */
enum run_phase run_phase(const struct run *run);
/* The one place where the phase changes. `reason` is the sentence that people see. */
void run_move(struct run *run, enum run_phase phase, const char *reason);
void run_set_reason(struct run *run, const char *reason);
/* An event of a process, or of kedged itself (NULL). */
void run_say(struct run *run, enum event_level level, const struct process *process, const char *code, const char *format,
             ...) __attribute__((format(printf, 5, 6)));
void run_send(struct run *run, const struct process *process, enum wire_type type,
              const void *payload); /* if it has a road */
void run_send_stages(struct run *run, enum wire_type type, const void *payload);
void run_send_start(struct run *run, const struct process *process); /* NULL = all stages */
void run_send_knobs(struct run *run);
void run_send_hold(struct run *run, const struct process *process); /* NULL = all stages */
/* Hold because of `cause`; a run that holds for a worse cause keeps it. */
void run_hold(struct run *run, enum hold_cause cause, const char *reason);
void process_set_state(struct run *run, struct process *process, enum process_state state);

/* ---- sets.c ---- */
int sets_saved(struct run *run, struct process *process, const void *payload, struct why *why); /* a SAVED */
/* The replica that writes the last weights has died over it: the next one does, although it is done. */
bool sets_last_is_under_way(const struct run *run);
bool sets_failed(const struct run *run, uint64_t from_step); /* one of such a step or a later one will not be whole */

/* ---- run_message.c ---- */
void run_check_done(struct run *run); /* all that are here may have trained all steps */

/* ---- forming.c ---- */
void forming_advance(struct run *run);  /* do what can be done now */
void forming_spawn(struct run *run, struct process *process);
void forming_assign(struct run *run, struct process *process);
void forming_tell_roads(struct run *run); /* between processes that are loaded, both ends, once */
void forming_deadline(struct run *run); /* the tick: the sentence, and the end of patience */
void forming_waiting(const struct run *run, const struct process *process, char *out, size_t size); /* of one process */

/* ---- ending.c ---- */
/* Tell everybody to stop; the phase is STOPPING or FINISHED already. */
void ending_begin(struct run *run, uint64_t grace_ns);
void ending_hurry(struct run *run); /* no more grace */
void ending_advance(struct run *run);
void ending_welcome(struct run *run, const struct process *process); /* one that comes (again) while the run ends */

#endif
