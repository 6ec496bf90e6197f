#include "console/table.h"

#include <stdarg.h>
#include <string.h>

#include "console/words.h"
#include "ssh/base/mem.h"
#include "ssh/base/why.h"

#define TABLE_COLUMNS 16
#define LEAST_WIDTH 6 /* of a column that was shrunk */

struct table_line {
    char *cells[TABLE_COLUMNS];
    size_t used;
    enum paint paint;
};

struct table {
    const struct style *style;
    struct table_column columns[TABLE_COLUMNS];
    size_t count;
    struct table_line *lines;
    size_t line_count;
};

struct table *table_new(const struct style *style, const struct table_column *columns, size_t count)
{
    BUG_IF(count == 0 || count > TABLE_COLUMNS);
    struct table *table = mem_new(sizeof *table);
    table->style = style;
    table->count = count;
    memcpy(table->columns, columns, count * sizeof *columns);
    return table;
}

void table_free(struct table *table)
{
    for (size_t i = 0; i < table->line_count; i++)
        for (size_t j = 0; j < table->lines[i].used; j++)
            mem_free(table->lines[i].cells[j]);
    mem_free(table->lines);
    mem_free(table);
}

void table_row(struct table *table, enum paint paint)
{
    table->lines = mem_grow(table->lines, table->line_count + 1, sizeof *table->lines);
    table->lines[table->line_count++] = (struct table_line){.paint = paint};
}

void table_cell(struct table *table, const char *format, ...)
{
    struct table_line *line = &table->lines[table->line_count - 1];
    char text[1024];
    va_list arguments;
    BUG_IF(line->used == table->count);
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    line->cells[line->used++] = mem_text(text);
}

static size_t total_width(const size_t *widths, size_t count)
{
    size_t total = 2 * (count - 1);
    for (size_t i = 0; i < count; i++)
        total += widths[i];
    return total;
}

static void measure(const struct table *table, size_t *widths)
{
    for (size_t i = 0; i < table->count; i++) {
        widths[i] = words_width(table->columns[i].title);
        for (size_t j = 0; j < table->line_count; j++) {
            const struct table_line *line = &table->lines[j];
            size_t width = i < line->used ? words_width(line->cells[i]) : 0;
            widths[i] = width > widths[i] ? width : widths[i];
        }
    }
    while (table->style->columns > 0 && total_width(widths, table->count) > (size_t)table->style->columns) {
        size_t widest = table->count;
        for (size_t i = 0; i < table->count; i++) {
            bool wider = widest == table->count || widths[i] > widths[widest];
            if (table->columns[i].shrink && widths[i] > LEAST_WIDTH && wider)
                widest = i;
        }
        if (widest == table->count)
            return; /* what is left is numbers: a cut number would lie, a wrapped line does not */
        widths[widest]--;
    }
}

static void print_line(const struct table *table, const size_t *widths, char *const *cells, size_t used, enum paint paint,
                       FILE *out)
{
    fputs(style_paint(table->style, paint), out);
    for (size_t i = 0; i < used; i++) {
        char text[1024];
        words_cut(table->style, cells[i], widths[i], text, sizeof text);
        int space = (int)(widths[i] - words_width(text));
        const char *gap = i ? "  " : "";
        if (table->columns[i].right)
            fprintf(out, "%s%*s%s", gap, space, "", text);
        else
            fprintf(out, "%s%s%*s", gap, text, i + 1 == used ? 0 : space, "");
    }
    fprintf(out, "%s\n", paint == PAINT_NONE ? "" : style_end(table->style));
}

void table_print(const struct table *table, FILE *out)
{
    size_t widths[TABLE_COLUMNS];
    char *titles[TABLE_COLUMNS];
    if (!table->line_count)
        return;
    measure(table, widths);
    for (size_t i = 0; i < table->count; i++)
        titles[i] = mem_text(table->columns[i].title);
    print_line(table, widths, titles, table->count, PAINT_DIM, out);
    for (size_t i = 0; i < table->count; i++)
        mem_free(titles[i]);
    for (size_t i = 0; i < table->line_count; i++)
        print_line(table, widths, table->lines[i].cells, table->lines[i].used, table->lines[i].paint, out);
}

void table_print_pieces(char *const *pieces, size_t count, int columns, FILE *out)
{
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t width = words_width(pieces[i]);
        if (i == 0) {
            at = width;
        } else if (columns > 0 && at + 2 + width > (size_t)columns) {
            fputs("\n    ", out);
            at = 4 + width;
        } else {
            fputs("  ", out);
            at += 2 + width;
        }
        fputs(pieces[i], out);
    }
    fputc('\n', out);
}
