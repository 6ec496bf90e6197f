/*
 * Numbers over time, bounded for ever. Pure.
 *
 * A series holds points (x, y) with growing x: when it is full, neighbours are joined in pairs (mean, lowest, highest), so
 * that a week of steps is as cheap as a minute and keeps its peaks. A trail is a ring of the newest values at an even pace,
 * for spark lines. NaN is "not known" and leaves a gap.
 */
#ifndef KEDGE_CONSOLE_SERIES_H
#define KEDGE_CONSOLE_SERIES_H

#include <stddef.h>
#include <stdint.h>

#define SERIES_POINTS 2048
#define TRAIL_POINTS 256

struct series_point {
    double x, y, low, high;
    uint64_t joined; /* values in it */
};

struct series {
    struct series_point *points; /* NULL until the first */
    size_t count;
    uint64_t each; /* values that go into a point before the next begins */
};

void series_clear(struct series *series);
/* A point at the end. x that does not grow replaces the newest value when it is equal and is ignored when it is smaller. */
void series_add(struct series *series, double x, double y);
/* A value that may lie before others (a journal that is read late): kept in order of x. */
void series_insert(struct series *series, double x, double y);
/* The point at x or the newest before it; NULL = none. */
const struct series_point *series_at(const struct series *series, double x);
/* Smallest and greatest y with x in from … to; 0 when there is none. */
size_t series_range(const struct series *series, double from, double to, double *low, double *high);

struct trail {
    float values[TRAIL_POINTS]; /* slot = tick mod TRAIL_POINTS */
    uint64_t newest;            /* tick; 0 = none yet */
};

/* The value of a tick; ticks that were left out are not known. The last word of a tick counts. */
void trail_put(struct trail *trail, uint64_t tick, double value);
/* The value `back` ticks before `tick`; NaN when it is not known (any more). */
double trail_get(const struct trail *trail, uint64_t tick, uint64_t back);
/* Over the `count` newest before and at `tick`: mean and greatest of those that are known; NaN = none. */
double trail_mean(const struct trail *trail, uint64_t tick, uint64_t count);
double trail_peak(const struct trail *trail, uint64_t tick, uint64_t count);

#endif
