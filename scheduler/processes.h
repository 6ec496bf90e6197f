/*
 * Who belongs to a run: one agent per host of the profile and one process per stage of the plan; who may speak for them, and
 * what is said about them in words. Agents come first in the table, stages follow in the plan's order.
 *
 * Identity is (name, host, incarnation): a road of an older incarnation, of another host or of a second process with the
 * same name is refused with the reason. A process that comes again with the same pid takes its place back.
 */
#ifndef KEDGE_SCHEDULER_PROCESSES_H
#define KEDGE_SCHEDULER_PROCESSES_H

#include "profiles/profile.h"
#include "scheduler/plan.h"
#include "scheduler/record.h"
#include "ssh/base/why.h"
#include "ssh/wire/wire.h"

struct process {
    struct record_process *record;
    const struct plan_stage *stage; /* NULL of an agent and of the anchor */
    bool is_anchor;
    int host;                       /* index into profile->hosts */
    void *handle;                   /* its road to us; NULL = none now */
    bool assigned;                  /* of a stage: ASSIGN was sent on this road */
    bool said_bye;                  /* its last road ended as planned */
    uint64_t gone_ns;               /* when its road was lost; 0 = it was not */
    bool gone_told;
    uint64_t sampled_ns;            /* when the newest sample came; 0 = none yet */
    struct wire_sample sample;
    char ending[WIRE_TEXT];         /* a sentence: how it ended */
};

struct processes {
    const struct profile *profile;
    const struct plan *plan;
    struct process all[RECORD_PROCESSES + 1];
    size_t count, agents; /* all[0..agents) are agents, all[agents..count) stages */
    size_t everybody;     /* with the anchor, if there is one: all[count] */
};

/* Rows that are in the record already keep their state (adoption). */
void processes_init(struct processes *processes, const struct profile *profile, const struct plan *plan,
                    struct record *record, uint64_t now_ns);
struct process *processes_find(struct processes *processes, const char *name);
struct process *processes_of_handle(struct processes *processes, const void *handle);
struct process *processes_agent(struct processes *processes, const struct process *stage);
struct process *processes_anchor(struct processes *processes); /* NULL: there is none */
struct process *processes_stage(struct processes *processes, int index); /* of the plan */

/* May this one speak? Returns its process, or NULL with the reason. */
struct process *processes_check(struct processes *processes, const struct wire_hello *hello, uint32_t incarnation,
                                uint64_t profile_hash, struct why *why);
/* It has ended and is to be started again: the next incarnation, of which nothing is known yet. */
void processes_renew(struct record *record, struct process *process);
/* A worker's end in a sentence: "r0s1 on host b was killed by signal 9 (Killed)". */
void process_ending(const struct process *process, const struct wire_process *report, char *out, size_t size);
/* The address of host row + the number of the process on its host, when it has a port: every process needs one of its
 * own. */
void process_address(const struct processes *processes, const struct process *process, const char *address, char *out,
                     size_t size);

#endif
