#include "ssh/base/why.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ssh/base/log.h"

static void (*restore_terminal)(void);

int why_set(struct why *why, int err, const char *format, ...)
{
    if (why && !why->err) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(why->text, sizeof why->text, format, arguments);
        va_end(arguments);
        why->err = err;
    }
    return err;
}

static int why_kind_of_errno(int number)
{
    switch (number) {
    case ENOSPC:
    case EDQUOT:
        return ERR_FULL;
    case ENOENT:
        return ERR_ABSENT;
    case EACCES:
    case EPERM:
        return ERR_REFUSED;
    case EAGAIN:
        return ERR_AGAIN;
    case ENOMEM:
        return ERR_MEMORY;
    default:
        return ERR_SYSTEM;
    }
}

int why_errno(struct why *why, const char *format, ...)
{
    int number = errno, err = why_kind_of_errno(number);
    if (why && !why->err) {
        va_list arguments;
        va_start(arguments, format);
        int used = vsnprintf(why->text, sizeof why->text, format, arguments);
        va_end(arguments);
        if (used >= 0 && (size_t)used < sizeof why->text)
            snprintf(why->text + used, sizeof why->text - (size_t)used, ": %s", strerror(number));
        why->err = err;
    }
    return err;
}

const char *why_name(int err)
{
    static const char *const names[] = {
        [-ERR_AGAIN] = "again",     [-ERR_GONE] = "gone",       [-ERR_FULL] = "full",
        [-ERR_TIMEOUT] = "timeout", [-ERR_INVALID] = "invalid", [-ERR_REFUSED] = "refused",
        [-ERR_SYSTEM] = "system",   [-ERR_MEMORY] = "memory",   [-ERR_ABSENT] = "absent",
    };
    if (err < 0 && (size_t)-err < sizeof names / sizeof *names)
        return names[-err];
    return err == 0 ? "ok" : "unknown";
}

void why_on_bug(void (*restore)(void))
{
    restore_terminal = restore;
}

void why_bug(const char *file, int line, const char *format, ...)
{
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (restore_terminal)
        restore_terminal();
    fprintf(stderr, "BUG in kedge at %s:%d: %s\n", file, line, text);
    log_at(LOG_ERROR, "bug", "%s:%d: %s", file, line, text);
    log_close();
    abort();
}
