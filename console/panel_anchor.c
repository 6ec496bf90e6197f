/*
 * Panel Anchor, for runs that have one: how fresh what is in use is, the snapshot on its way, what the correction is worth, matrix by
 * matrix, and the un-masked loss that the anchor measures.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "console/anchor.h"
#include "console/plot.h"
#include "console/view.h"
#include "console/words.h"

#define TOO_OLD 2 /* times the target: then a correction does harm */

/* "age  ██████░░░ 31 steps of 25": the target stands in the middle of the bar. */
static int draw_freshness(const struct view *view, struct surface *surface, struct area area, int row)
{
    const struct wire_anchor_row *anchor = &view->state.anchor;
    char age[WORDS], first[WORDS];
    double share = anchor->target > 0 ? anchor->age / (TOO_OLD * anchor->target) : NAN;
    int bar = area.columns > 80 ? 40 : 24, ink = !(share > 0.5) ? INK_GOOD : share < 1 ? INK_WARN : INK_BAD;
    if (!anchor->used) {
        surface_text(surface, row, area.column, area.columns, INK_WARN, "nothing of it is in use yet: gradients are not corrected");
        return row + 1;
    }
    surface_text(surface, row, area.column, 10, INK_DIM, "age");
    surface_bar(surface, row, area.column + 10, bar, ink, share);
    surface_put(surface, row, area.column + 10 + bar / 2, 0x2502, INK_BOLD);
    surface_print(surface, row, area.column + 12 + bar, area.columns - 12 - bar, INK_PLAIN, "%s steps, %.0f wanted (%s)",
                  words_real(&view->style, anchor->age, 0, age, sizeof age), anchor->target,
                  ink == INK_GOOD ? "fresh" : ink == INK_WARN ? "old" : "too old");
    surface_text(surface, row + 1, area.column, 10, INK_DIM, "in use");
    surface_print(surface, row + 1, area.column + 10, area.columns - 10, INK_PLAIN,
                  "step %" PRIu64 ", first used %s steps after its snapshot", anchor->used,
                  words_real(&view->style, anchor->staleness, 0, first, sizeof first));
    return row + 2;
}

/* Captured → sent → whole at the anchor → computed with → returned → in use. */
static int draw_snapshots(const struct view *view, struct surface *surface, struct area area, int row)
{
    const struct wire_anchor_row *anchor = &view->state.anchor;
    char eta[WORDS], captured[WORDS], sent[WORDS], returned[WORDS], whole[WORDS], computed[WORDS];
    int left = area.column + 10, end = area.column + area.columns, at = left;
    surface_text(surface, row, area.column, 10, INK_DIM, "snapshots");
    if (anchor->pending) {
        at += surface_print(surface, row, at, end - at, INK_PLAIN, "step %" PRIu64 " %s %s, %ssent ", anchor->pending,
                            anchor->follows ? "named" : "captured",
                            words_percent(&view->style, anchor->captured, captured, sizeof captured), anchor->follows ? "rounds " : "");
        surface_bar(surface, row, at, 12, INK_RATE, anchor->sent);
        at += 13;
        surface_print(surface, row, at, end - at, INK_PLAIN, "%s, whole in %s", words_percent(&view->style, anchor->sent, sent, sizeof sent),
                      words_duration(&view->style, anchor->eta_seconds, eta, sizeof eta));
    } else {
        surface_text(surface, row, at, end - at, INK_PLAIN, "none on its way");
    }
    surface_print(surface, row + 1, left, end - left, INK_PLAIN, "whole %s → computed %s → returned %s",
                  anchor_version(&view->style, anchor->flipped, whole, sizeof whole),
                  anchor_version(&view->style, anchor->computed, computed, sizeof computed),
                  words_percent(&view->style, anchor->computed ? anchor->returned : (double)NAN, returned, sizeof returned));
    return row + 2;
}

static int draw_price(const struct view *view, struct surface *surface, struct area area, int row)
{
    const struct wire_anchor_row *anchor = &view->state.anchor;
    char sent[WORDS], full[WORDS], share[WORDS], seconds[WORDS], text[200];
    words_bytes(&view->style, anchor->sent_bytes, sent, sizeof sent);
    words_bytes(&view->style, anchor->full_bytes, full, sizeof full);
    words_percent(&view->style, anchor->delta_share, share, sizeof share);
    surface_text(surface, row, area.column, 10, INK_DIM, "traffic");
    words_duration(&view->style, anchor->compute_seconds, seconds, sizeof seconds);
    if (anchor->follows)
        surface_print(surface, row, area.column + 10, area.columns - 10, INK_PLAIN,
                      "%" PRIu64 " made of %s of rounds for %s; computing %s each", anchor->versions, sent, full, seconds);
    else
        surface_print(surface, row, area.column + 10, area.columns - 10, INK_PLAIN, "%" PRIu64 " came, %s for %s, newest %s; computing %s each",
                      anchor->versions, sent, full, share, seconds);
    surface_text(surface, row + 1, area.column, 10, INK_DIM, "price");
    surface_text(surface, row + 1, area.column + 10, area.columns - 10, INK_PLAIN, anchor_value(&view->state, &view->style, text, sizeof text));
    return row + 2;
}

static int put_meter(const struct view *view, struct surface *surface, struct area area, int row, int at, const char *name, double share)
{
    char text[WORDS];
    int bar = area.columns >= 110 ? 10 : 6, need = surface_width(name) + bar + 10;
    if (at + need > area.column + area.columns)
        return at;
    at += surface_text(surface, row, at, 20, INK_DIM, name) + 1;
    surface_bar(surface, row, at, bar, INK_RATE, share);
    at += bar + 1;
    return at + surface_text(surface, row, at, 8, INK_PLAIN, words_percent(&view->style, share, text, sizeof text)) + 2;
}

static int draw_worth(const struct view *view, struct surface *surface, struct area area, int row)
{
    const struct wire_anchor_row *anchor = &view->state.anchor;
    int at = area.column + 10;
    surface_text(surface, row, area.column, 10, INK_DIM, "worth");
    at = put_meter(view, surface, area, row, at, "cos", anchor->cosine);
    at = put_meter(view, surface, area, row, at, "inside", anchor->inside);
    at = put_meter(view, surface, area, row, at, "changed", anchor->changed);
    bool wide = area.columns >= 100;
    at = wide ? put_meter(view, surface, area, row, at, "noise", anchor->noise) : at;
    int end = wide ? put_meter(view, surface, area, row, at, "mix", anchor->mix) : at;
    if (end > at)
        return row + 1;
    at = put_meter(view, surface, area, row + 1, area.column + 10, "noise", anchor->noise); /* a narrow screen */
    put_meter(view, surface, area, row + 1, at, "mix", anchor->mix);
    return row + 2;
}

/* ---- matrix by matrix ---- */

enum column { MATRICES, NUMBER, COSINE, INSIDE, NORM, CHANGED, NOISE, COLUMNS };

static const struct grid_column columns[COLUMNS] = {
    [MATRICES] = {.title = "matrices"}, [NUMBER] = {.title = "number", .right = true}, [COSINE] = {.title = "cos", .right = true},
    [INSIDE] = {.title = "inside", .right = true}, [NORM] = {.title = "norm", .right = true},
    [CHANGED] = {.title = "changed", .right = true}, [NOISE] = {.title = "noise", .right = true},
};

static int count_meters(const struct view *view)
{
    int count = 0;
    for (int i = 0; i < MATRIX_CLASSES; i++)
        count += view->state.meters[i].step != 0;
    return count;
}

static const struct wire_meter *find_meter(const struct view *view, int number)
{
    for (int i = 0; i < MATRIX_CLASSES; i++)
        if (view->state.meters[i].step && number-- == 0)
            return &view->state.meters[i];
    return NULL;
}

static int cell(int row, int column, char *out, size_t size, void *arg)
{
    const struct view *view = arg;
    const struct wire_meter *meter = find_meter(view, row);
    const double shares[COLUMNS] = {
        [INSIDE] = anchor_share(meter->inside, meter->gradient), [NORM] = sqrt(anchor_share(meter->corrected, meter->gradient)),
        [CHANGED] = anchor_share(meter->changed, meter->corrected), [NOISE] = anchor_noise(meter)};
    if (column == MATRICES)
        snprintf(out, size, "%s", anchor_class(meter->matrix_class));
    else if (column == NUMBER)
        snprintf(out, size, "%u", meter->matrices);
    else if (column == COSINE)
        words_real(&view->style, anchor_cosine(meter), 3, out, size);
    else
        words_percent(&view->style, shares[column], out, size);
    return column == MATRICES ? INK_BOLD : INK_PLAIN;
}

/* ---- the spectrum of one of them ---- */

#define SPECTRUM_COLUMNS 57 /* of the table to its left, however long its numbers are */
#define DECADES 3           /* from the strongest down */

/* The layers that spectra are known of: 0 = none. */
static int count_layers(const struct state *state)
{
    int layers = 0;
    for (size_t i = 0; i < state->spectrum_count; i++)
        layers = state->spectra[i].layer >= layers ? state->spectra[i].layer + 1 : layers;
    return layers;
}

static void draw_strength(struct surface *surface, struct area area, int column, double share)
{
    int levels = (int)lround(fmax(0, fmin(1, share)) * area.rows * 8);
    for (int i = 0; i < area.rows; i++) {
        int level = levels - 8 * i;
        if (level > 0)
            surface_put(surface, area.row + area.rows - 1 - i, column, 0x2580u + (uint32_t)(level < 8 ? level : 8), INK_RATE);
    }
}

static void draw_spectrum(struct view *view, struct surface *surface, struct area area)
{
    double values[WIRE_SPECTRUM_VALUES], told = 0;
    char share[WORDS];
    int layers = count_layers(&view->state);
    const struct wire_meter *meter = find_meter(view, view->places[PANEL_ANCHOR].selected);
    if (area.columns < 20 || area.rows < 4 || !layers || !meter)
        return;
    view->spectrum_layer = view->spectrum_layer < 0 ? 0 : view->spectrum_layer >= layers ? layers - 1 : view->spectrum_layer;
    const struct wire_spectrum *spectrum = state_find_spectrum(&view->state, (unsigned)view->spectrum_layer, meter->matrix_class);
    int count = spectrum ? anchor_values(spectrum, values) : 0;
    surface_print(surface, area.row, area.column, area.columns, INK_BOLD, "layer %d %s, rank %d", view->spectrum_layer,
                  anchor_class(meter->matrix_class), spectrum ? spectrum->rank : 0);
    if (!count) {
        surface_text(surface, area.row + 1, area.column, area.columns, INK_DIM, "nothing is known of it");
        return;
    }
    struct area bars = {area.row + 1, area.column, area.rows - 2, area.columns};
    for (int i = 0; i < count; i++) {
        told += values[i] * values[i];
        if (i < bars.columns)
            draw_strength(surface, bars, bars.column + i, values[0] > 0 ? 1 + log10(values[i] / values[0]) / DECADES : 0);
    }
    surface_print(surface, area.row + area.rows - 1, area.column, area.columns, INK_DIM, "%s of its energy",
                  words_percent(&view->style, anchor_share(fmin(told, spectrum->energy), spectrum->energy), share, sizeof share));
}

/* ---- the panel ---- */

static const char *label_loss(double y, char *out, int size)
{
    snprintf(out, (size_t)size, fabs(y) >= 10 ? "%.1f" : "%.3f", y);
    return out;
}

static void draw_validation(const struct view *view, struct surface *surface, struct area area)
{
    const struct plot_curve curve = {&view->history.anchor_loss, INK_GOOD, PLOT_LINE};
    const struct series *series = &view->history.anchor_loss;
    if (area.rows < 5 || !series->count)
        return;
    surface_text(surface, area.row, area.column, area.columns, INK_DIM, "un-masked loss that the anchor measured, by step");
    plot_draw(&(struct plot){.area = {area.row + 1, area.column, area.rows - 1, area.columns}, .from = series->points[0].x,
                             .to = fmax(series->points[series->count - 1].x, series->points[0].x + 1), .low = 1, .high = 0,
                             .curves = &curve, .curve_count = 1, .label = label_loss, .x_unit = "step"},
              surface);
}

static void draw(struct view *view, struct surface *surface, struct area area)
{
    const struct wire_anchor_row *anchor = &view->state.anchor;
    struct area inside = {area.row, area.column + 1, area.rows, area.columns - 2};
    int row = area.row, meters = count_meters(view);
    if (!view->state.has_anchor) {
        surface_text(surface, row, inside.column, inside.columns, INK_DIM, "this run has no anchor");
        return;
    }
    surface_print(surface, row++, inside.column, inside.columns, INK_BOLD, "on host %s%s: %s", anchor->host,
                  anchor->follows ? ", following the replicas' rounds" : "", anchor->saying);
    row = draw_freshness(view, surface, inside, row);
    row = draw_snapshots(view, surface, inside, row);
    row = draw_price(view, surface, inside, row);
    row = draw_worth(view, surface, inside, row) + 1;
    const struct grid grid = {.columns = columns, .column_count = COLUMNS, .rows = meters, .cell = cell, .arg = view,
                              .empty = view->frozen_tick ? "of single matrices only the newest is kept" : "no matrix was corrected yet"};
    int rows = meters + 1 < inside.row + inside.rows - row ? meters + 1 : inside.row + inside.rows - row;
    bool beside = inside.columns >= SPECTRUM_COLUMNS + 24 && view->state.spectrum_count;
    grid_draw(&grid, &view->places[PANEL_ANCHOR], surface,
              (struct area){row, inside.column, rows < 2 ? 2 : rows, beside ? SPECTRUM_COLUMNS : inside.columns});
    if (beside)
        draw_spectrum(view, surface, (struct area){row, inside.column + SPECTRUM_COLUMNS + 2, rows, inside.columns - SPECTRUM_COLUMNS - 2});
    row += (rows < 2 ? 2 : rows) + 1;
    draw_validation(view, surface, (struct area){row, inside.column, inside.row + inside.rows - row, inside.columns});
}

static bool act(struct view *view, enum act act)
{
    if (act == ACT_LEFT || act == ACT_RIGHT) {
        view->spectrum_layer += act == ACT_LEFT ? -1 : 1;
        return true;
    }
    return grid_act(&view->places[PANEL_ANCHOR], count_meters(view), act);
}

static void copy(const struct view *view, char *out, size_t size)
{
    const struct wire_anchor_row *anchor = &view->state.anchor;
    if (view->state.has_anchor)
        snprintf(out, size, "anchor on %s: step %" PRIu64 " in use, %.0f steps old, cos %.3f, changed %.3f", anchor->host, anchor->used,
                 anchor->age, anchor->cosine, anchor->changed);
}

const struct panel_methods panel_anchor = {.draw = draw, .act = act, .copy = copy};
