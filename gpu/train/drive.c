/*
 * What stage 0 decides for its replica: which pass comes next, what its stamp says, and the verdict on a finished training
 * step.
 *
 *   EVALUATE (step 0) → CALIBRATE, where boundaries need statistics → TRAIN 1 … N, EVALUATE after every
 *   train.evaluate_every-th → EVALUATE (step N) → SAVE → FINISH
 *
 * A knob is used from the first training step ≥ its from_step, and only here: later stages see the stamp. (What replicas change
 * together waits for a round: agree.c.) A gradient or loss
 * that is not finite is never applied: the next stamp says so. Three in a row, and stage 0 stamps no more until it is
 * started again.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "gpu/math/filter.h"
#include "gpu/train/follow.h"
#include "gpu/train/inside.h"

#define BAD_MOST 3 /* steps in a row that are not finite */

static bool evaluation_is_due(const struct compute *compute)
{
    const struct drive *drive = &compute->drive;
    int64_t every = compute->settings.profile.evaluate_every;
    uint64_t done = drive->next - 1;
    if (compute->settings.profile.validation_windows == 0 || drive->evaluated)
        return false;
    return done == 0 || drive->next >= drive->last || (every > 0 && done % (uint64_t)every == 0);
}

float drive_clip_scale(const struct compute *compute)
{
    const struct drive *drive = &compute->drive;
    double clip = compute->settings.profile.clip;
    if (!drive->finite)
        return 1;
    if (clip <= 0 || drive->norm <= clip)
        return (float)drive->targets_ratio;
    return (float)(drive->targets_ratio * (clip / drive->norm));
}

/* ---- knobs ---- */

static const struct knob_used *find_used(const struct drive *drive, uint64_t ledger)
{
    unsigned count = drive->used_count < KNOBS_MOST ? drive->used_count : KNOBS_MOST;
    for (unsigned i = 0; i < count; i++)
        if (drive->used[i].ledger == ledger)
            return &drive->used[i];
    return NULL;
}

static void tell_used(struct compute *compute, const struct wire_knob *knob, uint64_t step)
{
    struct wire_knob_used used = {.ledger = knob->ledger, .step = step};
    memcpy(used.name, knob->name, sizeof used.name);
    memcpy(used.value, knob->value, sizeof used.value);
    compute_tell(compute, WIRE_KNOB_USED, &used, step);
}

void drive_knob(struct compute *compute, const struct wire_knob *knob)
{
    struct drive *drive = &compute->drive;
    const struct knob_used *used = find_used(drive, knob->ledger);
    if (used) { /* said again because a road was lost */
        tell_used(compute, knob, used->step);
        return;
    }
    int i = 0;
    while (i < drive->knob_count && drive->knobs[i].ledger != knob->ledger)
        i++;
    if (i == KNOBS_MOST) {
        compute_say(compute, EVENT_WARN, drive->next, "knob", "%s = %s is not taken: %d changes wait already", knob->name,
                    knob->value, KNOBS_MOST);
        return;
    }
    drive->knobs[i] = *knob;
    drive->knob_count += i == drive->knob_count;
}

bool drive_has_used(const struct compute *compute, uint64_t ledger)
{
    return find_used(&compute->drive, ledger) != NULL;
}

static void drop_waiting(struct drive *drive, int index)
{
    drive->knob_count--;
    memmove(&drive->knobs[index], &drive->knobs[index + 1], (size_t)(drive->knob_count - index) * sizeof *drive->knobs);
}

bool drive_take_agreed_knob(struct compute *compute, uint64_t step, struct wire_knob *knob)
{
    struct drive *drive = &compute->drive;
    for (int i = 0; i < drive->knob_count; i++)
        if (drive->knobs[i].from_step <= step && agree_takes(compute, drive->knobs[i].name)) {
            *knob = drive->knobs[i];
            drop_waiting(drive, i);
            return true;
        }
    return false;
}

void drive_used_knob(struct compute *compute, const struct wire_knob *knob, uint64_t step)
{
    struct drive *drive = &compute->drive;
    for (int i = 0; i < drive->knob_count; i++)
        if (drive->knobs[i].ledger == knob->ledger) {
            drop_waiting(drive, i);
            break;
        }
    drive->used[drive->used_count++ % KNOBS_MOST] = (struct knob_used){.ledger = knob->ledger, .step = step};
    tell_used(compute, knob, step);
}

static void use_knob(struct compute *compute, const struct wire_knob *knob, uint64_t step)
{
    const struct field *field = field_find(knob->name);
    struct why why = {0};
    if (!field || !field->live)
        compute_say(compute, EVENT_WARN, step, "knob", "%s cannot be changed while a run goes on", knob->name);
    else if (profile_set(&compute->settings.profile, knob->name, knob->value, &why) < 0)
        compute_say(compute, EVENT_WARN, step, "knob", "%s", why.text);
    else
        drive_used_knob(compute, knob, step);
}

/* In the order in which they came. */
static void use_knobs(struct compute *compute, uint64_t step)
{
    struct drive *drive = &compute->drive;
    int i = 0;
    while (i < drive->knob_count) {
        struct wire_knob knob = drive->knobs[i];
        if (knob.from_step > step || agree_takes(compute, knob.name)) {
            i++;
            continue;
        }
        drop_waiting(drive, i);
        use_knob(compute, &knob, step);
    }
}

/* ---- what comes next ---- */

/* Directions that are missing or too old are worse than none: dense, until there are new ones. */
static bool statistics_serve(struct compute *compute, uint64_t step, uint32_t version)
{
    const struct profile *profile = &compute->settings.profile;
    uint64_t stale = (uint64_t)profile->stale;
    if (!codec_needs_state(&compute->down.settings))
        return true;
    bool serve = version && (stale == 0 || step <= version + stale);
    if (!serve && !compute->measures.dense && version)
        compute_say(compute, EVENT_WARN, step, "statistics",
                    "the directions of the boundaries are those of step %u, older than boundary.stale = %" PRIu64
                    " steps: cuts are dense until there are new ones", version, stale);
    else if (!serve && !compute->measures.dense)
        compute_say(compute, EVENT_WARN, step, "statistics",
                    "the boundaries have no directions yet: cuts are dense until they do");
    else if (serve && compute->measures.dense)
        compute_say(compute, EVENT_INFO, step, "statistics", "the boundaries have directions again, those of step %u",
                    version);
    compute->measures.dense = !serve;
    return serve;
}

static void tell_mark(struct compute *compute, enum snapshot_mark kind, uint64_t version, uint64_t step)
{
    struct wire_mark mark = {.mark = (uint8_t)kind, .version = version, .step = step};
    compute_tell(compute, WIRE_MARK, &mark, step);
}

/* How much of the correction is taken: less and less of directions that are older than the limit. */
static double mix_now(struct compute *compute, uint64_t step)
{
    struct drive *drive = &compute->drive;
    const struct profile *profile = &compute->settings.profile;
    if (profile->anchor_filter == ANCHOR_SHRINK)
        return profile->anchor_mix;
    uint64_t age = drive->basis ? step - drive->basis : 0;
    double fade = filter_fade(age, (uint64_t)profile->anchor_limit);
    if (drive->basis && fade < 1 && !drive->faded_told)
        compute_say(compute, EVENT_WARN, step, "anchor-old", "the anchor's directions in use are of step %" PRIu64 ", %" PRIu64
                    " steps ago: anchor.mix fades from now on, to nothing at %" PRIu64 " steps", drive->basis, age,
                    2 * (uint64_t)profile->anchor_limit);
    drive->faded_told = fade < 1;
    return drive->basis ? profile->anchor_mix * fade : 0;
}

/* Shrinking needs no anchor. */
static bool uses_anchor(const struct compute *compute)
{
    const struct profile *profile = &compute->settings.profile;
    return profile_anchor_measures(profile) || (compute->correct && profile->anchor_filter != ANCHOR_SHRINK);
}

static void stamp_anchor(struct compute *compute, uint64_t step, struct wire_stamp *stamp)
{
    struct drive *drive = &compute->drive;
    if (!compute->correct && !compute->settings.snap && !compute->settings.follow)
        return;
    bool hears = !compute->settings.follow || follow_is_greeted(compute->settings.follow);
    if (drive->capture_wanted && step >= drive->capture_from && hears) {
        stamp->capture = 1;
        drive->capture_wanted = false;
    }
    if (uses_anchor(compute) && drive->use.version && step >= drive->use.from_step) {
        uint64_t version = drive->use.version;
        drive->use.version = 0;
        if (step - version > (uint64_t)compute->settings.profile.anchor_limit) {
            compute_say(compute, EVENT_WARN, step, "anchor-dropped", "the anchor's directions of step %" PRIu64 " came too late, at step %"
                        PRIu64 ": they are not used (anchor.limit)", version, step);
        } else {
            drive->basis = version;
            tell_mark(compute, MARK_USED, version, step);
        }
    }
    stamp->basis = drive->basis;
    stamp->mix = compute->correct ? (float)mix_now(compute, step) : 0;
}

static void stamp_training(struct compute *compute, uint64_t step, struct wire_stamp *stamp)
{
    const struct profile *profile = &compute->settings.profile;
    use_knobs(compute, step);
    stamp->kind = STAMP_TRAIN;
    stamp->micro_batches = (uint16_t)profile->micro_batches;
    stamp->learning_rate = (float)(profile->learning_rate * rate_factor(&compute->rate, step));
    stamp_anchor(compute, step, stamp);
    stamp->codec_version = measures_name(compute, step, stamp->apply);
    if (compute->down.codec && statistics_serve(compute, step, stamp->codec_version))
        stamp->keep = (uint16_t)codec_keep(&compute->down.settings, profile->mask_rate);
}

static void stamp_calibration(const struct compute *compute, struct wire_stamp *stamp)
{
    stamp->kind = STAMP_CALIBRATE;
    stamp->micro_batches = (uint16_t)compute->settings.profile.calibrate;
}

static bool calibration_is_due(const struct compute *compute)
{
    return compute->down.codec && !compute->measures.calibrated && compute->drive.next < compute->drive.last &&
           measures_calibrates(&compute->settings.profile);
}

void drive_capture(struct compute *compute, const struct wire_capture *capture)
{
    compute->drive.capture_wanted = true;
    compute->drive.capture_from = capture->from_step;
}

void drive_use(struct compute *compute, const struct wire_use *use)
{
    if (use->version > compute->drive.basis)
        compute->drive.use = *use;
}

static void stamp_evaluation(const struct compute *compute, struct wire_stamp *stamp)
{
    const struct profile *profile = &compute->settings.profile;
    stamp->kind = STAMP_EVALUATE;
    stamp->micro_batches = (uint16_t)((profile->validation_windows + profile->micro_batch - 1) / profile->micro_batch);
}

/* Which steps are followed by a set of all replicas is a function of the step. */
static bool set_is_due(const struct compute *compute)
{
    const struct drive *drive = &compute->drive;
    return drive->set_due && !drive->held && drive->next < drive->last && siblings_are_still(compute, drive->next - 1);
}

static void note_set(struct compute *compute)
{
    struct drive *drive = &compute->drive;
    uint64_t every = (uint64_t)compute->settings.profile.checkpoint_every, trained = drive->next - 1;
    if (every && trained && trained % every == 0 && drive->noted != drive->next)
        drive->set_due = true;
    drive->noted = drive->next;
}

/* By order, also while it holds; every checkpoint.every steps; and the last weights before the end, of the replica that people take home. */
static bool saving_is_due(const struct compute *compute)
{
    const struct drive *drive = &compute->drive;
    if (drive->save_wanted && drive->next > drive->save_from)
        return true;
    if (set_is_due(compute))
        return true;
    return !drive->held && drive->next >= drive->last && drive->saved != drive->next && siblings_is_lowest(compute);
}

static void stamp_set(const struct compute *compute, struct wire_stamp *stamp)
{
    stamp->kind = STAMP_SAVE;
    stamp->capture = set_is_due(compute);
}

bool drive_next(struct compute *compute, struct wire_stamp *stamp, uint64_t *step)
{
    struct drive *drive = &compute->drive;
    if (drive->started)
        note_set(compute);
    if (!drive->started || ((drive->finished || drive->held) && !saving_is_due(compute)))
        return false; /* also when it is done: the replica that was to write the last weights may have died over it */
    bool apply = compute->optimizer.owed && drive->finite;
    *stamp = (struct wire_stamp){.clip_scale = drive_clip_scale(compute), .apply = apply};
    *step = drive->next - 1;
    if (saving_is_due(compute) && (drive->held || !evaluation_is_due(compute)))
        stamp_set(compute, stamp);
    else if (evaluation_is_due(compute))
        stamp_evaluation(compute, stamp);
    else if (calibration_is_due(compute))
        stamp_calibration(compute, stamp);
    else if (drive->next < drive->last)
        stamp_training(compute, *step = drive->next, stamp);
    else
        stamp->kind = STAMP_FINISH;
    agree_stamp(compute, stamp);
    stamp->mask_rate = (float)compute->settings.profile.mask_rate;
    return true;
}

/* ---- verdicts ---- */

static void tell_bad(struct compute *compute)
{
    struct drive *drive = &compute->drive;
    uint64_t dropped = compute->optimizer.skipped + 1;
    const char *what = isfinite(compute->pass.loss) ? "the gradient" : "the loss";
    compute_say(compute, EVENT_ALERT, drive->newest, "non-finite",
                "%s of step %" PRIu64 " is not finite: its optimiser step is dropped, %" PRIu64 " dropped so far",
                what, drive->newest, dropped);
    if (++drive->bad_in_row < BAD_MOST)
        return;
    drive->held = true;
    drive->bad_in_row = 0;
    compute_say(compute, EVENT_ALERT, drive->newest, "frozen",
                "%d steps in a row were not finite: training holds with the weights "
                "of before; lower train.learning_rate or mask.rate, then resume", BAD_MOST);
}

void drive_judge(struct compute *compute)
{
    struct drive *drive = &compute->drive;
    struct pass *pass = &compute->pass;
    if (pass->stamp.kind == STAMP_SAVE) {
        drive->saved = drive->next;
        drive->save_wanted = false;
        drive->set_due &= !pass->stamp.capture;
        return;
    }
    if (pass->stamp.kind == STAMP_CALIBRATE) {
        compute->measures.calibration_bad = !isfinite(pass->loss) || !isfinite(pass->squares);
        return;
    }
    drive->evaluated = pass->stamp.kind == STAMP_EVALUATE;
    drive->finished = pass->stamp.kind == STAMP_FINISH;
    if (pass->stamp.kind != STAMP_TRAIN)
        return;
    drive->newest = pass->step;
    drive->next = pass->step + 1;
    /* Stages scale by the positions of the step; the mean is over what is learned of them. */
    uint64_t positions = pass->stamp.micro_batches *
                         (uint64_t)(compute->settings.profile.micro_batch * compute->settings.profile.sequence);
    double targets = siblings_targets(compute);
    drive->targets_ratio = targets > 0 ? (double)positions / targets : 0;
    drive->norm = sqrt(pass->squares) * drive->targets_ratio;
    drive->finite = isfinite(pass->loss) && isfinite(drive->norm);
    if (drive->finite)
        drive->bad_in_row = 0;
    else
        tell_bad(compute);
}

void drive_save(struct compute *compute, const struct wire_save *save)
{
    compute->drive.save_wanted = true;
    compute->drive.save_from = save->from_step;
}

void drive_start(struct compute *compute, const struct wire_start *start)
{
    struct drive *drive = &compute->drive;
    if (!drive->started) {
        drive->next = start->first_step ? start->first_step : 1;
        drive->evaluated = drive->resumed ? drive->evaluated : drive->next > 1; /* goes on where another process left off */
    } else if (drive->held && start->first_step != drive->next) {
        compute_say(compute, EVENT_INFO, drive->next, "start", "goes on with step %" PRIu64 ", not with step %" PRIu64,
                    drive->next, start->first_step);
    }
    drive->started = true;
    drive->held = false;
    drive->last = start->last_step;
}
