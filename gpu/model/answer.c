#include "gpu/model/answer.h"

#include <ctype.h>
#include <string.h>

#include "gpu/model/utf8.h"
#include "ssh/base/text.h"

static const char *find_mark(const char *text, size_t bytes)
{
    return (const char *)utf8_find((const uint8_t *)text, bytes, ANSWER_MARK, strlen(ANSWER_MARK));
}

static const char *find_last_mark(const char *text, size_t bytes)
{
    const char *end = text + bytes, *found = NULL;
    for (const char *at = text; (at = find_mark(at, (size_t)(end - at))); at += strlen(ANSWER_MARK))
        found = at;
    return found;
}

bool answer_find(const char *text, size_t bytes, bool first, char answer[ANSWER_MAX])
{
    const char *end = text + bytes, *at = first ? find_mark(text, bytes) : find_last_mark(text, bytes);
    if (!at)
        return false;
    at += strlen(ANSWER_MARK);
    const char *line = memchr(at, '\n', (size_t)(end - at));
    if (line)
        end = line;
    while (at < end && isspace((unsigned char)*at))
        at++;
    while (at < end && isspace((unsigned char)end[-1]))
        end--;
    if (at == end || end - at >= ANSWER_MAX || memchr(at, '\0', (size_t)(end - at)))
        return false;
    memcpy(answer, at, (size_t)(end - at));
    answer[end - at] = '\0';
    return true;
}

bool answer_is_whole(const char *text, size_t bytes)
{
    const char *mark = find_mark(text, bytes);
    char answer[ANSWER_MAX];
    return mark && memchr(mark, '\n', bytes - (size_t)(mark - text)) && answer_find(text, bytes, true, answer);
}

/* As a number, without currency, thousands and a full stop; false when it is none. */
static bool read_number(const char *answer, double *number)
{
    char plain[ANSWER_MAX];
    size_t used = 0;
    for (; *answer; answer++)
        if (!strchr("$,", *answer))
            plain[used++] = *answer;
    if (used && plain[used - 1] == '.')
        used--;
    plain[used] = '\0';
    return text_to_real(plain, number) == 0;
}

bool answer_same(const char *one, const char *other)
{
    double left, right;
    if (read_number(one, &left) && read_number(other, &right))
        return !(left < right) && !(left > right);
    return strcmp(one, other) == 0;
}
