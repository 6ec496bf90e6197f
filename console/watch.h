/*
 * Watching a run without a screen: one progress line a second, events as lines of their own, the reason of every change of
 * phase once. Watching changes nothing: leaving (Ctrl-C, a closed terminal, kill -9) leaves the run as it is.
 */
#ifndef KEDGE_CONSOLE_WATCH_H
#define KEDGE_CONSOLE_WATCH_H

#include <stdbool.h>
#include <stdio.h>

#include "console/args.h"
#include "console/place.h"
#include "console/state.h"
#include "console/style.h"
#include "ssh/link/loop.h"

/* The progress line (more than one only where the terminal is too narrow for all roads). Pure. */
void watch_print_line(const struct state *state, const struct style *style, FILE *out);

/* Until the run is over or the user leaves. `from_start`: print the events that were before, too. Unless `read_only`, hosts are
 * logged in to now and then (console/health.h). Exit code: 0 finished, 1
 * stopped or failed, 3 the scheduler was lost, 130 the user left. SIGINT, SIGTERM and SIGHUP must be on `loop` with
 * watch_interrupt. A lost road to another machine is dialled again, with growing pauses, until the user leaves. */
int watch_run(struct loop *loop, const struct place *place, bool json, bool from_start, bool read_only,
              const struct style *style);
void watch_interrupt(int number, void *arg); /* a loop_signal_cb */
bool watch_is_interrupted(void);

#endif
