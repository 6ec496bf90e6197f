/*
 * The run in numbers: from the stages' samples to what people look at. Pure: the caller passes the time.
 *
 * "Unknown" is NaN and never 0. The step is the newest one for which the last stage's sample came; samples may be lost
 * (telemetry is latest-wins), so nothing is summed that a gap would falsify: tokens are steps × tokens of a step, bytes are
 * the roads' own counters.
 */
#ifndef KEDGE_SCHEDULER_NUMBERS_H
#define KEDGE_SCHEDULER_NUMBERS_H

#include "scheduler/plan.h"
#include "scheduler/record.h"

struct numbers;

struct numbers *numbers_new(const struct plan *plan, struct record *record); /* both must outlive it */
void numbers_free(struct numbers *numbers);

void numbers_leave(struct numbers *numbers, int replica); /* it trains no more: the others are the run */
void numbers_join(struct numbers *numbers, int replica);  /* it trains again, from about the newest step on */
/* A sample of stage `index` of the plan. */
void numbers_sample(struct numbers *numbers, int index, const struct wire_sample *sample);
/* Counters of the road from `from` to sample->peer. */
void numbers_road_sample(struct numbers *numbers, const char *from, const struct wire_road_sample *sample, uint64_t now_ns);
/* Rates of roads that have not been heard of for a while become unknown. */
void numbers_tick(struct numbers *numbers, uint64_t now_ns);
/* "waits for gradient from r0s2, 31 % of the step" of a stage's newest sample; "" when nothing is worth saying. */
void numbers_waiting(const struct plan *plan, int index, const struct wire_sample *sample, char *out, size_t size);

#endif
