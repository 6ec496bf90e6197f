#include "console/grid.h"

#include <string.h>

#include "console/layout.h"

static void clamp_place(struct grid_place *place, int rows)
{
    if (place->selected >= rows)
        place->selected = rows - 1;
    if (place->selected < 0)
        place->selected = 0;
}

/* What is in sight decides how wide a column is; a column never gets narrower while one looks at it. */
static void measure(const struct grid *grid, const struct grid_place *place, int visible, struct layout_column *wanted)
{
    char text[GRID_CELL];
    for (size_t i = 0; i < grid->column_count; i++) {
        const struct grid_column *column = &grid->columns[i];
        int width = surface_width(column->title) + (place->sorted == (int)i + 1);
        for (int row = place->top; row < place->top + visible && row < grid->rows; row++) {
            text[0] = '\0';
            grid->cell(row, (int)i, text, sizeof text, grid->arg);
            int cells = surface_width(text);
            width = cells > width ? cells : width;
        }
        int least = column->least && column->least < width ? column->least : width;
        wanted[i] = (struct layout_column){width, least, column->importance};
    }
}

static int draw_heading(const struct grid *grid, const struct grid_place *place, const int *widths, struct surface *surface,
                         struct area area)
{
    int at = area.column;
    for (size_t i = 0; i < grid->column_count; i++) {
        char title[64];
        if (!widths[i])
            continue;
        bool sorted = place->sorted == (int)i + 1;
        snprintf(title, sizeof title, "%s%s", grid->columns[i].title, sorted ? (place->reverse ? "▲" : "▼") : "");
        if (grid->columns[i].right)
            surface_right(surface, area.row, at, widths[i], INK_FRAME, title);
        else
            surface_text(surface, area.row, at, widths[i], INK_FRAME, title);
        at += widths[i] + 2;
    }
    return at;
}

static void draw_row(const struct grid *grid, int row, const int *widths, struct surface *surface, int at_row, struct area area)
{
    int at = area.column;
    for (size_t i = 0; i < grid->column_count; i++) {
        char text[GRID_CELL] = "";
        if (!widths[i])
            continue;
        int width = widths[i], room = area.column + area.columns - at;
        int ink = grid->cell(row, (int)i, text, sizeof text, grid->arg);
        if (i + 1 == grid->column_count || width > room)
            width = room;
        if (grid->columns[i].right)
            surface_right(surface, at_row, at, widths[i] < room ? widths[i] : room, ink, text);
        else
            surface_text(surface, at_row, at, width, ink, text);
        at += widths[i] + 2;
    }
}

void grid_draw(const struct grid *grid, struct grid_place *place, struct surface *surface, struct area area)
{
    struct layout_column wanted[GRID_COLUMNS];
    int widths[GRID_COLUMNS], visible = area.rows - 1;
    place->rows = 0;
    if (area.rows < 2 || area.columns < 1)
        return;
    place->page = visible;
    place->row = area.row + 1;
    place->rows = grid->rows < visible ? grid->rows : visible;
    clamp_place(place, grid->rows);
    place->top = layout_scroll(place->top, place->selected, grid->rows, visible);
    measure(grid, place, visible, wanted);
    layout_columns(wanted, grid->column_count, area.columns, widths);
    int end = draw_heading(grid, place, widths, surface, area);
    if (grid->rows == 0)
        surface_text(surface, area.row + 1, area.column, area.columns, INK_DIM, grid->empty);
    for (int i = 0; i < visible && place->top + i < grid->rows; i++) {
        draw_row(grid, place->top + i, widths, surface, area.row + 1 + i, area);
        if (place->top + i == place->selected && !grid->no_focus)
            surface_focus(surface, area.row + 1 + i, area.column, area.columns);
    }
    if (grid->rows > visible) { /* where in the list one is */
        char text[64];
        snprintf(text, sizeof text, " %d-%d of %d ", place->top + 1,
                 place->top + visible < grid->rows ? place->top + visible : grid->rows, grid->rows);
        bool fits = end + surface_width(text) <= area.column + area.columns;
        surface_right(surface, fits ? area.row : area.row - 1, area.column, area.columns, INK_DIM, text);
    }
}

bool grid_act(struct grid_place *place, int rows, enum act act)
{
    int page = place->page > 1 ? place->page - 1 : 1;
    switch (act) {
    case ACT_UP:
        place->selected--;
        break;
    case ACT_DOWN:
        place->selected++;
        break;
    case ACT_PAGE_UP:
        place->selected -= page;
        break;
    case ACT_PAGE_DOWN:
        place->selected += page;
        break;
    case ACT_FIRST:
        place->selected = 0;
        break;
    case ACT_LAST:
        place->selected = rows - 1;
        break;
    default:
        return false;
    }
    clamp_place(place, rows);
    return true;
}
