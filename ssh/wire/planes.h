/*
 * The frame in which a file travels to a host that has kedge-worker: a header, and in zstd its bytes, those of one place in a number
 * put together. The high bytes of bf16 and fp32 weights are alike, the low ones are noise; apart, they shrink by a third, together
 * by a fifth. Frames stand behind one another. Pure.
 */
#ifndef KEDGE_WIRE_PLANES_H
#define KEDGE_WIRE_PLANES_H

#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"

#define PLANES_HEADER ((size_t)12)
#define PLANES_MOST ((size_t)1 << 20) /* plain bytes of one frame */

struct planes {
    unsigned stride;        /* bytes of a number: 1, 2 or 4 */
    uint32_t plain, packed; /* bytes; 0 is neither */
};

void planes_put(const struct planes *planes, uint8_t out[PLANES_HEADER]);
int planes_get(const uint8_t in[PLANES_HEADER], struct planes *planes, struct why *why);
/* `bytes` of each, which do not overlap; what is left over behind the last whole number stays as it is. */
void planes_split(unsigned stride, const uint8_t *in, size_t bytes, uint8_t *out);
void planes_join(unsigned stride, const uint8_t *in, size_t bytes, uint8_t *out);

#endif
