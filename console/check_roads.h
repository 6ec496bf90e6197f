/*
 * The roads of `kedge check`: which hosts the plan joins and what a step carries there (check_plan.h), how fast they are (ssh/launch/measure.h),
 * and what that means for a step.
 */
#ifndef KEDGE_CONSOLE_CHECK_ROADS_H
#define KEDGE_CONSOLE_CHECK_ROADS_H

#include <jansson.h>
#include <stdbool.h>

#include "console/style.h"
#include "ssh/launch/inspect.h"
#include "ssh/launch/measure.h"
#include "ssh/link/loop.h"

struct check_roads;

/* Measures the roads of the plan (check_plan.h); hosts are those of `inspect`, which must outlive it. Not `quiet`: a line for each
 * pair. NULL when the plan has no road between two of these hosts. */
struct check_roads *check_roads_new(struct loop *loop, const json_t *plan, const struct inspect *inspect, uint64_t greet_ns,
                                    bool quiet);
/* True when a road of the plan cannot be: then the run would not form. */
bool check_roads_broken(const struct check_roads *roads);
void check_roads_print(const struct check_roads *roads, const struct style *style);
json_t *check_roads_report(const struct check_roads *roads);
void check_roads_free(struct check_roads *roads); /* NULL is fine */

#endif
