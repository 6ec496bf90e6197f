#include "console/filter.h"

#include <stdio.h>
#include <string.h>

#define REPEATS_MOST 1000UL /* product of all repeats of a pattern */

void filter_clear(struct filter *filter)
{
    if (filter->compiled)
        regfree(&filter->regex);
    memset(filter, 0, sizeof *filter);
}

/* Of "3,500}": 500; a number that is too long counts as the bound. */
static unsigned long greatest_number(const char *text)
{
    unsigned long most = 0, number = 0;
    for (; *text && *text != '}'; text++) {
        if (*text == ',')
            number = 0;
        else if (*text >= '0' && *text <= '9' && number <= REPEATS_MOST)
            number = 10 * number + (unsigned long)(*text - '0');
        most = number > most ? number : most;
    }
    return most;
}

/* What libc would take without end: references back to what matched (time), and repeats of repeats (memory). */
static bool is_bounded(const char *pattern)
{
    unsigned long copies = 1;
    bool in_set = false;
    for (const char *c = pattern; *c; c++) {
        if (*c == '\\' && c[1]) {
            if (c[1] >= '1' && c[1] <= '9')
                return false;
            c++;
            continue;
        }
        in_set = in_set ? *c != ']' : *c == '[';
        if (*c != '{' || in_set)
            continue;
        copies *= 1 + greatest_number(c + 1);
        if (copies > REPEATS_MOST)
            return false;
    }
    return true;
}

bool filter_set(struct filter *filter, const char *pattern)
{
    bool inverse = filter->inverse;
    filter_clear(filter);
    filter->inverse = inverse;
    snprintf(filter->pattern, sizeof filter->pattern, "%s", pattern);
    filter->compiled = pattern[0] && is_bounded(pattern) &&
                       regcomp(&filter->regex, pattern, REG_EXTENDED | REG_ICASE | REG_NOSUB) == 0;
    return filter->compiled || !pattern[0];
}

bool filter_match(const struct filter *filter, const char *text)
{
    if (!filter->pattern[0])
        return true;
    bool found = filter->compiled ? regexec(&filter->regex, text, 0, NULL, 0) == 0 : strcasestr(text, filter->pattern) != NULL;
    return found != filter->inverse;
}
