/* The values of settings as text and back: exact, within the range of the row, and independent of the locale. */
#include "profiles/fields.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "profiles/profile.h"
#include "ssh/base/text.h"

/* ---- numbers as text: exact, and independent of the locale of a terminal program ---- */

static void format_real(double value, char *out, size_t size)
{
    if (value == floor(value) && fabs(value) < 1e15) {
        snprintf(out, size, "%.0f", value);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, size, "%.*g", digits, value);
        char *point = strchr(out, ',');
        if (point)
            *point = '.';
        double back;
        if (text_to_real(out, &back) == 0 && back == value) /* the fewest digits that come back */
            return;
    }
}

struct unit {
    const char *name;
    uint64_t size;
};

/* In the largest unit that divides it, so that it is exact. */
static void format_units(uint64_t value, const struct unit *units, char *out, size_t size)
{
    if (value == 0) {
        snprintf(out, size, "0");
        return;
    }
    while (value % units->size)
        units++;
    snprintf(out, size, "%" PRIu64 "%s", value / units->size, units->name);
}

static void format_rate(uint64_t bps, char *out, size_t size)
{
    static const struct unit units[] = {{"Gbit", 1000000000}, {"Mbit", 1000000}, {"kbit", 1000}, {"bit", 1}};
    format_units(bps, units, out, size);
}

static void format_duration(uint64_t ns, char *out, size_t size)
{
    static const struct unit units[] = {{"h", UINT64_C(3600000000000)}, {"m", UINT64_C(60000000000)}, {"s", 1000000000},
                                        {"ms", 1000000}, {"us", 1000}, {"ns", 1}};
    format_units(ns, units, out, size);
}

static void format_bytes(uint64_t bytes, char *out, size_t size)
{
    static const struct unit units[] = {{"TiB", (uint64_t)1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}};
    format_units(bytes, units, out, size);
}

static void format_number(const struct field *field, double value, char *out, size_t size)
{
    if (field->type == FIELD_RATE)
        format_rate((uint64_t)value, out, size);
    else if (field->type == FIELD_DURATION)
        format_duration((uint64_t)value, out, size);
    else if (field->type == FIELD_BYTES)
        format_bytes((uint64_t)value, out, size);
    else if (field->type == FIELD_TIME)
        text_from_time((uint64_t)value, out, size);
    else if (field->type == FIELD_INTEGER)
        snprintf(out, size, "%" PRId64, (int64_t)value);
    else
        format_real(value, out, size);
}

/* ---- range ---- */

static void range_of_choices(const struct field *field, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "%s", field->choices[1] ? "one of " : "only ");
    for (const char *const *choice = field->choices; *choice && used < size; choice++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", choice == field->choices ? "" : ", ", *choice);
}

void field_range(const struct field *field, char *out, size_t size)
{
    char least[40], most[40];
    switch (field->type) {
    case FIELD_BOOL:
        snprintf(out, size, "yes or no");
        return;
    case FIELD_TEXT:
        snprintf(out, size, "at most %zu bytes", field->size - 1);
        return;
    case FIELD_CHOICE:
        range_of_choices(field, out, size);
        return;
    default:
        format_number(field, field->minimum, least, sizeof least);
        format_number(field, field->maximum, most, sizeof most);
        snprintf(out, size, "%s … %s%s%s", least, most, *field->unit ? " " : "", field->unit);
    }
}

/* ---- parse ---- */

static int refuse(const struct field *field, const char *text, const char *what, struct why *why)
{
    char name[64], range[200];
    field_range(field, range, sizeof range);
    return why_set(why, ERR_INVALID, "%s = %.100s %s: %s", field_name(field, name, sizeof name),
                   *text ? text : "(nothing)", what, range);
}

static int check_range(const struct field *field, const char *text, double value, struct why *why)
{
    if (value >= field->minimum && value <= field->maximum)
        return 0;
    return refuse(field, text, "is out of range", why);
}

static int parse_bool(const struct field *field, const char *text, void *at, struct why *why)
{
    bool value;
    if (text_to_bool(text, &value))
        return refuse(field, text, "is not an answer", why);
    *(bool *)at = value;
    return 0;
}

static int parse_integer(const struct field *field, const char *text, void *at, struct why *why)
{
    uint64_t value;
    double real;
    if (text_to_u64(text, &value)) {
        /* -1 and 1e30 are numbers out of range; 2.5 and "many" are not whole numbers. */
        if (text_to_real(text, &real) == 0 && (real < field->minimum || real > field->maximum))
            return refuse(field, text, "is out of range", why);
        return refuse(field, text, "is not a whole number", why);
    }
    int err = check_range(field, text, (double)value, why);
    if (err == 0)
        *(int64_t *)at = (int64_t)value;
    return err;
}

static int parse_real(const struct field *field, const char *text, void *at, struct why *why)
{
    double value;
    if (text_to_real(text, &value))
        return refuse(field, text, "is not a number", why);
    int err = check_range(field, text, value, why);
    if (err == 0)
        *(double *)at = value;
    return err;
}

static int parse_text(const struct field *field, const char *text, void *at, struct why *why)
{
    while (*text == ' ' || *text == '\t')
        text++;
    size_t length = strlen(text);
    while (length > 0 && (text[length - 1] == ' ' || text[length - 1] == '\t'))
        length--;
    if (length >= field->size)
        return refuse(field, text, "is too long", why);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return refuse(field, text, "has a control character", why);
    if (length == 0 && !field->initial)
        return refuse(field, text, "must be given", why);
    memset(at, 0, field->size); /* no trace of the old value: profiles are compared and hashed */
    memcpy(at, text, length);
    return 0;
}

static int parse_choice(const struct field *field, const char *text, void *at, struct why *why)
{
    for (int i = 0; field->choices[i]; i++) {
        if (strcmp(text, field->choices[i]) == 0) {
            *(int *)at = i;
            return 0;
        }
    }
    return refuse(field, text, "is not known", why);
}

static int parse_u64(const struct field *field, const char *text, void *at, struct why *why)
{
    static const struct {
        int (*read)(const char *text, uint64_t *value);
        const char *complaint;
    } kinds[] = {[FIELD_RATE] = {text_to_rate, "is not a rate such as 200Mbit"},
                 [FIELD_DURATION] = {text_to_duration, "is not a time such as 20ms"},
                 [FIELD_BYTES] = {text_to_bytes, "is not a size such as 20GiB"},
                 [FIELD_TIME] = {text_to_time, "is not a time in UTC such as 2026-12-01T08:00Z"}};
    uint64_t value;
    int err = kinds[field->type].read(text, &value);
    if (err)
        return refuse(field, text, kinds[field->type].complaint, why);
    err = check_range(field, text, (double)value, why);
    if (err == 0)
        *(uint64_t *)at = value;
    return err;
}

int field_parse(const struct field *field, const char *text, void *base, struct why *why)
{
    typedef int parse_fn(const struct field *, const char *, void *, struct why *);
    static parse_fn *const parsers[] = {
        [FIELD_BOOL] = parse_bool, [FIELD_INTEGER] = parse_integer, [FIELD_REAL] = parse_real, [FIELD_TEXT] = parse_text,
        [FIELD_CHOICE] = parse_choice, [FIELD_RATE] = parse_u64, [FIELD_DURATION] = parse_u64,
        [FIELD_BYTES] = parse_u64,  [FIELD_TIME] = parse_u64,
    };
    return parsers[field->type](field, text, (char *)base + field->offset, why);
}

/* ---- format ---- */

void field_format(const struct field *field, const void *base, char *out, size_t size)
{
    const void *at = (const char *)base + field->offset;
    switch (field->type) {
    case FIELD_BOOL:
        snprintf(out, size, "%s", *(const bool *)at ? "yes" : "no");
        break;
    case FIELD_INTEGER:
        snprintf(out, size, "%" PRId64, *(const int64_t *)at);
        break;
    case FIELD_REAL:
        format_real(*(const double *)at, out, size);
        break;
    case FIELD_TEXT:
        snprintf(out, size, "%s", (const char *)at);
        break;
    case FIELD_CHOICE:
        snprintf(out, size, "%s", field->choices[*(const int *)at]);
        break;
    case FIELD_RATE:
        format_rate(*(const uint64_t *)at, out, size);
        break;
    case FIELD_DURATION:
        format_duration(*(const uint64_t *)at, out, size);
        break;
    case FIELD_BYTES:
        format_bytes(*(const uint64_t *)at, out, size);
        break;
    case FIELD_TIME:
        text_from_time(*(const uint64_t *)at, out, size);
        break;
    }
}
