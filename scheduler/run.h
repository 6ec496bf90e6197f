/*
 * The run's state machine: what kedged decides. Pure: no socket, no file, no clock of its own (clock_now_ns, which tests
 * own).
 *
 *   forming ──all roads stand──▶ training ◀──order──▶ holding        (a lost process or road, drift: holding with the reason)
 *      │                            │  └──all stages done──▶ finished
 *      └────────order, failure──────┴───order──▶ stopping ──processes are gone──▶ stopped
 *
 * The owner translates: a road's HELLO, messages and end, an order, a tick of the clock come in; sends and closes go out
 * through the sink; all that is known is in the record, which viewers and journal follow. `handle` is the owner's name for a
 * road. A record with a phase in it is adopted: processes take their places back by their HELLO.
 *
 * What a process says again after a new HELLO is harmless: an agent reports all its children, a worker its readiness. What
 * kedged says again is harmless too: ASSIGN and ROAD while forming, START while training, HOLD while holding, STOP at the
 * end, pending KNOBs.
 */
#ifndef KEDGE_SCHEDULER_RUN_H
#define KEDGE_SCHEDULER_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "profiles/profile.h"
#include "scheduler/plan.h"
#include "scheduler/record.h"
#include "scheduler/saving.h"
#include "ssh/base/why.h"
#include "ssh/wire/wire.h"

struct run;

struct run_sink {
    void (*send)(void *handle, enum wire_type type, const void *payload, void *arg);
    /* Close the road with a reason; the owner must not report its end with run_gone any more. */
    void (*close)(void *handle, int err, const char *reason, void *arg);
    uint64_t (*heard_ns_ago)(void *handle, void *arg);
    /* Of a road: what its round trips tell; false = nothing yet. */
    bool (*clock)(void *handle, int64_t *offset_ns, uint64_t *rtt_ns, void *arg);
    /* For the journal only: all samples, of which the record keeps the newest. */
    void (*sample)(const char *process, const struct wire_sample *sample, void *arg);
    void (*road_sample)(const char *process, const struct wire_road_sample *sample, void *arg);
    /* All files of a set are there: make it one. */
    int (*saved)(const struct saving *saving, void *arg, struct why *why);
    /* The oldest set that is kept; 0: none, or nobody knows. */
    uint64_t (*oldest_set)(void *arg);
};

/* All are copied but the record, which must outlive the run. `resumed`: the set that a run that forms goes on from, or NULL. */
struct run *run_new(const struct profile *profile, const struct plan *plan, uint64_t run_id, struct record *record,
                    const struct saving_resumed *resumed, const struct run_sink *sink, void *arg);
const struct profile *run_profile(const struct run *run); /* with the values of live settings that are wanted now */
void run_free(struct run *run);

/* A road said HELLO: 0, or refused with the reason. After 0, run_welcome sends what its process has to know. */
int run_hello(struct run *run, void *handle, const struct wire_hello *hello, uint32_t incarnation, struct why *why);
void run_welcome(struct run *run, void *handle);
/* A message of a road that was taken; `payload` is its decoded struct. Negative: close it with the reason. */
int run_message(struct run *run, void *handle, enum wire_type type, const void *payload, struct why *why);
/* A road is gone; err 0 = a planned goodbye. Unknown handles are fine. */
void run_gone(struct run *run, void *handle, int err, const char *reason);
void run_order(struct run *run, const struct wire_order *order, struct wire_reply *reply);
/* Something about kedged itself that people should know. */
void run_note(struct run *run, enum event_level level, const char *code, const char *text);
/* Deadlines, folded events, ages. Call it four times a second. */
void run_tick(struct run *run);

/* Everything is over: record, say goodbye to viewers, remove socket and lock, end. */
bool run_is_over(const struct run *run);

#endif
