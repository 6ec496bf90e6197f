/*
 * What training goes on from: a stage that was written and read takes the same optimiser steps to the last bit, in every format of moments,
 * with a tied copy and with layers that stay; a codec measures on as if nothing had been. What is of another stage, or makes no sense, is
 * refused.
 */
#include "gpu/model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/math/codec.h"
#include "gpu/model/safetensors.h"
#include "gpu/model/safetensors_write.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/backend.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/placed.h"

enum { TOKENS = 8, LAYERS = 3 };

static struct backend cpu;
static struct stage_shape shape_of(enum stage_moments moments, int64_t still)
{
    return (struct stage_shape){.model = {.hidden = 32, .layers = LAYERS + 1, .heads = 2, .kv_heads = 1, .ffn = 48, .vocabulary = 40, .head_width = 16,
                                          .tied = !still, .rope_theta = 10000, .norm_epsilon = 1e-5f},
                                .first_layer = 1, .layers = LAYERS, .last = true, .sequences = 1, .tokens = TOKENS, .slots = 1,
                                .moments = moments, .still = still};
}

static struct stage *stage_of(const struct stage_shape *shape, uint64_t seed)
{
    struct why why = {0};
    struct stage *stage;
    if (stage_new(cpu.ops, cpu.device, shape, &stage, &why) != 0)
        fail_msg("%s", why.text);
    stage_fresh(stage, seed);
    return stage;
}

static void train(struct stage *stage, int64_t t)
{
    const struct adamw settings = {.learning_rate = 0.01f, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.01f,
                                   .gradient_scale = 1};
    float x[TOKENS * 32];
    uint32_t targets[TOKENS];
    float *input = stage_input(stage, 0);
    for (int i = 0; i < TOKENS * 32; i++)
        x[i] = (float)((i * 7 + t) % 11) / 8 - 0.5f;
    for (int i = 0; i < TOKENS; i++)
        targets[i] = (uint32_t)((i * 5 + t) % 40);
    cpu.ops->copy_in(cpu.device, input, x, sizeof x);
    stage_forward(stage, 0, NULL, input, 1, TOKENS);
    stage_loss(stage, 0, targets, 0.125f);
    stage_backward(stage, 0, NULL);
    stage_step(stage, &settings, t);
}

static void save(struct stage *stage, const char *path, uint8_t *room, uint64_t *bytes, uint64_t *hash)
{
    static const char word[] = "beside";
    const struct stage_block block = {"kedge.word", word, sizeof word};
    struct safetensors_out *out;
    struct why why = {0};
    if (stage_save_begin(stage, path, &block, 1, room, &out, &why) != 0 || safetensors_finish(out, bytes, hash, &why) != 0)
        fail_msg("%s", why.text);
}

static int resume(struct stage *stage, const char *path, struct why *why)
{
    struct safetensors *file;
    const uint8_t *word;
    if (safetensors_open(path, &file, why) != 0)
        fail_msg("%s", why->text);
    assert_int_equal(safetensors_raw(file, "kedge.word", 7, &word, why), 0);
    assert_string_equal((const char *)word, "beside");
    int err = stage_resume(stage, file, why);
    safetensors_close(file);
    return err;
}

static void steps_go_on(void **state)
{
    (void)state;
    for (int moments = STAGE_MOMENTS_FP32; moments <= STAGE_MOMENTS_FP8; moments++) {
        for (int64_t still = 0; still < 2; still++) {
            struct stage_shape shape = shape_of((enum stage_moments)moments, still);
            struct stage *left = stage_of(&shape, 3), *other = stage_of(&shape, 4);
            const struct stage_block block = {"kedge.word", NULL, 7};
            struct why why = {0};
            uint64_t bytes[2], hash[2];
            char *path = mem_text(place_file(&place, "stage")), *held = mem_text(place_file(&place, "held"));
            uint8_t *room = mem_new(stage_save_bytes(left, &block, 1));
            for (int64_t t = 1; t <= 3; t++)
                train(left, t);
            save(left, path, NULL, &bytes[0], &hash[0]);
            save(left, held, room, &bytes[1], &hash[1]);
            assert_true(bytes[0] == bytes[1] && hash[0] == hash[1]);
            assert_true(bytes[0] > stage_save_bytes(left, &block, 1)); /* and a header */
            if (resume(other, path, &why) != 0)
                fail_msg("%s", why.text);
            assert_true(stage_hash(left) == stage_hash(other));
            for (int64_t t = 4; t <= 6; t++) {
                train(left, t);
                train(other, t);
                assert_true(stage_hash(left) == stage_hash(other));
            }
            stage_free(left);
            stage_free(other);
            mem_free(room);
            mem_free(path);
            mem_free(held);
        }
    }
}

static void another_stage_is_refused(void **state)
{
    (void)state;
    struct stage_shape shape = shape_of(STAGE_MOMENTS_FP32, 0), others[4] = {shape, shape, shape, shape};
    struct stage *stage = stage_of(&shape, 3);
    struct why why = {0};
    uint64_t bytes, hash;
    char *path = mem_text(place_file(&place, "stage"));
    save(stage, path, NULL, &bytes, &hash);
    others[0].moments = STAGE_MOMENTS_BF16;
    others[1] = shape_of(STAGE_MOMENTS_FP32, 1);
    others[2].first_layer = 2, others[2].layers = LAYERS - 1;
    others[3].model.ffn = 64;
    for (int i = 0; i < 4; i++) {
        struct stage *other = stage_of(&others[i], 3);
        assert_int_equal(resume(other, path, &why), ERR_INVALID);
        assert_non_null(strstr(why.text, "another stage"));
        stage_free(other);
    }
    assert_int_equal(stage_save(stage, path, &bytes, &hash, &why), 0); /* weights alone */
    struct safetensors *file;
    assert_int_equal(safetensors_open(path, &file, &why), 0);
    assert_int_equal(stage_resume(stage, file, &why), ERR_ABSENT);
    safetensors_close(file);
    stage_free(stage);
    mem_free(path);
}

/* ---- codecs ---- */

enum { WIDTH = 24, ROWS = 16 };

static struct codec *codec_of(const struct codec_settings *settings)
{
    struct why why = {0};
    struct codec *codec;
    if (codec_new(cpu.ops, cpu.device, settings, &codec, &why) != 0)
        fail_msg("%s", why.text);
    return codec;
}

/* What is made of one more measurement, as it would travel. */
static void measure(struct codec *codec, uint32_t version, bool use, struct dice *dice, uint8_t **states)
{
    float x[ROWS * WIDTH], *device = cpu.ops->alloc(cpu.device, sizeof x);
    struct codec_use what = {.step = version, .rows = ROWS, .format_override = -1};
    struct why why = {0};
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = (float)dice_below(dice, 2001) / 1000.0f - 1.0f;
    cpu.ops->copy_in(cpu.device, device, x, sizeof x);
    codec_measure(codec, &what, device);
    codec_measure_gradient(codec, &what, device);
    for (int way = 0; way < 2; way++) {
        size_t bytes = 0;
        assert_int_equal(codec_settle(codec, (enum codec_way)way), 0);
        assert_int_equal(codec_export(codec, (enum codec_way)way, &states[way], &bytes), 0);
        if (use && codec_import(codec, (enum codec_way)way, version, states[way], bytes, &why) != 0)
            fail_msg("%s", why.text);
    }
    cpu.ops->free(cpu.device, device);
}

static void statistics_of_go_on(int kind)
{
    struct codec_settings settings = {.kind = kind, .format = FORMAT_FP32, .reference = CODEC_REFERENCE_MEAN, .width = WIDTH,
                                      .max_rows = ROWS, .seed = 1, .slots = 1, .vocabulary = 7, .context = 1, .forward_share = 0.6, .decay = 0.5,
                                      .bits = 2};
    struct codec *left = codec_of(&settings), *other = codec_of(&settings);
    struct dice dice = {.state = 5}, same;
    struct why why = {0};
    uint8_t *states[2], *others[2];
    size_t bytes = codec_save_bytes(&settings);
    uint8_t *saved = mem_new(bytes), *again = mem_new(bytes);
    for (uint32_t version = 1; version <= 3; version++) {
        measure(left, version, true, &dice, states);
        mem_free(states[0]);
        mem_free(states[1]);
    }
    codec_save(left, saved);
    assert_int_equal(codec_restore(other, saved, bytes, &why), 0);
    codec_save(other, again);
    assert_memory_equal(saved, again, bytes);
    assert_true(codec_newest(other) == 3 && codec_holds(other, 2) && !codec_holds(other, 1));
    same = dice;
    measure(left, 4, false, &dice, states);
    measure(other, 4, false, &same, others);
    for (int way = 0; way < 2; way++) {
        assert_memory_equal(states[way], others[way], codec_state_bytes(&settings, (enum codec_way)way));
        mem_free(states[way]);
        mem_free(others[way]);
    }
    assert_int_equal(codec_restore(other, saved, bytes - 1, &why), ERR_INVALID);
    memset(saved + sizeof(uint64_t), 0xff, 8); /* eigenvalues that are no numbers */
    assert_int_equal(codec_restore(other, saved, bytes, &why), ERR_INVALID);
    codec_free(left);
    codec_free(other);
    mem_free(saved);
    mem_free(again);
}

/* entropy has projections beside its directions, and weighs the one tensor by the other. */
static void statistics_go_on(void **state)
{
    (void)state;
    statistics_of_go_on(CODEC_KIND_SUBSPACE);
    statistics_of_go_on(CODEC_KIND_ENTROPY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        placed_test(steps_go_on), placed_test(another_stage_is_refused), placed_test(statistics_go_on),
    };
    backend_open(&cpu, 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    backend_close(&cpu);
    return failed;
}
