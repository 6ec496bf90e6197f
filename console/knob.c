#include "console/knob.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "console/words.h"
#include "profiles/profile.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

/* Shares go by hundredths (near an end by thousandths), other numbers by a tenth of themselves: as a hand would turn them. */
static double step_real(const struct field *field, double value, bool up)
{
    double by;
    if (field->minimum >= 0 && field->maximum <= 1 && value >= 0.05)
        by = (up && value > 0.9895) || (!up && value > 0.9905) ? 0.001 : 0.01;
    else if (value == 0)
        by = field->maximum < 1e6 ? field->maximum / 100 : 1;
    else
        by = pow(10, floor(log10(fabs(value)))) / (fabs(value) / pow(10, floor(log10(fabs(value)))) < 2 ? 10 : 2);
    return up ? value + by : value - by;
}

static bool step_choice(const struct field *field, const char *value, bool up, char *out, size_t size)
{
    int count = 0, at = -1;
    for (; field->choices[count]; count++)
        if (strcmp(field->choices[count], value) == 0)
            at = count;
    at += up ? 1 : -1;
    if (at < 0 || at >= count)
        return false;
    snprintf(out, size, "%s", field->choices[at]);
    return true;
}

bool knob_step(const struct field *field, const char *value, bool up, char *out, size_t size)
{
    double real;
    if (field->type == FIELD_CHOICE)
        return step_choice(field, value, up, out, size);
    if (field->type == FIELD_BOOL) {
        snprintf(out, size, "%s", up ? "yes" : "no");
        return strcmp(out, value) != 0;
    }
    if ((field->type != FIELD_REAL && field->type != FIELD_INTEGER) || text_to_real(value, &real) != 0)
        return false;
    double next = field->type == FIELD_INTEGER ? real + (up ? 1 : -1) : step_real(field, real, up);
    next = fmin(fmax(next, field->minimum), field->maximum);
    snprintf(out, size, "%.4g", next);
    if (field->type == FIELD_INTEGER)
        snprintf(out, size, "%.0f", next);
    return strcmp(out, value) != 0 && next != real;
}

bool knob_check(const struct field *field, const char *value, struct why *why)
{
    struct profile *scratch = mem_new(sizeof *scratch);
    int err = field_parse(field, value, scratch, why);
    mem_free(scratch);
    return err == 0;
}

/* Bytes of activations a second, over all roads. */
static double act_rate(const struct state *state)
{
    double sum = NAN;
    for (size_t i = 0; i < state->road_count; i++) {
        const struct wire_road_row *row = &state->roads[i].row;
        if (row->lane == LANE_ACT && isfinite(row->bytes_per_second))
            sum = (isfinite(sum) ? sum : 0) + row->bytes_per_second;
    }
    return sum;
}

/* The busiest process computes for this share of a step; the rest of it is waiting. */
static double computing(const struct state *state)
{
    double most = NAN;
    for (size_t i = 0; i < state->process_count; i++)
        if (state->processes[i].row.role == ROLE_STAGE)
            most = fmax(most, state->processes[i].row.compute_share);
    return most;
}

void knob_preview(const struct state *state, const struct style *style, const char *name, const char *value, char *out, size_t size)
{
    const struct wire_run_state *run = &state->run;
    double rate, old = run->mask_rate, step = run->step_seconds, bytes = act_rate(state) * step;
    char before[WORDS], after[WORDS], was[WORDS], is[WORDS];
    out[0] = '\0';
    if (strcmp(name, "mask.rate") != 0) {
        snprintf(out, size, "changes neither the bytes nor the time of a step");
        return;
    }
    if (text_to_real(value, &rate) != 0 || rate < 0 || rate >= 1 || !isfinite(old) || old >= 1)
        return;
    double factor = (1 - rate) / (1 - old);
    if (!isfinite(bytes) || !isfinite(step)) {
        snprintf(out, size, "%.2f times the bytes", factor);
        return;
    }
    words_bytes(style, (uint64_t)bytes, before, sizeof before);
    words_bytes(style, (uint64_t)(bytes * factor), after, sizeof after);
    double busy = computing(state), least = isfinite(busy) ? fmin(busy, 1) : 1;
    words_duration(style, step, was, sizeof was);
    words_duration(style, step * (least + (1 - least) * factor), is, sizeof is);
    snprintf(out, size, "about %s a step over all roads instead of %s; a step takes %s to %s (now %s)", after, before,
             factor < 1 ? is : was, factor < 1 ? was : is, was);
}
