/*
 * One live setting: its next value up or down, and what a value would do. Pure.
 */
#ifndef KEDGE_CONSOLE_KNOB_H
#define KEDGE_CONSOLE_KNOB_H

#include <stdbool.h>
#include <stddef.h>

#include "console/state.h"
#include "console/style.h"
#include "profiles/fields.h"

/* The value one step up or down from `value`, within the row's range and as one would write it. False: there is none. */
bool knob_step(const struct field *field, const char *value, bool up, char *out, size_t size);
/* Whether the value may be proposed; `why` says the range. */
bool knob_check(const struct field *field, const char *value, struct why *why);
/* What `value` would do to bytes and time of a step, from what is measured now: "about 31 KB a step instead of 12 KB …". */
void knob_preview(const struct state *state, const struct style *style, const char *name, const char *value, char *out, size_t size);

#endif
