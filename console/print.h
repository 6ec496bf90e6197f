/*
 * The state of a run as text that fits the terminal. Pure: state and time in, lines out.
 */
#ifndef KEDGE_CONSOLE_PRINT_H
#define KEDGE_CONSOLE_PRINT_H

#include <stdint.h>
#include <stdio.h>

#include "console/state.h"
#include "console/style.h"

typedef void print_state_fn(const struct state *state, const struct style *style, uint64_t now_ns, FILE *out);

void print_status(const struct state *state, const struct style *style, uint64_t now_ns, FILE *out);
void print_processes(const struct state *state, const struct style *style, uint64_t now_ns, FILE *out);
void print_links(const struct state *state, const struct style *style, uint64_t now_ns, FILE *out);
void print_knobs(const struct state *state, const struct style *style, uint64_t now_ns, FILE *out);
void print_event(const struct wire_event_row *row, const struct style *style, FILE *out);

#endif
