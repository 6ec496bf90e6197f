#include "console/words.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "ssh/base/clock.h"
#include "ssh/base/text.h"

static char *unknown(const struct style *style, char *out, size_t size)
{
    snprintf(out, size, "%s", style_glyph(style, GLYPH_UNKNOWN));
    return out;
}

char *words_real(const struct style *style, double value, int digits, char *out, size_t size)
{
    if (isnan(value))
        return unknown(style, out, size);
    snprintf(out, size, "%.*f", digits, value); /* an infinite loss is news and is printed as "inf" */
    return out;
}

char *words_count(const struct style *style, double value, char *out, size_t size)
{
    static const char *const units[] = {"", "k", "M", "G", "T"};
    size_t unit = 0;
    if (!isfinite(value))
        return unknown(style, out, size);
    while (fabs(value) >= 999.5 && unit < sizeof units / sizeof *units - 1) {
        value /= 1000;
        unit++;
    }
    snprintf(out, size, "%.*f%s", unit == 0 || fabs(value) >= 99.95 ? 0 : fabs(value) >= 9.995 ? 1 : 2, value, units[unit]);
    return out;
}

char *words_rate(const struct style *style, double bytes_per_second, char *out, size_t size)
{
    return isfinite(bytes_per_second) ? text_from_rate(bytes_per_second, out, size) : unknown(style, out, size);
}

char *words_rate_pair(const struct style *style, double down, double up, char *out, size_t size)
{
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    double most = fmax(isfinite(down) ? down : 0, isfinite(up) ? up : 0), scale = 1;
    char first[WORDS], second[WORDS];
    size_t unit = 0;
    while (most / scale >= 999.5 && unit < sizeof units / sizeof *units - 1) {
        scale *= 1000;
        unit++;
    }
    words_real(style, down / scale, unit ? 1 : 0, first, sizeof first);
    words_real(style, up / scale, unit ? 1 : 0, second, sizeof second);
    snprintf(out, size, "%s%s %s%s %s", style_glyph(style, GLYPH_DOWN), first, style_glyph(style, GLYPH_UP), second,
             units[unit]);
    return out;
}

char *words_bytes(const struct style *style, uint64_t bytes, char *out, size_t size)
{
    return bytes ? text_from_bytes(bytes, out, size) : unknown(style, out, size);
}

char *words_percent(const struct style *style, double share, char *out, size_t size)
{
    if (!isfinite(share))
        return unknown(style, out, size);
    snprintf(out, size, "%.*f %%", share < 0.0995 ? 1 : 0, share * 100);
    return out;
}

char *words_money(const struct style *style, double value, char *out, size_t size)
{
    if (!isfinite(value))
        return unknown(style, out, size);
    snprintf(out, size, fabs(value) < 0.995 ? "%.2g" : fabs(value) < 99.5 ? "%.2f" : "%.0f", value);
    return out;
}

char *words_duration(const struct style *style, double seconds, char *out, size_t size)
{
    if (!isfinite(seconds) || seconds < 0 || seconds > 1e9)
        return unknown(style, out, size);
    if (seconds == 0 || (seconds >= 10 && seconds < 60)) {
        snprintf(out, size, "%.0f s", floor(seconds));
        return out;
    }
    return text_from_duration((uint64_t)(seconds * 1e9), out, size);
}

char *words_age(const struct style *style, uint64_t ns_ago, char *out, size_t size)
{
    if (ns_ago == UINT64_MAX)
        return unknown(style, out, size);
    if (ns_ago >= 10 * CLOCK_SECOND)
        return words_duration(style, (double)ns_ago / 1e9, out, size);
    snprintf(out, size, "%.1f s", (double)ns_ago / 1e9); /* no age is known more precisely */
    return out;
}

static bool split_time(int64_t wall_ms, struct tm *parts)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    return localtime_r(&seconds, parts) != NULL;
}

char *words_date(int64_t wall_ms, char *out, size_t size)
{
    struct tm parts;
    if (!split_time(wall_ms, &parts) || strftime(out, size, "%Y-%m-%d %H:%M:%S", &parts) == 0)
        snprintf(out, size, "?");
    return out;
}

char *words_clock(int64_t wall_ms, char *out, size_t size)
{
    struct tm parts;
    if (!split_time(wall_ms, &parts) || strftime(out, size, "%H:%M:%S", &parts) == 0)
        snprintf(out, size, "?");
    return out;
}

char *words_suggest(const char *near, const char *otherwise, char *out, size_t size)
{
    if (near)
        snprintf(out, size, "; did you mean '%s'?", near);
    else
        snprintf(out, size, "%s", otherwise);
    return out;
}

size_t words_width(const char *text)
{
    size_t width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

char *words_cut(const struct style *style, const char *text, size_t width, char *out, size_t size)
{
    const char *mark = style_glyph(style, GLYPH_MORE), *end = text;
    if (words_width(text) <= width) {
        snprintf(out, size, "%s", text);
        return out;
    }
    for (size_t cells = 0; *end; end++) {
        cells += ((unsigned char)*end & 0xC0) != 0x80;
        if (cells + 1 > width)
            break;
    }
    snprintf(out, size, "%.*s%s", (int)(end - text), text, width ? mark : "");
    return out;
}
