#include "ssh/wire/planes.h"

#include <string.h>

static const uint8_t mark[3] = {'K', 'D', 'P'};

static void put_u32(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(value >> 8 * i);
}

static uint32_t get_u32(const uint8_t *in)
{
    return in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

void planes_put(const struct planes *planes, uint8_t out[PLANES_HEADER])
{
    memcpy(out, mark, sizeof mark);
    out[3] = (uint8_t)planes->stride;
    put_u32(out + 4, planes->plain);
    put_u32(out + 8, planes->packed);
}

int planes_get(const uint8_t in[PLANES_HEADER], struct planes *planes, struct why *why)
{
    *planes = (struct planes){.stride = in[3], .plain = get_u32(in + 4), .packed = get_u32(in + 8)};
    if (memcmp(in, mark, sizeof mark) != 0)
        return why_set(why, ERR_INVALID, "it is no frame of kedge");
    if (planes->stride != 1 && planes->stride != 2 && planes->stride != 4)
        return why_set(why, ERR_INVALID, "a frame of numbers of %u bytes", planes->stride);
    if (!planes->plain || planes->plain > PLANES_MOST || !planes->packed || planes->packed > 2 * PLANES_MOST)
        return why_set(why, ERR_INVALID, "a frame of %u bytes in %u", planes->plain, planes->packed);
    return 0;
}

/* Of a stride that the compiler knows, it makes instructions that take many bytes at once. */
static inline __attribute__((always_inline)) void split(size_t stride, const uint8_t *restrict in, size_t count, uint8_t *restrict out)
{
    for (size_t plane = 0; plane < stride; plane++)
        for (size_t i = 0; i < count; i++)
            out[plane * count + i] = in[i * stride + plane];
}

static inline __attribute__((always_inline)) void join(size_t stride, const uint8_t *restrict in, size_t count, uint8_t *restrict out)
{
    for (size_t i = 0; i < count; i++)
        for (size_t plane = 0; plane < stride; plane++)
            out[i * stride + plane] = in[plane * count + i];
}

void planes_split(unsigned stride, const uint8_t *in, size_t bytes, uint8_t *out)
{
    size_t count = bytes / stride;
    if (stride == 1)
        memcpy(out, in, count);
    else if (stride == 2)
        split(2, in, count, out);
    else
        split(4, in, count, out);
    memcpy(out + stride * count, in + stride * count, bytes - stride * count);
}

void planes_join(unsigned stride, const uint8_t *in, size_t bytes, uint8_t *out)
{
    size_t count = bytes / stride;
    if (stride == 1)
        memcpy(out, in, count);
    else if (stride == 2)
        join(2, in, count, out);
    else
        join(4, in, count, out);
    memcpy(out + stride * count, in + stride * count, bytes - stride * count);
}
