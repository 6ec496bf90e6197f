/*
 * Tables that fit: columns as wide as their widest cell; when the sum passes the width of the terminal, the columns marked
 * `shrink` give way, the widest first, and cut cells end with "…". Pure: rows in, lines out.
 */
#ifndef KEDGE_CONSOLE_TABLE_H
#define KEDGE_CONSOLE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "console/style.h"

struct table_column {
    const char *title;
    bool right;  /* numbers stand at the right */
    bool shrink; /* may be cut */
};

struct table;

struct table *table_new(const struct style *style, const struct table_column *columns, size_t count);
void table_free(struct table *table);
/* A new row; then one cell after the other. A row that is not full ends with empty cells. */
void table_row(struct table *table, enum paint paint);
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_print(const struct table *table, FILE *out); /* nothing when there is no row */

/* Pieces side by side, two spaces between; a piece that would pass `columns` (0 = no limit) begins a new line, indented by
 * four. */
void table_print_pieces(char *const *pieces, size_t count, int columns, FILE *out);

#endif
