/*
 * A pipeline is the same computation as one process: with masks off, any number of stages gives the same losses; masks of
 * rate 0 are no masks; the bytes are those that codec_bytes says; a run repeats bit for bit; and the small model learns
 * through all of it.
 */
#include "tests/helpers/pipeline.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "ssh/base/file.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/place.h"

enum { STEPS = 20, LAYERS = 4 };

static struct backend cpu;
static struct place place;

/* Sentences of a few words: easy to learn, and none is the same. */
static void write_text(const char *path)
{
    static const char *const words[] = {"the ",  "anchor ", "holds ", "a ",     "ship ",  "against ", "wind ",  "and ",
                                        "tide ", "slowly ", "it ",    "hauls ", "ahead ", "of ",      "every ", "boat "};
    static char text[40000];
    struct dice dice = {1};
    size_t used = 0;
    while (used < sizeof text - 20)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
                                 words[dice_below(&dice, sizeof words / sizeof *words)], dice_below(&dice, 8) ? "" : ".\n");
    assert_int_equal(file_write(path, text, used, 0600, NULL), 0);
}

static struct profile small_profile(void)
{
    struct profile p;
    profile_defaults(&p);
    p.seed = 5;
    p.steps = STEPS;
    p.hidden = 32;
    p.layers = LAYERS;
    p.heads = 4;
    p.kv_heads = 2;
    p.ffn = 48;
    p.vocabulary = 256;
    snprintf(p.data_paths, sizeof p.data_paths, "%s", place_file(&place, "text"));
    p.validation_share = 0.1;
    p.validation_windows = 7;
    p.sequence = 16;
    p.micro_batch = 3;
    p.micro_batches = 2;
    p.learning_rate = 6e-3;
    p.warmup = 4;
    p.evaluate_every = 8;
    p.stages = 1;
    p.codec = CODEC_DENSE;
    p.values = VALUES_FP32;
    p.reference = REFERENCE_NONE;
    return p;
}

struct outcome {
    struct pipeline_step steps[STEPS];
    double validation[STEPS + 2];
    int evaluations;
    uint64_t hashes[LAYERS], forward_bytes, backward_bytes;
    int stages;
};

static struct outcome run(struct profile profile, int stages, const int64_t *layers)
{
    static const int64_t deals[][LAYERS] = {{4}, {2, 2}, {1, 2, 1}, {1, 1, 1, 1}};
    struct pipeline pipeline;
    struct outcome outcome = {.stages = stages};
    profile.stages = stages;
    pipeline_init(&pipeline, &cpu, &profile, layers ? layers : deals[stages - 1]);
    outcome.evaluations = pipeline_run(&pipeline, outcome.steps, outcome.validation);
    for (int i = 0; i < stages; i++)
        outcome.hashes[i] = stage_hash(pipeline.stage[i]);
    outcome.forward_bytes = pipeline.forward_bytes;
    outcome.backward_bytes = pipeline.backward_bytes;
    assert_int_equal(pipeline.skipped, 0);
    pipeline_clear(&pipeline);
    return outcome;
}

static void same_losses(const struct outcome *one, const struct outcome *other, double tolerance)
{
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(one->steps[i].loss - other->steps[i].loss) <= tolerance * other->steps[i].loss))
            fail_msg("step %d: loss %.9g through %d stages, %.9g through %d", i + 1, one->steps[i].loss, one->stages,
                     other->steps[i].loss, other->stages);
    for (int i = 0; i < other->evaluations; i++)
        assert_true(fabs(one->validation[i] - other->validation[i]) <= tolerance * other->validation[i]);
}

static bool same_bits(const struct outcome *one, const struct outcome *other)
{
    bool same = one->evaluations == other->evaluations && memcmp(one->hashes, other->hashes, sizeof one->hashes) == 0 &&
                memcmp(one->validation, other->validation, (size_t)one->evaluations * sizeof *one->validation) == 0;
    for (int i = 0; i < STEPS; i++)
        same = same && memcmp(&one->steps[i].loss, &other->steps[i].loss, sizeof(double)) == 0 &&
               memcmp(&one->steps[i].norm, &other->steps[i].norm, sizeof(double)) == 0;
    return same;
}

static void must_learn(const struct outcome *outcome, double by)
{
    double first = outcome->validation[0], last = outcome->validation[outcome->evaluations - 1];
    if (!(last < first - by))
        fail_msg("un-masked validation loss %.4f, before training %.4f", last, first);
}

static void any_number_of_stages_is_the_same_model(void **state)
{
    (void)state;
    static const int64_t uneven[] = {1, 3};
    struct profile profile = small_profile();
    struct outcome whole = run(profile, 1, NULL);
    must_learn(&whole, 0.5);
    assert_int_equal(whole.evaluations, 4); /* before, after 8 and 16, at the end */
    for (int stages = 2; stages <= LAYERS; stages++) {
        struct outcome split = run(profile, stages, NULL);
        same_losses(&split, &whole, 1e-5);
    }
    struct outcome split = run(profile, 2, uneven);
    same_losses(&split, &whole, 1e-5);
    profile.recompute = true;
    struct outcome recomputed = run(profile, 3, NULL);
    same_losses(&recomputed, &whole, 1e-5);
}

static void a_tied_head_on_the_last_stage_is_the_same_model(void **state)
{
    (void)state;
    struct profile profile = small_profile();
    profile.head_tie = HEAD_TIED;
    struct outcome whole = run(profile, 1, NULL);
    must_learn(&whole, 0.3);
    for (int stages = 2; stages <= LAYERS; stages++) {
        struct outcome split = run(profile, stages, NULL);
        same_losses(&split, &whole, 1e-5);
    }
}

static void a_mask_of_rate_0_is_no_mask(void **state)
{
    (void)state;
    struct profile profile = small_profile();
    struct outcome dense = run(profile, 3, NULL);
    profile.codec = CODEC_MASK;
    profile.mask_rate = 0;
    for (profile.gain = GAIN_ONE; profile.gain <= GAIN_RMS; profile.gain++) {
        struct outcome kept = run(profile, 3, NULL);
        same_losses(&kept, &dense, 1e-5);
        assert_int_equal(kept.forward_bytes, dense.forward_bytes);
    }
}

static void bytes_are_known_beforehand(void **state)
{
    (void)state;
    struct profile profile = small_profile();
    uint64_t rows = (uint64_t)(STEPS * profile.micro_batches * profile.micro_batch * profile.sequence);
    profile.codec = CODEC_MASK;
    profile.mask_rate = 0.9; /* keeps ⌊0.1 · 32 + ½⌋ = 3 */
    profile.values = VALUES_BF16;
    struct outcome masked = run(profile, 3, NULL);
    assert_int_equal(masked.forward_bytes, 2 * rows * 3 * 2);
    assert_int_equal(masked.backward_bytes, masked.forward_bytes);
    profile.values = VALUES_INT4;
    masked = run(profile, 2, NULL);
    assert_int_equal(masked.forward_bytes, rows * (2 + 2));
    profile.codec = CODEC_DENSE;
    profile.values = VALUES_INT8;
    masked = run(profile, 2, NULL);
    assert_int_equal(masked.forward_bytes, rows * (2 + 32));
}

static void runs_repeat_bit_for_bit_and_learn(void **state)
{
    (void)state;
    struct profile profile = small_profile();
    profile.codec = CODEC_MASK;
    profile.mask_rate = 0.8;
    profile.values = VALUES_BF16;
    profile.reference = REFERENCE_MEAN;
    profile.refresh = 3;
    for (int stages = 2; stages <= 3; stages++) {
        struct outcome one = run(profile, stages, NULL);
        profile.recompute = true;
        struct outcome other = run(profile, stages, NULL);
        profile.recompute = false;
        assert_true(same_bits(&one, &other));
        must_learn(&one, 0.3);
        profile.seed++;
        other = run(profile, stages, NULL);
        profile.seed--;
        assert_false(same_bits(&one, &other));
    }
}

/* Products of bf16 are another rounding of the same model: near the exact run, the same through any number of stages, and the same
 * bits every time. In a steep step roundings weigh more, on average they do not. */
static void bf16_learns_alike(void **state)
{
    (void)state;
    struct profile profile = small_profile();
    struct outcome exact = run(profile, 1, NULL);
    profile.precision = PRECISION_BF16;
    struct outcome whole = run(profile, 1, NULL);
    assert_false(same_bits(&whole, &exact));
    same_losses(&whole, &exact, 0.01);
    double sum = 0, exact_sum = 0;
    for (int i = 0; i < STEPS; i++) {
        sum += whole.steps[i].norm;
        exact_sum += exact.steps[i].norm;
        assert_true(fabs(whole.steps[i].norm - exact.steps[i].norm) < 0.2 * exact.steps[i].norm);
    }
    assert_true(fabs(sum - exact_sum) < 0.01 * exact_sum);
    for (int stages = 2; stages <= LAYERS; stages++) {
        struct outcome split = run(profile, stages, NULL);
        same_losses(&split, &whole, 1e-5);
    }
    struct outcome again = run(profile, 3, NULL);
    profile.recompute = true;
    struct outcome recomputed = run(profile, 3, NULL);
    assert_true(same_bits(&again, &recomputed));
}

/* What is not finite is never applied: weights stay, gradients go, the next step is as if the bad one had not been. */
static void a_step_that_is_not_finite_is_dropped(void **state)
{
    (void)state;
    struct profile profile = small_profile();
    struct pipeline pipeline;
    const int64_t layers[] = {2, 2};
    profile.stages = 2;
    pipeline_init(&pipeline, &cpu, &profile, layers);
    struct stage *last = pipeline.stage[1];
    int norm = stage_tensor_count(last) - 2;
    float gain[32], bad[32];
    assert_true(pipeline_train(&pipeline, 1).applied);
    stage_tensor_get(last, norm, gain, false);
    memcpy(bad, gain, sizeof bad);
    bad[3] = INFINITY;
    stage_tensor_set(last, norm, bad);
    struct pipeline_step step = pipeline_train(&pipeline, 2);
    assert_false(step.applied);
    assert_false(isfinite(step.loss) && isfinite(step.norm));
    assert_int_equal(pipeline.skipped, 1);
    stage_tensor_set(last, norm, gain);
    uint64_t before = stage_hash(last);
    assert_true(stage_gradient_squares(last) < 1e-30 && stage_gradient_squares(pipeline.stage[0]) < 1e-30);
    step = pipeline_train(&pipeline, 3);
    assert_true(step.applied);
    assert_true(stage_hash(last) != before);
    pipeline_clear(&pipeline);
}

static int make_text(void **state)
{
    (void)state;
    if (place_init(&place) != 0)
        return -1;
    write_text(place_file(&place, "text"));
    return 0;
}

static int drop_text(void **state)
{
    (void)state;
    place_clear(&place);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_stages_is_the_same_model),
        cmocka_unit_test(a_tied_head_on_the_last_stage_is_the_same_model),
        cmocka_unit_test(a_mask_of_rate_0_is_no_mask),
        cmocka_unit_test(bytes_are_known_beforehand),
        cmocka_unit_test(runs_repeat_bit_for_bit_and_learn),
        cmocka_unit_test(bf16_learns_alike),
        cmocka_unit_test(a_step_that_is_not_finite_is_dropped),
    };
    backend_open(&cpu, 1);
    int failed = cmocka_run_group_tests(tests, make_text, drop_text);
    backend_close(&cpu);
    return failed;
}
