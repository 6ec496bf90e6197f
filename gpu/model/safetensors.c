#include "gpu/model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define HEADER_MAX ((uint64_t)100 << 20) /* as the format says */
#define TENSORS_MAX 100000
#define DIMS_MAX 8
#define NAME_MAX_BYTES 512
#define SHOWN 128 /* of a stranger's name in a reason */

struct dtype {
    const char *name;
    uint64_t bytes;
    void (*read)(const uint8_t *from, int64_t count, float *out); /* NULL: known, but not read by kedge */
};

struct tensor {
    const char *name; /* in the JSON tree */
    const struct dtype *dtype;
    int dims;
    int64_t shape[DIMS_MAX];
    uint64_t begin, end; /* in data */
};

struct safetensors {
    char *label;
    void *map; /* NULL when the bytes are someone else's */
    size_t map_bytes;
    const uint8_t *data;
    uint64_t data_bytes;
    json_t *header;
    struct tensor *tensors; /* by name */
    size_t count;
};

/* ---- number formats ---- */

static void read_f32(const uint8_t *from, int64_t count, float *out)
{
    for (int64_t i = 0; i < count; i++, from += 4) {
        uint32_t bits = (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

static void read_bf16(const uint8_t *from, int64_t count, float *out)
{
    for (int64_t i = 0; i < count; i++, from += 2) {
        uint32_t bits = (uint32_t)from[0] << 16 | (uint32_t)from[1] << 24;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

static void read_f16(const uint8_t *from, int64_t count, float *out)
{
    for (int64_t i = 0; i < count; i++, from += 2) {
        uint32_t half = (uint32_t)from[0] | (uint32_t)from[1] << 8;
        uint32_t sign = (half & 0x8000) << 16, exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
        uint32_t bits = sign | (exponent + 112) << 23 | fraction << 13;
        if (exponent == 0) { /* zero or subnormal: fraction · 2^-24, exact in fp32 */
            float value = (float)fraction * 0x1p-24f;
            memcpy(&bits, &value, sizeof bits);
            bits |= sign;
        } else if (exponent == 31) {
            bits = sign | 0x7f800000 | fraction << 13;
        }
        memcpy(&out[i], &bits, sizeof bits);
    }
}

static const struct dtype dtypes[] = {
    {"F32", 4, read_f32}, {"BF16", 2, read_bf16}, {"F16", 2, read_f16}, {"F64", 8, NULL},     {"I64", 8, NULL},
    {"U64", 8, NULL},     {"I32", 4, NULL},       {"U32", 4, NULL},     {"I16", 2, NULL},     {"U16", 2, NULL},
    {"I8", 1, NULL},      {"U8", 1, NULL},        {"BOOL", 1, NULL},    {"F8_E4M3", 1, NULL}, {"F8_E5M2", 1, NULL},
};

static const struct dtype *dtype_named(const char *name)
{
    for (size_t i = 0; name && i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

/* ---- the header ---- */

static const char *shown(const char *name, char out[SHOWN])
{
    return text_harmless(name, strlen(name), out, SHOWN);
}

static bool read_count(const json_t *value, int64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = json_integer_value(value);
    return true;
}

/* shape and data_offsets of one entry; false when they do not make sense together. */
static bool read_place(const json_t *entry, uint64_t data_bytes, struct tensor *t)
{
    const json_t *shape = json_object_get(entry, "shape"), *offsets = json_object_get(entry, "data_offsets");
    int64_t begin, end;
    if (!json_is_array(shape) || json_array_size(shape) > DIMS_MAX || !json_is_array(offsets) ||
        json_array_size(offsets) != 2)
        return false;
    if (!read_count(json_array_get(offsets, 0), &begin) || !read_count(json_array_get(offsets, 1), &end) || begin > end ||
        (uint64_t)end > data_bytes)
        return false;
    t->begin = (uint64_t)begin;
    t->end = (uint64_t)end;
    t->dims = (int)json_array_size(shape);
    uint64_t bytes = t->dtype->bytes;
    for (int i = 0; i < t->dims; i++)
        if (!read_count(json_array_get(shape, (size_t)i), &t->shape[i]) ||
            __builtin_mul_overflow(bytes, (uint64_t)t->shape[i], &bytes))
            return false;
    return bytes == t->end - t->begin;
}

static int read_tensor(const struct safetensors *file, const char *name, const json_t *entry, struct tensor *t,
                       struct why *why)
{
    char safe[SHOWN], safe_type[SHOWN];
    if (!*name || strlen(name) > NAME_MAX_BYTES)
        return why_set(why, ERR_INVALID, "%s: a tensor's name has %zu bytes; 1 to %d are possible", file->label,
                       strlen(name), NAME_MAX_BYTES);
    if (!json_is_object(entry))
        return why_set(why, ERR_INVALID, "%s: the entry of tensor %s is not an object", file->label, shown(name, safe));
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    *t = (struct tensor){.name = name, .dtype = dtype_named(type)};
    if (!t->dtype)
        return why_set(why, ERR_INVALID, "%s: tensor %s has no dtype that is known (%s)", file->label, shown(name, safe),
                       type ? shown(type, safe_type) : "none");
    if (!read_place(entry, file->data_bytes, t))
        return why_set(why, ERR_INVALID,
                       "%s: shape, dtype and data_offsets of tensor %s do not fit together or into the %" PRIu64
                       " bytes of data", file->label, shown(name, safe), file->data_bytes);
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct tensor *left = a, *right = b;
    if (left->begin != right->begin)
        return left->begin < right->begin ? -1 : 1;
    return left->end < right->end ? -1 : left->end > right->end;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

/* The tensors must lie one behind the other and fill the data. */
static int check_cover(const struct safetensors *file, struct why *why)
{
    uint64_t end = 0;
    char safe[SHOWN];
    for (size_t i = 0; i < file->count; i++) {
        const struct tensor *t = &file->tensors[i];
        if (t->begin != end)
            return why_set(why, ERR_INVALID, "%s: tensor %s %s", file->label, shown(t->name, safe),
                           t->begin < end ? "overlaps another one" : "lies behind a hole");
        end = t->end;
    }
    if (end != file->data_bytes)
        return why_set(why, ERR_INVALID, "%s: %" PRIu64 " bytes behind the last tensor", file->label,
                       file->data_bytes - end);
    return 0;
}

static int read_header(struct safetensors *file, const uint8_t *bytes, uint64_t header_bytes, struct why *why)
{
    json_error_t error;
    file->header = json_loadb((const char *)bytes, (size_t)header_bytes, JSON_REJECT_DUPLICATES, &error);
    char safe[200];
    if (!file->header)
        return why_set(why, ERR_INVALID, "%s: header: %s (byte %d)", file->label,
                       text_harmless(error.text, strlen(error.text), safe, sizeof safe), error.position);
    if (!json_is_object(file->header) || json_object_size(file->header) > TENSORS_MAX)
        return why_set(why, ERR_INVALID, "%s: the header is not an object of at most %d tensors", file->label, TENSORS_MAX);
    file->tensors = mem_array(json_object_size(file->header) + 1, sizeof *file->tensors);
    const char *name;
    json_t *entry;
    json_object_foreach(file->header, name, entry) {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        int err = read_tensor(file, name, entry, &file->tensors[file->count], why);
        if (err)
            return err;
        file->count++;
    }
    qsort(file->tensors, file->count, sizeof *file->tensors, by_place);
    int err = check_cover(file, why);
    qsort(file->tensors, file->count, sizeof *file->tensors, by_name);
    return err;
}

int safetensors_parse(const uint8_t *bytes, size_t count, const char *label, struct safetensors **file, struct why *why)
{
    if (count < 8)
        return why_set(why, ERR_INVALID, "%s: %zu bytes are no safetensors file", label, count);
    uint64_t header_bytes = 0;
    for (int i = 7; i >= 0; i--)
        header_bytes = header_bytes << 8 | bytes[i];
    if (header_bytes > HEADER_MAX || header_bytes > count - 8)
        return why_set(why, ERR_INVALID,
                       "%s: the header says %" PRIu64 " bytes, the file has %zu; is it cut off, or no safetensors "
                       "file?", label, header_bytes, count);
    struct safetensors *new = mem_new(sizeof *new);
    new->label = mem_text(label);
    new->data = bytes + 8 + header_bytes;
    new->data_bytes = count - 8 - header_bytes;
    int err = read_header(new, bytes + 8, header_bytes, why);
    if (err)
        safetensors_close(new);
    else
        *file = new;
    return err;
}

int safetensors_open(const char *path, struct safetensors **file, struct why *why)
{
    struct stat status;
    void *map = MAP_FAILED;
    int err = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return why_errno(why, "model file %s", path);
    if (fstat(fd, &status) != 0) {
        err = why_errno(why, "model file %s", path);
    } else if (!S_ISREG(status.st_mode) || status.st_size < 8) {
        err = why_set(why, ERR_INVALID, "%s: %s", path,
                      S_ISREG(status.st_mode) ? "shorter than any safetensors file" : "not a file");
    } else {
        map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED)
            err = why_errno(why, "model file %s: mmap", path);
    }
    close(fd);
    if (err == 0)
        err = safetensors_parse(map, (size_t)status.st_size, path, file, why);
    if (err == 0) {
        (*file)->map = map;
        (*file)->map_bytes = (size_t)status.st_size;
    } else if (map != MAP_FAILED) {
        munmap(map, (size_t)status.st_size);
    }
    return err;
}

void safetensors_close(struct safetensors *file)
{
    if (!file)
        return;
    if (file->map)
        munmap(file->map, file->map_bytes);
    json_decref(file->header);
    mem_free(file->tensors);
    mem_free(file->label);
    mem_free(file);
}

/* ---- tensors ---- */

static const struct tensor *find(const struct safetensors *file, const char *name)
{
    struct tensor key = {.name = name};
    return bsearch(&key, file->tensors, file->count, sizeof *file->tensors, by_name);
}

bool safetensors_is_half(const struct safetensors *file)
{
    for (size_t i = 0; i < file->count; i++)
        if (file->tensors[i].dtype->read != read_bf16)
            return false;
    return true;
}

size_t safetensors_count(const struct safetensors *file)
{
    return file->count;
}

bool safetensors_has(const struct safetensors *file, const char *name)
{
    return find(file, name) != NULL;
}

/* Pages that others need are not lost by it: they stay in the system's cache, and come back when they are looked at. */
void safetensors_release(const struct safetensors *file, const void *bytes, size_t count)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!file->map)
        return;
    uintptr_t begin = (uintptr_t)bytes / page * page;
    madvise((void *)begin, (uintptr_t)bytes + count - begin, MADV_DONTNEED);
}

static void write_shape(int dims, const int64_t *shape, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < dims && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%" PRId64, i ? " × " : "", shape[i]);
}

int safetensors_get(const struct safetensors *file, const char *name, int dims, const int64_t *shape, int64_t first,
                    int64_t count, float *out, struct why *why)
{
    const struct tensor *t = find(file, name);
    if (!t)
        return why_set(why, ERR_ABSENT, "%s has no tensor %s", file->label, name);
    bool same = t->dims == dims && memcmp(t->shape, shape, (size_t)dims * sizeof *shape) == 0;
    if (!same) {
        char theirs[120], ours[120];
        write_shape(t->dims, t->shape, theirs, sizeof theirs);
        write_shape(dims, shape, ours, sizeof ours);
        return why_set(why, ERR_INVALID, "%s: tensor %s is %s, config.json says %s", file->label, name, theirs, ours);
    }
    if (!t->dtype->read)
        return why_set(why, ERR_INVALID, "%s: tensor %s has dtype %s; kedge reads F32, BF16 and F16", file->label, name,
                       t->dtype->name);
    uint64_t elements = (t->end - t->begin) / t->dtype->bytes;
    BUG_IF(first < 0 || count < 0 || (uint64_t)first > elements || (uint64_t)count > elements - (uint64_t)first);
    const uint8_t *from = file->data + t->begin + (uint64_t)first * t->dtype->bytes;
    t->dtype->read(from, count, out);
    safetensors_release(file, from, (size_t)count * t->dtype->bytes);
    return 0;
}

static int find_raw(const struct safetensors *file, const char *name, const struct tensor **tensor, struct why *why)
{
    *tensor = find(file, name);
    if (!*tensor)
        return why_set(why, ERR_ABSENT, "%s has no tensor %s", file->label, name);
    if (strcmp((*tensor)->dtype->name, "U8") != 0)
        return why_set(why, ERR_INVALID, "%s: tensor %s has dtype %s, not U8", file->label, name, (*tensor)->dtype->name);
    return 0;
}

int safetensors_raw_bytes(const struct safetensors *file, const char *name, size_t *count, struct why *why)
{
    const struct tensor *t;
    int err = find_raw(file, name, &t, why);
    if (!err)
        *count = (size_t)(t->end - t->begin);
    return err;
}

int safetensors_raw(const struct safetensors *file, const char *name, size_t count, const uint8_t **bytes, struct why *why)
{
    const struct tensor *t;
    int err = find_raw(file, name, &t, why);
    if (!err && t->end - t->begin != count)
        return why_set(why, ERR_INVALID, "%s: tensor %s has %" PRIu64 " bytes, not %zu", file->label, name, t->end - t->begin, count);
    if (!err)
        *bytes = file->data + t->begin;
    return err;
}
