#include "console/filter.h"

#include <stdio.h>
#include <string.h>

void filter_clear(struct filter *filter)
{
    if (filter->compiled)
        regfree(&filter->regex);
    memset(filter, 0, sizeof *filter);
}

bool filter_set(struct filter *filter, const char *pattern)
{
    bool inverse = filter->inverse;
    filter_clear(filter);
    filter->inverse = inverse;
    snprintf(filter->pattern, sizeof filter->pattern, "%s", pattern);
    filter->compiled = pattern[0] && regcomp(&filter->regex, pattern, REG_EXTENDED | REG_ICASE | REG_NOSUB) == 0;
    return filter->compiled || !pattern[0];
}

bool filter_match(const struct filter *filter, const char *text)
{
    if (!filter->pattern[0])
        return true;
    bool found = filter->compiled ? regexec(&filter->regex, text, 0, NULL, 0) == 0 : strcasestr(text, filter->pattern) != NULL;
    return found != filter->inverse;
}
