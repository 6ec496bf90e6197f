/*
 * INI lines → (section, key, value, line number) through inih with our own line reader.
 *
 * inih's packaged reader cuts lines at 200 bytes into false extra lines, tells only the first faulty line and does not
 * report sections; so our reader counts the lines, refuses what cannot be a profile (NUL and other control characters,
 * invalid UTF-8, lines over INI_LINE bytes, no '='), reports sections, and hands long lines to inih in pieces that it takes
 * for continuations.
 *
 * The language: whole lines beginning with # or ; are comments, so is the rest of a line from " #" or " ;" on. Keys and
 * sections may be indented. Any other indented line continues the value above it, joined by one blank.
 */
#ifndef KEDGE_PROFILES_INI_H
#define KEDGE_PROFILES_INI_H

#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"

#define INI_LINE 4096       /* longest line, and longest value with its continuations */
#define INI_WORD 48         /* longest section or key: inih's own limit is 49 */
#define INI_FILE (1u << 20) /* largest file */

/* In file order; `line` counts from 1. All faults are reported: parsing goes on behind each. */
struct ini_reader {
    void (*section_cb)(const char *section, int line, void *arg);
    void (*value_cb)(const char *section, const char *key, const char *value, int line, void *arg);
    void (*fault_cb)(const char *fault, int line, void *arg);
    void *arg;
};

void ini_read_bytes(const uint8_t *bytes, size_t count, const struct ini_reader *reader);
/* ERR_ABSENT etc. when the file cannot be read; faults in it are not an error here. */
int ini_read_file(const char *path, const struct ini_reader *reader, struct why *why);

/* One line taken apart, without its line end: offsets into it. */
enum ini_kind { INI_BLANK, INI_COMMENT, INI_SECTION, INI_KEY, INI_MORE, INI_BROKEN };

struct ini_line {
    enum ini_kind kind;
    size_t indent;                 /* blanks before the first word */
    size_t name_start, name_end;   /* of the section or key */
    size_t value_start, value_end; /* of the value (KEY) or of the continued text (MORE) */
    size_t text_end;               /* before trailing blanks and inline comment */
};

struct ini_line ini_scan(const char *line, size_t bytes);

#endif
