/*
 * The codecs with statistics: what is measured, made of it and coded is what an independent implementation says
 * (fixtures/codec.json and the
 * script that makes it); what a wrong or hostile state does; limits.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <jansson.h>

#include "gpu/math/codec.h"
#include "gpu/math/half.h"
#include "ssh/base/mem.h"
#include "tests/helpers/backend.h"
#include "tests/helpers/dice.h"

#define FIXTURE "tests/ops/fixtures/codec.json"

static struct backend cpu;
static json_t *fixture;
static struct codec_settings settings;
static struct codec_use use;
static float *table; /* device */

static int64_t number(const char *name)
{
    return (int64_t)json_integer_value(json_object_get(fixture, name));
}

/* mem_free it. */
static float *numbers(const char *name, int64_t *count)
{
    json_t *array = json_object_get(fixture, name);
    *count = (int64_t)json_array_size(array);
    float *values = mem_array((size_t)*count + 1, sizeof *values);
    for (int64_t i = 0; i < *count; i++)
        values[i] = (float)json_number_value(json_array_get(array, (size_t)i));
    return values;
}

static int read_fixture(void **state)
{
    (void)state;
    json_error_t error;
    fixture = json_load_file(FIXTURE, 0, &error);
    if (!fixture)
        return -1;
    int64_t count, rows = number("sequences") * number("tokens"), width = number("width");
    float *values = numbers("table", &count);
    values = mem_grow(values, (size_t)(count + width), sizeof *values);
    memset(values + count, 0, (size_t)width * sizeof *values);
    table = backend_tensor(&cpu, values, count + width);
    mem_free(values);
    settings = (struct codec_settings){.kind = CODEC_KIND_SUBSPACE,
                                       .format = FORMAT_BF16,
                                       .reference = CODEC_REFERENCE_TOKENS,
                                       .width = width,
                                       .max_rows = rows,
                                       .boundary = 1,
                                       .slots = 2,
                                       .context = number("context"),
                                       .table = table,
                                       .vocabulary = number("vocabulary"),
                                       .forward_share = json_real_value(json_object_get(fixture, "forward_share")),
                                       .decay = 0.5,
                                       .bits = 2};
    uint32_t *windows = mem_array((size_t)(rows + number("sequences")), sizeof *windows);
    for (int64_t i = 0; i < rows + number("sequences"); i++)
        windows[i] = (uint32_t)json_integer_value(json_array_get(json_object_get(fixture, "windows"), (size_t)i));
    use = (struct codec_use){.step = 1, .rows = rows, .keep = 2 * number("keep"), .format_override = -1, .version = 1,
                             .windows = windows, .tokens = number("tokens")};
    return 0;
}

static struct codec *open_codec(void)
{
    struct codec *codec;
    struct why why = {0};
    if (codec_new(cpu.ops, cpu.device, &settings, &codec, &why) != 0)
        fail_msg("%s", why.text);
    return codec;
}

/* Two codecs, one for each end, with what the owner measured of a tensor. */
static void give_state(struct codec *owner, struct codec *other, enum codec_way way, const char *tensor, uint32_t version)
{
    int64_t count;
    float *values = numbers(tensor, &count), *device = backend_tensor(&cpu, values, count);
    uint8_t *state;
    size_t bytes;
    if (way == CODEC_FORWARD)
        codec_measure(owner, &use, device);
    else
        codec_measure_gradient(owner, &use, device);
    assert_int_equal(codec_settle(owner, way), 0);
    assert_int_equal(codec_export(owner, way, &state, &bytes), 0);
    assert_int_equal(bytes, codec_state_bytes(&settings, way));
    assert_int_equal(codec_import(owner, way, version, state, bytes, NULL), 0);
    assert_int_equal(codec_import(other, way, version, state, bytes, NULL), 0);
    mem_free(state);
    mem_free(values);
    cpu.ops->free(cpu.device, device);
}

/* How many values may differ by more than 1 % of the largest. Single precision moves sums a little, and then bf16 a number
 * by one unit or a
 * coefficient that lies at the edge of a level into the next one: a mistake in the formulas is much larger than that. */
static void compare(const float *got, const char *name, double most_different)
{
    int64_t count, different = 0;
    float *wanted = numbers(name, &count);
    double largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)wanted[i]));
    for (int64_t i = 0; i < count; i++)
        different += !(fabs((double)got[i] - (double)wanted[i]) <= 1e-2 * largest);
    if ((double)different > most_different * (double)count)
        fail_msg("%s: %d of %d values differ from the fixture", name, (int)different, (int)count);
    mem_free(wanted);
}

static void state_is_that_of_the_fixture(void **unused)
{
    (void)unused;
    struct codec *sender = open_codec();
    int64_t count, weights, rank = settings.width;
    float *x = numbers("x", &count), *device = backend_tensor(&cpu, x, count), *b = numbers("weights", &weights);
    uint8_t *state;
    size_t bytes;
    codec_measure(sender, &use, device);
    assert_int_equal(codec_settle(sender, CODEC_FORWARD), 0);
    assert_int_equal(codec_export(sender, CODEC_FORWARD, &state, &bytes), 0);
    float *got = mem_array((size_t)weights, sizeof *got), *values = mem_array((size_t)rank, sizeof *values);
    const uint8_t *columns = state + 2 * rank, *rows = columns + 2 * rank; /* behind the row of the one */
    int64_t last = weights / rank - 1;
    for (int64_t i = 0; i < last * rank; i++)
        got[i] = (float)(int8_t)rows[2 * last + i] * half_to_float(half_get(rows + 2 * (i / rank))) *
                 half_to_float(half_get(columns + 2 * (i % rank)));
    for (int64_t c = 0; c < rank; c++)
        got[last * rank + c] = half_to_float(half_get(state + 2 * c));
    compare(got, "weights", 0);
    memcpy(values, rows + 2 * last + last * rank, (size_t)rank * sizeof *values);
    compare(values, "values_forward", 0);
    mem_free(state);
    mem_free(x);
    mem_free(b);
    mem_free(got);
    mem_free(values);
    cpu.ops->free(cpu.device, device);
    codec_free(sender);
}

static void both_directions_are_those_of_the_fixture(void **unused)
{
    (void)unused;
    struct codec *sender = open_codec(), *receiver = open_codec();
    struct why why = {0};
    int64_t count;
    give_state(sender, receiver, CODEC_FORWARD, "x", 1);
    give_state(receiver, sender, CODEC_BACKWARD, "g", 1);
    float *values = numbers("x", &count), *device = backend_tensor(&cpu, values, count), *out = backend_tensor(&cpu, NULL,
                                                                                                               count);
    size_t forward = codec_bytes(&settings, &use, CODEC_FORWARD), backward = codec_bytes(&settings, &use, CODEC_BACKWARD);
    assert_int_equal(forward, use.rows * 7);
    assert_int_equal(backward, use.rows * 5);
    uint8_t *message = mem_array(forward, 1);
    codec_encode(sender, &use, device, message);
    assert_int_equal(codec_decode(receiver, &use, message, forward, out, &why), 0);
    backend_get(&cpu, values, out, count);
    compare(values, "decoded", 0.05);
    mem_free(values);
    values = numbers("g", &count);
    cpu.ops->copy_in(cpu.device, device, values, (size_t)count * sizeof *values);
    codec_encode_gradient(receiver, &use, device, message);
    assert_int_equal(codec_decode_gradient(sender, &use, message, backward, out, &why), 0);
    backend_get(&cpu, values, out, count);
    compare(values, "gradient", 0.05);
    double expected, bound;
    assert_true(codec_distortion(sender, CODEC_FORWARD, use.keep, &expected, &bound));
    assert_true(expected > bound && bound > 0);
    mem_free(values);
    mem_free(message);
    cpu.ops->free(cpu.device, device);
    cpu.ops->free(cpu.device, out);
    codec_free(sender);
    codec_free(receiver);
}

static double passed(struct codec *codec, const struct codec_use *how, const float *x, float *out, int64_t count)
{
    float *device = backend_tensor(&cpu, x, count), *decoded = backend_tensor(&cpu, NULL, count);
    size_t bytes = codec_bytes(&settings, how, CODEC_FORWARD);
    uint8_t *message = mem_array(bytes, 1);
    struct why why = {0};
    double error = 0, energy = 0;
    codec_encode(codec, how, device, message);
    assert_int_equal(codec_decode(codec, how, message, bytes, decoded, &why), 0);
    backend_get(&cpu, out, decoded, count);
    for (int64_t i = 0; i < count; i++) {
        error += pow((double)out[i] - (double)x[i], 2);
        energy += pow((double)x[i], 2);
    }
    mem_free(message);
    cpu.ops->free(cpu.device, device);
    cpu.ops->free(cpu.device, decoded);
    return error / energy;
}

static void more_bytes_are_less_error(void **unused)
{
    (void)unused;
    static const int kinds[] = {CODEC_KIND_SUBSPACE, CODEC_KIND_PRINCIPAL, CODEC_KIND_TOPK, CODEC_KIND_HYBRID};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        settings.kind = kinds[k];
        struct codec *codec = open_codec(), *other = open_codec();
        int64_t count;
        float *x = numbers("x", &count), *out = mem_array((size_t)count, sizeof *out);
        double before = 2;
        give_state(codec, other, CODEC_FORWARD, "x", 1);
        if (codec_has_state(&settings, CODEC_BACKWARD))
            give_state(codec, other, CODEC_BACKWARD, "g", 1);
        for (use.keep = 8; use.keep < 48; use.keep += 8) {
            double error = passed(codec, &use, x, out, count);
            if (error > before + 1e-9)
                fail_msg("kind %d: %lld bytes have an error of %g, fewer had %g", kinds[k], (long long)use.keep, error,
                         before);
            before = error;
        }
        assert_true(kinds[k] == CODEC_KIND_PRINCIPAL || before < 0.01); /* two bits a coefficient are the end of that one */
        use.keep = 2 * number("keep");
        x[3] = NAN; /* news, and only for its own row */
        passed(codec, &use, x, out, count);
        bool news = false;
        for (int64_t i = 0; i < count; i++) {
            news |= i < settings.width && isnan(out[i]);
            assert_true(i < settings.width || isfinite(out[i]));
        }
        assert_true(news);
        mem_free(x);
        mem_free(out);
        codec_free(codec);
        codec_free(other);
    }
    settings.kind = CODEC_KIND_SUBSPACE;
}

static void a_rate_is_bytes_of_a_token(void **unused)
{
    (void)unused;
    assert_int_equal(codec_keep(&settings, 0), 0); /* dense */
    assert_int_equal(codec_keep(&settings, 0.75), 12);
    assert_int_equal(codec_keep(&settings, 0.999), 6); /* a scale and eight bits each way */
    assert_int_equal(codec_keep_most(&settings), 4 * settings.width - 1);
    struct codec_settings wide = settings; /* bytes are stamped in 16 bits */
    struct codec *none;
    struct why why = {0};
    wide.width = 16385;
    assert_int_equal(codec_new(cpu.ops, cpu.device, &wide, &none, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "16384"));
    struct codec_use full = use;
    full.keep = codec_keep_most(&settings);
    assert_int_equal(codec_bytes(&settings, &full, CODEC_FORWARD),
                     full.rows * (2 + settings.width)); /* 8 bits a coefficient */
}

static void refuse_state(struct codec *codec, enum codec_way way, const uint8_t *state, size_t bytes, const char *word)
{
    struct why why = {0};
    assert_int_equal(codec_import(codec, way, 9, state, bytes, &why), ERR_INVALID);
    if (!strstr(why.text, word) || !strstr(why.text, "boundary 1"))
        fail_msg("'%s' does not say '%s'", why.text, word);
    assert_false(codec_holds(codec, 9));
}

static void hostile_states_are_refused(void **unused)
{
    (void)unused;
    struct codec *codec = open_codec(), *owner = open_codec();
    int64_t count, rank = settings.width;
    float *x = numbers("x", &count), *device = backend_tensor(&cpu, x, count);
    uint8_t *state;
    size_t bytes, features = (size_t)(settings.context * rank), weights = 4 * (size_t)rank + features * (size_t)(2 + rank);
    codec_measure(owner, &use, device);
    assert_int_equal(codec_settle(owner, CODEC_FORWARD), 0);
    assert_int_equal(codec_export(owner, CODEC_FORWARD, &state, &bytes), 0);
    refuse_state(codec, CODEC_FORWARD, state, bytes - 1, "bytes");
    refuse_state(codec, CODEC_BACKWARD, state, bytes, "bytes");
    uint8_t kept[4];
    memcpy(kept, state + weights + 4, 4);
    memcpy(state + weights + 4, (uint8_t[4]){0, 0, 0x80, 0x7f}, 4);
    refuse_state(codec, CODEC_FORWARD, state, bytes, "eigenvalue 1");
    memset(state + weights + 4, 0, 4);
    refuse_state(codec, CODEC_FORWARD, state, bytes, "eigenvalue 1");
    memcpy(state + weights + 4, kept, 4);
    half_put(state + bytes - 2, HALF_NAN);
    refuse_state(codec, CODEC_FORWARD, state, bytes, "direction 11");
    half_put(state + bytes - 2, 0);
    half_put(state, 0x7F80);
    refuse_state(codec, CODEC_FORWARD, state, bytes, "channel 0");
    half_put(state, 0);
    assert_int_equal(codec_import(codec, CODEC_FORWARD, 9, state, bytes, NULL), 0);
    assert_false(codec_holds(codec, 9)); /* of gradients there is nothing yet */
    struct why why = {0};
    uint8_t message[512] = {0};
    use.version = 9;
    size_t coded = codec_bytes(&settings, &use, CODEC_FORWARD);
    assert_int_equal(codec_decode(codec, &use, message, coded, device, &why), ERR_INVALID);
    use.version = 0; /* without directions there is only the dense exchange */
    assert_int_equal(codec_decode(codec, &use, message, coded, device, &why), ERR_INVALID);
    use.version = 1;
    mem_free(state);
    mem_free(x);
    cpu.ops->free(cpu.device, device);
    codec_free(codec);
    codec_free(owner);
}

/* A stranger's top-k message may name any index: nothing is written outside a row. */
static void hostile_indices_stay_inside(void **unused)
{
    (void)unused;
    settings.kind = CODEC_KIND_TOPK;
    settings.reference = CODEC_REFERENCE_NONE;
    struct codec *codec = open_codec();
    struct dice dice = {8};
    int64_t count = use.rows * settings.width;
    float *device = backend_tensor(&cpu, NULL, count);
    size_t bytes = codec_bytes(&settings, &use, CODEC_FORWARD);
    uint8_t *message = mem_array(bytes, 1);
    struct why why = {0};
    for (int round = 0; round < 50; round++) {
        for (size_t i = 0; i < bytes; i++)
            message[i] = round ? (uint8_t)dice_below(&dice, 256) : 0xff;
        assert_int_equal(codec_decode(codec, &use, message, bytes, device, &why), 0);
    }
    mem_free(message);
    cpu.ops->free(cpu.device, device);
    codec_free(codec);
    settings.kind = CODEC_KIND_SUBSPACE;
    settings.reference = CODEC_REFERENCE_TOKENS;
}

/* New statistics and half of the old: what settles after a second measurement of the same is the same state. */
static void the_same_again_is_the_same_state(void **unused)
{
    (void)unused;
    struct codec *codec = open_codec();
    int64_t count;
    float *x = numbers("g", &count), *device = backend_tensor(&cpu, x, count);
    uint8_t *one, *other;
    size_t bytes;
    codec_measure_gradient(codec, &use, device);
    assert_int_equal(codec_settle(codec, CODEC_BACKWARD), 0);
    assert_int_equal(codec_export(codec, CODEC_BACKWARD, &one, &bytes), 0);
    for (int64_t i = 0; i < count; i++)
        x[i] *= 8; /* gradients of another size count alike */
    cpu.ops->copy_in(cpu.device, device, x, (size_t)count * sizeof *x);
    codec_measure_gradient(codec, &use, device);
    codec_forget(codec, CODEC_BACKWARD); /* of a step that was not applied */
    codec_measure_gradient(codec, &use, device);
    assert_int_equal(codec_settle(codec, CODEC_BACKWARD), 0);
    assert_int_equal(codec_export(codec, CODEC_BACKWARD, &other, &bytes), 0);
    assert_memory_equal(one, other, bytes);
    mem_free(one);
    mem_free(other);
    mem_free(x);
    cpu.ops->free(cpu.device, device);
    codec_free(codec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_is_that_of_the_fixture),
        cmocka_unit_test(both_directions_are_those_of_the_fixture),
        cmocka_unit_test(more_bytes_are_less_error),
        cmocka_unit_test(a_rate_is_bytes_of_a_token),
        cmocka_unit_test(hostile_states_are_refused),
        cmocka_unit_test(hostile_indices_stay_inside),
        cmocka_unit_test(the_same_again_is_the_same_state),
    };
    backend_open(&cpu, 1);
    int failed = cmocka_run_group_tests(tests, read_fixture, NULL);
    json_decref(fixture);
    cpu.ops->free(cpu.device, table);
    void *windows;
    memcpy(&windows, &use.windows, sizeof windows);
    mem_free(windows);
    backend_close(&cpu);
    return failed;
}
