#include "console/plot.h"

#include <math.h>
#include <string.h>

#include "ssh/base/mem.h"

#define LABEL_WIDTH 8

/* ---- dots ---- */

struct canvas { /* rows × columns cells of wide × tall dots; each cell keeps which dots are set and the last ink */
    int rows, columns, wide, tall;
    uint8_t *dots, *inks;
};

static void set_dot(struct canvas *canvas, int x, int y, int ink)
{
    static const uint8_t braille[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    int row = y / canvas->tall, column = x / canvas->wide;
    if (x < 0 || y < 0 || row >= canvas->rows || column >= canvas->columns)
        return;
    int at = row * canvas->columns + column;
    canvas->dots[at] |= canvas->wide == 2 ? braille[y % 4][x % 2] : 1;
    canvas->inks[at] = (uint8_t)ink;
}

/* From the point before to this one, dot by dot along the longer side. */
static void set_line(struct canvas *canvas, int x0, int y0, int x1, int y1, int ink)
{
    int steps = abs(x1 - x0) > abs(y1 - y0) ? abs(x1 - x0) : abs(y1 - y0);
    for (int i = 0; i <= steps; i++)
        set_dot(canvas, x0 + (steps ? (x1 - x0) * i / steps : 0), y0 + (steps ? (y1 - y0) * i / steps : 0), ink);
}

static int scale(double value, double from, double to, int most)
{
    double share = to > from ? (value - from) / (to - from) : 0.5;
    return (int)lround(fmin(fmax(share, 0), 1) * most);
}

#define SMOOTH_PART 40 /* a running mean looks back over this part of what is shown */

static void draw_curve(const struct plot *plot, const struct plot_curve *curve, struct canvas *canvas, double low, double high)
{
    double mean = NAN, share = fmin(1, (double)SMOOTH_PART / (double)(curve->series->count + 1)), seen = 0;
    int right = canvas->columns * canvas->wide - 1, bottom = canvas->rows * canvas->tall - 1, last_x = -1, last_y = 0;
    for (size_t i = 0; i < curve->series->count; i++) {
        const struct series_point *point = &curve->series->points[i];
        if (point->x < plot->from || point->x > plot->to || !isfinite(point->y)) {
            last_x = -1;
            continue;
        }
        mean = curve->how == PLOT_SMOOTH && isfinite(mean) ? mean + fmax(share, 1 / ++seen) * (point->y - mean) : point->y;
        int x = scale(point->x, plot->from, plot->to, right), y = bottom - scale(mean, low, high, bottom);
        if (last_x >= 0) {
            set_line(canvas, last_x, last_y, x, y, curve->ink);
        } else {
            set_dot(canvas, x, y, curve->ink);
        }
        last_x = x;
        last_y = y;
    }
}

static void draw_points(const struct plot *plot, const struct plot_curve *curve, struct surface *surface, struct area inner, double low,
                        double high)
{
    for (size_t i = 0; i < curve->series->count; i++) {
        const struct series_point *point = &curve->series->points[i];
        if (point->x < plot->from || point->x > plot->to || !isfinite(point->y))
            continue;
        surface_put(surface, inner.row + inner.rows - 1 - scale(point->y, low, high, inner.rows - 1),
                    inner.column + scale(point->x, plot->from, plot->to, inner.columns - 1), 0x25C6, curve->ink);
    }
}

/* ---- the plot ---- */

static bool find_range(const struct plot *plot, double *low, double *high)
{
    bool found = false;
    for (int i = 0; i < plot->curve_count; i++) {
        double least, most;
        if (!series_range(plot->curves[i].series, plot->from, plot->to, &least, &most))
            continue;
        *low = found ? fmin(*low, least) : least;
        *high = found ? fmax(*high, most) : most;
        found = true;
    }
    if (found && plot->low <= plot->high) {
        *low = plot->low;
        *high = plot->high;
    }
    if (found && *high - *low < 1e-9 * fmax(1, fabs(*high))) { /* a level line in the middle */
        double around = fmax(fabs(*high) * 0.05, 1e-9);
        *low -= around;
        *high += around;
    }
    return found;
}

static void draw_axes(const struct plot *plot, struct surface *surface, struct area inner, double low, double high)
{
    char text[32];
    int labels = inner.rows >= 7 ? 3 : inner.rows >= 2 ? 2 : 1;
    for (int row = 0; row < inner.rows; row++)
        surface_put(surface, inner.row + row, inner.column - 1, 0x2502, INK_FRAME);
    for (int i = 0; i < labels; i++) {
        int row = labels == 1 ? 0 : i * (inner.rows - 1) / (labels - 1);
        double y = labels == 1 ? high : high - (high - low) * i / (labels - 1);
        surface_right(surface, inner.row + row, plot->area.column, LABEL_WIDTH - 2, INK_DIM, plot->label(y, text, sizeof text));
    }
    int bottom = inner.row + inner.rows;
    if (bottom >= plot->area.row + plot->area.rows)
        return;
    int used = surface_print(surface, bottom, inner.column, inner.columns, INK_DIM, "%s %.0f", plot->x_unit, plot->from);
    snprintf(text, sizeof text, "%.0f", plot->to);
    if (used + surface_width(text) + 1 < inner.columns)
        surface_right(surface, bottom, inner.column, inner.columns, INK_DIM, text);
}

static void draw_marks(const struct plot *plot, struct surface *surface, struct area inner)
{
    for (int i = 0; i < plot->mark_count; i++) {
        if (plot->marks[i].x < plot->from || plot->marks[i].x > plot->to)
            continue;
        int column = inner.column + scale(plot->marks[i].x, plot->from, plot->to, inner.columns - 1);
        for (int row = 0; row < inner.rows; row++)
            surface_put(surface, inner.row + row, column, 0x2506, plot->marks[i].ink);
    }
}

bool plot_draw(const struct plot *plot, struct surface *surface)
{
    struct area area = plot->area, inner = {area.row, area.column + LABEL_WIDTH, area.rows - (area.rows > 2), area.columns - LABEL_WIDTH};
    double low = 0, high = 0;
    if (inner.rows < 1 || inner.columns < 4 || inner.rows > SURFACE_ROWS || inner.columns > SURFACE_COLUMNS)
        return false;
    if (!find_range(plot, &low, &high))
        return false;
    struct canvas canvas = {inner.rows, inner.columns, surface->ascii ? 1 : 2, surface->ascii ? 1 : 4, NULL, NULL};
    size_t cells = (size_t)inner.rows * (size_t)inner.columns;
    canvas.dots = mem_array(cells, 1);
    canvas.inks = mem_array(cells, 1);
    draw_axes(plot, surface, inner, low, high);
    draw_marks(plot, surface, inner);
    for (int i = 0; i < plot->curve_count; i++)
        if (plot->curves[i].how != PLOT_POINTS)
            draw_curve(plot, &plot->curves[i], &canvas, low, high);
    for (int row = 0; row < inner.rows; row++)
        for (int column = 0; column < inner.columns; column++) {
            int at = row * inner.columns + column;
            if (canvas.dots[at])
                surface_put(surface, inner.row + row, inner.column + column, surface->ascii ? '*' : 0x2800u + canvas.dots[at],
                            canvas.inks[at]);
        }
    mem_free(canvas.dots);
    mem_free(canvas.inks);
    for (int i = 0; i < plot->curve_count; i++)
        if (plot->curves[i].how == PLOT_POINTS)
            draw_points(plot, &plot->curves[i], surface, inner, low, high);
    return true;
}

/* ---- trails ---- */

void plot_spark(struct surface *surface, int row, int column, int width, int ink, const struct trail *trail, uint64_t tick,
                double most)
{
    if (width <= 0)
        return;
    if (!isfinite(most))
        most = trail_peak(trail, tick, (uint64_t)width);
    for (int i = 0; i < width; i++) {
        double value = trail_get(trail, tick, (uint64_t)(width - 1 - i));
        if (!isfinite(value))
            continue;
        int level = most > 0 ? (int)ceil(fmin(fmax(value / most, 0), 1) * 8) : 0;
        surface_put(surface, row, column + i, level ? 0x2580u + (uint32_t)level : 0x2581u, level ? ink : INK_DIM);
    }
}

double plot_round_up(double value)
{
    if (!(value > 0) || !isfinite(value))
        return 1;
    double power = pow(10, floor(log10(value))), steps[] = {1, 2, 5, 10};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i] * power >= value * (1 - 1e-9))
            return steps[i] * power;
    return 10 * power;
}

double plot_columns(struct surface *surface, struct area area, int ink, const struct trail *trail, uint64_t tick, double most)
{
    if (area.rows < 1 || area.columns < 1)
        return NAN;
    double peak = trail_peak(trail, tick, (uint64_t)area.columns);
    if (!isfinite(peak))
        return NAN;
    if (!isfinite(most))
        most = plot_round_up(peak);
    for (int i = 0; i < area.columns; i++) {
        double value = trail_get(trail, tick, (uint64_t)(area.columns - 1 - i));
        if (!isfinite(value))
            continue;
        int eighths = (int)ceil(fmin(fmax(value / most, 0), 1) * area.rows * 8);
        for (int row = 0; row < area.rows; row++) {
            int level = eighths - (area.rows - 1 - row) * 8;
            if (level > 0)
                surface_put(surface, area.row + row, area.column + i, 0x2580u + (uint32_t)(level > 8 ? 8 : level), ink);
        }
    }
    return most;
}
