/*
 * The full-screen console: joins a view (view.h) to a terminal and to the road to a run, on one loop. Nothing here waits: keys, rows,
 * the journal and the clock are callbacks, and the screen is drawn at most ten times a second, or at once after a key.
 *
 * Leaving never touches a run.
 */
#ifndef KEDGE_CONSOLE_SCREEN_H
#define KEDGE_CONSOLE_SCREEN_H

#include <stdbool.h>

#include "console/args.h"
#include "console/keys.h"
#include "console/style.h"
#include "ssh/link/loop.h"

/* May this command show a screen: a terminal on both ends that was not asked to be plain? */
bool screen_is_wanted(const struct args *args, const struct style *style);

/* The run `run` ("" = begin with the list) until the user leaves; the exit code. −1: this terminal can show no screen, which is said on
 * standard error; then the caller goes on with lines. */
int screen_run(struct loop *loop, const char *run, const struct args *args, const struct style *style);

/* One view as text, on standard output: --once. */
int screen_once(const char *run, const struct args *args, const struct style *style);

/* `kedge` alone. */
int screen_browse(const struct args *args, const struct style *style);

#endif
