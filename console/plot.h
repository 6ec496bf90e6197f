/*
 * Curves, spark lines and their axes on a surface. A cell of a curve is 2 × 4 braille dots, or one '*' where there is only
 * ASCII. Pure.
 */
#ifndef KEDGE_CONSOLE_PLOT_H
#define KEDGE_CONSOLE_PLOT_H

#include <stdbool.h>

#include "console/series.h"
#include "console/surface.h"

struct plot_curve {
    const struct series *series;
    enum ink ink;
    enum { PLOT_LINE, PLOT_SMOOTH, PLOT_POINTS } how; /* SMOOTH: a running mean; POINTS: few measurements, a mark each */
};

struct plot_mark { /* a thin vertical line at x */
    double x;
    enum ink ink;
};

struct plot {
    struct area area;    /* axes and labels included */
    double from, to;     /* x */
    double low, high;    /* y; low > high = from the curves */
    const struct plot_curve *curves;
    int curve_count;
    const struct plot_mark *marks;
    int mark_count;
    const char *(*label)(double y, char *out, int size); /* of the y axis */
    const char *x_unit;  /* "step" */
};

/* False when nothing is known between from and to, or there is no room: then nothing is drawn. */
bool plot_draw(const struct plot *plot, struct surface *surface);

/* `width` newest ticks up to `tick`, as blocks of eight heights scaled to `most` (NaN = to their own greatest). */
void plot_spark(struct surface *surface, int row, int column, int width, int ink, const struct trail *trail, uint64_t tick,
                double most);
/* Filled columns of `rows` × 8 heights: the history of one road. Returns the top of the scale, NaN when nothing is known. */
double plot_columns(struct surface *surface, struct area area, int ink, const struct trail *trail, uint64_t tick, double most);

/* 1, 2 or 5 times a power of ten, not smaller than value: the top of a scale. */
double plot_round_up(double value);

#endif
