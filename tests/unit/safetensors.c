/* Headers from strangers: whatever they claim is refused with a reason or is true. And what is right is read, in all three
 * formats. */
#include "gpu/model/safetensors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/bug.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/place.h"

/* header length + header + data; mem_free. */
static uint8_t *build(const char *header, const void *data, size_t data_bytes, size_t *bytes)
{
    size_t length = strlen(header);
    uint8_t *file = mem_new(8 + length + data_bytes);
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)((uint64_t)length >> (8 * i));
    memcpy(file + 8, header, length);
    if (data_bytes)
        memcpy(file + 8 + length, data, data_bytes);
    *bytes = 8 + length + data_bytes;
    return file;
}

#define TENSOR(name, dtype, shape, from, to) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

static void good_files_are_read(void **state)
{
    (void)state;
    const float f32[6] = {1, -2, 3.5f, 0, 1e-30f, 65504};
    const uint8_t bf16[4] = {0x80, 0x3f, 0x20, 0xc1};                                    /* 1, −10 */
    const uint8_t f16[12] = {0, 0x3c, 0xff, 0x7b, 1, 0, 0, 0x80, 0, 0xfc, 1, 0x7e};      /* 1, 65504, 2^-24, −0, −inf, NaN */
    uint8_t data[40];
    size_t bytes;
    struct safetensors *file;
    struct why why = {0};
    float out[6];
    memcpy(data, f16, 12);
    memcpy(data + 12, f32, 24);
    memcpy(data + 36, bf16, 4);
    uint8_t *text = build("{\"__metadata__\":{\"format\":\"pt\"}," TENSOR("z", "F32", "[2,3]", 12, 36) ","
                          TENSOR("a", "F16", "[6]", 0, 12) "," TENSOR("none", "I64", "[0,7]", 36, 36) ","
                          TENSOR("b", "BF16", "[2]", 36, 40) "}   ", data, sizeof data, &bytes);
    assert_int_equal(safetensors_parse(text, bytes, "good", &file, &why), 0);
    assert_true(safetensors_has(file, "z") && safetensors_has(file, "none"));
    assert_false(safetensors_has(file, "__metadata__") || safetensors_has(file, ""));
    assert_int_equal(safetensors_get(file, "z", 2, (const int64_t[]){2, 3}, 0, 6, out, &why), 0);
    assert_memory_equal(out, f32, sizeof f32);
    assert_int_equal(safetensors_get(file, "z", 2, (const int64_t[]){2, 3}, 3, 2, out, &why), 0);
    assert_memory_equal(out, f32 + 3, 2 * sizeof *f32);
    assert_int_equal(safetensors_get(file, "b", 1, (const int64_t[]){2}, 0, 2, out, &why), 0);
    assert_true(out[0] == 1 && out[1] == -10);
    assert_int_equal(safetensors_get(file, "a", 1, (const int64_t[]){6}, 0, 6, out, &why), 0);
    assert_true(out[0] == 1 && out[1] == 65504 && out[2] == 0x1p-24f && out[3] == 0 && signbit(out[3]) &&
                out[4] == -INFINITY && isnan(out[5]));
    safetensors_close(file);
    mem_free(text);
}

static void wrong_questions_have_reasons(void **state)
{
    (void)state;
    const float f32[6] = {1, 2, 3, 4, 5, 6};
    size_t bytes;
    struct safetensors *file;
    struct why why = {0};
    float out[6];
    uint8_t *text =
        build("{" TENSOR("z", "F32", "[2,2]", 0, 16) "," TENSOR("i", "I32", "[2]", 16, 24) "}", f32, sizeof f32, &bytes);
    assert_int_equal(safetensors_parse(text, bytes, "file", &file, &why), 0);
    assert_int_equal(safetensors_get(file, "y", 1, (const int64_t[]){4}, 0, 1, out, &why), ERR_ABSENT);
    assert_string_equal(why.text, "file has no tensor y");
    why.err = 0;
    assert_int_equal(safetensors_get(file, "z", 2, (const int64_t[]){2, 3}, 0, 1, out, &why), ERR_INVALID);
    assert_string_equal(why.text, "file: tensor z is 2 × 2, config.json says 2 × 3");
    assert_int_equal(safetensors_get(file, "z", 1, (const int64_t[]){4}, 0, 1, out, NULL), ERR_INVALID);
    why.err = 0;
    assert_int_equal(safetensors_get(file, "i", 1, (const int64_t[]){2}, 0, 1, out, &why), ERR_INVALID);
    assert_string_equal(why.text, "file: tensor i has dtype I32; kedge reads F32, BF16 and F16");
    safetensors_close(file);
    mem_free(text);
}

static void hostile_headers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header, *word;
    } cases[] = { /* all with 16 bytes of data */
        {"", "header:"},
        {"{", "header:"},
        {"[]", "not an object"},
        {"{}", "behind the last tensor"},
        {"{\"a\":1}", "entry of tensor a is not an object"},
        {"{\"a\":{}}", "no dtype that is known (none)"},
        {"{" TENSOR("a", "F33", "[4]", 0, 16) "}", "no dtype that is known (F33)"},
        {"{" TENSOR("a", "F\\u001b[31m", "[4]", 0, 16) "}", "\\x1b"},
        {"{\"a\":{\"dtype\":4,\"shape\":[4],\"data_offsets\":[0,16]}}", "no dtype"},
        {"{" TENSOR("a", "F32", "[5]", 0, 16) "}", "do not fit together"},
        {"{" TENSOR("a", "F32", "[-4]", 0, 16) "}", "do not fit together"},
        {"{" TENSOR("a", "F32", "[4.0]", 0, 16) "}", "do not fit together"},
        {"{" TENSOR("a", "F32", "4", 0, 16) "}", "do not fit together"},
        {"{" TENSOR("a", "F32", "[1,1,1,1,1,1,1,1,4]", 0, 16) "}", "do not fit together"},
        {"{" TENSOR("a", "F32", "[4611686018427387905,1]", 0, 16) "}", "do not fit together"},
        {"{" TENSOR("a", "F32", "[4294967296,4294967296,4]", 0, 16) "}", "do not fit together"},
        {"{" TENSOR("a", "F32", "[5]", 0, 20) "}", "into the 16 bytes"},
        {"{" TENSOR("a", "F32", "[4]", 16, 32) "}", "into the 16 bytes"},
        {"{" TENSOR("a", "F32", "[4]", 16, 0) "}", "do not fit together"},
        {"{" TENSOR("a", "F32", "[4]", -16, 0) "}", "do not fit together"},
        {"{" TENSOR("a", "F32", "[4]", 0, 18446744073709551616) "}", "header:"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0]}}", "do not fit together"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":{\"0\":0}}}", "do not fit together"},
        {"{" TENSOR("a", "F32", "[4]", 0, 16) "," TENSOR("b", "F32", "[4]", 0, 16) "}", "overlaps"},
        {"{" TENSOR("a", "F32", "[3]", 0, 12) "," TENSOR("b", "F32", "[2]", 8, 16) "}", "overlaps"},
        {"{" TENSOR("a", "F32", "[1]", 0, 4) "," TENSOR("b", "F32", "[2]", 8, 16) "}", "hole"},
        {"{" TENSOR("a", "F32", "[1]", 4, 8) "," TENSOR("b", "F32", "[2]", 8, 16) "}", "hole"},
        {"{" TENSOR("a", "F32", "[2]", 0, 8) "}", "8 bytes behind the last tensor"},
        {"{" TENSOR("a", "F32", "[2]", 0, 8) "," TENSOR("a", "F32", "[2]", 8, 16) "}", "header: duplicate object key"},
        {"{" TENSOR("", "F32", "[4]", 0, 16) "}", "name has 0 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint8_t data[16] = {0};
        size_t bytes;
        struct safetensors *file = NULL;
        struct why why = {0};
        uint8_t *text = build(cases[i].header, data, sizeof data, &bytes);
        assert_int_equal(safetensors_parse(text, bytes, "stranger", &file, &why), ERR_INVALID);
        assert_null(file);
        if (!strstr(why.text, cases[i].word) || !strstr(why.text, "stranger") || strchr(why.text, '\x1b'))
            fail_msg("case %zu: '%s' does not say '%s'", i, why.text, cases[i].word);
        mem_free(text);
    }
}

static void lengths_that_lie_are_refused(void **state)
{
    (void)state;
    const uint64_t lengths[] = {1, 100, (uint64_t)100 << 20, ((uint64_t)100 << 20) + 1, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint8_t bytes[20] = "12345678{}          ";
        struct safetensors *file;
        struct why why = {0};
        for (int b = 0; b < 8; b++)
            bytes[b] = (uint8_t)(lengths[i] >> (8 * b));
        assert_int_equal(safetensors_parse(bytes, sizeof bytes, "liar", &file, &why), ERR_INVALID);
    }
    struct why why = {0};
    struct safetensors *file;
    for (size_t count = 0; count < 8; count++)
        assert_int_equal(safetensors_parse((const uint8_t *)"\0\0\0\0\0\0\0", count, "short", &file, &why), ERR_INVALID);
}

/* A right file, cut off anywhere or with bytes that flipped: refused, or still in bounds (the sanitizers watch). */
static void torn_and_flipped_files_do_no_harm(void **state)
{
    (void)state;
    struct dice dice = {2};
    uint8_t data[24] = {0};
    size_t bytes;
    float out[4];
    uint8_t *text =
        build("{" TENSOR("a", "F32", "[2,2]", 0, 16) "," TENSOR("b", "BF16", "[4]", 16, 24) "}", data, sizeof data, &bytes);
    for (size_t cut = 0; cut < bytes; cut++) {
        struct safetensors *file;
        struct why why = {0};
        uint8_t *part = mem_copy(text, cut); /* its own block: reading behind it is seen */
        assert_int_equal(safetensors_parse(part, cut, "torn", &file, &why), ERR_INVALID);
        mem_free(part);
    }
    for (int round = 0; round < 20000; round++) {
        struct safetensors *file;
        uint8_t *flipped = mem_copy(text, bytes);
        for (uint64_t flips = 1 + dice_below(&dice, 3); flips; flips--)
            flipped[dice_below(&dice, bytes)] = (uint8_t)dice_u64(&dice);
        if (safetensors_parse(flipped, bytes, "flipped", &file, NULL) == 0) {
            safetensors_get(file, "a", 2, (const int64_t[]){2, 2}, 0, 4, out, NULL);
            safetensors_get(file, "b", 1, (const int64_t[]){4}, 0, 4, out, NULL);
            safetensors_close(file);
        }
        mem_free(flipped);
    }
    mem_free(text);
}

static void deep_and_long_headers_are_bounded(void **state)
{
    (void)state;
    enum { DEEP = 200000 };
    struct safetensors *file;
    struct why why = {0};
    uint8_t *bytes = mem_new(8 + DEEP);
    memset(bytes + 8, '[', DEEP);
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)DEEP >> (8 * i));
    assert_int_equal(safetensors_parse(bytes, 8 + DEEP, "deep", &file, &why), ERR_INVALID);
    mem_free(bytes);
    char *name = mem_new(2000), *header = NULL;
    memset(name, 'n', 1999);
    header = mem_format("{\"%s\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", name);
    size_t count;
    bytes = build(header, NULL, 0, &count);
    why.err = 0;
    assert_int_equal(safetensors_parse(bytes, count, "long", &file, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "name has 1999 bytes"));
    mem_free(bytes);
    mem_free(header);
    mem_free(name);
}

struct question {
    struct safetensors *file;
    int64_t first, count;
};

static void ask(void *arg)
{
    struct question *q = arg;
    float out[4];
    safetensors_get(q->file, "a", 1, (const int64_t[]){4}, q->first, q->count, out, NULL);
}

static void reading_past_a_tensor_is_a_bug(void **state)
{
    (void)state;
    const float data[4] = {0};
    size_t bytes;
    struct question q = {.first = 2, .count = 3};
    uint8_t *text = build("{" TENSOR("a", "F32", "[4]", 0, 16) "}", data, sizeof data, &bytes);
    assert_int_equal(safetensors_parse(text, bytes, "file", &q.file, NULL), 0);
    assert_non_null(bug_text(ask, &q));
    q = (struct question){q.file, -1, 1};
    assert_non_null(bug_text(ask, &q));
    q = (struct question){q.file, INT64_MAX, 1};
    assert_non_null(bug_text(ask, &q));
    safetensors_close(q.file);
    mem_free(text);
}

static void files_are_opened_or_the_path_is_named(void **state)
{
    (void)state;
    struct place place;
    struct safetensors *file;
    struct why why = {0};
    const float data[4] = {1, 2, 3, 4};
    float out[4];
    size_t bytes;
    assert_int_equal(place_init(&place), 0);
    assert_int_equal(safetensors_open(place_file(&place, "none"), &file, &why), ERR_ABSENT);
    assert_non_null(strstr(why.text, place.path));
    why.err = 0;
    assert_int_equal(safetensors_open(place.folder, &file, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "not a file"));
    why.err = 0;
    assert_int_equal(file_write(place_file(&place, "empty"), "", 0, 0600, NULL), 0);
    assert_int_equal(safetensors_open(place.path, &file, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "shorter"));
    uint8_t *text = build("{" TENSOR("a", "F32", "[4]", 0, 16) "}", data, sizeof data, &bytes);
    assert_int_equal(file_write(place_file(&place, "good"), text, bytes, 0600, NULL), 0);
    assert_int_equal(safetensors_open(place.path, &file, &why), 0);
    assert_int_equal(safetensors_get(file, "a", 1, (const int64_t[]){4}, 0, 4, out, NULL), 0);
    assert_memory_equal(out, data, sizeof data);
    safetensors_close(file);
    mem_free(text);
    place_clear(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files_are_read),
        cmocka_unit_test(wrong_questions_have_reasons),
        cmocka_unit_test(hostile_headers_are_refused),
        cmocka_unit_test(lengths_that_lie_are_refused),
        cmocka_unit_test(torn_and_flipped_files_do_no_harm),
        cmocka_unit_test(deep_and_long_headers_are_bounded),
        cmocka_unit_test(reading_past_a_tensor_is_a_bug),
        cmocka_unit_test(files_are_opened_or_the_path_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
