/*
 * Bytes as SSH writes them: strings with a length in front (RFC 4251 §5), and base64 (RFC 4648). Input is hostile and
 * checked.
 */
#ifndef KEDGE_SESSION_BLOB_H
#define KEDGE_SESSION_BLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/base/buf.h"

struct blob { /* a view: what is left to read */
    const uint8_t *at;
    size_t left;
};

bool blob_u32(struct blob *blob, uint32_t *value);
bool blob_string(struct blob *blob, struct blob *string); /* the view moves behind it */
bool blob_skip(struct blob *blob, size_t bytes);
bool blob_is(struct blob blob, const char *text);

void blob_put_u32(struct buf *buf, uint32_t value);
void blob_put_string(struct buf *buf, const void *bytes, size_t count);

/* Bytes written, −1 when the text is no base64 or has no room. White space is not allowed; padding may be missing. */
int blob_from_base64(const char *text, size_t length, uint8_t *out, size_t room);
/* With padding, NUL-terminated; cut to nothing when `size` is too small. Returns `out`. */
char *blob_to_base64(const uint8_t *bytes, size_t count, char *out, size_t size);

#endif
