#include "console/topology.h"

#include <math.h>
#include <string.h>

#include "console/plot.h"
#include "console/words.h"

#define BOX 14 /* cells of a stage, its frame included */

void topology_size(const struct state *state, int *stages, int *replicas)
{
    *stages = *replicas = 0;
    for (size_t i = 0; i < state->process_count; i++) {
        const struct wire_process_row *row = &state->processes[i].row;
        if (row->role != ROLE_STAGE)
            continue;
        *stages = row->stage >= *stages ? row->stage + 1 : *stages;
        *replicas = row->replica >= *replicas ? row->replica + 1 : *replicas;
    }
}

static const struct state_process *find_stage(const struct state *state, int replica, int stage)
{
    for (size_t i = 0; i < state->process_count; i++) {
        const struct wire_process_row *row = &state->processes[i].row;
        if (row->role == ROLE_STAGE && row->replica == replica && row->stage == stage)
            return &state->processes[i];
    }
    return NULL;
}

/* ---- a stage ---- */

static uint32_t glyph_of(const struct view *view, const struct state_process *process, enum ink *ink)
{
    *ink = INK_WARN;
    if (process->row.state == PROCESS_EXITED && state_is_over(&view->state)) {
        *ink = INK_DIM;
        return 0x25CB;
    }
    if (process->row.state == PROCESS_EXITED) {
        *ink = INK_BAD;
        return 0x2717;
    }
    if (process->row.state != PROCESS_READY)
        return 0x25CB;
    *ink = view_is_stale(view, state_process_age_ns(process, view->now_ns)) ? INK_DIM : INK_GOOD;
    return *ink == INK_DIM ? 0x25CB : 0x25CF;
}

/* "r0s1 ● 83 %" and "b  3–5" or what it is when it does not compute. */
static void stage_words(const struct view *view, const struct state_process *process, char *second, size_t size)
{
    static const char *const states[] = {[PROCESS_WANTED] = "wanted", [PROCESS_STARTED] = "loading", [PROCESS_READY] = "",
                                         [PROCESS_EXITED] = "ended"};
    const struct wire_process_row *row = &process->row;
    const char *state = row->state <= PROCESS_EXITED ? states[row->state] : "?";
    if (*state)
        snprintf(second, size, "%.6s %s", row->host, state);
    else if (row->layers)
        snprintf(second, size, "%.6s %u%s%u", row->host, row->first_layer, style_glyph(&view->style, GLYPH_RANGE),
                 row->first_layer + row->layers - 1u);
    else
        snprintf(second, size, "%s", row->host);
}

static void draw_stage(const struct view *view, const struct state_process *process, bool framed, struct surface *surface,
                       struct area area)
{
    char share[WORDS], second[80];
    enum ink ink = INK_DIM;
    struct area inside = area;
    if (framed)
        inside = surface_box(surface, area, NULL, INK_FRAME);
    if (!process) {
        surface_text(surface, inside.row, inside.column, inside.columns, INK_DIM, "?");
        return;
    }
    uint32_t glyph = glyph_of(view, process, &ink);
    int used = surface_text(surface, inside.row, inside.column, inside.columns - 6, INK_BOLD, process->row.process);
    surface_put(surface, inside.row, inside.column + used + 1, glyph, ink);
    if (isfinite(process->row.compute_share))
        surface_right(surface, inside.row, inside.column + used + 2, inside.columns - used - 2,
                      ink == INK_GOOD ? INK_PLAIN : ink,
                      words_percent(&view->style, process->row.compute_share, share, sizeof share));
    stage_words(view, process, second, sizeof second);
    surface_text(surface, inside.row + 1, inside.column, inside.columns, INK_DIM, second);
}

/* ---- a road ---- */

struct road_sum { /* both lanes of activations, or all */
    double rate;       /* bytes a second; NaN = unknown */
    uint64_t capacity_bps;
    size_t busiest;    /* index of the road row with the most bytes; road_count = none */
    bool held;
    uint64_t age_ns;
};

static struct road_sum sum_road(const struct view *view, const char *from, const char *to)
{
    const struct state *state = &view->state;
    struct road_sum sum = {.rate = NAN, .busiest = state->road_count, .age_ns = UINT64_MAX};
    for (size_t i = 0; i < state->road_count; i++) {
        const struct wire_road_row *row = &state->roads[i].row;
        if (strcmp(row->from, from) != 0 || strcmp(row->to, to) != 0)
            continue;
        double rate = view_rate(view, i);
        if (isfinite(rate))
            sum.rate = (isfinite(sum.rate) ? sum.rate : 0) + rate;
        if (sum.busiest == state->road_count || row->sent_bytes > state->roads[sum.busiest].row.sent_bytes)
            sum.busiest = i;
        sum.capacity_bps = row->capacity_bps > sum.capacity_bps ? row->capacity_bps : sum.capacity_bps;
        sum.held |= row->hold_reasons != 0;
        uint64_t age = view->now_ns - state->roads[i].heard_ns;
        sum.age_ns = age < sum.age_ns ? age : sum.age_ns;
    }
    return sum;
}

/* "▶ 1.2 MB/s ▁▂▃▅": an arrow the way the bytes go, the rate, its last seconds. */
static void draw_direction(const struct view *view, const struct road_sum *sum, uint32_t arrow, struct surface *surface, int row,
                           int column, int width)
{
    char rate[WORDS];
    bool stale = view_is_stale(view, sum->age_ns);
    int ink = stale ? INK_DIM : INK_RATE;
    surface_put(surface, row, column, arrow, sum->held ? INK_WARN : ink);
    words_rate(&view->style, sum->rate, rate, sizeof rate);
    if (surface_width(rate) > width - 2) { /* "135.3 kB/s" as "135k" */
        words_count(&view->style, sum->rate, rate, sizeof rate);
        snprintf(rate + strlen(rate), sizeof rate - strlen(rate), "B/s");
    }
    int used = 2 + surface_text(surface, row, column + 2, width - 2, stale ? INK_DIM : INK_PLAIN, rate);
    const struct trail *trail = history_rate(&view->history, sum->busiest);
    if (width - used > 3)
        plot_spark(surface, row, column + used + 1, width - used - 1, ink, trail, view_tick(view),
                   trail_peak(trail, view_tick(view), TRAIL_POINTS));
}

/* How full the fuller direction is: of its capacity where one is known, else of its own peak. */
static void draw_fill(const struct view *view, const struct road_sum *down, const struct road_sum *up, struct surface *surface,
                      int row, int column, int width)
{
    const struct road_sum *fuller = !(up->rate > down->rate) ? down : up;
    double peak = trail_peak(history_rate(&view->history, fuller->busiest), view_tick(view), TRAIL_POINTS);
    double whole = fuller->capacity_bps ? (double)fuller->capacity_bps / 8 : peak;
    const char *of = fuller->capacity_bps ? "full" : "of peak";
    double share = whole > 0 ? fmin(fuller->rate / whole, 1) : NAN;
    char text[WORDS];
    if (!isfinite(share))
        return;
    int label = width >= 24 ? 14 : 0, bar = width - label;
    surface_bar(surface, row, column, bar > 0 ? bar : 0, share > 0.9 && fuller->capacity_bps ? INK_WARN : INK_RATE, share);
    if (label)
        surface_print(surface, row, column + bar + 1, label, INK_DIM, "%s %s", words_percent(&view->style, share, text, sizeof text),
                      of);
}

static void draw_road(const struct view *view, const struct state_process *from, const struct state_process *to, int rows,
                      struct surface *surface, struct area area)
{
    if (!from || !to || area.columns < 4)
        return;
    struct road_sum down = sum_road(view, from->row.process, to->row.process);
    struct road_sum up = sum_road(view, to->row.process, from->row.process);
    draw_direction(view, &down, 0x25B6, surface, area.row, area.column, area.columns);
    draw_direction(view, &up, 0x25C0, surface, area.row + 1, area.column, area.columns);
    if (rows == 4)
        draw_fill(view, &down, &up, surface, area.row + 2, area.column, area.columns);
}

/* ---- the drawing ---- */

static void draw_replica(const struct view *view, const struct layout_run *layout, int replica, int stages, struct surface *surface,
                         int row)
{
    int tile = layout->tile_columns, left = layout->topology.column + 1;
    bool framed = layout->tile_rows == 4;
    for (int i = 0; i < layout->stages && view->stage_first + i < stages; i++) {
        int stage = view->stage_first + i;
        const struct state_process *process = find_stage(&view->state, replica, stage);
        struct area box = {row, left + i * tile, framed ? 4 : 2, BOX};
        draw_stage(view, process, framed, surface, box);
        if (stage + 1 == stages)
            continue;
        struct area road = {row, box.column + BOX + 1, layout->tile_rows, tile - BOX - 2};
        int room = layout->topology.column + layout->topology.columns - road.column;
        road.columns = road.columns > room ? room : road.columns;
        draw_road(view, process, find_stage(&view->state, replica, stage + 1), layout->tile_rows, surface, road);
    }
}

void topology_draw(const struct view *view, const struct layout_run *layout, int stages, int replicas, struct surface *surface)
{
    for (int i = 0; i < layout->replicas; i++)
        draw_replica(view, layout, view->replica_first + i, stages, surface, layout->topology.row + i * layout->tile_rows);
    char text[80] = "";
    if (layout->stages < stages)
        snprintf(text, sizeof text, "stages %d-%d of %d", view->stage_first, view->stage_first + layout->stages - 1, stages);
    if (layout->replicas < replicas)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%sreplicas %d-%d of %d", *text ? ", " : "", view->replica_first,
                 view->replica_first + layout->replicas - 1, replicas);
    surface_right(surface, layout->topology.row - 1, layout->topology.column, layout->topology.columns - 1, INK_DIM, text);
}
