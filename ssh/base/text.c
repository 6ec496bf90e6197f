/*
 * Words and numbers as people write them. A quantity is a number and a unit out of a table; whole numbers are multiplied
 * exactly, fractions are rounded to the nearest. Nothing depends on the locale.
 */
#include "ssh/base/text.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "ssh/base/clock.h"
#include "ssh/base/why.h"

#define WORD_BYTES 64 /* no number, unit or name that people write is longer */

struct unit {
    const char *name;
    uint64_t factor;
};

#define KILO UINT64_C(1000)

static const struct unit byte_units[] = {
    {"B", 1},
    {"KiB", UINT64_C(1) << 10}, {"MiB", UINT64_C(1) << 20}, {"GiB", UINT64_C(1) << 30}, {"TiB", UINT64_C(1) << 40},
    {"kB", KILO}, {"MB", KILO * KILO}, {"GB", KILO * KILO * KILO}, {"TB", KILO * KILO * KILO * KILO},
    {NULL, 0},
};
static const struct unit rate_units[] = {
    {"bit", 1}, {"kbit", KILO}, {"Mbit", KILO * KILO}, {"Gbit", KILO * KILO * KILO}, {"Tbit", KILO * KILO * KILO * KILO},
    {"bit/s", 1}, {"kbit/s", KILO}, {"Mbit/s", KILO * KILO}, {"Gbit/s", KILO * KILO * KILO},
    {"Tbit/s", KILO * KILO * KILO * KILO},
    {NULL, 0},
};
static const struct unit duration_units[] = {
    {"ns", 1}, {"us", KILO}, {"ms", CLOCK_MS}, {"s", CLOCK_SECOND}, {"m", 60 * CLOCK_SECOND}, {"min", 60 * CLOCK_SECOND},
    {"h", 3600 * CLOCK_SECOND}, {"d", 86400 * CLOCK_SECOND},
    {NULL, 0},
};

/* The text without white space around it, in `out`; false when it is empty or longer than a word. */
static bool trim(const char *text, char out[WORD_BYTES])
{
    while (isspace((unsigned char)*text))
        text++;
    size_t length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1]))
        length--;
    if (length == 0 || length >= WORD_BYTES)
        return false;
    memcpy(out, text, length);
    out[length] = 0;
    return true;
}

static bool digits_to_u64(const char *digits, size_t length, uint64_t *value)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < length; i++) {
        if (!isdigit((unsigned char)digits[i]))
            return false;
        if (__builtin_mul_overflow(sum, 10, &sum) || __builtin_add_overflow(sum, (uint64_t)(digits[i] - '0'), &sum))
            return false;
    }
    *value = sum;
    return length > 0;
}

int text_to_u64(const char *text, uint64_t *value)
{
    char word[WORD_BYTES];
    return trim(text, word) && digits_to_u64(word, strlen(word), value) ? 0 : ERR_INVALID;
}

int text_to_real(const char *text, double *value)
{
    char word[WORD_BYTES], *end;
    if (!trim(text, word) || word[strspn(word, "0123456789+-.eE")])
        return ERR_INVALID;
    locale_t plain = newlocale(LC_ALL_MASK, "C", NULL);
    if (!plain)
        return ERR_INVALID;
    double parsed = strtod_l(word, &end, plain);
    freelocale(plain);
    if (*end || end == word || !isfinite(parsed))
        return ERR_INVALID;
    *value = parsed;
    return 0;
}

int text_to_bool(const char *text, bool *value)
{
    static const char *const yes[] = {"yes", "true", "on", "1"}, *const no[] = {"no", "false", "off", "0"};
    char word[WORD_BYTES];
    if (!trim(text, word))
        return ERR_INVALID;
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        bool is_yes = strcasecmp(word, yes[i]) == 0;
        if (is_yes || strcasecmp(word, no[i]) == 0) {
            *value = is_yes;
            return 0;
        }
    }
    return ERR_INVALID;
}

/* number × factor, rounded; the fraction may be absent. */
static bool multiply(const char *number, uint64_t factor, uint64_t *product)
{
    uint64_t whole;
    size_t length = strlen(number);
    if (digits_to_u64(number, length, &whole))
        return !__builtin_mul_overflow(whole, factor, product);
    size_t before = strspn(number, "0123456789"), after = 0;
    if (number[before] == '.')
        after = strspn(number + before + 1, "0123456789");
    if (before == 0 || after == 0 || before + 1 + after != length || !digits_to_u64(number, before, &whole))
        return false;
    uint64_t exact;
    if (__builtin_mul_overflow(whole, factor, &exact))
        return false;
    long double fraction = 0, place = 1;
    for (size_t i = 0; i < after; i++)
        fraction += (number[before + 1 + i] - '0') * (place /= 10);
    return !__builtin_add_overflow(exact, (uint64_t)roundl(fraction * (long double)factor), product);
}

/* A bare number takes `bare_factor`; where that is 0 only the number zero needs no unit. */
static int quantity(const char *text, const struct unit *units, uint64_t bare_factor, uint64_t *value)
{
    char word[WORD_BYTES];
    uint64_t parsed;
    if (!trim(text, word))
        return ERR_INVALID;
    size_t length = strspn(word, "0123456789.");
    const char *unit = word + length;
    while (isspace((unsigned char)*unit))
        unit++;
    uint64_t factor = bare_factor;
    bool known = *unit == 0;
    for (const struct unit *row = units; !known && row->name; row++)
        if (strcasecmp(unit, row->name) == 0) {
            factor = row->factor;
            known = true;
        }
    word[length] = 0;
    if (!known)
        return ERR_INVALID;
    if (factor == 0) /* no unit, and this kind needs one: only 0 is clear without */
        return multiply(word, 1, &parsed) && parsed == 0 && !word[strspn(word, "0.")] ? (*value = 0, 0) : ERR_INVALID;
    if (!multiply(word, factor, &parsed))
        return ERR_INVALID;
    *value = parsed;
    return 0;
}

int text_to_bytes(const char *text, uint64_t *bytes)
{
    return quantity(text, byte_units, 1, bytes);
}

int text_to_rate(const char *text, uint64_t *bits_per_second)
{
    return quantity(text, rate_units, 0, bits_per_second);
}

int text_to_duration(const char *text, uint64_t *nanoseconds)
{
    return quantity(text, duration_units, 0, nanoseconds);
}

int text_to_time(const char *text, uint64_t *seconds)
{
    char word[WORD_BYTES];
    struct tm date = {0}, same;
    int end = -1, seconds_end = -1;
    if (!trim(text, word))
        return ERR_INVALID;
    if (strcmp(word, "0") == 0)
        return *seconds = 0, 0;
    if (strspn(word, "0123456789-:TZ") != strlen(word) || strlen(word) < 17 ||
        sscanf(word, "%4d-%2d-%2dT%2d:%2d%n:%2d%n", &date.tm_year, &date.tm_mon, &date.tm_mday, &date.tm_hour, &date.tm_min, &end,
               &date.tm_sec, &seconds_end) < 5 || strcmp(word + (seconds_end > 0 ? seconds_end : end), "Z") != 0)
        return ERR_INVALID;
    date.tm_year -= 1900;
    date.tm_mon--;
    same = date;
    time_t at = timegm(&same); /* and makes May 1 of April 31 */
    if (at < 0 || same.tm_mon != date.tm_mon || same.tm_mday != date.tm_mday || same.tm_hour != date.tm_hour ||
        same.tm_min != date.tm_min || same.tm_sec != date.tm_sec)
        return ERR_INVALID;
    *seconds = (uint64_t)at;
    return 0;
}

char *text_from_time(uint64_t seconds, char *out, size_t size)
{
    time_t at = (time_t)seconds;
    struct tm date;
    if (!seconds || !gmtime_r(&at, &date) || strftime(out, size, "%Y-%m-%dT%H:%M:%SZ", &date) == 0)
        snprintf(out, size, "0");
    return out;
}

/* "1.5 MiB": one decimal from the second unit on, moving up when rounding would show 1024.0. */
static char *scaled(double value, double step, const char *const *units, size_t count, char *out, size_t size)
{
    size_t unit = 0;
    while (unit + 1 < count && value >= (unit ? step - 0.05 : step - 0.5)) {
        value /= step;
        unit++;
    }
    snprintf(out, size, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return out;
}

char *text_from_bytes(uint64_t bytes, char *out, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    return scaled((double)bytes, 1024, units, sizeof units / sizeof *units, out, size);
}

char *text_from_rate(double bytes_per_second, char *out, size_t size)
{
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    if (!isfinite(bytes_per_second) || bytes_per_second < 0) {
        snprintf(out, size, "unknown");
        return out;
    }
    return scaled(bytes_per_second, 1000, units, sizeof units / sizeof *units, out, size);
}

char *text_from_duration(uint64_t nanoseconds, char *out, size_t size)
{
    static const char *const units[] = {"ns", "us", "ms"};
    static const struct { uint64_t large; const char *name; uint64_t small; const char *rest; } pairs[] = {
        {86400, "d", 3600, "h"}, {3600, "h", 60, "m"}, {60, "m", 1, "s"},
    };
    uint64_t tenths = nanoseconds / (CLOCK_SECOND / 10) + (nanoseconds % (CLOCK_SECOND / 10) >= CLOCK_SECOND / 20);
    if (tenths >= 600) {
        uint64_t seconds = nanoseconds / CLOCK_SECOND + (nanoseconds % CLOCK_SECOND >= CLOCK_SECOND / 2);
        size_t i = 0;
        while (i < 2 && seconds < pairs[i].large)
            i++;
        snprintf(out, size, "%llu %s %02llu %s", (unsigned long long)(seconds / pairs[i].large), pairs[i].name,
                 (unsigned long long)(seconds % pairs[i].large / pairs[i].small), pairs[i].rest);
    } else if (nanoseconds >= CLOCK_SECOND - CLOCK_MS / 2) {
        snprintf(out, size, "%llu.%llu s", (unsigned long long)(tenths / 10), (unsigned long long)(tenths % 10));
    } else {
        double value = (double)nanoseconds;
        size_t unit = 0;
        for (; unit < 2 && value >= 999.5; unit++)
            value /= 1000;
        snprintf(out, size, "%.0f %s", value, units[unit]);
    }
    return out;
}

static size_t least(size_t one, size_t other)
{
    return one < other ? one : other;
}

/* Edit distance with swaps of neighbours (optimal string alignment), three rows at a time. */
static size_t distance(const char *from, size_t from_length, const char *to, size_t to_length)
{
    size_t rows[3][WORD_BYTES + 1];
    size_t *older = rows[0], *old = rows[1], *now = rows[2];
    for (size_t j = 0; j <= to_length; j++)
        old[j] = j;
    for (size_t i = 1; i <= from_length; i++) {
        now[0] = i;
        for (size_t j = 1; j <= to_length; j++) {
            now[j] = least(least(old[j], now[j - 1]) + 1, old[j - 1] + (from[i - 1] != to[j - 1]));
            if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
                now[j] = least(now[j], older[j - 2] + 1);
        }
        size_t *spare = older;
        older = old;
        old = now;
        now = spare;
    }
    return old[to_length];
}

const char *text_nearest(const char *text, const char *const *names, size_t count)
{
    size_t length = strlen(text), best = length / 3 > 2 ? length / 3 : 2;
    const char *nearest = NULL;
    if (length >= WORD_BYTES)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        size_t name_length = strlen(names[i]);
        if (name_length >= WORD_BYTES)
            continue;
        size_t found = distance(text, length, names[i], name_length);
        if (found < length && (nearest ? found < best : found <= best)) {
            nearest = names[i];
            best = found;
        }
    }
    return nearest;
}

/* Decode one UTF-8 character: its length, or 0 when it is not valid (overlong, surrogate, too large, cut). */
static size_t decode_utf8(const char *from, size_t length, uint32_t *code)
{
    const unsigned char *byte = (const unsigned char *)from;
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t bytes = byte[0] < 0x80 ? 1 : (byte[0] & 0xe0) == 0xc0 ? 2 : (byte[0] & 0xf0) == 0xe0 ? 3 :
                   (byte[0] & 0xf8) == 0xf0 ? 4 : 0;
    if (bytes == 0 || bytes > length)
        return 0;
    uint32_t value = bytes == 1 ? byte[0] : byte[0] & (0x7fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if ((byte[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (byte[i] & 0x3f);
    }
    if (value < smallest[bytes] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
        return 0;
    *code = value;
    return bytes;
}

static bool is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0)      /* C0, DEL, C1 */
        || (code >= 0x2028 && code <= 0x202e)                /* line separators, bidirectional overrides */
        || (code >= 0x2066 && code <= 0x2069);               /* bidirectional isolates */
}

size_t text_character(const char *from, size_t length)
{
    uint32_t code;
    if (length && (unsigned char)from[0] >= 0x20 && (unsigned char)from[0] < 0x7f)
        return 1;
    size_t bytes = length ? decode_utf8(from, length, &code) : 0;
    return bytes && !is_control(code) ? bytes : 0;
}

bool text_is_harmless(const char *from, size_t length)
{
    while (length) {
        size_t bytes = text_character(from, length);
        if (bytes == 0)
            return false;
        from += bytes;
        length -= bytes;
    }
    return true;
}

char *text_harmless(const char *from, size_t length, char *out, size_t size)
{
    size_t used = 0;
    if (size == 0)
        return out;
    while (length) {
        size_t bytes = text_character(from, length), room = size - 1 - used;
        if (bytes > room || (bytes == 0 && room < 4))
            break;
        if (bytes)
            memcpy(out + used, from, bytes);
        else
            snprintf(out + used, 5, "\\x%02x", (unsigned char)from[0]);
        used += bytes ? bytes : 4;
        from += bytes ? bytes : 1;
        length -= bytes ? bytes : 1;
    }
    out[used] = 0;
    return out;
}
