/*
 * A run of two stages on hosts a and b without any network: the test speaks for agents and workers, owns the clock, and sees
 * what kedged would have sent.
 */
#ifndef KEDGE_TESTS_WORLD_H
#define KEDGE_TESTS_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "scheduler/run.h"

#define WORLD_RUN UINT64_C(0x1234567890abcdef)
#define WORLD_SENT 512

enum { WORLD_AGENT_A, WORLD_AGENT_B, WORLD_R0S0, WORLD_R0S1, WORLD_PROCESSES };

struct world_road { /* the handle of a process */
    int process;
    bool closed;
    char reason[WIRE_TEXT];
    uint64_t heard_ns; /* when it was heard last */
};

struct world {
    struct profile profile;
    struct plan plan;
    struct record *record;
    struct run *run;
    struct world_road roads[WORLD_PROCESSES];
    struct { /* oldest first */
        int process;
        enum wire_type type;
        union {
            struct wire_spawn spawn;
            struct wire_assign assign;
            struct wire_road road;
            struct wire_start start;
            struct wire_hold hold;
            struct wire_stop stop;
            struct wire_knob knob;
        } payload;
    } sent[WORLD_SENT];
    size_t sent_count;
    int samples, road_samples; /* that went to the journal */
    struct saving saved;       /* the newest set that was whole */
    int saves;
    bool disk_full;            /* a set cannot be made */
};

void world_init(struct world *world); /* owns the clock; the phase is forming */
void world_restart(struct world *world); /* kedged is killed and begins again from the same record */
void world_clear(struct world *world);

const char *world_name(int process);
/* HELLO with the process's usual pid; 0 or the refusal. run_welcome follows when it is taken. */
int world_hello(struct world *world, int process, uint32_t incarnation, struct why *why);
int world_hello_as(struct world *world, int process, struct wire_hello hello, uint32_t incarnation, struct why *why);
struct wire_hello world_hello_of(int process);
int world_say(struct world *world, int process, enum wire_type type, const void *payload); /* must be taken */
void world_exit(struct world *world, int stage, int exit_code, int signal); /* its agent reports the end */
void world_started(struct world *world, int stage);
void world_ready(struct world *world, int stage, enum ready_state state);
void world_alert(struct world *world, int stage, const char *code, const char *text);
void world_gone(struct world *world, int process, int err);
void world_sample(struct world *world, int stage, enum stamp_kind kind, uint64_t step, double loss);
/* Seconds pass, with ticks four times a second; roads that stand are heard. */
void world_pass(struct world *world, double seconds);

void world_form_agents(struct world *world);
void world_form(struct world *world); /* all the way to training */

/* How many of this type went to the process since the last world_forget; the newest one's index in sent, −1 = none. */
int world_count(const struct world *world, int process, enum wire_type type);
int world_newest(const struct world *world, int process, enum wire_type type);
void world_forget(struct world *world);
const char *world_reason(const struct world *world);
int world_phase(const struct world *world);
/* Is there an event of this code whose text has these words? Its level, or −1. */
int world_event(const struct world *world, const char *code, const char *words);
struct wire_reply world_order(struct world *world, enum order_kind kind, const char *name, const char *value);

#endif
