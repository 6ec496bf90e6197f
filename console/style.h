/*
 * How this terminal wants to be written to: colour or not, ASCII or not, how wide. Decided once, passed down, never global.
 * A value that is not known is written "–" ("-" in ASCII): unknown is not zero.
 */
#ifndef KEDGE_CONSOLE_STYLE_H
#define KEDGE_CONSOLE_STYLE_H

#include <stdbool.h>
#include <stdio.h>

#include "console/args.h"

enum paint { PAINT_NONE, PAINT_GOOD, PAINT_WARN, PAINT_BAD, PAINT_DIM, PAINT_BOLD };
enum glyph { GLYPH_UNKNOWN, GLYPH_ARROW, GLYPH_DOWN, GLYPH_UP, GLYPH_MORE, GLYPH_RANGE, GLYPH_DOT, GLYPH_COUNT };

struct style {
    bool color, ascii, plain;
    int columns; /* width to fit into; 0 = no limit (a file or a pipe) */
};

/* From the arguments, the environment (NO_COLOR, TERM, COLUMNS, the locale) and whether `out` is a terminal. */
void style_init(struct style *style, const struct args *args, FILE *out);

const char *style_glyph(const struct style *style, enum glyph glyph);
const char *style_paint(const struct style *style, enum paint paint); /* "" without colour */
const char *style_end(const struct style *style);                     /* ends any paint */

#endif
