/*
 * Values as people read them. Pure: each writes into `out` (cut if too small) and returns it. NaN, 0-means-unknown and
 * "never" become the style's word for unknown, so that no caller can print a made-up zero.
 */
#ifndef KEDGE_CONSOLE_WORDS_H
#define KEDGE_CONSOLE_WORDS_H

#include <stddef.h>
#include <stdint.h>

#include "console/style.h"

#define WORDS 48 /* enough for any of them */

char *words_real(const struct style *style, double value, int digits, char *out, size_t size);   /* "3.2141" */
char *words_count(const struct style *style, double value, char *out, size_t size);              /* "950", "1.23k", "4.5M" */
char *words_rate(const struct style *style, double bytes_per_second, char *out, size_t size);    /* "1.2 MB/s" */
char *words_rate_pair(const struct style *style, double down, double up, char *out, size_t size); /* "↓1.2 ↑0.9 MB/s" */
char *words_bytes(const struct style *style, uint64_t bytes, char *out, size_t size);            /* 0 = unknown */
char *words_percent(const struct style *style, double share, char *out, size_t size);            /* "5.0 %" */
char *words_money(const struct style *style, double value, char *out, size_t size);              /* "0.0042", "12.50", "1240" */
char *words_duration(const struct style *style, double seconds, char *out, size_t size);         /* "1 h 02 m" */
char *words_age(const struct style *style, uint64_t ns_ago, char *out, size_t size);             /* UINT64_MAX = never */
char *words_date(int64_t wall_ms, char *out, size_t size);                                       /* "2026-11-29 19:48:59" */
char *words_clock(int64_t wall_ms, char *out, size_t size);                                      /* "19:48:59" */

/* "; did you mean 'x'?", or `otherwise` when nothing is near. */
char *words_suggest(const char *near, const char *otherwise, char *out, size_t size);

/* How many terminal cells; everything that kedge prints itself is one cell a code point. */
size_t words_width(const char *text);
/* At most `width` cells; what is cut is marked at the end. */
char *words_cut(const struct style *style, const char *text, size_t width, char *out, size_t size);

#endif
