/*
 * One script on one host, as a stranger there: reach it, run it, take its output, leave. Many go in parallel; each has its own
 * deadline, and a host that hangs delays nobody.
 */
#ifndef KEDGE_LAUNCH_ERRAND_H
#define KEDGE_LAUNCH_ERRAND_H

#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"
#include "ssh/link/loop.h"
#include "ssh/session/reach.h"

struct errand;

struct errand_settings {
    struct reach_settings reach; /* copied */
    const char *what;            /* for the reason: "looking for what is left" */
    const char *script;          /* one line of sh; copied */
    size_t most_bytes;           /* of output */
    uint64_t deadline_ns;        /* from the start, login included */
};

struct errand_callbacks {
    /* Once. err 0: `output` (NUL-terminated behind `bytes`) is all that the script said. errand_free is allowed. */
    void (*done)(struct errand *errand, int err, const char *reason, const char *output, size_t bytes, void *arg);
    void (*ask)(struct session *session, const struct session_question *question, void *arg); /* may be NULL */
};

struct errand *errand_new(struct loop *loop, const struct errand_settings *settings, const struct errand_callbacks *callbacks,
                          void *arg);
void errand_free(struct errand *errand); /* NULL is fine */

#endif
