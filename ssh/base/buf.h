/*
 * A byte buffer that knows its maximum from birth. A hostile or broken peer costs a bounded amount.
 *
 * Bytes are appended at the end and consumed from the front; the unread part is data[start..end).
 */
#ifndef KEDGE_BASE_BUF_H
#define KEDGE_BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

struct buf {
    uint8_t *data; /* owned; NULL until the first byte */
    size_t start, end, capacity, max;
};

void buf_init(struct buf *buf, size_t max_bytes);
void buf_clear(struct buf *buf);                                 /* frees; the buffer may be used again */
size_t buf_used(const struct buf *buf);
const uint8_t *buf_peek(const struct buf *buf);                  /* the first unread byte */
int buf_put(struct buf *buf, const void *bytes, size_t count);   /* ERR_FULL beyond max: nothing is written */
uint8_t *buf_reserve(struct buf *buf, size_t count);             /* room for `count` at the end, or NULL when full */
void buf_commit(struct buf *buf, size_t count);                  /* `count` of the reserved bytes were written */
void buf_consume(struct buf *buf, size_t count);                 /* more than buf_used is a bug */
int buf_format(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
