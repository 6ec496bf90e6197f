#include "gpu/model/safetensors_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "ssh/base/file.h"
#include "ssh/base/hash.h"
#include "ssh/base/mem.h"

#define CHUNK ((size_t)1 << 16) /* values converted at a time */

struct safetensors_out {
    char *path, *temp;
    int fd, format;
    uint64_t left; /* bytes that are still to come */
    uint64_t bytes, hash;
    uint8_t *chunk;
    uint8_t *room; /* NULL: what is added is written at once */
    size_t held;
};

/* ---- number formats ---- */

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void put_f32(uint8_t *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++, to += 4) {
        uint32_t bits = bits_of(from[i]);
        for (int byte = 0; byte < 4; byte++)
            to[byte] = (uint8_t)(bits >> 8 * byte);
    }
}

static void put_half(uint8_t *to, uint32_t half)
{
    to[0] = (uint8_t)half;
    to[1] = (uint8_t)(half >> 8);
}

static void put_bf16(uint8_t *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++, to += 2) {
        uint32_t bits = bits_of(from[i]);
        if ((bits & 0x7fffffff) > 0x7f800000)
            put_half(to, bits >> 16 | 0x40); /* a NaN must stay one */
        else
            put_half(to, (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

/* The 24-bit significand shifted right, rounded to nearest even. */
static uint32_t shift_rounded(uint32_t significand, uint32_t shift)
{
    uint32_t kept = significand >> shift, rest = significand & ((1u << shift) - 1), middle = 1u << (shift - 1);
    return kept + (rest > middle || (rest == middle && (kept & 1)));
}

static uint32_t half_of(uint32_t bits)
{
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff, exponent = magnitude >> 23;
    if (magnitude > 0x7f800000)
        return sign | 0x7e00;
    if (magnitude >= 0x477ff000) /* rounds to more than the largest half */
        return sign | 0x7c00;
    if (exponent >= 113)
        return sign | (shift_rounded(magnitude - (112u << 23), 13)); /* a carry moves into the exponent, as it should */
    if (exponent < 102)
        return sign; /* below half of the least subnormal; exactly half of it, at 102, is even at 0 */
    return sign | shift_rounded((magnitude & 0x7fffff) | 0x800000, 126 - exponent);
}

static void put_f16(uint8_t *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++, to += 2)
        put_half(to, half_of(bits_of(from[i])));
}

static const struct {
    const char *name;
    int64_t bytes;
    void (*put)(uint8_t *to, const float *from, size_t count);
} formats[WEIGHTS_FORMATS] = {
    [WEIGHTS_F32] = {"F32", 4, put_f32}, [WEIGHTS_BF16] = {"BF16", 2, put_bf16}, [WEIGHTS_F16] = {"F16", 2, put_f16},
};

const char *weights_format_name(int format)
{
    return formats[format].name;
}

int64_t weights_format_bytes(int format)
{
    return formats[format].bytes;
}

int64_t safetensors_entry_count(const struct safetensors_entry *entry)
{
    return entry->shape[0] * (entry->dims > 1 ? entry->shape[1] : 1);
}

/* ---- header ---- */

static int64_t entry_bytes(const struct safetensors_entry *entry, int format)
{
    return safetensors_entry_count(entry) * (entry->raw ? 1 : formats[format].bytes);
}

uint64_t safetensors_data_bytes(const struct safetensors_entry *entries, size_t count, int format)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += (uint64_t)entry_bytes(&entries[i], format);
    return bytes;
}

static json_t *make_entry(const struct safetensors_entry *entry, int format, int64_t *at)
{
    int64_t begin = *at;
    *at += entry_bytes(entry, format);
    json_t *shape = entry->dims > 1 ? json_pack("[I,I]", (json_int_t)entry->shape[0], (json_int_t)entry->shape[1])
                                    : json_pack("[I]", (json_int_t)entry->shape[0]);
    return json_pack("{s:s,s:o,s:[I,I]}", "dtype", entry->raw ? "U8" : formats[format].name, "shape", shape, "data_offsets", (json_int_t)begin,
                     (json_int_t)*at);
}

/* Text of the header, padded so that the data begins on eight bytes; mem_free it. */
static char *make_header(const struct safetensors_entry *entries, size_t count, int format, const char *const *metadata,
                         int64_t *data_bytes)
{
    json_t *header = json_object();
    *data_bytes = 0;
    if (metadata) {
        json_t *object = json_object();
        for (; metadata[0]; metadata += 2)
            json_object_set_new(object, metadata[0], json_string(metadata[1]));
        json_object_set_new(header, "__metadata__", object);
    }
    for (size_t i = 0; i < count; i++)
        json_object_set_new(header, entries[i].name, make_entry(&entries[i], format, data_bytes));
    char *text = json_dumps(header, JSON_COMPACT);
    json_decref(header);
    if (!text)
        BUG("out of memory for a header of %zu tensors", count);
    char *padded = mem_format("%s%.*s", text, (int)(-strlen(text) & 7), "       ");
    free(text);
    return padded;
}

/* ---- the file ---- */

static int write_bytes(struct safetensors_out *out, const uint8_t *bytes, size_t count, struct why *why)
{
    out->hash = hash_add(out->hash, bytes, count);
    out->bytes += count;
    while (count) {
        ssize_t wrote = write(out->fd, bytes, count);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return why_errno(why, "cannot write %s", out->path);
        bytes += wrote;
        count -= (size_t)wrote;
    }
    return 0;
}

static int begin_file(struct safetensors_out *out, const char *header, int64_t data_bytes, struct why *why)
{
    size_t length = strlen(header);
    uint8_t prefix[8];
    for (int i = 0; i < 8; i++)
        prefix[i] = (uint8_t)((uint64_t)length >> 8 * i);
    out->fd = mkostemp(out->temp, O_CLOEXEC);
    if (out->fd < 0)
        return why_errno(why, "cannot make a file beside %s", out->path);
    if (fallocate(out->fd, 0, 0, (off_t)(8 + length) + data_bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        return why_errno(why, "cannot take %lld bytes for %s", (long long)data_bytes, out->path);
    int err = write_bytes(out, prefix, sizeof prefix, why);
    return err ? err : write_bytes(out, (const uint8_t *)header, length, why);
}

int safetensors_create(const char *path, const struct safetensors_entry *entries, size_t count, int format,
                       const char *const *metadata, struct safetensors_out **out, struct why *why)
{
    int64_t data_bytes;
    BUG_IF(format < 0 || format >= WEIGHTS_FORMATS);
    char *header = make_header(entries, count, format, metadata, &data_bytes);
    struct safetensors_out *new = mem_new(sizeof *new);
    *new = (struct safetensors_out){.path = mem_text(path), .temp = mem_format("%s.XXXXXX", path), .format = format, .hash = HASH_START,
                                    .left = (uint64_t)data_bytes, .chunk = mem_array(CHUNK, 4)};
    int err = begin_file(new, header, data_bytes, why);
    mem_free(header);
    if (err)
        safetensors_abandon(new);
    else
        *out = new;
    return err;
}

void safetensors_hold(struct safetensors_out *out, uint8_t *room)
{
    BUG_IF(out->room || out->held);
    out->room = room;
}

int safetensors_add_raw(struct safetensors_out *out, const void *bytes, size_t count, struct why *why)
{
    BUG_IF(count > out->left);
    out->left -= count;
    if (!out->room)
        return write_bytes(out, bytes, count, why);
    memcpy(out->room + out->held, bytes, count);
    out->held += count;
    return 0;
}

int safetensors_add(struct safetensors_out *out, const float *values, int64_t count, struct why *why)
{
    int err = 0;
    for (int64_t done = 0; done < count && !err; done += (int64_t)CHUNK) {
        size_t part = (size_t)(count - done) < CHUNK ? (size_t)(count - done) : CHUNK;
        formats[out->format].put(out->chunk, values + done, part);
        err = safetensors_add_raw(out, out->chunk, part * (size_t)formats[out->format].bytes, why);
    }
    return err;
}

static void release(struct safetensors_out *out)
{
    mem_free(out->chunk);
    mem_free(out->path);
    mem_free(out->temp);
    mem_free(out);
}

int safetensors_finish(struct safetensors_out *out, uint64_t *bytes, uint64_t *hash, struct why *why)
{
    BUG_IF(out->left);
    int err = out->room ? write_bytes(out, out->room, out->held, why) : 0;
    if (!err && (fchmod(out->fd, 0644) != 0 || fsync(out->fd) != 0 || rename(out->temp, out->path) != 0))
        err = why_errno(why, "cannot write %s", out->path);
    if (err) {
        safetensors_abandon(out);
        return err;
    }
    close(out->fd);
    *bytes = out->bytes;
    *hash = hash_finish(out->hash);
    err = file_sync_folder(out->path, why);
    release(out);
    return err;
}

void safetensors_abandon(struct safetensors_out *out)
{
    if (!out)
        return;
    if (out->fd >= 0) {
        close(out->fd);
        unlink(out->temp);
    }
    release(out);
}
