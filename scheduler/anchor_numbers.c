/* What the anchor and the correction of gradients tell in numbers: how far a version is, validation losses, the meters of the stages summed up. */
#include <inttypes.h>
#include <math.h>

#include "scheduler/run_state.h"

/* How far the snapshot on its way is: shares of the stages, and of what they have to send. */
void anchor_tell_progress(struct run *run)
{
    struct wire_anchor_row *row = anchor_row(run);
    double full = 0, sent = 0;
    int captured = 0;
    for (int i = 0; i < run->plan.stages_per_replica; i++) {
        const struct anchor_part *part = &run->anchor.parts[i];
        captured += part->captured;
        full += part->captured ? (double)part->full_bytes : 0;
        sent += part->captured ? part->done * (double)part->full_bytes : 0;
    }
    row->captured = (double)captured / run->plan.stages_per_replica;
    row->sent = full > 0 ? sent / full * row->captured : 0;
}

/* On how many of the stages the directions of the newest version are that was computed with. */
void anchor_tell_returned(struct run *run)
{
    struct wire_anchor_row *row = anchor_row(run);
    row->returned = row->computed && row->computed <= run->anchor.used ? 1 : 0;
    for (int i = 0; i < ANCHOR_PENDING && row->returned < 1; i++)
        if (row->computed && run->anchor.pending[i].version == row->computed)
            row->returned = (double)__builtin_popcountll(run->anchor.pending[i].holders) / run->plan.stage_count;
}

int anchor_sample(struct run *run, const struct wire_sample *sample, struct why *why)
{
    struct wire_run_state *state = &run->record->state.row;
    struct wire_anchor_row *row = anchor_row(run);
    if (sample->kind != STAMP_EVALUATE || sample->step > state->steps)
        return why_set(why, ERR_INVALID, "the anchor samples step %" PRIu64 " of a run of %" PRIu64, sample->step,
                       state->steps);
    row->validation_loss = sample->loss;
    row->validation_version = sample->step + 1;
    if (sample->step > state->validation_step || isnan(state->validation_loss)) {
        state->validation_loss = sample->loss;
        state->validation_step = sample->step;
        record_touch(run->record, &run->record->state.version);
    }
    return 0;
}

static void add_meter(struct wire_meter *sum, const struct wire_meter *one)
{
    sum->step = one->step > sum->step ? one->step : sum->step;
    sum->version = one->version > sum->version ? one->version : sum->version;
    sum->mix = one->mix > sum->mix ? one->mix : sum->mix;
    sum->matrices = (uint16_t)(sum->matrices + one->matrices);
    sum->gradient += one->gradient;
    sum->corrected += one->corrected;
    sum->changed += one->changed;
    sum->anchor += one->anchor;
    sum->aligned += one->aligned;
    sum->inside += one->inside;
    sum->signal += one->signal;
    sum->noise += one->noise;
}

static double ratio(double one, double other)
{
    return other > 0 ? one / other : (double)NAN;
}

static void sum_meters(struct run *run)
{
    struct wire_meter all = {0};
    struct wire_anchor_row *row = anchor_row(run);
    for (int c = 0; c < MATRIX_CLASSES; c++) {
        struct record_meter *record = &run->record->meters[c];
        struct wire_meter sum = {.matrix_class = (uint8_t)c};
        for (int s = 0; s < run->plan.stages_per_replica; s++)
            add_meter(&sum, &run->anchor.meters[s][c]);
        record->row = sum;
        record_touch(run->record, &record->version);
        add_meter(&all, &sum);
    }
    row->mix = (double)all.mix;
    row->cosine = ratio(all.aligned, sqrt(all.gradient * all.anchor));
    row->inside = all.anchor > 0 ? ratio(all.inside, all.gradient) : (double)NAN;
    row->norm_ratio = sqrt(ratio(all.corrected, all.gradient));
    row->changed = ratio(all.changed, all.corrected);
    row->noise = all.signal + all.noise > 0 ? ratio(all.noise, all.gradient) : (double)NAN;
}

int anchor_meter(struct run *run, struct process *process, const void *payload, struct why *why)
{
    const struct wire_meter *meter = payload;
    if (meter->step > run->record->state.row.steps)
        return why_set(why, ERR_INVALID, "%s meters step %" PRIu64, process->record->row.process, meter->step);
    if (process->stage->replica != run->anchor.sender)
        return 0;
    run->anchor.meters[process->stage->stage][meter->matrix_class] = *meter;
    sum_meters(run);
    return 0;
}

/* One row a matrix, the newest; those that have no room are not told. */
int anchor_spectrum(struct run *run, struct process *process, const void *payload, struct why *why)
{
    const struct wire_spectrum *told = payload;
    struct record *record = run->record;
    struct record_spectrum *at = NULL;
    if (told->layer >= run->profile.layers || told->version > record->state.row.steps + 1)
        return why_set(why, ERR_INVALID, "%s tells a spectrum of layer %u, version %" PRIu64, process->record->row.process, told->layer,
                       told->version);
    for (size_t i = 0; i < record->spectrum_count && !at; i++)
        if (record->spectra[i].row.layer == told->layer && record->spectra[i].row.matrix_class == told->matrix_class)
            at = &record->spectra[i];
    if (!at && record->spectrum_count < RECORD_SPECTRA)
        at = &record->spectra[record->spectrum_count++];
    if (!at)
        return 0;
    at->row = *told;
    record_touch(record, &at->version);
    return 0;
}
