/*
 * A screen in memory: cells of one character and one ink. Panels draw here and nowhere else, so that a view can be a
 * golden text in a test, a print of `--once` and a picture on a terminal (terminal.h) alike.
 *
 * Nothing is ever written outside: every call is clipped. Text from strangers is made harmless on the way in: a control
 * character becomes '?', a wide character takes two cells, one without width none. In ASCII mode every character has an
 * ASCII twin, so panels draw one picture only.
 */
#ifndef KEDGE_CONSOLE_SURFACE_H
#define KEDGE_CONSOLE_SURFACE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum ink { /* what it means, not how it looks: a theme (terminal.c) decides that */
    INK_PLAIN, INK_DIM, INK_BOLD, INK_GOOD, INK_WARN, INK_BAD, INK_LOSS, INK_RATE, INK_FRAME, INK_KEY, INK_COUNT
};
#define INK_FOCUS 0x40 /* added to an ink: the selected row, in reverse video */

struct cell {
    uint32_t code; /* a character; 0 = the right half of the wide one before it */
    uint8_t ink;
};

struct surface {
    int rows, columns;
    bool ascii;
    int cursor_row, cursor_column; /* where the terminal's cursor stands; row −1 = nowhere */
    struct cell *cells;            /* [rows][columns] */
};

struct area { /* a rectangle of a surface; may reach outside, drawing does not */
    int row, column, rows, columns;
};

#define SURFACE_ROWS 1000
#define SURFACE_COLUMNS 1000

void surface_init(struct surface *surface, int rows, int columns, bool ascii); /* blank; sizes are clamped to 1 … 1000 */
void surface_clear(struct surface *surface);                                   /* frees */
void surface_wipe(struct surface *surface);                                    /* blank again */

void surface_put(struct surface *surface, int row, int column, uint32_t code, int ink);
/* At most `width` cells; what is cut ends with "…". Returns the cells that were used. */
int surface_text(struct surface *surface, int row, int column, int width, int ink, const char *text);
int surface_print(struct surface *surface, int row, int column, int width, int ink, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* Ends at column + width. */
void surface_right(struct surface *surface, int row, int column, int width, int ink, const char *text);
/* Over several rows, broken at blanks; returns the rows that were used, at most `area.rows`. */
int surface_wrap(struct surface *surface, struct area area, int ink, const char *text);
void surface_fill(struct surface *surface, struct area area, uint32_t code, int ink);
/* A frame, with a title in its upper edge (NULL = none); returns the area inside. */
struct area surface_box(struct surface *surface, struct area area, const char *title, int ink);
/* Change only the ink of cells that are there: the row that is selected. */
void surface_focus(struct surface *surface, int row, int column, int width);
/* A bar of `width` cells, `share` of it full (NaN = unknown: an empty one). */
void surface_bar(struct surface *surface, int row, int column, int width, int ink, double share);

/* Cells that a text takes; what surface_text would write. */
int surface_width(const char *text);
/* As text: a line a row, without blanks at the ends of lines. */
void surface_write(const struct surface *surface, FILE *out);

/* The next character of UTF-8 text and the bytes that it takes; '?' and 1 for what is not one. */
uint32_t surface_decode(const char *text, int *bytes);
int surface_encode(uint32_t code, char out[5]);

#endif
