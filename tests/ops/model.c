/*
 * The whole model (two layers, grouped queries, tied and untied head) against PyTorch in fp64: logits, loss, every
 * parameter's gradient, ten AdamW losses; with the head walked in whole and in pieces, with and without recomputation.
 * fixtures/make_model_fixture.py made the numbers. And against finite differences of a plain fp64 forward.
 */
#include "gpu/model/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "gpu/model/checkpoint.h"
#include "gpu/model/safetensors.h"
#include "ssh/base/mem.h"
#include "tests/helpers/backend.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/llama.h"

#define FIXTURES "tests/ops/fixtures"

enum { SEQUENCES = 3, TOKENS = 12, ROWS = SEQUENCES * TOKENS, STEPS = 10 };

static struct backend cpu;

struct variant {
    bool tied, recompute;
    int64_t head_rows, head_columns;
};

static const struct variant variants[] = {
    {.tied = false},
    {.tied = true},
    {.tied = false, .recompute = true},
    {.tied = false, .head_rows = 5, .head_columns = 7},
    {.tied = true, .recompute = true, .head_rows = 36, .head_columns = 47},
    {.tied = true, .head_rows = 1, .head_columns = 48},
};

/* The formulas of the script. Returns how many positions have a target. */
static int batch(int index, int64_t vocabulary, uint32_t ids[ROWS], uint32_t targets[ROWS])
{
    int count = 0;
    for (int position = 0; position < ROWS; position++) {
        int64_t i = position + 1000 * index;
        ids[position] = (uint32_t)((i * i * 5 + i * 3 + 1) % vocabulary);
        targets[position] = i % 7 == 6 ? UINT32_MAX : (uint32_t)((i * i * 3 + i * 11 + 2) % vocabulary);
        count += targets[position] != UINT32_MAX;
    }
    return count;
}

static struct stage *model_new(const struct variant *variant)
{
    struct stage_shape shape = {.first = true, .last = true, .sequences = SEQUENCES, .tokens = TOKENS, .slots = 2,
                                .recompute = variant->recompute, .head_rows = variant->head_rows,
                                .head_columns = variant->head_columns};
    struct why why = {0};
    struct stage *stage;
    struct safetensors *file;
    assert_int_equal(checkpoint_shape(FIXTURES "/llama", &shape.model, &why), 0);
    shape.layers = shape.model.layers;
    shape.model.tied = variant->tied;
    if (stage_new(cpu.ops, cpu.device, &shape, &stage, &why) != 0)
        fail_msg("%s", why.text);
    assert_int_equal(safetensors_open(FIXTURES "/llama/model.safetensors", &file, &why), 0);
    for (int i = 0; i < stage_tensor_count(stage); i++) {
        struct tensor_info info;
        stage_tensor(stage, i, &info);
        int64_t count = info.shape[0] * info.shape[1];
        float *values = mem_array((size_t)count, sizeof *values);
        if (safetensors_get(file, info.name, info.dims, info.shape, 0, count, values, &why) != 0)
            fail_msg("%s", why.text);
        stage_tensor_set(stage, i, values);
        mem_free(values);
    }
    safetensors_close(file);
    return stage;
}

static double *reference_of(const struct variant *variant, const char *name, int dims, const int64_t *shape, int64_t count)
{
    struct why why = {0};
    struct safetensors *file;
    float *narrow = mem_array((size_t)count, sizeof *narrow);
    double *wide = mem_array((size_t)count, sizeof *wide);
    if (safetensors_open(variant->tied ? FIXTURES "/tied.safetensors" : FIXTURES "/untied.safetensors", &file, &why) != 0 ||
        safetensors_get(file, name, dims, shape, 0, count, narrow, &why) != 0)
        fail_msg("%s", why.text);
    for (int64_t i = 0; i < count; i++)
        wide[i] = (double)narrow[i];
    safetensors_close(file);
    mem_free(narrow);
    return wide;
}

static double train_once(struct stage *stage, int index, int64_t vocabulary, int slot)
{
    uint32_t ids[ROWS], targets[ROWS];
    int count = batch(index, vocabulary, ids, targets);
    assert_null(stage_forward(stage, slot, ids, NULL, SEQUENCES, TOKENS));
    double loss = stage_loss(stage, slot, targets, 1.0f / (float)count) / count;
    assert_null(stage_backward(stage, slot, NULL));
    return loss;
}

static void logits_are_those_of_pytorch(void **state)
{
    (void)state;
    const int64_t vocabulary = 48, shape[2] = {ROWS, vocabulary};
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        struct stage *stage = model_new(&variants[v]);
        uint32_t ids[ROWS], targets[ROWS];
        float logits[ROWS * 48];
        double *expected = reference_of(&variants[v], "logits", 2, shape, ROWS * vocabulary);
        batch(0, vocabulary, ids, targets);
        stage_forward(stage, 1, ids, NULL, SEQUENCES, TOKENS);
        stage_logits(stage, logits);
        double difference = backend_difference(logits, expected, ROWS * vocabulary);
        if (!(difference <= 1e-5))
            fail_msg("variant %zu: logits differ by %.3g", v, difference);
        mem_free(expected);
        stage_free(stage);
    }
}

static void check_gradient(struct stage *stage, const struct variant *variant, size_t v, int index)
{
    struct tensor_info info;
    char name[128];
    stage_tensor(stage, index, &info);
    int64_t count = info.shape[0] * info.shape[1];
    float *gradient = mem_array((size_t)count, sizeof *gradient);
    snprintf(name, sizeof name, "grad.%s", info.name);
    double *expected = reference_of(variant, name, info.dims, info.shape, count);
    stage_tensor_get(stage, index, gradient, true);
    double difference = backend_difference(gradient, expected, count);
    if (!(difference <= 1e-4))
        fail_msg("variant %zu: the gradient of %s differs by %.3g", v, info.name, difference);
    mem_free(gradient);
    mem_free(expected);
}

static void gradients_are_those_of_pytorch(void **state)
{
    (void)state;
    const int64_t one = 1;
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        struct stage *stage = model_new(&variants[v]);
        double *expected = reference_of(&variants[v], "loss", 1, &one, 1), squares = 0;
        double loss = train_once(stage, 0, 48, 0);
        if (!(fabs(loss - *expected) <= 1e-5 * *expected))
            fail_msg("variant %zu: loss %.9g, %.9g is right", v, loss, *expected);
        for (int i = 0; i < stage_tensor_count(stage); i++)
            check_gradient(stage, &variants[v], v, i);
        for (int i = 0; i < stage_tensor_count(stage); i++) {
            struct tensor_info info;
            stage_tensor(stage, i, &info);
            float *gradient = mem_array((size_t)(info.shape[0] * info.shape[1]), sizeof *gradient);
            stage_tensor_get(stage, i, gradient, true);
            for (int64_t j = 0; j < info.shape[0] * info.shape[1]; j++)
                squares += (double)gradient[j] * (double)gradient[j];
            mem_free(gradient);
        }
        assert_true(fabs(stage_gradient_squares(stage) - squares) <= 1e-6 * squares);
        mem_free(expected);
        stage_free(stage);
    }
}

static void ten_adamw_losses_are_those_of_pytorch(void **state)
{
    (void)state;
    const struct adamw settings = {
        .learning_rate = 3e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f, .gradient_scale = 1};
    const int64_t steps = STEPS;
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        struct stage *stage = model_new(&variants[v]);
        double *expected = reference_of(&variants[v], "adamw_losses", 1, &steps, STEPS);
        for (int step = 0; step < STEPS; step++) {
            double loss = train_once(stage, step, 48, step % 2);
            stage_step(stage, &settings, step + 1);
            if (!(fabs(loss - expected[step]) <= 1e-5 * expected[step]))
                fail_msg("variant %zu, step %d: loss %.9g, %.9g is right", v, step + 1, loss, expected[step]);
        }
        assert_true(expected[STEPS - 1] > 0 && stage_gradient_squares(stage) < 1e-30);
        mem_free(expected);
        stage_free(stage);
    }
}

/* Along a random direction d of tensor i: (L(w + h·d) − L(w − h·d)) / 2h = ⟨gradient, d⟩. */
static void check_direction(struct dice *dice, struct llama *weights, const struct llama *gradients, int i,
                            const uint32_t *ids, const uint32_t *targets, int count)
{
    const double h = 1e-5;
    int64_t size = llama_size(weights, i);
    double *direction = mem_array((size_t)size, sizeof *direction), product = 0, squares = 0, sides[2];
    for (int64_t j = 0; j < size; j++) {
        direction[j] = (double)dice_below(dice, 2001) / 1000.0 - 1;
        product += direction[j] * gradients->values[i][j];
        squares += gradients->values[i][j] * gradients->values[i][j];
    }
    for (int side = 0; side < 2; side++) {
        for (int64_t j = 0; j < size; j++)
            weights->values[i][j] += (side ? -2 : 1) * h * direction[j];
        sides[side] = llama_loss(weights, ids, targets, SEQUENCES, TOKENS) / count;
    }
    for (int64_t j = 0; j < size; j++)
        weights->values[i][j] += h * direction[j];
    double slope = (sides[0] - sides[1]) / (2 * h);
    if (!(squares > 0 && fabs(slope - product) <= 1e-4 * sqrt(squares)))
        fail_msg("%s: the loss rises by %.9g along a direction, the gradient says %.9g", weights->info[i].name, slope,
                 product);
    mem_free(direction);
}

static void gradients_are_finite_differences(void **state)
{
    (void)state;
    struct dice dice = {7};
    for (size_t v = 0; v < 2; v++) {
        struct stage *stage = model_new(&variants[v]);
        struct model_shape shape;
        struct why why = {0};
        struct llama weights, gradients;
        uint32_t ids[ROWS], targets[ROWS];
        assert_int_equal(checkpoint_shape(FIXTURES "/llama", &shape, &why), 0);
        shape.tied = variants[v].tied;
        int count = batch(0, 48, ids, targets);
        double loss = train_once(stage, 0, 48, 0);
        llama_init(&weights, &shape, stage, false);
        llama_init(&gradients, &shape, stage, true);
        assert_true(fabs(llama_loss(&weights, ids, targets, SEQUENCES, TOKENS) / count - loss) <= 1e-6 * loss);
        for (int i = 0; i < weights.count; i++)
            check_direction(&dice, &weights, &gradients, i, ids, targets, count);
        llama_clear(&weights);
        llama_clear(&gradients);
        stage_free(stage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_pytorch),
        cmocka_unit_test(gradients_are_those_of_pytorch),
        cmocka_unit_test(ten_adamw_losses_are_those_of_pytorch),
        cmocka_unit_test(gradients_are_finite_differences),
    };
    backend_open(&cpu, 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    backend_close(&cpu);
    return failed;
}
