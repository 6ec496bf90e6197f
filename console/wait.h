/*
 * The sentence at the bottom: who waits for whom, since when, what happens next. Pure.
 */
#ifndef KEDGE_CONSOLE_WAIT_H
#define KEDGE_CONSOLE_WAIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "console/state.h"
#include "console/style.h"

struct wait_road { /* the console's own road to the scheduler */
    bool live;               /* a scheduler, not a record */
    bool down;
    const char *down_reason;
    uint64_t down_since_ns;
};

/* One sentence; PAINT_… says how serious it is. */
enum paint wait_explain(const struct state *state, const struct wait_road *road, const struct style *style, uint64_t now_ns,
                        char *out, size_t size);

#endif
