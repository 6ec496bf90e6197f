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

void planes_split(unsigned stride, const uint8_t *in, size_t bytes, uint8_t *out)
{
    size_t count = bytes / stride;
    for (unsigned plane = 0; plane < stride; plane++)
        for (size_t i = 0; i < count; i++)
            out[plane * count + i] = in[i * stride + plane];
    memcpy(out + stride * count, in + stride * count, bytes - stride * count);
}

void planes_join(unsigned stride, const uint8_t *in, size_t bytes, uint8_t *out)
{
    size_t count = bytes / stride;
    for (unsigned plane = 0; plane < stride; plane++)
        for (size_t i = 0; i < count; i++)
            out[i * stride + plane] = in[plane * count + i];
    memcpy(out + stride * count, in + stride * count, bytes - stride * count);
}
