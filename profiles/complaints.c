#include "profiles/profile.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ssh/base/text.h"

#define COMPLAINTS_BYTES (128u * 1024)
#define COMPLAINTS_MOST 100

void complaints_init(struct complaints *complaints)
{
    buf_init(&complaints->lines, COMPLAINTS_BYTES);
    complaints->count = 0;
}

void complaints_clear(struct complaints *complaints)
{
    buf_clear(&complaints->lines);
    complaints->count = 0;
}

void complaints_add(struct complaints *complaints, const char *file, int line, const char *format, ...)
{
    char text[900], harmless[1000], place[300];
    va_list arguments;
    complaints->count++;
    if (complaints->count > COMPLAINTS_MOST) {
        if (complaints->count == COMPLAINTS_MOST + 1)
            buf_format(&complaints->lines, "%s: and more; mend these first\n", file);
        return;
    }
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    text_harmless(text, strlen(text), harmless, sizeof harmless);
    if (line > 0)
        snprintf(place, sizeof place, "%.280s:%d", file, line);
    else
        snprintf(place, sizeof place, "%.280s", file);
    buf_format(&complaints->lines, "%s: %s\n", place, harmless);
}
