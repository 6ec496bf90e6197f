/*
 * Which rows are shown: those that match an extended regular expression, or those that do not. Letters match both cases. Pure.
 */
#ifndef KEDGE_CONSOLE_FILTER_H
#define KEDGE_CONSOLE_FILTER_H

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>

struct filter {
    char pattern[256]; /* "" = all rows */
    bool inverse, compiled;
    regex_t regex;
};

/* False when the pattern is none, or one that could take more time or memory than anybody has; then what is typed is searched for as it
 * is. */
bool filter_set(struct filter *filter, const char *pattern);
void filter_clear(struct filter *filter);
bool filter_match(const struct filter *filter, const char *text);

#endif
