/*
 * Where things stand on a screen of a size. Pure.
 *
 * Designed at 80 × 24, useful down to 60 × 16; below that a view says which size it has and which it needs.
 */
#ifndef KEDGE_CONSOLE_LAYOUT_H
#define KEDGE_CONSOLE_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "console/surface.h"

#define LAYOUT_LEAST_ROWS 16
#define LAYOUT_LEAST_COLUMNS 60

struct layout {
    bool too_small;
    struct area title, tabs, body, wait, hints;
};

struct layout layout_screen(int rows, int columns);

/* The run view: numbers, topology, plot; a part without room has 0 rows. */
struct layout_run {
    struct area numbers, topology, plot;
    int tile_rows;    /* of a replica: 4 with frames, 2 without */
    int tile_columns; /* of a stage with the road behind it */
    int stages;       /* that fit side by side */
    int replicas;     /* that fit above each other */
};

struct layout_run layout_run(struct area body, int stages, int replicas);

/* Widths of columns that want so many cells and are at least so wide; the last of least importance go first (width 0). */
struct layout_column {
    int wanted, least;
    int importance; /* 0 = always there; the greatest are dropped first */
};
void layout_columns(const struct layout_column *columns, size_t count, int width, int *widths);

/* The first row that is shown, so that `selected` is: the old one if it can stay. */
int layout_scroll(int top, int selected, int count, int rows);

#endif
