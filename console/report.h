/*
 * The state as JSON, for scripts: every object has "format": 1, a number that is not known is null (never NaN, never a
 * made-up 0), reals carry 17 digits so that they read back to the same bits. Pure: builds values, prints on request.
 */
#ifndef KEDGE_CONSOLE_REPORT_H
#define KEDGE_CONSOLE_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "console/state.h"

#define REPORT_FORMAT 1

json_t *report_object(void);                    /* with "format" */
json_t *report_real(double value);              /* null unless finite */
json_t *report_known(uint64_t value);           /* null for 0, where 0 means unknown */
json_t *report_seconds(uint64_t ns);            /* null for UINT64_MAX */

json_t *report_run(const struct state *state, uint64_t now_ns);       /* the run's own row */
json_t *report_status(const struct state *state, uint64_t now_ns);    /* run, knobs, processes, links */
json_t *report_processes(const struct state *state, uint64_t now_ns);
json_t *report_links(const struct state *state);
json_t *report_knobs(const struct state *state);                      /* with the ledger */
json_t *report_events(const struct state *state);
json_t *report_event(const struct wire_event_row *row);

/* One value on one line (`compact`, for streams) or indented; frees it. Infallible but for the stream. */
void report_print(json_t *value, bool compact, FILE *out);

const char *report_process_state(int state); /* "wanted", "started", "ready", "exited" */
const char *report_event_level(int level);   /* "info", "warn", "alert" */
const char *report_ledger_state(int state);  /* "proposed", "active", "refused" */
/* The set hold bits in words, "pace, uplink"; "" when nothing holds. */
char *report_holds(uint32_t bits, char *out, size_t size);

#endif
