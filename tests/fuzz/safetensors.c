/*
 * Any bytes as a safetensors file: refused, or all that it says can be read. First byte: whether the rest is the file, or choices of
 * which a header is made that is JSON at least, so that what is behind the parser is reached at once.
 */
#include "gpu/model/safetensors.h"

#include <inttypes.h>
#include <string.h>

#include "ssh/base/buf.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void read_some(struct safetensors *file)
{
    const int64_t shapes[][2] = {{1, 1}, {2, 2}, {4, 1}, {3, 5}, {0, 4}, {1, 1 << 20}};
    static float out[1 << 20];
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int dims = 1; dims <= 2; dims++) {
            int64_t all = dims == 1 ? shapes[i][0] : shapes[i][0] * shapes[i][1];
            struct why why = {0};
            for (int half = 0; half < 2; half++)
                if (safetensors_get(file, "a", dims, shapes[i], half * all / 2, all - half * all / 2, out, &why) != 0)
                    BUG_IF(!why.err || !why.text[0]);
        }
    safetensors_has(file, "b");
}

struct choices {
    const uint8_t *at, *end;
};

static uint8_t choose(struct choices *c)
{
    return c->at < c->end ? *c->at++ : 0;
}

/* Small numbers mostly, and those at which sums go wrong. */
static int64_t choose_number(struct choices *c)
{
    static const int64_t odd[] = {-1, INT64_MAX, INT64_MAX / 2, INT64_MAX / 4 + 1, INT64_C(1) << 32, INT64_C(1) << 62, 1 << 20, INT64_MIN};
    uint8_t byte = choose(c);
    return byte < 240 ? byte % 40 : odd[byte % 8];
}

static void put_numbers(struct buf *header, struct choices *c, const char *key, int numbers)
{
    buf_format(header, "\"%s\":[", key);
    for (int i = 0; i < numbers; i++)
        buf_format(header, "%s%" PRId64, i ? "," : "", choose_number(c));
    buf_format(header, "]");
}

static void put_tensor(struct buf *header, struct choices *c, bool first)
{
    static const char *const names[] = {"a", "b", "__metadata__", "", "model.layers.0.self_attn.q_proj.weight", "a\\u0000b"};
    static const char *const types[] = {"F32", "BF16", "F16", "I64", "F8_E4M3", "nonsense"};
    uint8_t kind = choose(c);
    buf_format(header, "%s\"%s\":{", first ? "" : ",", names[kind % 6]);
    if (kind < 250)
        buf_format(header, "\"dtype\":\"%s\",", types[choose(c) % 6]);
    put_numbers(header, c, "shape", choose(c) % 4);
    buf_format(header, ",");
    put_numbers(header, c, "data_offsets", kind % 16 == 15 ? 3 : 2);
    buf_format(header, "}");
}

/* A file of these choices; the last of them are its data. */
static void make(struct choices *c, struct buf *file)
{
    struct buf header;
    buf_init(&header, 1 << 16);
    buf_format(&header, "{");
    int tensors = 1 + choose(c) % 4;
    for (int i = 0; i < tensors; i++)
        put_tensor(&header, c, i == 0);
    buf_format(&header, "}");
    uint64_t said = buf_used(&header) + (choose(c) == 7 ? (uint64_t)choose_number(c) : 0);
    buf_put(file, &said, sizeof said);
    buf_put(file, buf_peek(&header), buf_used(&header));
    buf_put(file, c->at, (size_t)(c->end - c->at));
    buf_clear(&header);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct safetensors *file;
    struct why why = {0};
    struct buf made;
    buf_init(&made, 1 << 20);
    if (count && bytes[0] & 1) {
        struct choices choices = {bytes + 1, bytes + count};
        make(&choices, &made);
        bytes = buf_peek(&made);
        count = buf_used(&made);
    } else if (count) {
        bytes++;
        count--;
    }
    if (safetensors_parse(bytes, count, "fuzz", &file, &why) == 0) {
        read_some(file);
        safetensors_close(file);
    } else if (!why.err || !why.text[0]) {
        __builtin_trap(); /* every refusal has a reason */
    }
    buf_clear(&made);
    return 0;
}
