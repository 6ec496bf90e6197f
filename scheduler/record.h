/*
 * What is known about a run, in rows: the one thing that the run's state machine writes, viewers show and the journal keeps.
 *
 * Everything has a fixed maximum, so the memory of a scheduler is known from birth. Every row carries the version at which
 * it changed last; whoever follows the record (a viewer, the journal) remembers the version that it has seen and takes what
 * is newer. A follower that could not write simply does not advance, and nothing has to be queued for it. Events and ledger
 * rows live in rings by id.
 */
#ifndef KEDGE_SCHEDULER_RECORD_H
#define KEDGE_SCHEDULER_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profiles/profile.h"
#include "ssh/wire/wire.h"

#define RECORD_PROCESSES (PROFILE_MAX_STAGES + PROFILE_HOSTS + 1) /* and the anchor */
#define RECORD_ROADS 2500 /* both directions of all roads of a plan, two lanes each, and some of former ones */
#define RECORD_KNOBS 64
#define RECORD_SPECTRA 1000 /* matrices: the first layers of a model that has more */
#define RECORD_LEDGER 256
#define RECORD_EVENTS 1000

/* Why a run holds; the worse cause stays. */
enum hold_cause { CAUSE_NONE, CAUSE_ORDER, CAUSE_ROAD, CAUSE_DRIFT, CAUSE_PROCESS };

struct record_state {
    uint64_t version;
    struct wire_run_state row;
    uint8_t cause;    /* enum hold_cause of PHASE_HOLDING */
    uint8_t over;     /* 1: the run is over and its kedged has ended; nothing is left to adopt */
    uint64_t wall_ms; /* when this was true: age of a record that is read later */
};

struct record_process {
    uint64_t version;
    struct wire_process_row row;
    char announce[WIRE_ADDRESS]; /* where it accepts data roads */
    uint64_t nonce;              /* host_nonce of its HELLO; 0 = not known */
    uint8_t ready;               /* newest enum ready_state; 0 = none yet */
    uint8_t spawned;             /* 1: its agent was told to start it */
    uint8_t done;                /* 1: it trained all steps */
};

struct record_road {
    uint64_t version;
    struct wire_road_row row;
    uint64_t base_bytes, dense_base_bytes, evaluation_base_bytes; /* of former roads between the two: a new road counts from 0 */
};

struct record_knob {
    uint64_t version;
    struct wire_knob_row row;
};

struct record_ledger {
    uint64_t version;
    struct wire_ledger_row row; /* id 0 = empty slot */
    uint64_t from_step;         /* asked for from this step on */
};

struct record_anchor { /* flipped and the like 0, host "": there is none */
    uint64_t version;
    struct wire_anchor_row row;
};

struct record_meter {
    uint64_t version;
    struct wire_meter row; /* step 0: nothing yet */
};

struct record_host {
    uint64_t version;
    struct wire_host row;
    uint64_t login_ns;           /* when a console tried to log in last; 0 = not since kedged began */
};

struct record_spectrum {
    uint64_t version;
    struct wire_spectrum row;
};

struct record_event {
    uint64_t version;
    struct wire_event_row row; /* id 0 = empty slot */
};

struct record {
    uint64_t version;            /* grows with every change */
    bool urgent;                 /* something that must not be lost changed: the journal writes at the end of this turn */
    uint64_t profile_hash;
    char control[WIRE_ADDRESS];  /* where kedged listens; a restarted one listens there again */
    uint64_t newest_event, newest_ledger; /* ids; 0 = none */
    size_t process_count, road_count, knob_count, host_count, spectrum_count;
    struct record_state state;
    struct record_anchor anchor;
    struct record_meter meters[MATRIX_CLASSES];
    struct record_process processes[RECORD_PROCESSES];
    struct record_road roads[RECORD_ROADS];
    struct record_knob knobs[RECORD_KNOBS];
    struct record_host hosts[PROFILE_HOSTS];
    struct record_spectrum spectra[RECORD_SPECTRA];
    struct record_ledger ledger[RECORD_LEDGER]; /* slot = id mod RECORD_LEDGER */
    struct record_event events[RECORD_EVENTS];  /* slot = id mod RECORD_EVENTS */
};

struct record *record_new(void);
void record_free(struct record *record);

/* `version` of a row that has just changed. */
void record_touch(struct record *record, uint64_t *version);
/* A new row in the ring; its id and wall time are filled in. */
struct record_event *record_add_event(struct record *record);
struct record_ledger *record_add_ledger(struct record *record);
/* By id; NULL when it is not in the ring (any more). */
struct record_event *record_find_event(struct record *record, uint64_t id);
struct record_ledger *record_find_ledger(struct record *record, uint64_t id);
struct record_process *record_find_process(struct record *record, const char *name);
/* The row of a direction and lane, made if there is room; NULL when full. */
struct record_road *record_road(struct record *record, const char *from, const char *to, uint8_t lane);

/* printf for the text of a row: control characters are made harmless and a long text is cut between characters. */
void record_text(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
