/* The hosts of a run: how they are, as cells, as text and as JSON. Pure. */
#ifndef KEDGE_CONSOLE_HOSTS_H
#define KEDGE_CONSOLE_HOSTS_H

#include <jansson.h>
#include <stdio.h>

#include "console/state.h"
#include "console/style.h"

enum hosts_column {
    HOSTS_NAME, HOSTS_USE, HOSTS_CPU, HOSTS_LOAD, HOSTS_MEMORY, HOSTS_DISK, HOSTS_GPU, HOSTS_GPU_MEMORY, HOSTS_HEAT, HOSTS_POWER, HOSTS_CLOCK,
    HOSTS_HEARD, HOSTS_LOGIN, HOSTS_PROCESSES, HOSTS_PRICE, HOSTS_COLUMNS
};

const char *hosts_use(int use); /* "in use", "spare", … */
const char *hosts_title(enum hosts_column column);
/* Of the state's host of that number. Returns true when the value should worry somebody. */
bool hosts_cell(const struct state *state, size_t number, enum hosts_column column, const struct style *style, uint64_t now_ns, char *out,
                size_t size);
void hosts_print(const struct state *state, const struct style *style, uint64_t now_ns, FILE *out);
json_t *hosts_report(const struct state *state, uint64_t now_ns);

#endif
