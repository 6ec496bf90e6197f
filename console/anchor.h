/* The anchor of a run, as text and as JSON: `kedge anchor RUN`. Pure but for show_anchor. */
#ifndef KEDGE_CONSOLE_ANCHOR_H
#define KEDGE_CONSOLE_ANCHOR_H

#include <jansson.h>

#include "console/print.h"

void anchor_print(const struct state *state, const struct style *style, uint64_t now_ns, FILE *out);
/* Of a class of matrices: its name, the angle between gradient and anchor, the share of noise; NaN = unknown. */
const char *anchor_class(int matrix_class);
double anchor_cosine(const struct wire_meter *meter);
double anchor_noise(const struct wire_meter *meter);
double anchor_share(double one, double other); /* one / other */
json_t *anchor_report(const struct state *state); /* null when the run has none */

#endif
