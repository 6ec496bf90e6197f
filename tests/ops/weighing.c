/*
 * Of the codec entropy, errors of either way are weighed by what the other way says: where gradients are large, activations come
 * precisely, and where activations are large, gradients do.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "gpu/math/codec.h"
#include "ssh/base/mem.h"
#include "tests/helpers/backend.h"
#include "tests/helpers/dice.h"

enum { WIDTH = 32, ROWS = 512, CELLS = ROWS * WIDTH, LOUD = WIDTH / 4 };

static struct backend cpu;
static const struct codec_settings settings = {.kind = CODEC_KIND_ENTROPY, .format = FORMAT_BF16, .width = WIDTH, .max_rows = ROWS,
                                               .slots = 1, .rank = WIDTH, .context = 1, .forward_share = 0.5, .decay = 0.5};
static const struct codec_use use = {.step = 1, .rows = ROWS, .keep = 24, .format_override = -1, .version = 1};

/* Normal, in the first channels `loud` times as large. */
static void draw(struct dice *dice, float loud, float *out)
{
    for (int i = 0; i < CELLS; i++) {
        double one = (1 + dice_below(dice, 1 << 20)) * 0x1p-20, other = dice_below(dice, 1 << 20) * 0x1p-20;
        out[i] = (float)(sqrt(-2 * log(one)) * cos(2 * acos(-1.0) * other)) * (i % WIDTH < LOUD ? loud : 1);
    }
}

static void give(struct codec *codec, enum codec_way way)
{
    uint8_t *state;
    size_t bytes;
    assert_int_equal(codec_export(codec, way, &state, &bytes), 0);
    assert_int_equal(bytes, codec_made_bytes(&settings, way));
    assert_true(bytes > codec_state_bytes(&settings, way));
    assert_int_equal(codec_import(codec, way, 1, state, bytes, NULL), 0);
    mem_free(state);
}

/* Mean square error of the first channels beside that of the others, when `way` is coded. */
static double ratio(enum codec_way way, float loud_x, float loud_dx)
{
    struct codec *codec;
    struct dice dice = {7};
    float *x = mem_array(CELLS, sizeof *x), *dx = mem_array(CELLS, sizeof *dx), *out = mem_array(CELLS, sizeof *out);
    size_t bytes = codec_bytes(&settings, &use, way);
    uint8_t *message = mem_array(bytes, 1);
    double loud = 0, others = 0;
    assert_int_equal(codec_new(cpu.ops, cpu.device, &settings, &codec, NULL), 0);
    draw(&dice, loud_x, x);
    draw(&dice, loud_dx, dx);
    float *device_x = backend_tensor(&cpu, x, CELLS), *device_dx = backend_tensor(&cpu, dx, CELLS),
          *decoded = backend_tensor(&cpu, NULL, CELLS);
    codec_measure(codec, &use, device_x);
    codec_measure_gradient(codec, &use, device_dx);
    assert_int_equal(codec_settle(codec, CODEC_FORWARD), 0);
    assert_int_equal(codec_settle(codec, CODEC_BACKWARD), 0);
    give(codec, CODEC_FORWARD);
    give(codec, CODEC_BACKWARD);
    if (way == CODEC_FORWARD) {
        codec_encode(codec, &use, device_x, message);
        assert_int_equal(codec_decode(codec, &use, message, bytes, decoded, NULL), 0);
    } else {
        codec_encode_gradient(codec, &use, device_dx, message);
        assert_int_equal(codec_decode_gradient(codec, &use, message, bytes, decoded, NULL), 0);
    }
    backend_get(&cpu, out, decoded, CELLS);
    const float *sent = way == CODEC_FORWARD ? x : dx;
    for (int i = 0; i < CELLS; i++)
        *(i % WIDTH < LOUD ? &loud : &others) += pow((double)out[i] - (double)sent[i], 2);
    cpu.ops->free(cpu.device, device_x);
    cpu.ops->free(cpu.device, device_dx);
    cpu.ops->free(cpu.device, decoded);
    mem_free(x);
    mem_free(dx);
    mem_free(out);
    mem_free(message);
    codec_free(codec);
    return loud / LOUD / (others / (WIDTH - LOUD));
}

static void each_way_is_weighed_by_the_other(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        double even = ratio((enum codec_way)way, 1, 1);
        double weighed = way == CODEC_FORWARD ? ratio(CODEC_FORWARD, 1, 4) : ratio(CODEC_BACKWARD, 4, 1);
        if (fabs(even - 1) > 0.1 || weighed > 0.5)
            fail_msg("way %d: errors of the first channels are %.2f of the others' by themselves, %.2f weighed", way, even, weighed);
    }
}

/* What travels is enough to decode; projections are for who encodes. */
static void the_other_end_needs_no_projections(void **state)
{
    (void)state;
    struct codec *codecs[2];
    struct dice dice = {9};
    float *x = mem_array(CELLS, sizeof *x), *out[2];
    size_t coded = codec_bytes(&settings, &use, CODEC_FORWARD), bytes;
    uint8_t *message = mem_array(coded, 1), *state_bytes;
    draw(&dice, 3, x);
    float *device = backend_tensor(&cpu, x, CELLS), *decoded = backend_tensor(&cpu, NULL, CELLS);
    for (int i = 0; i < 2; i++)
        assert_int_equal(codec_new(cpu.ops, cpu.device, &settings, &codecs[i], NULL), 0);
    codec_measure(codecs[0], &use, device);
    codec_measure_gradient(codecs[0], &use, device);
    for (int way = 0; way < 2; way++)
        assert_int_equal(codec_settle(codecs[0], (enum codec_way)way), 0);
    for (int way = 0; way < 2; way++) {
        assert_int_equal(codec_export(codecs[0], (enum codec_way)way, &state_bytes, &bytes), 0);
        assert_int_equal(codec_import(codecs[0], (enum codec_way)way, 1, state_bytes, bytes, NULL), 0);
        assert_int_equal(codec_import(codecs[1], (enum codec_way)way, 1, state_bytes, codec_state_bytes(&settings, (enum codec_way)way), NULL), 0);
        mem_free(state_bytes);
    }
    codec_encode(codecs[0], &use, device, message);
    for (int i = 0; i < 2; i++) {
        out[i] = mem_array(CELLS, sizeof **out);
        assert_int_equal(codec_decode(codecs[i], &use, message, coded, decoded, NULL), 0);
        backend_get(&cpu, out[i], decoded, CELLS);
    }
    assert_memory_equal(out[0], out[1], CELLS * sizeof **out);
    for (int i = 0; i < 2; i++) {
        mem_free(out[i]);
        codec_free(codecs[i]);
    }
    cpu.ops->free(cpu.device, device);
    cpu.ops->free(cpu.device, decoded);
    mem_free(message);
    mem_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_way_is_weighed_by_the_other),
        cmocka_unit_test(the_other_end_needs_no_projections),
    };
    backend_open(&cpu, 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    backend_close(&cpu);
    return failed;
}
