#include "ssh/session/compress.h"

#include <string.h>
#define ZLIB_CONST
#include <zlib.h>
#include <zstd.h>

#include "ssh/base/mem.h"
#include "ssh/base/why.h"
#include "ssh/wire/planes.h"

#define ZSTD_LEVEL 1 /* level 3: a tenth smaller, at half the speed */
#define GZIP_LEVEL 1
#define GZIP_FORMAT (MAX_WBITS + 16)
#define TASTE_BYTES ((size_t)32 << 10) /* of a frame, says how wide its numbers are */
#define LEAST_GAIN 0.05 /* for less nobody need unpack anything */

struct compress {
    const struct method *method;
    ZSTD_CCtx *zstd;
    z_stream gzip;
    uint8_t *split; /* of a frame; ours only */
};

struct method {
    const char *program;
    void (*begin)(struct compress *compress);
    void (*end)(struct compress *compress);
    size_t (*bound)(struct compress *compress, size_t bytes);
    size_t (*frame)(struct compress *compress, const uint8_t *in, size_t bytes, uint8_t *out);
};

static void zstd_begin(struct compress *compress)
{
    compress->zstd = ZSTD_createCCtx();
    BUG_IF(!compress->zstd);
}

static void zstd_end(struct compress *compress)
{
    ZSTD_freeCCtx(compress->zstd);
}

static size_t zstd_bound(struct compress *compress, size_t bytes)
{
    (void)compress;
    return ZSTD_compressBound(bytes);
}

static size_t zstd_frame(struct compress *compress, const uint8_t *in, size_t bytes, uint8_t *out)
{
    size_t used = ZSTD_compressCCtx(compress->zstd, out, ZSTD_compressBound(bytes), in, bytes, ZSTD_LEVEL);
    if (ZSTD_isError(used))
        BUG("zstd: %s", ZSTD_getErrorName(used));
    return used;
}

/* ---- ours: of planes.h ---- */

static void ours_begin(struct compress *compress)
{
    zstd_begin(compress);
    compress->split = mem_new(PLANES_MOST);
}

static void ours_end(struct compress *compress)
{
    zstd_end(compress);
    mem_free(compress->split);
}

static size_t ours_bound(struct compress *compress, size_t bytes)
{
    return PLANES_HEADER + 4 * zstd_bound(compress, bytes / 4 + 4);
}

/* Each plane for itself: within 128 KiB zstd has one code for all bytes. */
static size_t split_frame(struct compress *compress, unsigned stride, const uint8_t *in, size_t bytes, uint8_t *out)
{
    size_t used = 0, each = bytes / stride;
    if (stride == 1)
        return zstd_frame(compress, in, bytes, out);
    planes_split(stride, in, bytes, compress->split);
    for (unsigned plane = 0; plane < stride; plane++)
        used += zstd_frame(compress, compress->split + plane * each, plane + 1 < stride ? each : bytes - plane * each, out + used);
    return used;
}

/* What makes a piece from the middle smallest; numbers need not begin where the piece does. */
static unsigned taste(struct compress *compress, const uint8_t *in, size_t bytes, uint8_t *out)
{
    size_t piece = bytes < TASTE_BYTES ? bytes : TASTE_BYTES, least = SIZE_MAX;
    unsigned best = 1;
    for (unsigned stride = 1; stride <= 4; stride *= 2) {
        size_t used = split_frame(compress, stride, in + (bytes - piece) / 2, piece, out);
        if (used < least - least / 50) { /* a wider one must be worth it */
            least = used;
            best = stride;
        }
    }
    return best;
}

static size_t ours_frame(struct compress *compress, const uint8_t *in, size_t bytes, uint8_t *out)
{
    BUG_IF(bytes > PLANES_MOST);
    struct planes planes = {.stride = taste(compress, in, bytes, out), .plain = (uint32_t)bytes};
    planes.packed = (uint32_t)split_frame(compress, planes.stride, in, bytes, out + PLANES_HEADER);
    planes_put(&planes, out);
    return PLANES_HEADER + planes.packed;
}

/* ---- gzip ---- */

static void gzip_begin(struct compress *compress)
{
    if (deflateInit2(&compress->gzip, GZIP_LEVEL, Z_DEFLATED, GZIP_FORMAT, MAX_MEM_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK)
        BUG("zlib has no memory");
}

static void gzip_end(struct compress *compress)
{
    deflateEnd(&compress->gzip);
}

static size_t gzip_bound(struct compress *compress, size_t bytes)
{
    return deflateBound(&compress->gzip, bytes);
}

static size_t gzip_frame(struct compress *compress, const uint8_t *in, size_t bytes, uint8_t *out)
{
    z_stream *stream = &compress->gzip;
    size_t room = gzip_bound(compress, bytes);
    stream->next_in = in;
    stream->avail_in = (uInt)bytes;
    stream->next_out = out;
    stream->avail_out = (uInt)room;
    int code = deflate(stream, Z_FINISH);
    if (code != Z_STREAM_END)
        BUG("zlib: %d", code);
    size_t used = room - stream->avail_out;
    deflateReset(stream); /* not before the next one: the bound after an end is that of another format */
    return used;
}

static const struct method methods[] = {
    {"kedge-worker", ours_begin, ours_end, ours_bound, ours_frame},
    {"zstd", zstd_begin, zstd_end, zstd_bound, zstd_frame},
    {"gzip", gzip_begin, gzip_end, gzip_bound, gzip_frame},
};

struct compress *compress_new(const char *program)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (strcmp(methods[i].program, program) != 0)
            continue;
        struct compress *compress = mem_new(sizeof *compress);
        compress->method = &methods[i];
        compress->method->begin(compress);
        return compress;
    }
    return NULL;
}

const char *compress_program(const struct compress *compress)
{
    return compress->method->program;
}

void compress_free(struct compress *compress)
{
    if (!compress)
        return;
    compress->method->end(compress);
    mem_free(compress);
}

size_t compress_bound(struct compress *compress, size_t bytes)
{
    return compress->method->bound(compress, bytes);
}

size_t compress_frame(struct compress *compress, const uint8_t *in, size_t bytes, uint8_t *out)
{
    return compress->method->frame(compress, in, bytes, out);
}

/* One thread does both, so their times add up: plain / rate against took + packed / rate. */
bool compress_pays(size_t plain, size_t packed, uint64_t took_ns, double wire_rate)
{
    double gain = (double)plain - (double)packed;
    return gain > LEAST_GAIN * (double)plain && gain > wire_rate * (double)took_ns / 1e9;
}
