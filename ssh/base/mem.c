#include "ssh/base/mem.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ssh/base/why.h"

enum { HUGE_PAGE = 2 << 20 };

static void *mem_or_die(void *pointer, size_t bytes)
{
    if (!pointer)
        BUG("out of memory: %zu bytes were asked for", bytes);
    return pointer;
}

void *mem_new(size_t bytes)
{
    BUG_IF(bytes == 0);
    return mem_or_die(calloc(1, bytes), bytes);
}

void *mem_array(size_t count, size_t bytes_each)
{
    BUG_IF(count == 0 || bytes_each == 0 || count > SIZE_MAX / bytes_each);
    return mem_or_die(calloc(count, bytes_each), count * bytes_each);
}

void *mem_grow(void *old, size_t count, size_t bytes_each)
{
    BUG_IF(count == 0 || bytes_each == 0 || count > SIZE_MAX / bytes_each);
    return mem_or_die(realloc(old, count * bytes_each), count * bytes_each);
}

char *mem_text(const char *text)
{
    return mem_copy(text, strlen(text) + 1);
}

char *mem_format(const char *format, ...)
{
    va_list arguments;
    char *text = NULL;
    va_start(arguments, format);
    int used = vasprintf(&text, format, arguments);
    va_end(arguments);
    BUG_IF(used < 0);
    return text;
}

void *mem_copy(const void *bytes, size_t count)
{
    void *copy = mem_new(count ? count : 1);
    if (count)
        memcpy(copy, bytes, count);
    return copy;
}

void mem_free(void *pointer)
{
    free(pointer);
}

void *mem_large(size_t bytes)
{
    size_t rounded = (bytes + 63) & ~(size_t)63;
    if (rounded < bytes || rounded == 0)
        return NULL;
    bool large = rounded >= HUGE_PAGE;
    void *pointer = NULL;
    if (posix_memalign(&pointer, large ? HUGE_PAGE : 64, rounded) != 0)
        return NULL;
    if (large)
        madvise(pointer, rounded, MADV_HUGEPAGE); /* a wish: what walks down a matrix is in another page with every line */
    memset(pointer, 0, rounded); /* touches every page: what cannot be had fails here, not hours later */
    return pointer;
}

void mem_large_free(void *pointer)
{
    free(pointer);
}
