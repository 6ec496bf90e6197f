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
/* The number of a version; what was not yet is unknown. */
char *anchor_version(const struct style *style, uint64_t version, char *out, size_t size);
/* What it costs beside what comes of it, in a sentence. */
char *anchor_value(const struct state *state, const struct style *style, char *out, size_t size);
/* Singular values, falling; how many there are. What makes no sense ends them. */
int anchor_values(const struct wire_spectrum *spectrum, double values[WIRE_SPECTRUM_VALUES]);
json_t *anchor_report(const struct state *state); /* null when the run has none */

#endif
