/* The anchor of a run, as text and as JSON: `kedge anchor RUN`. Pure but for show_anchor. */
#ifndef KEDGE_CONSOLE_ANCHOR_H
#define KEDGE_CONSOLE_ANCHOR_H

#include <jansson.h>

#include "console/print.h"

void anchor_print(const struct state *state, const struct style *style, uint64_t now_ns, FILE *out);
json_t *anchor_report(const struct state *state); /* null when the run has none */

#endif
