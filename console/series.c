#include "console/series.h"

#include <math.h>
#include <string.h>

#include "ssh/base/mem.h"

void series_clear(struct series *series)
{
    mem_free(series->points);
    memset(series, 0, sizeof *series);
}

static void join(struct series_point *to, const struct series_point *from)
{
    if (isnan(to->y)) {
        *to = (struct series_point){to->x, from->y, from->low, from->high, from->joined};
        return;
    }
    if (isnan(from->y))
        return;
    double sum = to->y * (double)to->joined + from->y * (double)from->joined;
    to->joined += from->joined;
    to->y = sum / (double)to->joined;
    to->low = fmin(to->low, from->low);
    to->high = fmax(to->high, from->high);
}

static void halve(struct series *series)
{
    size_t half = 0;
    for (size_t i = 0; i < series->count; i += 2) {
        series->points[half] = series->points[i];
        if (i + 1 < series->count)
            join(&series->points[half], &series->points[i + 1]);
        half++;
    }
    series->count = half;
    series->each *= 2;
}

static void make_room(struct series *series)
{
    if (!series->points) {
        series->points = mem_array(SERIES_POINTS, sizeof *series->points);
        series->each = 1;
    }
    if (series->count == SERIES_POINTS)
        halve(series);
}

void series_add(struct series *series, double x, double y)
{
    struct series_point point = {x, y, y, y, 1}, *last = series->count ? &series->points[series->count - 1] : NULL;
    if (!isfinite(x) || (last && x < last->x))
        return;
    if (last && last->x == x && last->joined <= 1) { /* also less than one: newest value of the same x */
        *last = point;
        return;
    }
    if (last && last->joined < series->each && !isnan(y)) {
        join(last, &point);
        return;
    }
    make_room(series);
    series->points[series->count++] = point;
}

/* Index of the first point with a greater x. */
static size_t upper(const struct series *series, double x)
{
    size_t low = 0, high = series->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (series->points[middle].x > x)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void series_insert(struct series *series, double x, double y)
{
    size_t at = upper(series, x);
    struct series_point point = {x, y, y, y, 1};
    if (at == series->count) {
        series_add(series, x, y);
        return;
    }
    if (!isfinite(x) || (at > 0 && series->points[at - 1].x == x))
        return; /* known already */
    if (at > 0 && series->points[at - 1].joined < series->each) {
        join(&series->points[at - 1], &point);
        return;
    }
    make_room(series);
    at = upper(series, x);
    memmove(&series->points[at + 1], &series->points[at], (series->count - at) * sizeof point);
    series->points[at] = point;
    series->count++;
}

const struct series_point *series_at(const struct series *series, double x)
{
    size_t at = upper(series, x);
    return at ? &series->points[at - 1] : NULL;
}

size_t series_range(const struct series *series, double from, double to, double *low, double *high)
{
    size_t found = 0;
    for (size_t i = 0; i < series->count; i++) {
        const struct series_point *point = &series->points[i];
        if (point->x < from || point->x > to || !isfinite(point->low) || !isfinite(point->high))
            continue;
        *low = found ? fmin(*low, point->low) : point->low;
        *high = found ? fmax(*high, point->high) : point->high;
        found++;
    }
    return found;
}

void trail_put(struct trail *trail, uint64_t tick, double value)
{
    if (tick == 0 || tick + TRAIL_POINTS <= trail->newest)
        return;
    if (trail->newest == 0 || tick >= trail->newest + TRAIL_POINTS) {
        for (size_t i = 0; i < TRAIL_POINTS; i++)
            trail->values[i] = NAN;
        trail->newest = tick;
    }
    while (trail->newest < tick)
        trail->values[++trail->newest % TRAIL_POINTS] = NAN;
    trail->values[tick % TRAIL_POINTS] = (float)value;
}

double trail_get(const struct trail *trail, uint64_t tick, uint64_t back)
{
    if (trail->newest == 0 || back > tick)
        return NAN;
    uint64_t wanted = tick - back;
    if (wanted > trail->newest || wanted == 0 || wanted + TRAIL_POINTS <= trail->newest)
        return NAN;
    return (double)trail->values[wanted % TRAIL_POINTS];
}

double trail_mean(const struct trail *trail, uint64_t tick, uint64_t count)
{
    double sum = 0;
    uint64_t known = 0;
    for (uint64_t i = 0; i < count; i++) {
        double value = trail_get(trail, tick, i);
        if (!isfinite(value))
            continue;
        sum += value;
        known++;
    }
    return known ? sum / (double)known : NAN;
}

double trail_peak(const struct trail *trail, uint64_t tick, uint64_t count)
{
    double peak = NAN;
    for (uint64_t i = 0; i < count; i++)
        peak = fmax(peak, trail_get(trail, tick, i)); /* fmax takes the number when one is NaN */
    return peak;
}
