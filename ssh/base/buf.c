#include "ssh/base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ssh/base/mem.h"
#include "ssh/base/why.h"

void buf_init(struct buf *buf, size_t max_bytes)
{
    *buf = (struct buf){.max = max_bytes};
}

void buf_clear(struct buf *buf)
{
    mem_free(buf->data);
    buf_init(buf, buf->max);
}

size_t buf_used(const struct buf *buf)
{
    return buf->end - buf->start;
}

const uint8_t *buf_peek(const struct buf *buf)
{
    return buf->data ? buf->data + buf->start : NULL;
}

static void buf_slide(struct buf *buf)
{
    size_t used = buf_used(buf);
    if (buf->start && used)
        memmove(buf->data, buf->data + buf->start, used);
    buf->start = 0;
    buf->end = used;
}

uint8_t *buf_reserve(struct buf *buf, size_t count)
{
    size_t used = buf_used(buf);
    if (count > buf->max || used > buf->max - count)
        return NULL;
    if (buf->capacity - buf->end < count || !buf->data) {
        buf_slide(buf);
        if (buf->capacity - buf->end < count || !buf->data) {
            size_t capacity = buf->capacity ? buf->capacity : 256;
            while (capacity < used + count)
                capacity *= 2;
            if (capacity > buf->max && used + count <= buf->max)
                capacity = buf->max;
            buf->data = mem_grow(buf->data, capacity ? capacity : 1, 1);
            buf->capacity = capacity;
        }
    }
    return buf->data + buf->end;
}

void buf_commit(struct buf *buf, size_t count)
{
    BUG_IF(count > buf->capacity - buf->end);
    buf->end += count;
}

int buf_put(struct buf *buf, const void *bytes, size_t count)
{
    if (count == 0)
        return 0;
    uint8_t *room = buf_reserve(buf, count);
    if (!room)
        return ERR_FULL;
    memcpy(room, bytes, count);
    buf_commit(buf, count);
    return 0;
}

void buf_consume(struct buf *buf, size_t count)
{
    BUG_IF(count > buf_used(buf));
    buf->start += count;
    if (buf->start == buf->end)
        buf->start = buf->end = 0;
}

int buf_format(struct buf *buf, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0)
        return ERR_INVALID;
    uint8_t *room = buf_reserve(buf, (size_t)length + 1);
    if (!room)
        return ERR_FULL;
    va_start(arguments, format);
    vsnprintf((char *)room, (size_t)length + 1, format, arguments);
    va_end(arguments);
    buf_commit(buf, (size_t)length);
    return 0;
}
