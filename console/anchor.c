#include "console/anchor.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "console/report.h"
#include "console/table.h"
#include "console/words.h"
#include "ssh/base/text.h"

static const char *const classes[MATRIX_CLASSES] = {
    [MATRIX_Q] = "q",       [MATRIX_K] = "k",   [MATRIX_V] = "v",      [MATRIX_O] = "o",
    [MATRIX_GATE] = "gate", [MATRIX_UP] = "up", [MATRIX_DOWN] = "down"};

const char *anchor_class(int matrix_class)
{
    return matrix_class >= 0 && matrix_class < MATRIX_CLASSES ? classes[matrix_class] : "?";
}

double anchor_share(double one, double other)
{
    return other > 0 ? one / other : (double)NAN;
}

double anchor_cosine(const struct wire_meter *meter)
{
    return anchor_share(meter->aligned, sqrt(meter->gradient * meter->anchor));
}

double anchor_noise(const struct wire_meter *meter)
{
    return meter->signal + meter->noise > 0 ? anchor_share(meter->noise, meter->gradient) : (double)NAN;
}

char *anchor_version(const struct style *style, uint64_t version, char *out, size_t size)
{
    if (version)
        snprintf(out, size, "%" PRIu64, version);
    else
        snprintf(out, size, "%s", style_glyph(style, GLYPH_UNKNOWN));
    return out;
}

char *anchor_value(const struct state *state, const struct style *style, char *out, size_t size)
{
    const struct wire_anchor_row *row = &state->anchor;
    char price[WORDS], share[WORDS], changed[WORDS];
    words_percent(style, row->changed, changed, sizeof changed);
    if (isfinite(row->price_per_hour))
        snprintf(out, size, "%s an hour, %s of the run's; %s of the update comes of it", words_money(style, row->price_per_hour, price, sizeof price),
                 words_percent(style, anchor_share(row->price_per_hour, state->run.spend_per_hour), share, sizeof share), changed);
    else
        snprintf(out, size, "not known; %s of the update comes of it", changed);
    return out;
}

int anchor_values(const struct wire_spectrum *spectrum, double values[WIRE_SPECTRUM_VALUES])
{
    const char *at = spectrum->values;
    int count = 0;
    for (char *end; count < WIRE_SPECTRUM_VALUES; at = end) {
        double value = strtod(at, &end);
        if (end == at || !(value >= 0) || !isfinite(value))
            break;
        values[count++] = value;
    }
    return count;
}

/* ---- text ---- */

static void print_versions(const struct wire_anchor_row *row, const struct style *style, FILE *out)
{
    char age[WORDS], staleness[WORDS], eta[WORDS], percent[WORDS], sent[WORDS], full[WORDS], mix[WORDS];
    fprintf(out, "anchor on host %s%s: %s\n", row->host, row->follows ? ", following the replicas' rounds" : "", row->saying);
    fprintf(out, "in use: ");
    if (row->used)
        fprintf(out, "step %llu, %s steps old; first used after %s of %.0f steps; mix %s\n", (unsigned long long)row->used,
                words_real(style, row->age, 0, age, sizeof age), words_real(style, row->staleness, 0, staleness, sizeof staleness), row->target,
                words_real(style, row->mix, 2, mix, sizeof mix));
    else
        fprintf(out, "nothing yet: gradients are not corrected\n");
    if (row->pending)
        fprintf(out, "on its way: step %llu, %s sent, whole in %s\n", (unsigned long long)row->pending,
                words_percent(style, row->sent, percent, sizeof percent), words_duration(style, row->eta_seconds, eta, sizeof eta));
    fprintf(out, "%llu snapshots: %s%s travelled for %s; the newest, of step %llu, %s of it in full\n", (unsigned long long)row->versions,
            text_from_bytes(row->sent_bytes, sent, sizeof sent), row->follows ? " of rounds" : "", text_from_bytes(row->full_bytes, full, sizeof full),
            (unsigned long long)row->flipped, words_percent(style, row->delta_share, percent, sizeof percent));
}

static void print_worth(const struct wire_anchor_row *row, const struct style *style, FILE *out)
{
    char changed[WORDS], angle[WORDS], seconds[WORDS], loss[WORDS];
    fprintf(out, "costs %s of computing a version; %s of the update comes from it; cos(gradient, anchor) %s\n",
            words_duration(style, row->compute_seconds, seconds, sizeof seconds), words_percent(style, row->changed, changed, sizeof changed),
            words_real(style, row->cosine, 3, angle, sizeof angle));
    if (row->validation_version)
        fprintf(out, "validation loss %s (un-masked, of step %llu)\n", words_real(style, row->validation_loss, 4, loss, sizeof loss),
                (unsigned long long)row->validation_version - 1);
}

void anchor_print(const struct state *state, const struct style *style, uint64_t now_ns, FILE *out)
{
    static const struct table_column columns[] = {
        {.title = "matrices"}, {.title = "number", .right = true}, {.title = "cos", .right = true}, {.title = "inside", .right = true},
        {.title = "norm", .right = true}, {.title = "changed", .right = true}, {.title = "noise", .right = true},
    };
    (void)now_ns;
    if (!state->has_anchor) {
        fputs("this run has no anchor: [anchor] host in its profile would name one\n", out);
        return;
    }
    print_versions(&state->anchor, style, out);
    print_worth(&state->anchor, style, out);
    if (isfinite(state->anchor.price_per_hour)) {
        char value[200];
        fprintf(out, "price %s\n", anchor_value(state, style, value, sizeof value));
    }
    struct table *table = table_new(style, columns, sizeof columns / sizeof *columns);
    int rows = 0;
    for (int i = 0; i < MATRIX_CLASSES; i++) {
        const struct wire_meter *meter = &state->meters[i];
        char words[5][WORDS];
        if (!meter->step)
            continue;
        rows++;
        table_row(table, PAINT_NONE);
        table_cell(table, "%s", classes[i]);
        table_cell(table, "%u", meter->matrices);
        table_cell(table, "%s", words_real(style, anchor_cosine(meter), 3, words[0], sizeof words[0]));
        table_cell(table, "%s", words_percent(style, anchor_share(meter->inside, meter->gradient), words[1], sizeof words[1]));
        table_cell(table, "%s", words_percent(style, sqrt(anchor_share(meter->corrected, meter->gradient)), words[2], sizeof words[2]));
        table_cell(table, "%s", words_percent(style, anchor_share(meter->changed, meter->corrected), words[3], sizeof words[3]));
        table_cell(table, "%s", words_percent(style, anchor_noise(meter), words[4], sizeof words[4]));
    }
    if (rows) {
        fputc('\n', out);
        table_print(table, out);
    }
    table_free(table);
}

/* ---- JSON ---- */

static json_t *report_meter(const struct wire_meter *meter)
{
    json_t *object = json_object();
    json_object_set_new(object, "matrices", json_string(classes[meter->matrix_class]));
    json_object_set_new(object, "count", json_integer(meter->matrices));
    json_object_set_new(object, "step", json_integer((json_int_t)meter->step));
    json_object_set_new(object, "cosine", report_real(anchor_cosine(meter)));
    json_object_set_new(object, "inside", report_real(anchor_share(meter->inside, meter->gradient)));
    json_object_set_new(object, "norm_ratio", report_real(sqrt(anchor_share(meter->corrected, meter->gradient))));
    json_object_set_new(object, "changed", report_real(anchor_share(meter->changed, meter->corrected)));
    json_object_set_new(object, "noise", report_real(anchor_noise(meter)));
    return object;
}

static json_t *report_spectrum(const struct wire_spectrum *spectrum)
{
    double values[WIRE_SPECTRUM_VALUES];
    int count = anchor_values(spectrum, values);
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_real(values[i]));
    json_t *object = json_pack("{s:i, s:s, s:i}", "layer", (int)spectrum->layer, "matrix", anchor_class(spectrum->matrix_class), "rank",
                               (int)spectrum->rank);
    json_object_set_new(object, "version", json_integer((json_int_t)spectrum->version));
    json_object_set_new(object, "energy", report_real(spectrum->energy));
    json_object_set_new(object, "values", list);
    return object;
}

json_t *anchor_report(const struct state *state)
{
    const struct wire_anchor_row *row = &state->anchor;
    if (!state->has_anchor)
        return json_null();
    json_t *object = json_object(), *meters = json_array();
    for (int i = 0; i < MATRIX_CLASSES; i++)
        if (state->meters[i].step)
            json_array_append_new(meters, report_meter(&state->meters[i]));
    json_object_set_new(object, "host", json_string(row->host));
    json_object_set_new(object, "saying", json_string(row->saying));
    json_object_set_new(object, "follows", json_boolean(row->follows));
    json_object_set_new(object, "snapshot", report_known(row->flipped));
    json_object_set_new(object, "used", report_known(row->used));
    json_object_set_new(object, "pending", report_known(row->pending));
    json_object_set_new(object, "snapshots", json_integer((json_int_t)row->versions));
    json_object_set_new(object, "staleness_steps", report_real(row->staleness));
    json_object_set_new(object, "target_steps", report_real(row->target));
    json_object_set_new(object, "age_steps", report_real(row->age));
    json_object_set_new(object, "mix", report_real(row->mix));
    json_object_set_new(object, "eta_seconds", report_real(row->eta_seconds));
    json_object_set_new(object, "delta_share", report_real(row->delta_share));
    json_object_set_new(object, "sent_bytes", json_integer((json_int_t)row->sent_bytes));
    json_object_set_new(object, "full_bytes", json_integer((json_int_t)row->full_bytes));
    json_object_set_new(object, "cosine", report_real(row->cosine));
    json_object_set_new(object, "inside", report_real(row->inside));
    json_object_set_new(object, "norm_ratio", report_real(row->norm_ratio));
    json_object_set_new(object, "changed", report_real(row->changed));
    json_object_set_new(object, "noise", report_real(row->noise));
    json_object_set_new(object, "compute_seconds", report_real(row->compute_seconds));
    json_object_set_new(object, "validation_loss", report_real(row->validation_loss));
    json_object_set_new(object, "validation_step", row->validation_version ? json_integer((json_int_t)row->validation_version - 1) : json_null());
    json_object_set_new(object, "price_per_hour", report_real(row->price_per_hour));
    json_object_set_new(object, "captured_share", row->pending ? report_real(row->captured) : json_null());
    json_object_set_new(object, "sent_share", row->pending ? report_real(row->sent) : json_null());
    json_object_set_new(object, "computed", report_known(row->computed));
    json_object_set_new(object, "returned_share", row->computed ? report_real(row->returned) : json_null());
    json_t *spectra = json_array();
    for (size_t i = 0; i < state->spectrum_count; i++)
        json_array_append_new(spectra, report_spectrum(&state->spectra[i]));
    json_object_set_new(object, "spectra", spectra);
    json_object_set_new(object, "matrices", meters);
    return object;
}
