#include "gpu/train/timeline.h"

#include <string.h>

/* Twice as long cells: two become one. */
static void widen(struct timeline *line)
{
    for (int i = 0; i < TIMELINE_CELLS; i++)
        for (int part = 0; part < PART_COUNT; part++)
            line->cells[i][part] = i < TIMELINE_CELLS / 2 ? line->cells[2 * i][part] + line->cells[2 * i + 1][part] : 0;
    line->cell_ns *= 2;
}

static void put(struct timeline *line, int part, uint64_t ns)
{
    while (line->at_ns + ns > TIMELINE_CELLS * line->cell_ns)
        widen(line);
    while (ns) {
        uint64_t cell = line->at_ns / line->cell_ns, room = (cell + 1) * line->cell_ns - line->at_ns;
        uint64_t take = ns < room ? ns : room;
        line->cells[cell][part] += take;
        line->at_ns += take;
        ns -= take;
    }
}

void timeline_note(struct timeline *line, const uint64_t parts_ns[PART_COUNT], uint64_t at_ns)
{
    line->cell_ns = line->cell_ns ? line->cell_ns : TIMELINE_CELL_NS;
    for (int part = PART_REST + 1; part < PART_COUNT; part++) {
        uint64_t passed = parts_ns[part] > line->told_ns[part] ? parts_ns[part] - line->told_ns[part] : 0;
        uint64_t left = at_ns > line->at_ns ? at_ns - line->at_ns : 0;
        put(line, part, passed < left ? passed : left);
        line->told_ns[part] = parts_ns[part];
    }
    if (at_ns > line->at_ns)
        put(line, PART_REST, at_ns - line->at_ns);
}

void timeline_write(const struct timeline *line, char out[WIRE_NAME])
{
    int count = line->cell_ns ? (int)((line->at_ns + line->cell_ns - 1) / line->cell_ns) : 0;
    for (int i = 0; i < count; i++) {
        int most = PART_REST;
        for (int part = 0; part < PART_COUNT; part++)
            most = line->cells[i][part] > line->cells[i][most] ? part : most;
        out[i] = wire_part_letter(most);
    }
    out[count] = '\0';
}
