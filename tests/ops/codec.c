/*
 * Codecs: the map x → x̂ and its gradient against plain fp64, adjointness, the mean over many seeds, norms, and bytes, also
 * as golden vectors, made by an independent implementation of Philox and the formats. What is refused, and the reference's
 * versions: codec_state.c.
 */
#include "gpu/math/codec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "gpu/math/mask.h"
#include "ssh/base/mem.h"
#include "tests/helpers/backend.h"
#include "tests/helpers/dice.h"

enum { WIDTH = 37, ROWS = 11, CELLS = ROWS * WIDTH, SLOTS = 3 };

static struct backend cpu;
static float *device_x, *device_out; /* [ROWS, WIDTH] */

static struct codec_settings plain_settings(void)
{
    return (struct codec_settings){.kind = CODEC_KIND_MASK, .format = FORMAT_FP32, .gain = CODEC_GAIN_ONE, .width = WIDTH,
                                   .max_rows = ROWS, .seed = 42, .boundary = 1, .slots = SLOTS};
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

static void pass_back(struct codec *codec, const struct codec_settings *settings, const struct codec_use *use,
                      const float *dy, float *dx)
{
    struct why why = {0};
    size_t bytes = codec_bytes(settings, use, CODEC_FORWARD);
    uint8_t *message = mem_array(bytes, 1);
    cpu.ops->copy_in(cpu.device, device_x, dy, (size_t)use->rows * WIDTH * sizeof *dy);
    codec_encode_gradient(codec, use, device_x, message);
    assert_int_equal(codec_decode_gradient(codec, use, message, bytes, device_out, &why), 0);
    backend_get(&cpu, dx, device_out, use->rows * WIDTH);
    mem_free(message);
}

/* Gives the codec a reference of version 1: the bf16 numbers that travelled come back in `reference`. */
static void give_reference(struct codec *codec, struct dice *dice, float reference[WIDTH])
{
    float x[CELLS];
    uint8_t *state;
    size_t bytes;
    fill_random(dice, x, CELLS);
    cpu.ops->copy_in(cpu.device, device_x, x, sizeof x);
    struct codec_use use = plain_use(1);
    codec_measure(codec, &use, device_x);
    assert_int_equal(codec_settle(codec, CODEC_FORWARD), 0);
    assert_int_equal(codec_export(codec, CODEC_FORWARD, &state, &bytes), 0);
    assert_int_equal(bytes, 2 * WIDTH);
    assert_int_equal(codec_import(codec, CODEC_FORWARD, 1, state, bytes, NULL), 0);
    for (int i = 0; i < WIDTH; i++) {
        uint32_t bits = (uint32_t)state[2 * i] << 16 | (uint32_t)state[2 * i + 1] << 24;
        memcpy(&reference[i], &bits, sizeof bits);
    }
    mem_free(state);
}

/* gain[r,c] ≥ 0 of every cell by the definition; 0 where the channel does not travel. */
static void plain_gains(const struct codec_settings *s, const struct codec_use *use, const float *x, const float *reference,
                        double gain[CELLS])
{
    struct mask_key from = {.seed = s->seed, .step = use->step, .micro_batch = use->micro_batch, .boundary = s->boundary};
    uint32_t key[2], counter[4], word[4];
    mask_stream(&from, key, counter);
    memset(gain, 0, CELLS * sizeof *gain);
    for (int64_t r = 0; r < use->rows; r++) {
        double whole = 0, kept = 0;
        for (int64_t c = 0; c < WIDTH; c++)
            whole += pow((double)x[r * WIDTH + c] - (double)reference[c], 2);
        for (int64_t i = 0; i < use->keep; i++) {
            counter[0] = (uint32_t)(i / 4);
            counter[1] = (uint32_t)r;
            philox4x32(counter, key, word);
            int64_t first = i * WIDTH / use->keep, wide = (i + 1) * WIDTH / use->keep - first;
            int64_t c = first + (int64_t)(((uint64_t)word[i % 4] * (uint64_t)wide) >> 32);
            gain[r * WIDTH + c] = s->gain == CODEC_GAIN_UNBIASED ? (double)wide : 1;
            kept += pow((double)x[r * WIDTH + c] - (double)reference[c], 2);
        }
        for (int64_t c = 0; c < WIDTH && s->gain == CODEC_GAIN_RMS; c++)
            gain[r * WIDTH + c] *= sqrt(whole / kept);
    }
}

/* ---- the maps ---- */

static void check_maps(struct dice *dice, int gain, int reference_kind, int64_t keep)
{
    struct codec_settings settings = plain_settings();
    struct codec_use use = plain_use(keep);
    float x[CELLS], out[CELLS], dy[CELLS], dx[CELLS], reference[WIDTH] = {0};
    double gains[CELLS], expected[CELLS], back[CELLS];
    settings.gain = gain;
    settings.reference = reference_kind;
    struct codec *codec = open_codec(&settings);
    if (reference_kind == CODEC_REFERENCE_MEAN) {
        give_reference(codec, dice, reference);
        use.version = 1;
    }
    fill_random(dice, x, CELLS);
    fill_random(dice, dy, CELLS);
    pass(codec, &settings, &use, x, out);
    pass_back(codec, &settings, &use, dy, dx);
    plain_gains(&settings, &use, x, reference, gains);
    for (int i = 0; i < CELLS; i++) {
        double r = (double)reference[i % WIDTH];
        expected[i] = r + gains[i] * ((double)x[i] - r);
        back[i] = gains[i] * (double)dy[i];
    }
    double forward = backend_difference(out, expected, CELLS), backward = backend_difference(dx, back, CELLS);
    if (!(forward <= 1e-6 && backward <= 1e-6))
        fail_msg("gain %d, reference %d, keep %lld: x^ differs by %.3g, dx by %.3g", gain, reference_kind, (long long)keep,
                 forward, backward);
    codec_free(codec);
}

static void maps_are_their_formulas(void **state)
{
    (void)state;
    const int64_t keeps[] = {1, 2, 5, 36, WIDTH};
    struct dice dice = {3};
    for (int gain = CODEC_GAIN_ONE; gain <= CODEC_GAIN_RMS; gain++)
        for (int reference = CODEC_REFERENCE_NONE; reference <= CODEC_REFERENCE_MEAN; reference++)
            for (size_t k = 0; k < sizeof keeps / sizeof *keeps; k++)
                check_maps(&dice, gain, reference, keeps[k]);
}

/* ⟨x̂(x) − x̂(0), y⟩ = ⟨x, dx(y)⟩ where the map is affine. */
static void gradients_are_adjoint(void **state)
{
    (void)state;
    struct dice dice = {4};
    for (int kind = CODEC_KIND_DENSE; kind <= CODEC_KIND_MASK; kind++)
        for (int gain = CODEC_GAIN_ONE; gain <= CODEC_GAIN_UNBIASED; gain++) {
            struct codec_settings settings = plain_settings();
            float x[CELLS], zero[CELLS] = {0}, out[CELLS], at_zero[CELLS], y[CELLS], dx[CELLS], reference[WIDTH];
            double forward = 0, backward = 0, size = 0;
            settings.kind = kind;
            settings.gain = gain;
            settings.reference = CODEC_REFERENCE_MEAN;
            struct codec_use use = plain_use(codec_keep(&settings, 0.8));
            struct codec *codec = open_codec(&settings);
            if (kind != CODEC_KIND_DENSE)
                give_reference(codec, &dice, reference);
            use.version = kind != CODEC_KIND_DENSE;
            fill_random(&dice, x, CELLS);
            fill_random(&dice, y, CELLS);
            pass(codec, &settings, &use, zero, at_zero);
            pass(codec, &settings, &use, x, out);
            pass_back(codec, &settings, &use, y, dx);
            for (int i = 0; i < CELLS; i++) {
                forward += ((double)out[i] - (double)at_zero[i]) * (double)y[i];
                backward += (double)x[i] * (double)dx[i];
                size += fabs((double)x[i] * (double)dx[i]);
            }
            assert_true(size > 0 && fabs(forward - backward) <= 1e-6 * size);
            codec_free(codec);
        }
}

/* Over many steps the mean of x̂ with gain "unbiased" is x: every cell within 6 deviations of its mean, all together about
 * 1. */
static void unbiased_is_unbiased(void **state)
{
    (void)state;
    enum { DRAWS = 4000, KEEP = 5 };
    struct dice dice = {5};
    struct codec_settings settings = plain_settings();
    struct codec_use use = plain_use(KEEP);
    float x[CELLS], out[CELLS];
    double sum[CELLS] = {0}, score = 0;
    settings.gain = CODEC_GAIN_UNBIASED;
    struct codec *codec = open_codec(&settings);
    fill_random(&dice, x, CELLS);
    for (use.step = 0; use.step < DRAWS; use.step++) {
        pass(codec, &settings, &use, x, out);
        for (int i = 0; i < CELLS; i++)
            sum[i] += (double)out[i];
    }
    for (int i = 0; i < CELLS; i++) {
        int64_t stratum = 0, c = i % WIDTH;
        while ((stratum + 1) * WIDTH / KEEP <= c)
            stratum++;
        double wide = (double)((stratum + 1) * WIDTH / KEEP - stratum * WIDTH / KEEP);
        double deviation = fabs((double)x[i]) * sqrt((wide - 1) / DRAWS), error = sum[i] / DRAWS - (double)x[i];
        if (deviation == 0)
            continue;
        assert_true(fabs(error) <= 6 * deviation);
        score += error * error / (deviation * deviation);
    }
    assert_true(score / CELLS > 0.7 && score / CELLS < 1.3);
    codec_free(codec);
}

static void rms_keeps_the_norm_of_every_row(void **state)
{
    (void)state;
    struct dice dice = {6};
    struct codec_settings settings = plain_settings();
    float x[CELLS], out[CELLS], reference[WIDTH];
    struct codec_use use = plain_use(4);
    settings.gain = CODEC_GAIN_RMS;
    settings.reference = CODEC_REFERENCE_MEAN;
    struct codec *codec = open_codec(&settings);
    give_reference(codec, &dice, reference);
    use.version = 1;
    fill_random(&dice, x, CELLS);
    pass(codec, &settings, &use, x, out);
    for (int r = 0; r < ROWS; r++) {
        double before = 0, after = 0;
        for (int c = 0; c < WIDTH; c++) {
            before += pow((double)x[r * WIDTH + c] - (double)reference[c], 2);
            after += pow((double)out[r * WIDTH + c] - (double)reference[c], 2);
        }
        assert_true(fabs(after - before) <= 1e-5 * before);
    }
    codec_free(codec);
}

/* Micro-batches overlap: the gains of one slot must outlive the encoding of others. */
static void slots_keep_their_own_gains(void **state)
{
    (void)state;
    struct dice dice = {8};
    struct codec_settings settings = plain_settings();
    struct codec_use use[SLOTS];
    float x[CELLS], out[CELLS], dy[CELLS], alone[SLOTS][CELLS], dx[CELLS];
    settings.gain = CODEC_GAIN_RMS;
    struct codec *codec = open_codec(&settings);
    fill_random(&dice, dy, CELLS);
    for (int round = 0; round < 2; round++) {
        struct dice same = {9};
        for (int i = 0; i < SLOTS; i++) {
            use[i] = plain_use(4);
            use[i].micro_batch = (uint32_t)i;
            use[i].slot = i;
            fill_random(&same, x, CELLS);
            pass(codec, &settings, &use[i], x, out);
            if (round == 0)
                pass_back(codec, &settings, &use[i], dy, alone[i]);
        }
        for (int i = 0; i < SLOTS && round == 1; i++) {
            pass_back(codec, &settings, &use[i], dy, dx);
            assert_memory_equal(dx, alone[i], sizeof dx);
        }
    }
    codec_free(codec);
}

/* ---- bytes ---- */

static void golden_bytes(void **state)
{
    (void)state;
    static const struct {
        int gain, format;
        size_t bytes;
        uint8_t message[20];
    } golden[] = {
        {CODEC_GAIN_ONE, FORMAT_BF16, 20, {0x30, 0xc0, 0xc0, 0xbf, 0x40, 0xbf, 0x00, 0xbf, 0x80, 0x3f,
                                           0xc0, 0x3f, 0x20, 0x40, 0x40, 0x40, 0x60, 0x40, 0x88, 0x40}},
        {CODEC_GAIN_ONE,
         FORMAT_INT8,
         14,
         {0xb2, 0x3c, 0x81, 0xbb, 0xdd, 0xe9, 0x2e, 0x0a, 0x3d, 0x2d, 0x4a, 0x59, 0x68, 0x7e}},
        {CODEC_GAIN_ONE, FORMAT_INT4, 10, {0xca, 0x3e, 0xc9, 0xfe, 0x03, 0x1c, 0x3f, 0x42, 0x65, 0x07}},
        {CODEC_GAIN_UNBIASED, FORMAT_BF16, 20, {0x04, 0xc1, 0x90, 0xc0, 0x10, 0xc0, 0xc0, 0xbf, 0x80, 0x40,
                                                0x90, 0x40, 0xf0, 0x40, 0x10, 0x41, 0x28, 0x41, 0x88, 0x41}},
        {CODEC_GAIN_UNBIASED,
         FORMAT_INT8,
         14,
         {0x86, 0x3d, 0x82, 0xbb, 0xde, 0xe9, 0x3d, 0x0a, 0x3e, 0x21, 0x38, 0x43, 0x4e, 0x7e}},
        {CODEC_GAIN_UNBIASED, FORMAT_INT4, 10, {0x97, 0x3f, 0xc9, 0xfe, 0x03, 0x1c, 0x40, 0x32, 0x44, 0x07}},
    };
    struct codec_settings settings = {.kind = CODEC_KIND_MASK,
                                      .width = 16,
                                      .max_rows = 2,
                                      .seed = UINT64_C(0x123456789abcdef0),
                                      .boundary = 2,
                                      .slots = 1};
    struct codec_use use = {.step = 7, .micro_batch = 3, .rows = 2, .keep = 5, .format_override = -1};
    float x[32];
    for (int i = 0; i < 32; i++)
        x[i] = (float)(i + 1) * 0.25f - 3;
    cpu.ops->copy_in(cpu.device, device_x, x, sizeof x);
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        uint8_t message[20];
        settings.gain = golden[i].gain;
        settings.format = golden[i].format;
        struct codec *codec = open_codec(&settings);
        assert_int_equal(codec_bytes(&settings, &use, CODEC_FORWARD), golden[i].bytes);
        codec_encode(codec, &use, device_x, message);
        assert_memory_equal(message, golden[i].message, golden[i].bytes);
        codec_free(codec);
    }
}

static void bytes_and_channels_are_known_beforehand(void **state)
{
    (void)state;
    struct codec_settings settings = plain_settings();
    const struct {
        double rate;
        int64_t keep;
    } rates[] = {{0, 37}, {0.5, 19}, {0.95, 2}, {0.999, 1}, {1, 1}, {7, 1}, {-1, 37}, {NAN, 1}};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        assert_int_equal(codec_keep(&settings, rates[i].rate), rates[i].keep);
    struct codec_use use = plain_use(5);
    const size_t sparse[] = {20, 10, 7, 5}, dense[] = {4 * WIDTH, 2 * WIDTH, 2 + WIDTH, 2 + (WIDTH + 1) / 2};
    for (int format = FORMAT_FP32; format <= FORMAT_INT4; format++) {
        settings.format = format;
        use.keep = 5;
        assert_int_equal(codec_bytes(&settings, &use, CODEC_FORWARD), ROWS * sparse[format]);
        use.keep = 0;
        assert_int_equal(codec_bytes(&settings, &use, CODEC_FORWARD), ROWS * dense[format]);
    }
    use.format_override = FORMAT_FP32;
    assert_int_equal(codec_bytes(&settings, &use, CODEC_FORWARD), ROWS * dense[FORMAT_FP32]);
    settings.kind = CODEC_KIND_DENSE;
    assert_int_equal(codec_keep(&settings, 0.95), 0);
}

/* keep = 0 with fp32 is the identity in both directions, whatever the codec: that is what evaluation uses. */
static void evaluation_is_exact(void **state)
{
    (void)state;
    struct dice dice = {10};
    struct codec_settings settings = plain_settings();
    struct codec_use use = plain_use(0);
    float x[CELLS], out[CELLS];
    settings.format = FORMAT_INT4;
    settings.gain = CODEC_GAIN_RMS;
    settings.reference = CODEC_REFERENCE_MEAN;
    use.format_override = FORMAT_FP32;
    use.version = 77; /* a dense use needs no reference */
    struct codec *codec = open_codec(&settings);
    fill_random(&dice, x, CELLS);
    pass(codec, &settings, &use, x, out);
    assert_memory_equal(x, out, sizeof x);
    pass_back(codec, &settings, &use, x, out);
    assert_memory_equal(x, out, sizeof x);
    assert_int_equal(codec_checksum(codec, &use), 0);
    codec_free(codec);
}

static void checksums_tell_uses_apart(void **state)
{
    (void)state;
    struct codec_settings settings = plain_settings(), other = settings;
    struct codec_use use = plain_use(5), changed;
    struct codec *codec = open_codec(&settings), *twin = open_codec(&settings);
    uint32_t sum = codec_checksum(codec, &use);
    assert_int_not_equal(sum, 0);
    assert_int_equal(codec_checksum(twin, &use), sum);
    changed = use, changed.step++;
    assert_int_not_equal(codec_checksum(codec, &changed), sum);
    changed = use, changed.micro_batch++;
    assert_int_not_equal(codec_checksum(codec, &changed), sum);
    changed = use, changed.keep++;
    assert_int_not_equal(codec_checksum(codec, &changed), sum);
    codec_free(twin);
    other.boundary++;
    twin = open_codec(&other);
    assert_int_not_equal(codec_checksum(twin, &use), sum);
    codec_free(twin);
    codec_free(codec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_are_their_formulas),
        cmocka_unit_test(gradients_are_adjoint),
        cmocka_unit_test(unbiased_is_unbiased),
        cmocka_unit_test(rms_keeps_the_norm_of_every_row),
        cmocka_unit_test(slots_keep_their_own_gains),
        cmocka_unit_test(golden_bytes),
        cmocka_unit_test(bytes_and_channels_are_known_beforehand),
        cmocka_unit_test(evaluation_is_exact),
        cmocka_unit_test(checksums_tell_uses_apart),
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
