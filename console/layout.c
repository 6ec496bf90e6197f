#include "console/layout.h"

#include <string.h>

struct layout layout_screen(int rows, int columns)
{
    struct layout layout = {.too_small = rows < LAYOUT_LEAST_ROWS || columns < LAYOUT_LEAST_COLUMNS};
    int wait = rows >= 24 ? 2 : 1;
    layout.title = (struct area){0, 0, 1, columns};
    layout.tabs = (struct area){1, 0, 1, columns};
    layout.body = (struct area){2, 0, rows - 3 - wait, columns};
    layout.wait = (struct area){rows - 1 - wait, 0, wait, columns};
    layout.hints = (struct area){rows - 1, 0, 1, columns};
    return layout;
}

#define TILE_LEAST 27 /* a stage of 14 cells and a road of 13 */
#define TILE_MOST 48
#define PLOT_LEAST 5

struct layout_run layout_run(struct area body, int stages, int replicas)
{
    struct layout_run layout = {.tile_rows = 4};
    int numbers = body.rows >= 3 ? 3 : body.rows, left = body.rows - numbers;
    stages = stages < 1 ? 1 : stages;
    replicas = replicas < 1 ? 1 : replicas;
    layout.numbers = (struct area){body.row, body.column, numbers, body.columns};
    int tile = body.columns / stages;
    layout.tile_columns = tile < TILE_LEAST ? TILE_LEAST : tile > TILE_MOST ? TILE_MOST : tile;
    layout.stages = body.columns / layout.tile_columns;
    if ((layout.stages + 1) * layout.tile_columns - 11 <= body.columns)
        layout.stages++; /* the last needs no road behind it */
    layout.stages = layout.stages < 1 ? 1 : layout.stages > stages ? stages : layout.stages;
    if (replicas * layout.tile_rows + PLOT_LEAST > left)
        layout.tile_rows = 2;
    int most = left - (left >= PLOT_LEAST + 2 ? PLOT_LEAST : 0); /* the plot gives way only when nothing else would fit */
    layout.replicas = most / layout.tile_rows;
    layout.replicas = layout.replicas > replicas ? replicas : layout.replicas < 0 ? 0 : layout.replicas;
    int topology = layout.replicas * layout.tile_rows;
    layout.topology = (struct area){body.row + numbers, body.column, topology, body.columns};
    layout.plot = (struct area){body.row + numbers + topology, body.column, left - topology, body.columns};
    return layout;
}

void layout_columns(const struct layout_column *columns, size_t count, int width, int *widths)
{
    int total = 0;
    for (size_t i = 0; i < count; i++) {
        widths[i] = columns[i].wanted;
        total += columns[i].wanted + (i ? 2 : 0);
    }
    while (total > width) { /* first the columns that may be cut, the widest first; then whole ones */
        size_t widest = count, least = count;
        for (size_t i = 0; i < count; i++) {
            if (widths[i] > columns[i].least && (widest == count || widths[i] > widths[widest]))
                widest = i;
            if (widths[i] && columns[i].importance && (least == count || columns[i].importance >= columns[least].importance))
                least = i;
        }
        if (widest < count) {
            widths[widest]--;
            total--;
        } else if (least < count) {
            total -= widths[least] + 2;
            widths[least] = 0;
            for (size_t i = 0; i < count; i++) { /* what was cut may grow again */
                if (!widths[i])
                    continue;
                total += columns[i].wanted - widths[i];
                widths[i] = columns[i].wanted;
            }
        } else {
            break;
        }
    }
}

int layout_scroll(int top, int selected, int count, int rows)
{
    if (rows < 1)
        return 0;
    if (top > count - rows)
        top = count - rows;
    if (selected < top)
        top = selected;
    if (selected >= top + rows)
        top = selected - rows + 1;
    return top < 0 ? 0 : top;
}
