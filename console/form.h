/*
 * A profile as a form: a row per setting of the table, its value as text, what was changed. Pure; the file is read and written by others
 * (profile_read, profile_write_value), so that comments stay.
 */
#ifndef KEDGE_CONSOLE_FORM_H
#define KEDGE_CONSOLE_FORM_H

#include <stdbool.h>
#include <stddef.h>

#include "profiles/fields.h"
#include "profiles/profile.h"

#define FORM_NAME 96

struct form_row {
    char name[FORM_NAME]; /* "mask.rate", "host.a.threads" */
    const struct field *field;
    bool given;           /* in the file; else it is the default */
    char *value, *before; /* owned */
};

struct form {
    char path[512]; /* "" = none is open */
    struct form_row *rows;
    size_t count;
};

void form_open(struct form *form, const char *path, const struct profile *profile);
void form_clear(struct form *form);
/* Checked by the row's range; a value that is refused changes nothing. */
int form_set(struct form *form, size_t row, const char *value, struct why *why);
int form_try(const struct form *form, size_t row, const char *value, struct why *why); /* the same, and nothing is taken */
bool form_is_changed(const struct form *form, size_t row);
size_t form_changes(const struct form *form); /* how many rows */
/* "mask.rate = 0.95  →  0.9", a line a change; mem_free it. */
char *form_diff(const struct form *form);
void form_written(struct form *form); /* the file has the values now */

#endif
