/*
 * Products of bf16 in a stage: loss and gradients near those of fp32 on every instruction set, masters that keep steps smaller than a
 * bf16 sees, and words that follow the weights however these were changed. Weights in bf16 alone: the same model as the same numbers
 * in fp32, in half the memory.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/math/half.h"
#include "gpu/model/model.h"
#include "tests/helpers/backend.h"
#include "tests/helpers/numbers.h"
#include "tests/helpers/rig.h"

enum { SEQUENCES = 3, TOKENS = 40, ROWS = SEQUENCES * TOKENS, HIDDEN = 48, VOCABULARY = 300 };

static struct stage *open_stage(struct rig *rig, bool half, int64_t columns)
{
    const struct stage_shape shape = {
        .model = {.hidden = HIDDEN, .layers = 2, .heads = 4, .kv_heads = 2, .ffn = 72, .vocabulary = VOCABULARY, .head_width = 12,
                  .qk_norm = true, .rope_theta = 10000, .norm_epsilon = 1e-5f},
        .layers = 2, .first = true, .last = true, .sequences = SEQUENCES, .tokens = TOKENS, .slots = 1, .half_products = half,
        .head_columns = columns};
    struct stage *stage;
    struct why why = {0};
    if (stage_new(rig->ops, rig->device, &shape, &stage, &why) != 0)
        fail_msg("%s", why.text);
    stage_fresh(stage, 7);
    return stage;
}

static double both_ways(struct stage *stage)
{
    uint32_t ids[ROWS], targets[ROWS];
    for (uint32_t i = 0; i < ROWS; i++) {
        ids[i] = i * 31 % VOCABULARY;
        targets[i] = i % 5 ? i * 17 % VOCABULARY : UINT32_MAX;
    }
    stage_forward(stage, 0, ids, NULL, SEQUENCES, TOKENS);
    double loss = stage_loss(stage, 0, targets, 1.0f / ROWS);
    stage_backward(stage, 0, NULL);
    return loss;
}

/* How far the gradient of tensor i is from that of the other stage. */
static double gradient_difference(struct rig *rig, struct stage *got, struct stage *want, int i, struct tensor_info *info)
{
    stage_tensor(want, i, info);
    int64_t count = info->shape[0] * (info->dims == 2 ? info->shape[1] : 1);
    float *one = rig_floats(rig, count), *other = rig_floats(rig, count);
    stage_tensor_get(got, i, one, true);
    stage_tensor_get(want, i, other, true);
    return backend_difference(one, rig_wide(rig, other, count), count);
}

static void near_each(struct rig *rig)
{
    struct stage *exact = open_stage(rig, false, 0), *half = open_stage(rig, true, 0), *pieces = open_stage(rig, true, 70);
    double wanted = both_ways(exact), loss = both_ways(half), again = both_ways(pieces);
    if (!(fabs(loss - wanted) < 2e-3 * wanted && fabs(again - loss) < 1e-6 * loss))
        fail_msg("loss %.6f, with the head in pieces %.6f, with fp32 %.6f (%s)", loss, again, wanted, rig->label);
    for (int i = 0; i < stage_tensor_count(exact); i++) {
        struct tensor_info info;
        double difference = gradient_difference(rig, half, exact, i, &info);
        if (!(difference < 0.02 && difference > 1e-5)) /* a bf16 is off by 2^-9 */
            fail_msg("gradient of %s differs by %.5f (%s)", info.name, difference, rig->label);
        assert_true(gradient_difference(rig, half, pieces, i, &info) < 0.004);
    }
    stage_free(exact);
    stage_free(half);
    stage_free(pieces);
}

static void gradients_are_near(void **state)
{
    (void)state;
    rig_each(near_each);
}

static int index_of(struct stage *stage, const char *name)
{
    struct tensor_info info;
    for (int i = 0; i < stage_tensor_count(stage); i++) {
        stage_tensor(stage, i, &info);
        if (strcmp(info.name, name) == 0)
            return i;
    }
    fail_msg("there is no %s", name);
    return -1;
}

static void masters_keep_small_steps(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, NULL, 1);
    struct stage *stage = open_stage(&rig, true, 0);
    const struct adamw settings = {.learning_rate = 1e-7f, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .gradient_scale = 1};
    int index = index_of(stage, "lm_head.weight"), between = 0;
    float *before = rig_floats(&rig, VOCABULARY * HIDDEN), *after = rig_floats(&rig, VOCABULARY * HIDDEN);
    stage_tensor_get(stage, index, before, false);
    both_ways(stage);
    stage_step(stage, &settings, 1);
    stage_tensor_get(stage, index, after, false);
    for (int i = 0; i < VOCABULARY * HIDDEN; i++)
        between += half_from_float(after[i]) == half_from_float(before[i]) && after[i] < before[i];
    assert_true(between > VOCABULARY * HIDDEN / 4);
    stage_free(stage);
    rig_close(&rig);
}

static void words_follow_weights(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, NULL, 1);
    struct stage *one = open_stage(&rig, true, 0), *other = open_stage(&rig, true, 0);
    const struct adamw settings = {.learning_rate = 0.01f, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .gradient_scale = 1};
    double fresh = both_ways(one);
    stage_step(one, &settings, 1);
    double stepped = both_ways(one);
    assert_true(stepped < fresh);
    for (int i = 0; i < stage_tensor_count(one); i++) {
        float values[VOCABULARY * HIDDEN];
        both_ways(other); /* its words are made of what it had */
        stage_tensor_get(one, i, values, false);
        stage_tensor_set(other, i, values);
    }
    double copied = both_ways(other);
    assert_true(memcmp(&copied, &stepped, sizeof copied) == 0);
    stage_fresh(other, 7);
    copied = both_ways(other);
    assert_true(memcmp(&copied, &fresh, sizeof copied) == 0);
    stage_free(one);
    stage_free(other);
    rig_close(&rig);
}

/* Judges, which no optimiser moves: one whose weights are fp32 that a bf16 holds, one that has the words only. */
static struct stage *open_judge(struct rig *rig, bool words_only, bool half, bool bias)
{
    const struct stage_shape shape = {
        .model = {.hidden = HIDDEN, .layers = 2, .heads = 4, .kv_heads = 2, .ffn = 72, .vocabulary = VOCABULARY, .head_width = 12,
                  .qk_norm = !bias, .qkv_bias = bias, .rope_theta = 10000, .norm_epsilon = 1e-5f},
        .layers = 2, .first = true, .last = true, .sequences = SEQUENCES, .tokens = TOKENS, .slots = 1, .judges = true,
        .half_products = half, .words_only = words_only};
    struct stage *stage;
    struct why why = {0};
    if (stage_new(rig->ops, rig->device, &shape, &stage, &why) != 0)
        fail_msg("%s", why.text);
    uint64_t count = (uint64_t)stage_word_count(&shape), bytes = stage_memory(&shape).weights;
    uint64_t table = VOCABULARY * HIDDEN; /* rows of it are looked up */
    uint64_t wanted = words_only ? 2 * count : half ? 6 * count - 2 * table : 4 * count;
    assert_true(bytes >= wanted && bytes < wanted + 4096);
    return stage;
}

static void words_each(struct rig *rig)
{
    for (int n = 0; n < 4; n++) {
        struct stage *full = open_judge(rig, false, n & 1, n & 2), *words = open_judge(rig, true, n & 1, n & 2);
        const int64_t most = 2 * (VOCABULARY * HIDDEN + 4 * HIDDEN * (4 * HIDDEN + 72));
        uint16_t *snapshot = rig_take(rig, most * 2), *back = rig_take(rig, most * 2);
        stage_fresh(full, 9);
        stage_words_get(full, snapshot);
        stage_words_set(full, snapshot);
        stage_words_set(words, snapshot);
        memset(back, 0xA5, (size_t)most * 2);
        stage_words_get(words, back);
        numbers_same(back, snapshot, most * 2, "words back (%s)", rig->label);
        double wanted = both_ways(full), loss = both_ways(words);
        if (!(fabs(loss - wanted) < 1e-6 * wanted))
            fail_msg("loss %.9f of words, %.9f of fp32 (%s)", loss, wanted, rig->label);
        for (int i = 0; i < stage_tensor_count(full); i++) {
            struct tensor_info info;
            if (!(gradient_difference(rig, words, full, i, &info) < 2e-5))
                fail_msg("gradient of %s is another one with words (%s)", info.name, rig->label);
        }
        stage_fresh(words, 9);
        stage_words_get(words, back);
        numbers_same(back, snapshot, most * 2, "fresh words (%s)", rig->label);
        stage_free(full);
        stage_free(words);
    }
}

static void words_alone_are_the_same_model(void **state)
{
    (void)state;
    rig_each(words_each);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_near), cmocka_unit_test(masters_keep_small_steps),
                                       cmocka_unit_test(words_follow_weights),
                                       cmocka_unit_test(words_alone_are_the_same_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
