/*
 * The same bits every time: each op runs twice on one device, and on devices with 1, 2 and 3 threads. Only matrix products
 * may depend on the number of threads, and they too repeat for a given number.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/helpers/dice.h"
#include "tests/helpers/numbers.h"
#include "tests/helpers/rig.h"

enum { ROWS = 260, WIDTH = 96, COUNT = ROWS * WIDTH, MOST = 4 * COUNT };

/* Every op writes its results into `out`, at most MOST floats; the inputs are noise of the same seeds. */
struct run {
    struct rig *rig;
    float *x, *y, *out, *gain; /* x, y [2·COUNT] */
    uint32_t *ids;
};

static void run_matmul(struct run *r)
{
    r->rig->ops->matmul(r->rig->device, r->out, r->x, r->y, ROWS, ROWS, WIDTH, WIDTH, WIDTH, ROWS, false, true, false);
}

static void run_matmul_deep(struct run *r) /* little output, a long sum: the library may divide the sum */
{
    r->rig->ops->matmul(r->rig->device, r->out, r->x, r->y, 8, 8, COUNT / 8, COUNT / 8, COUNT / 8, 8, false, true, false);
}

/* A gradient of weights: many rows, onto what is there. */
static void run_matmul_gradient(struct run *r)
{
    enum { SIDE = 16, DEPTH = 2 * COUNT / SIDE };
    r->rig->ops->matmul(r->rig->device, r->out, r->x, r->y, SIDE, SIDE, DEPTH, SIDE, SIDE, SIDE, true, false, true);
    r->rig->ops->matmul(r->rig->device, r->out + COUNT, r->x, r->y, WIDTH, WIDTH, ROWS, WIDTH, WIDTH, WIDTH, true, false, true);
}

static void run_sums(struct run *r)
{
    double sum = r->rig->ops->sum_squares(r->rig->device, r->x, 2 * COUNT);
    memcpy(r->out, &sum, sizeof sum);
    r->rig->ops->column_mean(r->rig->device, r->out + 2, r->x, ROWS, WIDTH);
}

static void run_rmsnorm(struct run *r)
{
    r->rig->ops->rmsnorm_forward(r->rig->device, r->out, r->out + COUNT, r->x, r->gain, ROWS, WIDTH, 1e-5f);
    r->rig->ops->rmsnorm_backward(r->rig->device, r->out + 2 * COUNT, r->out + 3 * COUNT, r->y, r->x, r->gain,
                                  r->out + COUNT, ROWS, WIDTH);
}

static void run_attention(struct run *r)
{
    float *o = r->out, *log_sum = o + COUNT, *dq = log_sum + 4 * ROWS, *dk = dq + COUNT, *dv = dk + COUNT / 2;
    r->rig->ops->attention_forward(r->rig->device, o, log_sum, r->x, r->y, r->y + COUNT, 2, ROWS / 2, 4, 2, WIDTH / 4, WIDTH,
                                   WIDTH / 2, NULL, false);
    r->rig->ops->attention_backward(r->rig->device, dq, dk, dv, r->x + COUNT, o, log_sum, r->x, r->y, r->y + COUNT, 2,
                                    ROWS / 2, 4, 2, WIDTH / 4, WIDTH, WIDTH / 2, NULL, false);
}

static void run_elementwise(struct run *r)
{
    const struct adamw settings = {.learning_rate = 0.1f,
                                   .beta1 = 0.9f,
                                   .beta2 = 0.95f,
                                   .epsilon = 1e-8f,
                                   .gradient_scale = 1,
                                   .correction1 = 0.1f,
                                   .correction2 = 0.05f};
    r->rig->ops->swiglu_forward(r->rig->device, r->out, r->x, ROWS, WIDTH);
    r->rig->ops->swiglu_backward(r->rig->device, r->out + COUNT, r->y + COUNT, r->y, r->x, ROWS, WIDTH);
    r->rig->ops->adamw(r->rig->device, r->out + 3 * COUNT, r->x, r->out, r->out + COUNT, COUNT, &settings);
}

static void run_embedding(struct run *r)
{
    r->rig->ops->embedding_backward(r->rig->device, r->out, r->x, r->ids, ROWS, WIDTH);
}

static void run_softmax(struct run *r)
{
    float *maximum = r->out, *sum = maximum + ROWS, *target_logit = sum + ROWS, *logits = target_logit + ROWS;
    memcpy(logits, r->x, COUNT * sizeof *logits);
    r->rig->ops->softmax_chunk(r->rig->device, maximum, sum, target_logit, logits, r->ids, ROWS, WIDTH, 0);
    r->rig->ops->softmax_backward_chunk(r->rig->device, logits, maximum, sum, r->ids, ROWS, WIDTH, 0, 0.1f);
    memcpy(logits + COUNT, r->x, COUNT * sizeof *logits);
    r->rig->ops->softmax_whole(r->rig->device, maximum, sum, target_logit, logits + COUNT, r->ids, ROWS, WIDTH, 0.1f, false);
}

static void run_mask(struct run *r)
{
    enum { KEEP = 40 };
    const struct mask_key key = {.seed = 9, .step = 8};
    uint16_t channels[ROWS * KEEP];
    float *values = r->out, *row_gain = values + ROWS * KEEP, *x = row_gain + ROWS;
    r->rig->ops->mask_channels(r->rig->device, channels, &key, ROWS, WIDTH, KEEP, 0);
    r->rig->ops->mask_gather(r->rig->device, values, row_gain, r->x, r->gain, channels, ROWS, WIDTH, KEEP, 2);
    r->rig->ops->mask_scatter(r->rig->device, x, values, r->gain, channels, ROWS, WIDTH, KEEP);
    r->rig->ops->pack(r->rig->device, (uint8_t *)(x + COUNT), values, ROWS, KEEP, FORMAT_INT4);
}

static const struct {
    const char *name;
    void (*run)(struct run *run);
    bool same_for_threads;
} subjects[] = {
    {"matmul", run_matmul, false},      {"deep matmul", run_matmul_deep, false}, {"sums", run_sums, true},
    {"rmsnorm", run_rmsnorm, true},     {"attention", run_attention, true},      {"elementwise", run_elementwise, true},
    {"embedding", run_embedding, true}, {"softmax", run_softmax, true},          {"mask", run_mask, true},
    {"gradient of weights", run_matmul_gradient, false},
};

static float *result_of(struct rig *rig, size_t subject)
{
    struct run run = {.rig = rig,
                      .x = rig_noise(rig, 2 * COUNT, 1, 1),
                      .y = rig_noise(rig, 2 * COUNT, 2, 1),
                      .gain = rig_noise(rig, WIDTH, 3, 1),
                      .out = rig_zeros(rig, MOST),
                      .ids = rig_take(rig, ROWS * 4)};
    struct dice dice = {4};
    for (int i = 0; i < ROWS; i++)
        run.ids[i] = (uint32_t)dice_below(&dice, 20);
    subjects[subject].run(&run);
    return run.out;
}

static void test_repeat(void **state)
{
    (void)state;
    const char *isas[RIG_ISAS];
    int isa_count = rig_isas(isas);
    for (int i = 0; i < isa_count; i++) {
        struct rig devices[3];
        for (int t = 0; t < 3; t++)
            rig_open(&devices[t], isas[i], t + 1);
        for (size_t s = 0; s < sizeof subjects / sizeof *subjects; s++) {
            const float *first = result_of(&devices[0], s);
            for (int t = 0; t < 3; t++) {
                const float *once = result_of(&devices[t], s), *twice = result_of(&devices[t], s);
                numbers_same(twice, once, MOST * 4, "%s a second time (%s)", subjects[s].name, devices[t].label);
                if (subjects[s].same_for_threads)
                    numbers_same(once, first, MOST * 4, "%s with more threads (%s)", subjects[s].name, devices[t].label);
            }
        }
        for (int t = 0; t < 3; t++)
            rig_close(&devices[t]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_repeat)};
    cmocka_set_message_output(CM_OUTPUT_STDOUT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
