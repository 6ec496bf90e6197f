/*
 * What a console knows of a run: the rows that the scheduler sent, each with the time it was heard. Pure: rows and times in,
 * answers out; no socket, no clock. The same structure feeds the command line and, later, the screen.
 *
 * Everything is bounded: rows are replaced by their key, events and ledger rows are rings of the newest.
 * Nothing is invented: what was never heard stays absent, what is old says how old (state_age_ns).
 */
#ifndef KEDGE_CONSOLE_STATE_H
#define KEDGE_CONSOLE_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"
#include "ssh/wire/wire.h"

#define STATE_PROCESSES 2048
#define STATE_ROADS 4096
#define STATE_KNOBS 64
#define STATE_HOSTS 256
#define STATE_SPECTRA 1024
#define STATE_LEDGER 512
#define STATE_EVENTS 1024

struct state_process {
    struct wire_process_row row;
    uint64_t heard_ns; /* when this row came */
};

struct state_road {
    struct wire_road_row row;
    uint64_t heard_ns;
};

struct state_host {
    struct wire_host row;
    uint64_t heard_ns;
};

struct state {
    bool complete;         /* STATE_END was heard: everything current is here */
    bool has_run;
    struct wire_run_state run;
    uint64_t run_heard_ns;
    struct state_process *processes;
    size_t process_count;
    struct state_road *roads;
    size_t road_count;
    struct wire_knob_row *knobs;
    size_t knob_count;
    struct state_host *hosts;
    size_t host_count;
    struct wire_spectrum *spectra; /* of the anchor's matrices */
    size_t spectrum_count;
    bool has_anchor;
    struct wire_anchor_row anchor;
    struct wire_meter meters[MATRIX_CLASSES]; /* step 0: not heard of */
    struct wire_ledger_row *ledger; /* oldest first */
    size_t ledger_count;
    struct wire_event_row *events;  /* oldest first */
    size_t event_count;
    uint64_t dropped; /* rows that had no room */
    size_t process_hint, road_hint; /* the row that came last: the next is mostly the one behind it */
};

void state_init(struct state *state);
void state_clear(struct state *state);
/* Apply one decoded message of the console family; ERR_INVALID for any other type. */
int state_apply(struct state *state, enum wire_type type, const void *row, uint64_t now_ns, struct why *why);

/* Age of the run's own row; UINT64_MAX when it was never heard. */
uint64_t state_age_ns(const struct state *state, uint64_t now_ns);
/* Age of a process's last sign of life: as the scheduler said, plus the time since it said so. */
uint64_t state_process_age_ns(const struct state_process *process, uint64_t now_ns);
uint64_t state_host_age_ns(const struct state_host *host, uint64_t now_ns);
/* By name, NULL = it was never heard of. */
const struct state_host *state_find_host(const struct state *state, const char *name);
/* Seconds until the last step, NaN = unknown. */
double state_eta_seconds(const struct state *state);
/* NULL = it was never heard of. */
const struct wire_spectrum *state_find_spectrum(const struct state *state, unsigned layer, unsigned matrix_class);
const struct wire_ledger_row *state_find_ledger(const struct state *state, uint64_t id);
/* Index of a road and lane; road_count = there is none. */
size_t state_find_road(const struct state *state, const char *from, const char *to, unsigned lane);
const struct wire_knob_row *state_find_knob(const struct state *state, const char *name);
/* True when nothing more is expected of the run. */
bool state_is_over(const struct state *state);

#endif
