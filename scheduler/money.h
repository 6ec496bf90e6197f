/*
 * What a run costs, in the money of the profile's prices: hosts by the hour, and bytes that leave a host by the GB of 10⁹. Pure: rows
 * and prices in, numbers out; the caller passes the time.
 *
 * It is an estimate from our own stamps and counters: a host is paid for from the start of the run to its end, and what goes
 * between two processes of one host costs nothing. NaN = unknown, and a run without prices costs nobody knows what.
 */
#ifndef KEDGE_SCHEDULER_MONEY_H
#define KEDGE_SCHEDULER_MONEY_H

#include <stdbool.h>
#include <stdint.h>

#include "profiles/profile.h"
#include "scheduler/record.h"

struct money_use {
    double hosts_per_hour;   /* all of them together */
    double hours;            /* since the start */
    double bytes, bytes_per_hour; /* the price of what left the hosts so far, and of what leaves them now */
    uint64_t step, steps;
    double step_seconds;     /* NaN = unknown */
};

struct money {
    double spent, per_hour, forecast; /* forecast: spent when the last step is trained */
};

struct money money_of(const struct money_use *use);

/* Into the rows: what the run, each road and the anchor cost. Over: nothing is paid for any more, what was spent stays. */
void money_refresh(const struct profile *profile, struct record *record, uint64_t now_wall_ms, bool over);
/* The budget is spent, hours and bytes together. */
bool money_is_up(const struct profile *profile, const struct record *record);

#endif
