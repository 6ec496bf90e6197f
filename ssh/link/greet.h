/*
 * The greeting: the first frame of each side, and what makes it acceptable before the owner is asked. Pure.
 */
#ifndef KEDGE_LINK_GREET_H
#define KEDGE_LINK_GREET_H

#include <stddef.h>
#include <stdint.h>

#include "ssh/base/buf.h"
#include "ssh/base/why.h"
#include "ssh/wire/wire.h"

/* The payload of our HELLO, at the end of `out`. A hello that cannot be encoded is a bug. */
void greet_encode(const struct wire_hello *hello, struct buf *out);
/* `common_name`: of the peer's certificate, NULL without TLS. ERR_REFUSED or ERR_INVALID with the reason. */
int greet_check(const uint8_t *payload, size_t bytes, const char *common_name, struct wire_hello *hello, struct why *why);

#endif
