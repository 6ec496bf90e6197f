/*
 * The settings table: one row per setting; parser, validator, edit form, `kedge set`, --help and kedge-profile.5 all read
 * these rows. Adding a setting = one member of struct profile (or struct profile_host) + one row in fields.c.
 */
#ifndef KEDGE_PROFILES_FIELDS_H
#define KEDGE_PROFILES_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "ssh/base/why.h"

enum field_type {
    FIELD_BOOL,     /* bool */
    FIELD_INTEGER,  /* int64_t */
    FIELD_REAL,     /* double */
    FIELD_TEXT,     /* char[size] */
    FIELD_CHOICE,   /* int: index into choices */
    FIELD_RATE,     /* uint64_t bits a second: "200Mbit" */
    FIELD_DURATION, /* uint64_t nanoseconds: "20ms" */
    FIELD_BYTES,    /* uint64_t: "20GiB" */
    FIELD_TIME,     /* uint64_t seconds since 1970, 0 = never: "2026-12-01T08:00:00Z" */
};

enum field_applier { APPLIES_CONSOLE, APPLIES_SCHEDULER, APPLIES_AGENT, APPLIES_STAGE, APPLIES_ALL_STAGES };

struct field {
    const char *section;        /* "mask"; "host" rows belong to [host NAME] */
    const char *key;            /* "rate": the full name is "mask.rate" */
    enum field_type type;
    const char *unit;           /* "tokens", "steps", "" … for people */
    double minimum, maximum;    /* of numbers, inclusive */
    const char *const *choices; /* NULL-terminated, of FIELD_CHOICE */
    const char *initial;        /* default, as one would write it; NULL = must be given */
    const char *help;           /* one sentence */
    bool live;                  /* may be changed while a run goes on */
    enum field_applier applier;
    size_t offset, size;        /* in struct profile, or in struct profile_host for section "host" */
};

const struct field *field_all(size_t *count);
/* "mask.rate" → row, NULL when there is none. Host rows are found as "host.listen". */
const struct field *field_find(const char *name);
/* The nearest full name, for suggestions; NULL when nothing is near. */
const char *field_nearest(const char *name);
const char *field_name(const struct field *field, char *out, size_t size); /* "mask.rate" */

/* Parse `text` into `base + offset`, with range check. The complaint names the setting, the range and the unit. */
int field_parse(const struct field *field, const char *text, void *base, struct why *why);
/* The value as one would write it in the INI file; parses back to the same value. */
void field_format(const struct field *field, const void *base, char *out, size_t size);
bool field_is_host(const struct field *field); /* a row of [host NAME] */
int field_index(const struct field *field);    /* among all rows */
int field_host_index(const struct field *field); /* among the host rows */
/* "0 … 0.999", "one of dense, mask", for help and man page. */
void field_range(const struct field *field, char *out, size_t size);
/* The rows as mdoc, section by section: the middle part of kedge-profile.5. */
void field_print_manual(FILE *out);

#endif
