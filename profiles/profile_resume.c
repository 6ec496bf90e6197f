/* What may be another in a profile when a run goes on from a set, and what becomes of settings that were changed while it ran. */
#include <string.h>

#include "profiles/fields.h"
#include "profiles/profile.h"

/* Of rows that are neither live nor of a host or a road: they say how the run is carried out, and no number of it depends on them. With run.steps
 * higher a run goes on longer; a cosine schedule is another one then. */
static const char *const free_rows[] = {
    "run.name",         "run.steps",        "run.timeout",     "run.deadline",       "run.budget",
    "run.listen",       "run.announce",     "run.head",        "run.without_scheduler", "run.log",
    "checkpoint.every", "checkpoint.keep",  "pipeline.in_flight", "train.evaluate_every",
    "pipeline.layers", /* the scheduler compares what comes of it */
};

static bool may_change(const struct field *row, const char *name)
{
    bool may = row->live || field_is_host(row) || strcmp(row->section, "link") == 0;
    for (size_t i = 0; i < sizeof free_rows / sizeof *free_rows; i++)
        may |= strcmp(free_rows[i], name) == 0;
    return may;
}

int profile_check_resume(const struct profile *begun, const struct profile *now, struct why *why)
{
    size_t count;
    const struct field *rows = field_all(&count);
    for (size_t i = 0; i < count; i++) {
        char name[PROFILE_NAME + 64], was[PROFILE_PATHS + 64], is[PROFILE_PATHS + 64];
        field_name(&rows[i], name, sizeof name);
        if (may_change(&rows[i], name))
            continue;
        field_format(&rows[i], begun, was, sizeof was);
        field_format(&rows[i], now, is, sizeof is);
        if (strcmp(was, is) != 0)
            return why_set(why, ERR_REFUSED, "%s is '%s' in the set and '%s' in the profile: put it back, or begin a run with what 'kedge "
                           "export' makes of the set", name, was, is);
    }
    return 0;
}

int profile_resume_live(const struct profile *begun, const struct profile *live, struct profile *now,
                        void (*kept_cb)(const char *name, const char *value, void *arg), void *arg, struct why *why)
{
    size_t count;
    const struct field *rows = field_all(&count);
    int err = 0;
    for (size_t i = 0; i < count && !err; i++) {
        char name[PROFILE_NAME + 64], was[PROFILE_PATHS + 64], set[PROFILE_PATHS + 64], is[PROFILE_PATHS + 64];
        if (!rows[i].live || field_is_host(&rows[i]))
            continue;
        field_name(&rows[i], name, sizeof name);
        field_format(&rows[i], begun, was, sizeof was);
        field_format(&rows[i], live, set, sizeof set);
        field_format(&rows[i], now, is, sizeof is);
        if (strcmp(was, set) == 0 || strcmp(was, is) != 0)
            continue; /* it was not changed, or the profile has been since */
        err = profile_set(now, name, set, why);
        if (!err)
            kept_cb(name, set, arg);
    }
    return err;
}
