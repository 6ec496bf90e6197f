/*
 * Words and numbers as people write them: "200Mbit", "1.5GiB", "20ms" in, the same out; the nearest name for a
 * suggestion; text from strangers made harmless.
 */
#ifndef KEDGE_BASE_TEXT_H
#define KEDGE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each returns 0 or ERR_INVALID and sets the output only on success. White space around is allowed. */
int text_to_u64(const char *text, uint64_t *value);                /* decimal, no sign */
int text_to_real(const char *text, double *value);                 /* finite decimal; locale independent */
int text_to_bool(const char *text, bool *value);                   /* yes/no, true/false, on/off, 1/0 */
int text_to_bytes(const char *text, uint64_t *bytes);              /* "512", "64KiB", "1.5GiB", "2GB" */
int text_to_rate(const char *text, uint64_t *bits_per_second);     /* "200Mbit", "1Gbit", "0" */
int text_to_duration(const char *text, uint64_t *nanoseconds);     /* "20ms", "1.5s", "2m", "1h", "0" */
int text_to_time(const char *text, uint64_t *seconds);             /* "2026-12-01T08:00Z", UTC, since 1970; "…:07Z"; "0" */

/* Into `out` (NUL-terminated, cut if too small); returns `out`. */
char *text_from_bytes(uint64_t bytes, char *out, size_t size);             /* "1.5 MiB" */
char *text_from_rate(double bytes_per_second, char *out, size_t size);     /* "1.2 MB/s" */
char *text_from_duration(uint64_t nanoseconds, char *out, size_t size);    /* "1 h 02 m", "3.2 s", "15 ms" */
char *text_from_time(uint64_t seconds, char *out, size_t size);            /* "2026-12-01T08:00:00Z"; "0" */

/* The entry of names[count] with the smallest edit distance to `text` (a swap of neighbours counts one), or NULL if none
 * is near (distance > max(2, length/3), or as large as the word itself). */
const char *text_nearest(const char *text, const char *const *names, size_t count);

/* Copy with control characters (C0, C1, bidirectional overrides) and invalid UTF-8 replaced by "\xNN"; always
 * NUL-terminated, cut between characters. Returns `out`. */
char *text_harmless(const char *from, size_t length, char *out, size_t size);
/* Whether text_harmless would copy these bytes as they are. */
bool text_is_harmless(const char *from, size_t length);
/* Bytes of the first character: 1–4 when it is valid and harmless, 0 otherwise. */
size_t text_character(const char *from, size_t length);

#endif
