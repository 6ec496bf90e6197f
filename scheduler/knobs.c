#include "scheduler/knobs.h"

#include <stdio.h>
#include <string.h>

#include "profiles/fields.h"
#include "ssh/base/mem.h"

struct pending {
    uint64_t ledger; /* 0 = free */
    uint64_t step;   /* smallest step that a replica used it at; UINT64_MAX = none yet */
    uint64_t users;  /* a bit per replica that used it */
};

struct knobs {
    struct profile profile; /* active values */
    struct profile begun;   /* what the run began with */
    uint64_t replicas;      /* a bit per replica */
    struct record *record;
    struct pending pending[KNOBS_PENDING]; /* ids ascending, no gaps */
    size_t pending_count;
};

static struct record_knob *find_row(struct record *record, const char *name)
{
    for (size_t i = 0; i < record->knob_count; i++)
        if (strcmp(record->knobs[i].row.name, name) == 0)
            return &record->knobs[i];
    return NULL;
}

static void set_row(struct knobs *knobs, const struct field *field)
{
    struct wire_knob_row row = {.pending = 0};
    field_name(field, row.name, sizeof row.name);
    field_format(field, &knobs->profile, row.value, sizeof row.value);
    for (size_t i = 0; i < knobs->pending_count; i++) {
        const struct record_ledger *ledger = record_find_ledger(knobs->record, knobs->pending[i].ledger);
        if (ledger && strcmp(ledger->row.name, row.name) == 0) {
            row.pending = 1;
            record_text(row.pending_value, sizeof row.pending_value, "%s", ledger->row.new_value);
        }
    }
    struct record_knob *old = find_row(knobs->record, row.name);
    if (!old) {
        if (knobs->record->knob_count == RECORD_KNOBS)
            BUG("more than %d live settings", RECORD_KNOBS);
        old = &knobs->record->knobs[knobs->record->knob_count++];
    }
    old->row = row;
    record_touch(knobs->record, &old->version);
}

static void add_pending(struct knobs *knobs, uint64_t ledger)
{
    knobs->pending[knobs->pending_count++] = (struct pending){.ledger = ledger, .step = UINT64_MAX};
}

static void drop_pending(struct knobs *knobs, size_t index)
{
    knobs->pending_count--;
    memmove(&knobs->pending[index], &knobs->pending[index + 1], (knobs->pending_count - index) * sizeof knobs->pending[0]);
}

/* The ledger of a former kedged of this run: active values apply in order, proposed ones wait on. */
static void restore(struct knobs *knobs)
{
    struct record *record = knobs->record;
    uint64_t first = record->newest_ledger > RECORD_LEDGER ? record->newest_ledger - RECORD_LEDGER + 1 : 1;
    for (uint64_t id = first; id <= record->newest_ledger; id++) {
        const struct record_ledger *ledger = record_find_ledger(record, id);
        const struct field *field = ledger ? field_find(ledger->row.name) : NULL;
        if (!field)
            continue;
        if (ledger->row.state == LEDGER_ACTIVE)
            field_parse(field, ledger->row.new_value, &knobs->profile, NULL);
        else if (ledger->row.state == LEDGER_PROPOSED && knobs->pending_count < KNOBS_PENDING)
            add_pending(knobs, id);
    }
}

/* Rows are for what can be turned in this run; the others are refused with the reason. */
static bool is_knob(const struct knobs *knobs, const struct field *field)
{
    char name[WIRE_NAME];
    field_name(field, name, sizeof name);
    return field->live && strcmp(field->section, "host") != 0 && profile_check_effect(&knobs->begun, name, NULL) == 0;
}

struct knobs *knobs_new(const struct profile *profile, int replicas, struct record *record)
{
    BUG_IF(replicas < 1 || replicas > 64);
    struct knobs *knobs = mem_new(sizeof *knobs);
    knobs->profile = knobs->begun = *profile;
    knobs->replicas = UINT64_MAX >> (64 - replicas);
    knobs->record = record;
    restore(knobs);
    size_t count;
    const struct field *fields = field_all(&count);
    for (size_t i = 0; i < count; i++)
        if (is_knob(knobs, &fields[i]))
            set_row(knobs, &fields[i]);
    return knobs;
}

void knobs_free(struct knobs *knobs)
{
    mem_free(knobs);
}

const struct profile *knobs_profile(const struct knobs *knobs)
{
    return &knobs->profile;
}

/* The value as it will be when all that is pending has been used. */
static void newest_value(const struct knobs *knobs, const struct field *field, const char *name, char *out, size_t size)
{
    field_format(field, &knobs->profile, out, size);
    for (size_t i = 0; i < knobs->pending_count; i++) {
        const struct record_ledger *ledger = record_find_ledger(knobs->record, knobs->pending[i].ledger);
        if (ledger && strcmp(ledger->row.name, name) == 0)
            record_text(out, size, "%s", ledger->row.new_value);
    }
}

static const struct field *find_live(const char *name, struct why *why)
{
    const struct field *field = field_find(name);
    if (!field) {
        const char *nearest = field_nearest(name);
        why_set(why, ERR_INVALID, "there is no setting '%s'%s%s%s", name, nearest ? "; did you mean '" : "",
                nearest ? nearest : "", nearest ? "'?" : "");
        return NULL;
    }
    if (!field->live || strcmp(field->section, "host") == 0) {
        why_set(why, ERR_REFUSED, "%s is fixed while a run goes on; change it in the profile and start the run again", name);
        return NULL;
    }
    return field;
}

static void set_ledger(struct knobs *knobs, struct record_ledger *ledger, enum ledger_state state, uint64_t step)
{
    ledger->row.state = (uint8_t)state;
    ledger->row.step = step;
    record_touch(knobs->record, &ledger->version);
    knobs->record->urgent = true;
}

int knobs_propose(struct knobs *knobs, const char *name, const char *value, const char *who, uint64_t newest_step,
                  uint64_t last_step, uint64_t *ledger, struct why *why)
{
    const struct field *field = find_live(name, why);
    if (!field)
        return why && why->err ? why->err : ERR_INVALID;
    struct profile changed = knobs->profile;
    int err = field_parse(field, value, &changed, why);
    if (err < 0)
        return err;
    char full[WIRE_NAME], old_text[WIRE_NAME], new_text[WIRE_NAME];
    field_name(field, full, sizeof full);
    newest_value(knobs, field, full, old_text, sizeof old_text);
    field_format(field, &changed, new_text, sizeof new_text);
    *ledger = 0;
    if (strcmp(old_text, new_text) == 0)
        return 0;
    err = profile_check_live(&knobs->begun, &changed, full, why);
    if (err < 0)
        return err;
    bool own = field->applier == APPLIES_SCHEDULER; /* kedged obeys it at once: nobody has to agree */
    uint64_t from_step = own ? newest_step : newest_step + 2;
    if (from_step > last_step)
        return why_set(why, ERR_REFUSED, "%s=%s would begin at step %llu, and the run ends at step %llu", full, new_text,
                       (unsigned long long)from_step, (unsigned long long)last_step);
    if (!own && knobs->pending_count == KNOBS_PENDING)
        return why_set(why, ERR_FULL, "%d changes wait already to be used by a step; try again when they are",
                       KNOBS_PENDING);
    struct record_ledger *row = record_add_ledger(knobs->record);
    row->from_step = from_step;
    row->row.state = LEDGER_PROPOSED;
    record_text(row->row.name, sizeof row->row.name, "%s", full);
    record_text(row->row.old_value, sizeof row->row.old_value, "%s", old_text);
    record_text(row->row.new_value, sizeof row->row.new_value, "%s", new_text);
    record_text(row->row.who, sizeof row->row.who, "%s", who);
    if (own) {
        knobs->profile = changed;
        set_ledger(knobs, row, LEDGER_ACTIVE, from_step);
    } else {
        add_pending(knobs, row->row.id);
    }
    set_row(knobs, field);
    *ledger = row->row.id;
    return 0;
}

bool knobs_pending(const struct knobs *knobs, int replica, uint64_t after, struct wire_knob *knob)
{
    for (size_t i = 0; i < knobs->pending_count; i++) {
        const struct pending *pending = &knobs->pending[i];
        if (pending->ledger <= after || (pending->users >> replica & 1))
            continue;
        const struct record_ledger *ledger = record_find_ledger(knobs->record, pending->ledger);
        if (!ledger)
            continue;
        *knob = (struct wire_knob){.ledger = pending->ledger, .from_step = ledger->from_step};
        record_text(knob->name, sizeof knob->name, "%s", ledger->row.name);
        record_text(knob->value, sizeof knob->value, "%s", ledger->row.new_value);
        return true;
    }
    return false;
}

/* An older change of the same setting that no replica used will never be used: it was overtaken. */
static uint64_t drop_overtaken(struct knobs *knobs, uint64_t by, const char *name)
{
    uint64_t replaced = 0;
    for (size_t i = 0; i < knobs->pending_count && knobs->pending[i].ledger < by;) {
        struct record_ledger *older = record_find_ledger(knobs->record, knobs->pending[i].ledger);
        if (older && strcmp(older->row.name, name) != 0) {
            i++;
            continue;
        }
        if (older) {
            bool was_used = knobs->pending[i].users != 0;
            set_ledger(knobs, older, was_used ? LEDGER_ACTIVE : LEDGER_REFUSED, was_used ? knobs->pending[i].step : 0);
            replaced = was_used ? replaced : older->row.id;
        }
        drop_pending(knobs, i);
    }
    return replaced;
}

/* All replicas that are here have used it: it is active. */
static void settle(struct knobs *knobs, size_t index, uint64_t *replaced)
{
    struct pending pending = knobs->pending[index];
    struct record_ledger *ledger = record_find_ledger(knobs->record, pending.ledger);
    const struct field *field = ledger ? field_find(ledger->row.name) : NULL;
    drop_pending(knobs, index);
    if (!ledger)
        return;
    if (field)
        field_parse(field, ledger->row.new_value, &knobs->profile, NULL);
    set_ledger(knobs, ledger, LEDGER_ACTIVE, pending.step);
    *replaced = drop_overtaken(knobs, pending.ledger, ledger->row.name);
    if (field)
        set_row(knobs, field);
}

static bool is_used(const struct knobs *knobs, size_t index)
{
    return knobs->pending[index].users != 0 && (knobs->pending[index].users & knobs->replicas) == knobs->replicas;
}

void knobs_leave(struct knobs *knobs, int replica)
{
    uint64_t replaced = 0;
    knobs->replicas &= ~(UINT64_C(1) << replica);
    for (size_t i = 0; i < knobs->pending_count;)
        if (is_used(knobs, i)) {
            settle(knobs, i, &replaced);
            i = 0; /* what it overtook is gone, too */
        } else {
            i++;
        }
}

/* Replicas agree about these by themselves, and tell one that joins (gpu/train/agree.c). */
static bool is_agreed(const struct record_ledger *ledger)
{
    return strncmp(ledger->row.name, "sync.", strlen("sync.")) == 0;
}

void knobs_join(struct knobs *knobs, int replica)
{
    knobs->replicas |= UINT64_C(1) << replica;
    for (size_t i = 0; i < knobs->pending_count; i++) {
        const struct record_ledger *ledger = record_find_ledger(knobs->record, knobs->pending[i].ledger);
        if (ledger && is_agreed(ledger) && knobs->pending[i].users) /* it begins with that value */
            knobs->pending[i].users |= UINT64_C(1) << replica;
    }
}

bool knobs_active(const struct knobs *knobs, uint64_t after, struct wire_knob *knob)
{
    const struct record *record = knobs->record;
    uint64_t first = record->newest_ledger > RECORD_LEDGER ? record->newest_ledger - RECORD_LEDGER + 1 : 1;
    for (uint64_t id = first > after ? first : after + 1; id <= record->newest_ledger; id++) {
        const struct record_ledger *ledger = record_find_ledger(knobs->record, id);
        bool newest = ledger && ledger->row.state == LEDGER_ACTIVE && !is_agreed(ledger) && field_find(ledger->row.name);
        for (uint64_t later = id + 1; newest && later <= record->newest_ledger; later++) {
            const struct record_ledger *other = record_find_ledger(knobs->record, later);
            newest = !other || other->row.state != LEDGER_ACTIVE || strcmp(other->row.name, ledger->row.name) != 0;
        }
        if (!newest)
            continue;
        *knob = (struct wire_knob){.ledger = id};
        record_text(knob->name, sizeof knob->name, "%s", ledger->row.name);
        record_text(knob->value, sizeof knob->value, "%s", ledger->row.new_value);
        return true;
    }
    return false;
}

int knobs_used(struct knobs *knobs, int replica, const struct wire_knob_used *used, uint64_t *replaced, struct why *why)
{
    *replaced = 0;
    struct record_ledger *ledger = record_find_ledger(knobs->record, used->ledger);
    if (!ledger)
        return why_set(why, ERR_INVALID, "%s=%s was used at step %llu for ledger row %llu, which nobody proposed",
                       used->name, used->value, (unsigned long long)used->step, (unsigned long long)used->ledger);
    if (strcmp(ledger->row.name, used->name) != 0 || strcmp(ledger->row.new_value, used->value) != 0)
        return why_set(why, ERR_INVALID, "ledger row %llu asks for %s=%s, but %s=%s was used at step %llu",
                       (unsigned long long)used->ledger, ledger->row.name, ledger->row.new_value, used->name, used->value,
                       (unsigned long long)used->step);
    for (size_t i = 0; i < knobs->pending_count; i++) {
        struct pending *pending = &knobs->pending[i];
        if (pending->ledger != used->ledger)
            continue;
        pending->users |= UINT64_C(1) << replica;
        if (used->step < pending->step)
            pending->step = used->step;
        if (is_used(knobs, i))
            settle(knobs, i, replaced);
        return 0;
    }
    return 0; /* said again: known already */
}

void knobs_end(struct knobs *knobs)
{
    while (knobs->pending_count > 0) {
        struct record_ledger *ledger = record_find_ledger(knobs->record, knobs->pending[0].ledger);
        drop_pending(knobs, 0);
        if (!ledger)
            continue;
        set_ledger(knobs, ledger, LEDGER_REFUSED, 0);
        const struct field *field = field_find(ledger->row.name);
        if (field)
            set_row(knobs, field);
    }
}
