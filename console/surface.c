#include "console/surface.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <wchar.h>

#include "ssh/base/mem.h"
#include "ssh/base/text.h"

static int clamp(int value, int least, int most)
{
    return value < least ? least : value > most ? most : value;
}

void surface_init(struct surface *surface, int rows, int columns, bool ascii)
{
    surface->rows = clamp(rows, 1, SURFACE_ROWS);
    surface->columns = clamp(columns, 1, SURFACE_COLUMNS);
    surface->ascii = ascii;
    surface->cells = mem_array((size_t)surface->rows * (size_t)surface->columns, sizeof *surface->cells);
    surface_wipe(surface);
}

void surface_clear(struct surface *surface)
{
    mem_free(surface->cells);
    memset(surface, 0, sizeof *surface);
}

void surface_wipe(struct surface *surface)
{
    size_t count = (size_t)surface->rows * (size_t)surface->columns;
    for (size_t i = 0; i < count; i++)
        surface->cells[i] = (struct cell){' ', INK_PLAIN};
    surface->cursor_row = -1;
    surface->cursor_column = 0;
}

/* ---- characters ---- */

/* Nearly every character of a picture: it needs no decoding, no width, no twin. */
static bool is_ascii(uint32_t code)
{
    return code >= ' ' && code < 0x7F;
}

uint32_t surface_decode(const char *text, int *bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t length = is_ascii(at[0]) ? 1 : text_character(text, strnlen(text, 4));
    *bytes = length ? (int)length : 1;
    switch (length) {
    case 1:
        return at[0];
    case 2:
        return (at[0] & 0x1Fu) << 6 | (at[1] & 0x3Fu);
    case 3:
        return (at[0] & 0x0Fu) << 12 | (at[1] & 0x3Fu) << 6 | (at[2] & 0x3Fu);
    case 4:
        return (at[0] & 0x07u) << 18 | (at[1] & 0x3Fu) << 12 | (at[2] & 0x3Fu) << 6 | (at[3] & 0x3Fu);
    default:
        return '?';
    }
}

int surface_encode(uint32_t code, char out[5])
{
    int bytes = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (int i = bytes - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(lead[bytes] | code);
    out[bytes] = '\0';
    return bytes;
}

/* Signs, arrows, boxes, blocks and braille, which panels draw, are one cell; others as the C library says: ncurses asks it, too. */
static int width_of(uint32_t code)
{
    if (code < 0x300 || (code >= 0x2010 && code < 0x2300) || (code >= 0x2500 && code < 0x25FD) || (code >= 0x2800 && code < 0x2900))
        return 1;
    int width = wcwidth((wchar_t)code);
    return width < 0 ? 1 : width > 2 ? 2 : width;
}

/* The ASCII twin of what panels draw; '?' for a stranger's letter. */
static uint32_t ascii_of(uint32_t code)
{
    static const struct { uint32_t code; char twin; } twins[] = {
        {0x2500, '-'}, {0x2502, '|'}, {0x250C, '+'}, {0x2510, '+'}, {0x2514, '+'}, {0x2518, '+'}, {0x251C, '+'}, {0x2524, '+'},
        {0x252C, '+'}, {0x2534, '+'}, {0x253C, '+'}, {0x2501, '='}, {0x2588, '#'}, {0x2591, '.'}, {0x2592, ':'}, {0x2593, '%'},
        {0x25B6, '>'}, {0x25C0, '<'},
        {0x25B2, '^'}, {0x25BC, 'v'}, {0x25CF, '*'}, {0x25CB, 'o'}, {0x25C6, 'o'}, {0x2506, '|'}, {0x00B7, '.'},
        {0x2013, '-'}, {0x2014, '-'}, {0x2026, '~'}, {0x2192, '>'}, {0x2190, '<'}, {0x2191, '^'}, {0x2193, 'v'}, {0x2717, 'X'},
        {0x00D7, 'x'}, {0x2212, '-'}, {0x25B8, '>'}, {0x2713, 'v'}, {0x2195, '|'}, {0x2194, '-'}, {0x00B1, '+'}, {0x2265, '>'},
    };
    static const char levels[] = " _.:-=+#"; /* U+2581 … U+2587, by height */
    if (code < 0x80)
        return code;
    if (code > 0x2580 && code < 0x2588)
        return (uint32_t)levels[code - 0x2580];
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++)
        if (twins[i].code == code)
            return (uint32_t)twins[i].twin;
    if (code >= 0x2589 && code <= 0x258F)
        return '#';
    return code >= 0x2800 && code < 0x2900 ? (code == 0x2800 ? ' ' : '*') : '?';
}

static bool is_inside(const struct surface *surface, int row, int column)
{
    return row >= 0 && row < surface->rows && column >= 0 && column < surface->columns;
}

static struct cell *cell_at(struct surface *surface, int row, int column)
{
    return &surface->cells[(size_t)row * (size_t)surface->columns + (size_t)column];
}

/* Half a wide character is none: the other half goes with it. */
static void break_wide(struct surface *surface, int row, int column)
{
    struct cell *cell = cell_at(surface, row, column);
    if (cell->code == 0 && column > 0)
        cell[-1].code = ' ';
    if (column + 1 < surface->columns && cell[1].code == 0)
        cell[1].code = ' ';
}

void surface_put(struct surface *surface, int row, int column, uint32_t code, int ink)
{
    char text[5];
    if (!is_inside(surface, row, column))
        return;
    if (!is_ascii(code) && (code < ' ' || !text_character(text, (size_t)surface_encode(code, text))))
        code = '?';
    if (surface->ascii)
        code = ascii_of(code);
    int width = width_of(code);
    if (width == 0)
        return;
    if (width == 2 && column + 1 >= surface->columns) {
        code = '?';
        width = 1;
    }
    break_wide(surface, row, column);
    *cell_at(surface, row, column) = (struct cell){code, (uint8_t)ink};
    if (width == 2) {
        break_wide(surface, row, column + 1);
        *cell_at(surface, row, column + 1) = (struct cell){0, (uint8_t)ink};
    }
}

int surface_width(const char *text)
{
    int width = 0, bytes;
    for (; *text; text += bytes)
        width += width_of(surface_decode(text, &bytes));
    return width;
}

/* ---- text ---- */

int surface_text(struct surface *surface, int row, int column, int width, int ink, const char *text)
{
    int used = 0, bytes;
    bool whole = surface_width(text) <= width;
    for (; *text && used < width; text += bytes) {
        uint32_t code = surface_decode(text, &bytes);
        int cells = surface->ascii ? 1 : width_of(code);
        if (!whole && used + cells >= width) {
            surface_put(surface, row, column + used++, 0x2026, ink);
            break;
        }
        surface_put(surface, row, column + used, code, ink);
        used += cells;
    }
    return used;
}

int surface_print(struct surface *surface, int row, int column, int width, int ink, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return surface_text(surface, row, column, width, ink, text);
}

void surface_right(struct surface *surface, int row, int column, int width, int ink, const char *text)
{
    int used = surface_width(text);
    surface_text(surface, row, used < width ? column + width - used : column, width, ink, text);
}

/* Bytes of the next line of at most `width` cells, and where the one after it begins. */
static size_t break_line(const char *text, int width, const char **next)
{
    size_t at = 0, blank = 0;
    int used = 0, bytes;
    while (text[at]) {
        int cells = width_of(surface_decode(text + at, &bytes));
        if (used + cells > width)
            break;
        if (text[at] == ' ')
            blank = at;
        used += cells;
        at += (size_t)bytes;
    }
    size_t end = !text[at] || text[at] == ' ' || !blank ? at : blank;
    *next = text + end + strspn(text + end, " ");
    return end;
}

int surface_wrap(struct surface *surface, struct area area, int ink, const char *text)
{
    int row = 0;
    for (; *text && row < area.rows && area.columns > 1; row++) {
        const char *next;
        char line[1024];
        size_t bytes = break_line(text, area.columns, &next);
        if (row == area.rows - 1 || next == text)
            snprintf(line, sizeof line, "%s", text);
        else
            snprintf(line, sizeof line, "%.*s", (int)bytes, text);
        surface_text(surface, area.row + row, area.column, area.columns, ink, line);
        if (next == text)
            return row + 1;
        text = next;
    }
    return row;
}

/* ---- shapes ---- */

void surface_fill(struct surface *surface, struct area area, uint32_t code, int ink)
{
    for (int row = 0; row < area.rows && area.row + row < surface->rows; row++)
        for (int column = 0; column < area.columns && area.column + column < surface->columns; column++)
            surface_put(surface, area.row + row, area.column + column, code, ink);
}

struct area surface_box(struct surface *surface, struct area area, const char *title, int ink)
{
    int bottom = area.row + area.rows - 1, right = area.column + area.columns - 1;
    struct area inside = {area.row + 1, area.column + 1, area.rows - 2, area.columns - 2};
    if (area.rows < 2 || area.columns < 2)
        return (struct area){area.row, area.column, 0, 0};
    surface_fill(surface, (struct area){area.row, area.column, 1, area.columns}, 0x2500, ink);
    surface_fill(surface, (struct area){bottom, area.column, 1, area.columns}, 0x2500, ink);
    surface_fill(surface, (struct area){area.row, area.column, area.rows, 1}, 0x2502, ink);
    surface_fill(surface, (struct area){area.row, right, area.rows, 1}, 0x2502, ink);
    surface_put(surface, area.row, area.column, 0x250C, ink);
    surface_put(surface, area.row, right, 0x2510, ink);
    surface_put(surface, bottom, area.column, 0x2514, ink);
    surface_put(surface, bottom, right, 0x2518, ink);
    if (title && *title && area.columns > 6)
        surface_print(surface, area.row, area.column + 1, area.columns - 2, ink, " %s ", title);
    return inside;
}

void surface_focus(struct surface *surface, int row, int column, int width)
{
    for (int i = 0; i < width; i++)
        if (is_inside(surface, row, column + i))
            cell_at(surface, row, column + i)->ink |= INK_FOCUS;
}

void surface_bar(struct surface *surface, int row, int column, int width, int ink, double share)
{
    double eighths = isnan(share) ? 0 : fmin(fmax(share, 0), 1) * width * 8;
    if (surface->ascii)
        eighths = round(eighths / 8) * 8;
    for (int i = 0; i < width; i++) {
        int level = clamp((int)(eighths + 0.5) - i * 8, 0, 8);
        if (level == 0)
            surface_put(surface, row, column + i, 0x2591, INK_DIM);
        else
            surface_put(surface, row, column + i, 0x2590u - (uint32_t)level, ink);
    }
}

void surface_write(const struct surface *surface, FILE *out)
{
    for (int row = 0; row < surface->rows; row++) {
        const struct cell *cells = &surface->cells[(size_t)row * (size_t)surface->columns];
        int last = surface->columns;
        while (last > 0 && cells[last - 1].code == ' ')
            last--;
        for (int column = 0; column < last; column++) {
            char text[5];
            if (cells[column].code && surface_encode(cells[column].code, text))
                fputs(text, out);
        }
        fputc('\n', out);
    }
}
