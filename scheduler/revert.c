#include "scheduler/revert.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "profiles/fields.h"

#define STEPS (REVERT_BEFORE + REVERT_AFTER)

enum side { LOSS, NORM };

/* The mean over the newest `most` known steps from `first` to `last`; NaN when there are fewer than `least`. One that is not finite
 * makes the mean so. */
static double mean(const struct revert *revert, enum side side, uint64_t first, uint64_t last, int most, int least)
{
    double sum = 0;
    int count = 0;
    for (uint64_t i = 0; i < STEPS && i < revert->count && count < most; i++) {
        size_t slot = (size_t)((revert->count - 1 - i) % STEPS);
        if (revert->steps[slot].step < first || revert->steps[slot].step > last)
            continue;
        double value = side == LOSS ? revert->steps[slot].loss : revert->steps[slot].norm;
        if (!isfinite(value))
            return INFINITY;
        sum += value;
        count++;
    }
    return count < least ? (double)NAN : sum / count;
}

/* An older change of the same setting is history: what counts is the value that is in use. */
static void forget_older(struct record *record, const struct record_ledger *row)
{
    for (struct record_ledger *older = revert_watched(record, row->row.id); older; older = revert_watched(record, older->row.id))
        if (strcmp(older->row.name, row->row.name) == 0) {
            older->row.watched_until = 0;
            record_touch(record, &older->version);
        }
}

bool revert_arm(struct revert *revert, const struct profile *settings, struct record *record, struct record_ledger *row, char *words,
                size_t size)
{
    const struct field *field = field_find(row->row.name);
    forget_older(record, row);
    if (!settings->revert_steps || !field || field->applier == APPLIES_SCHEDULER || strcmp(row->row.who, REVERT_WHO) == 0)
        return false;
    uint64_t before = row->row.step ? row->row.step - 1 : 0;
    double loss = mean(revert, LOSS, 0, before, REVERT_BEFORE, REVERT_LEAST);
    double norm = mean(revert, NORM, 0, before, REVERT_BEFORE, REVERT_LEAST);
    row->row.loss_most = isfinite(loss) ? loss + settings->revert_loss * fabs(loss) : (double)NAN;
    row->row.norm_most = isfinite(norm) ? norm * settings->revert_norm : (double)NAN;
    if (isnan(row->row.loss_most) && isnan(row->row.norm_most)) {
        record_text(words, size, "%s = %s cannot be watched: too few steps are known from before it", row->row.name, row->row.new_value);
        return true;
    }
    row->row.watched_until = row->row.step + (uint64_t)settings->revert_steps - 1;
    record_touch(record, &row->version);
    record->urgent = true;
    record_text(words, size, "%s = %s is watched until step %" PRIu64 ": it goes back to %s when the loss is above %.4g or the "
                "gradient norm above %.4g", row->row.name, row->row.new_value, row->row.watched_until, row->row.old_value, row->row.loss_most,
                row->row.norm_most);
    return true;
}

void revert_step(struct revert *revert, uint64_t step, double loss, double norm)
{
    size_t slot = (size_t)(revert->count++ % STEPS);
    revert->steps[slot].step = step;
    revert->steps[slot].loss = loss;
    revert->steps[slot].norm = norm;
}

enum revert_verdict revert_judge(const struct revert *revert, struct record *record, struct record_ledger *row, char *words, size_t size)
{
    uint64_t newest = revert->count ? revert->steps[(revert->count - 1) % STEPS].step : 0;
    bool ends = newest >= row->row.watched_until;
    int least = ends ? 1 : REVERT_LEAST;
    const struct { const char *name; double now, most; } sides[] = {
        {"loss", mean(revert, LOSS, row->row.step, UINT64_MAX, REVERT_AFTER, least), row->row.loss_most},
        {"gradient norm", mean(revert, NORM, row->row.step, UINT64_MAX, REVERT_AFTER, least), row->row.norm_most},
    };
    enum revert_verdict verdict = ends ? REVERT_KEPT : REVERT_NOTHING;
    for (size_t i = 0; i < sizeof sides / sizeof *sides && verdict != REVERT_BACK; i++)
        if (sides[i].now > sides[i].most) { /* false for NaN: not known is not bad */
            verdict = REVERT_BACK;
            record_text(words, size, "the %s is %.4g, above the %.4g that it may be after %s became %s", sides[i].name, sides[i].now,
                        sides[i].most, row->row.name, row->row.new_value);
        }
    if (verdict == REVERT_KEPT)
        record_text(words, size, "%s stays %s: loss and gradient norm kept within their band until step %" PRIu64, row->row.name,
                    row->row.new_value, row->row.watched_until);
    if (verdict != REVERT_NOTHING) {
        row->row.watched_until = 0;
        record_touch(record, &row->version);
        record->urgent = true;
    }
    return verdict;
}

struct record_ledger *revert_watched(struct record *record, uint64_t below)
{
    uint64_t first = record->newest_ledger > RECORD_LEDGER ? record->newest_ledger - RECORD_LEDGER + 1 : 1;
    uint64_t id = below > record->newest_ledger ? record->newest_ledger : below - 1;
    for (; id >= first && id > 0; id--) {
        struct record_ledger *row = record_find_ledger(record, id);
        if (row && row->row.state == LEDGER_ACTIVE && row->row.watched_until)
            return row;
    }
    return NULL;
}
