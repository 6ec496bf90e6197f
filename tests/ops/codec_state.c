/*
 * Codecs: what must be refused (sizes, uses and settings from strangers), versions of the reference, memory.
 */
#include "gpu/math/codec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "ssh/base/mem.h"
#include "tests/helpers/backend.h"
#include "tests/helpers/bug.h"
#include "tests/helpers/dice.h"

enum { WIDTH = 37, ROWS = 11, CELLS = ROWS * WIDTH, SLOTS = 3 };

static struct backend cpu;
static float *device_x, *device_out; /* [ROWS, WIDTH] */

static struct codec_settings plain_settings(void)
{
    return (struct codec_settings){.kind = CODEC_KIND_MASK, .format = FORMAT_FP32, .gain = CODEC_GAIN_ONE, .width = WIDTH,
                                   .max_rows = ROWS, .seed = 42, .boundary = 1, .slots = SLOTS,
                                   .vocabulary = 7, .context = 2, .forward_share = 0.6, .decay = 0.5, .bits = 2};
}

static struct codec_use plain_use(int64_t keep)
{
    return (struct codec_use){.step = 9, .micro_batch = 2, .rows = ROWS, .keep = keep, .format_override = -1};
}

static struct codec *open_codec(const struct codec_settings *settings)
{
    struct codec *codec;
    struct why why = {0};
    if (codec_new(cpu.ops, cpu.device, settings, &codec, &why) != 0)
        fail_msg("%s", why.text);
    return codec;
}

static void fill_random(struct dice *dice, float *x, int count)
{
    for (int i = 0; i < count; i++)
        x[i] = (float)dice_below(dice, 20001) / 1000.0f - 10.0f + (float)(i % WIDTH) / 8.0f;
}

/* x̂ of one codec. */
static void pass(struct codec *codec, const struct codec_settings *settings, const struct codec_use *use, const float *x,
                 float *out)
{
    struct why why = {0};
    size_t bytes = codec_bytes(settings, use, CODEC_FORWARD);
    uint8_t *message = mem_array(bytes + 8, 1);
    memset(message, 0xa5, bytes + 8);
    cpu.ops->copy_in(cpu.device, device_x, x, (size_t)use->rows * WIDTH * sizeof *x);
    codec_encode(codec, use, device_x, message);
    for (int i = 0; i < 8; i++)
        assert_int_equal(message[bytes + (size_t)i], 0xa5); /* not a byte more than it says */
    assert_int_equal(codec_decode(codec, use, message, bytes, device_out, &why), 0);
    backend_get(&cpu, out, device_out, use->rows * WIDTH);
    mem_free(message);
}

/* ---- what must be refused ---- */

static void refuse(struct codec *codec, const struct codec_use *use, size_t count, const char *word)
{
    uint8_t message[CELLS * 4 + 1] = {0};
    float before[CELLS], after[CELLS];
    struct why why = {0};
    backend_get(&cpu, before, device_out, CELLS);
    assert_int_equal(codec_decode(codec, use, message, count, device_out, &why), ERR_INVALID);
    if (!strstr(why.text, word) || !strstr(why.text, "boundary 1"))
        fail_msg("'%s' does not say '%s'", why.text, word);
    if (!strstr(word, "version"))
        assert_int_equal(codec_decode_gradient(codec, use, message, count, device_out, NULL), ERR_INVALID);
    backend_get(&cpu, after, device_out, CELLS);
    assert_memory_equal(before, after, sizeof before);
}

static void hostile_uses_and_sizes_are_refused(void **state)
{
    (void)state;
    struct codec_settings settings = plain_settings();
    settings.reference = CODEC_REFERENCE_MEAN;
    struct codec *codec = open_codec(&settings);
    struct codec_use use = plain_use(5), bad;
    const size_t right = ROWS * 20;
    refuse(codec, &use, right - 1, "bytes came");
    refuse(codec, &use, right + 1, "bytes came");
    refuse(codec, &use, 0, "bytes came");
    bad = use, bad.rows = 0;
    refuse(codec, &bad, 0, "rows");
    bad = use, bad.rows = ROWS + 1;
    refuse(codec, &bad, right + 20, "rows");
    bad = use, bad.rows = INT64_MIN;
    refuse(codec, &bad, right, "rows");
    bad = use, bad.keep = WIDTH + 1;
    refuse(codec, &bad, right, "kept channels");
    bad = use, bad.keep = -1;
    refuse(codec, &bad, right, "kept channels");
    bad = use, bad.slot = SLOTS;
    refuse(codec, &bad, right, "slot");
    bad = use, bad.slot = -1;
    refuse(codec, &bad, right, "slot");
    bad = use, bad.micro_batch = UINT32_MAX;
    refuse(codec, &bad, right, "micro-batch");
    bad = use, bad.format_override = 9;
    refuse(codec, &bad, right, "number format");
    bad = use, bad.version = 3;
    refuse(codec, &bad, right, "codec state version 3");
    codec_free(codec);
    settings.kind = CODEC_KIND_DENSE;
    codec = open_codec(&settings);
    refuse(codec, &use, right, "kept channels"); /* a dense codec keeps all */
    codec_free(codec);
}

static void settings_out_of_range_are_refused(void **state)
{
    (void)state;
    struct codec_settings good = plain_settings(), bad;
    struct {
        const char *word;
        struct codec_settings settings;
    } cases[11];
    int count = 0;
#define CASE(text, member, value) \
    (bad = good, bad.member = (value), cases[count].word = (text), cases[count].settings = bad, count++)
    CASE("codec", kind, CODEC_KIND_ENTROPY + 1);
    CASE("codec", kind, -1);
    CASE("number format", format, 4);
    CASE("gain", gain, 3);
    CASE("reference", reference, 3);
    CASE("decoding", decoding, 2);
    CASE("channels", width, 65536);
    CASE("channels", width, 0);
    CASE("slots", slots, 0);
    CASE("tokens", max_rows, INT64_MAX);
    CASE("boundary", boundary, 4096);
#undef CASE
    for (int i = 0; i < count; i++) {
        struct codec *codec = NULL;
        struct why why = {0};
        assert_int_equal(codec_new(cpu.ops, cpu.device, &cases[i].settings, &codec, &why), ERR_INVALID);
        assert_null(codec);
        assert_non_null(strstr(why.text, cases[i].word));
    }
}

static void encode_out_of_range(void *arg)
{
    struct codec_use use = plain_use(WIDTH + 1);
    uint8_t out[4];
    codec_encode(arg, &use, device_x, out);
}

static void our_own_mistakes_are_bugs(void **state)
{
    (void)state;
    struct codec_settings settings = plain_settings();
    struct codec *codec = open_codec(&settings);
    const char *text = bug_text(encode_out_of_range, codec);
    assert_non_null(text);
    assert_non_null(strstr(text, "kept channels"));
    codec_free(codec);
}

/* ---- the reference ---- */

static void versions_come_in_order_and_two_are_held(void **state)
{
    (void)state;
    struct codec_settings settings = plain_settings();
    settings.reference = CODEC_REFERENCE_MEAN;
    struct codec *codec = open_codec(&settings);
    uint8_t bytes[2 * WIDTH];
    struct why why = {0};
    assert_true(codec_holds(codec, 0));
    assert_int_equal(codec_newest(codec), 0);
    for (uint32_t version = 5; version <= 20; version += 5) {
        struct codec_use use = plain_use(1);
        float x[CELLS] = {0}, out[CELLS];
        memset(bytes, 0, sizeof bytes);
        bytes[1] = (uint8_t)version; /* channel 0 is 2^-something: tells versions apart */
        assert_int_equal(codec_import(codec, CODEC_FORWARD, version, bytes, sizeof bytes, &why), 0);
        assert_int_equal(codec_newest(codec), version);
        assert_true(codec_holds(codec, version));
        assert_true(codec_holds(codec, version == 5 ? 0 : version - 5));
        assert_false(codec_holds(codec, version - 10 ? version - 10 : 1));
        use.version = version;
        pass(codec, &settings, &use, x, out);
        uint32_t bits;
        memcpy(&bits, &out[(ROWS - 1) * WIDTH], sizeof bits);
        assert_true(bits == 0 || bits == version << 24); /* 0 where channel 0 itself travelled: x is 0 */
    }
    assert_int_equal(codec_import(codec, CODEC_FORWARD, 20, bytes, sizeof bytes, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "came after version 20"));
    assert_int_equal(codec_import(codec, CODEC_FORWARD, 21, bytes, sizeof bytes - 1, NULL), ERR_INVALID);
    bytes[2] = 0x80, bytes[3] = 0xff;
    why = (struct why){0};
    assert_int_equal(codec_import(codec, CODEC_FORWARD, 21, bytes, sizeof bytes, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "not finite in channel 1"));
    assert_int_equal(codec_newest(codec), 20);
    codec_free(codec);
}

static void means_are_over_all_micro_batches(void **state)
{
    (void)state;
    struct codec_settings settings = plain_settings();
    settings.reference = CODEC_REFERENCE_MEAN;
    struct codec *codec = open_codec(&settings);
    struct dice dice = {11};
    float x[CELLS];
    double mean[WIDTH] = {0};
    uint8_t *state_bytes = NULL;
    size_t bytes;
    struct codec_use use = plain_use(1);
    assert_int_equal(codec_settle(codec, CODEC_FORWARD), ERR_ABSENT);
    assert_int_equal(codec_export(codec, CODEC_FORWARD, &state_bytes, &bytes), ERR_ABSENT);
    for (int rows = 1; rows <= ROWS; rows += 10) { /* 1 row, then 11 */
        fill_random(&dice, x, CELLS);
        cpu.ops->copy_in(cpu.device, device_x, x, sizeof x);
        use.rows = rows;
        codec_measure(codec, &use, device_x);
        for (int i = 0; i < rows * WIDTH; i++)
            mean[i % WIDTH] += (double)x[i] / (ROWS + 1);
    }
    assert_int_equal(codec_settle(codec, CODEC_FORWARD), 0);
    assert_int_equal(codec_export(codec, CODEC_FORWARD, &state_bytes, &bytes), 0);
    for (int c = 0; c < WIDTH; c++) {
        float value;
        uint32_t bits = (uint32_t)state_bytes[2 * c] << 16 | (uint32_t)state_bytes[2 * c + 1] << 24;
        memcpy(&value, &bits, sizeof bits);
        assert_true(fabs((double)value - mean[c]) <= ldexp(fabs(mean[c]), -8) + 1e-6);
    }
    mem_free(state_bytes);
    assert_int_equal(codec_settle(codec, CODEC_FORWARD), ERR_ABSENT); /* the measurement began anew */
    x[4] = NAN;
    cpu.ops->copy_in(cpu.device, device_x, x, sizeof x);
    codec_measure(codec, &use, device_x);
    assert_int_equal(codec_settle(codec, CODEC_FORWARD), ERR_ABSENT); /* never ship what is not finite */
    codec_free(codec);
    settings.reference = CODEC_REFERENCE_NONE;
    codec = open_codec(&settings);
    codec_measure(codec, &use, device_x);
    assert_int_equal(codec_settle(codec, CODEC_FORWARD), ERR_ABSENT);
    assert_int_equal(codec_export(codec, CODEC_FORWARD, &state_bytes, &bytes), ERR_ABSENT);
    assert_int_equal(codec_import(codec, CODEC_FORWARD, 1, (const uint8_t *)x, 2 * WIDTH, NULL), ERR_INVALID);
    codec_free(codec);
}

static void memory_is_what_was_said(void **state)
{
    (void)state;
    struct backend_count *count;
    const struct ops *counted = backend_counted(&cpu, &count);
    for (int kind = CODEC_KIND_DENSE; kind <= CODEC_KIND_ENTROPY; kind++)
        for (int reference = CODEC_REFERENCE_NONE; reference <= CODEC_REFERENCE_TOKENS; reference++) {
            struct codec_settings settings = plain_settings();
            struct codec *codec;
            struct why why = {0};
            settings.kind = kind;
            settings.reference = reference;
            settings.table = device_x; /* not looked at */
            settings.rank = 9;
            assert_int_equal(codec_new(counted, cpu.device, &settings, &codec, &why), 0);
            size_t host = kind == CODEC_KIND_ENTROPY ? ((size_t)(settings.max_rows * settings.rank) * sizeof(float) + 63) / 64 * 64 : 0;
            assert_int_equal(count->bytes + host, codec_memory_bytes(&settings));
            uint64_t blocks = count->blocks;
            codec_free(codec);
            assert_int_equal(count->blocks, 0);
            for (uint64_t n = 1; n <= blocks; n++) {
                count->fail_at = count->calls + n;
                assert_int_equal(codec_new(counted, cpu.device, &settings, &codec, &why), ERR_MEMORY);
                assert_int_equal(count->blocks, 0);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_uses_and_sizes_are_refused),
        cmocka_unit_test(settings_out_of_range_are_refused),
        cmocka_unit_test(our_own_mistakes_are_bugs),
        cmocka_unit_test(versions_come_in_order_and_two_are_held),
        cmocka_unit_test(means_are_over_all_micro_batches),
        cmocka_unit_test(memory_is_what_was_said),
    };
    backend_open(&cpu, 1);
    device_x = backend_tensor(&cpu, NULL, CELLS);
    device_out = backend_tensor(&cpu, NULL, CELLS);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cpu.ops->free(cpu.device, device_x);
    cpu.ops->free(cpu.device, device_out);
    backend_close(&cpu);
    return failed;
}
