/*
 * One visit of a command to a run: find its place, open the client, wait until everything current is here. And the way a
 * command says why it failed: one line on standard error, one exit code.
 */
#ifndef KEDGE_CONSOLE_VISIT_H
#define KEDGE_CONSOLE_VISIT_H

#include <stdbool.h>
#include <stdint.h>

#include "console/client.h"
#include "console/place.h"
#include "ssh/base/why.h"
#include "ssh/launch/runs.h"
#include "ssh/link/loop.h"

struct visit {
    struct place place;
    const char *run; /* as it was said */
    struct loop *loop;
    struct client *client;
};

/* On failure nothing is open. */
int visit_begin(struct visit *visit, const char *run, bool follow, const struct client_callbacks *callbacks, void *arg,
                struct why *why);
void visit_end(struct visit *visit);

/* "kedge: TEXT" on standard error; the exit code of its kind. */
int visit_fail(const struct why *why);

#endif
