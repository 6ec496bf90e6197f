/*
 * A list that scrolls: a heading, rows, one of them selected; columns as wide as what is in sight, the least important ones
 * dropped when the screen is narrow. Pure: the owner answers for cells by row number.
 */
#ifndef KEDGE_CONSOLE_GRID_H
#define KEDGE_CONSOLE_GRID_H

#include <stdbool.h>
#include <stddef.h>

#include "console/keys.h"
#include "console/surface.h"

#define GRID_COLUMNS 16
#define GRID_CELL 420

struct grid_column {
    const char *title;
    bool right;
    int least;      /* may be cut down to so many cells; 0 = never */
    int importance; /* 0 = always shown */
};

struct grid_place { /* what outlives a drawing */
    int selected, top, page;
    int row, rows; /* of the surface: the first row of the last drawing, and how many */
    int sorted; /* column + 1; 0 = as they come */
    bool reverse;
    int chosen; /* whose row is selected, whatever its place, + 1; 0 = nobody's yet: the owner's business */
};

struct grid {
    const struct grid_column *columns;
    size_t column_count;
    int rows;
    /* Writes the text of a cell and returns its ink. */
    int (*cell)(int row, int column, char *out, size_t size, void *arg);
    void *arg;
    const char *empty; /* what is said when there is no row */
    bool no_focus;     /* nothing is selected: only to look at */
};

void grid_draw(const struct grid *grid, struct grid_place *place, struct surface *surface, struct area area);
/* Up, down, pages, ends; false for any other act. */
bool grid_act(struct grid_place *place, int rows, enum act act);

#endif
