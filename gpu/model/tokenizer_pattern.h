/*
 * A pattern to cut text at: a text, or a regular expression of the reference library's dialect (Oniguruma, Ruby syntax,
 * Unicode classes). Only what both dialects have is taken, and \s is written out, because PCRE2 counts one more character
 * as space. Shared; the scratch is one encoder's.
 */
#ifndef KEDGE_MODEL_TOKENIZER_PATTERN_H
#define KEDGE_MODEL_TOKENIZER_PATTERN_H

#include "gpu/model/tokenizer_inside.h"

struct pattern;
struct pattern_scratch;

int pattern_new_regex(const struct tokenizer_place *at, const char *regex, size_t bytes, struct pattern **pattern,
                      struct why *why);
int pattern_new_text(const char *text, struct pattern **pattern);
void pattern_free(struct pattern *pattern);

struct pattern_scratch *pattern_scratch_new(void);
void pattern_scratch_free(struct pattern_scratch *scratch);

/* 1 and the next match at or behind `*from` (text is UTF-8), which moves to where the search goes on; 0: none; or an error:
 * the pattern needs too many steps. */
int pattern_find(const struct pattern *pattern, struct pattern_scratch *scratch, const uint8_t *text, size_t bytes,
                 size_t *from, size_t *start, size_t *end, struct why *why);

#endif
