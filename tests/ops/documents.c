/*
 * Documents apart: attention over a sequence of several documents is attention over each of them alone, forward and backward; and a
 * stage computes from a packed sequence the loss and the gradients that it computes from the documents one by one.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/model/model.h"
#include "ssh/base/mem.h"
#include "tests/helpers/backend.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/numbers.h"
#include "tests/helpers/reference.h"
#include "tests/helpers/rig.h"

enum { HEADS = 4, KV = 2, D = 12, STRIDE = (HEADS + 2 * KV) * D, DOCUMENTS = 8 };

static const int lengths[][DOCUMENTS] = {
    {7}, {1, 1, 1}, {64, 64}, {63, 2, 63}, {130}, {5, 150, 1, 44}, {1, 199}, {33, 31, 64, 1, 1, 70}, {100, 28, 128, 10},
};

static int64_t total_of(const int *length)
{
    int64_t total = 0;
    for (int i = 0; i < DOCUMENTS; i++)
        total += length[i];
    return total;
}

/* Two sequences with the same documents in them. */
static void attention_case(struct rig *rig, const int *length)
{
    int64_t tokens = total_of(length), rows = 2 * tokens, output = HEADS * D;
    float *x = rig_noise(rig, rows * STRIDE, 3, 1), *d_o = rig_noise(rig, rows * output, 4, 1);
    double *wide = rig_wide(rig, x, rows * STRIDE), *d_wide = rig_wide(rig, d_o, rows * output);
    double *o_want = rig_doubles(rig, rows * output), *d_want = rig_doubles(rig, rows * STRIDE), *log_want = rig_doubles(rig, rows * HEADS);
    int32_t *starts = rig_take(rig, rows * (int64_t)sizeof *starts);
    for (int s = 0; s < 2; s++)
        for (int64_t i = 0, at = 0; i < DOCUMENTS && length[i]; at += length[i++]) {
            int64_t first = s * tokens + at;
            struct reference_attention shape = {1, length[i], HEADS, KV, D, STRIDE, STRIDE};
            for (int64_t t = 0; t < length[i]; t++)
                starts[first + t] = (int32_t)at;
            const double *q = wide + first * STRIDE, *k = q + HEADS * D, *v = k + KV * D;
            double *dq = d_want + first * STRIDE;
            reference_attention_forward(o_want + first * output, log_want, q, k, v, &shape);
            reference_attention_backward(dq, dq + HEADS * D, dq + (HEADS + KV) * D, d_wide + first * output, q, k, v, &shape);
        }
    float *o = rig_floats(rig, rows * output), *log_sum = rig_floats(rig, rows * HEADS), *d = rig_floats(rig, rows * STRIDE);
    const float *k = x + HEADS * D, *v = k + KV * D;
    double tolerance = (8 + 4 * (sqrt((double)D) + sqrt((double)tokens) + 4 * sqrt((double)D))) * NUMBERS_EPS;
    rig->ops->attention_forward(rig->device, o, log_sum, x, k, v, 2, tokens, HEADS, KV, D, STRIDE, STRIDE, starts, false);
    numbers_near(o, o_want, rows * output, tolerance, "forward of documents, %d first (%s)", length[0], rig->label);
    rig->ops->attention_backward(rig->device, d, d + HEADS * D, d + (HEADS + KV) * D, d_o, o, log_sum, x, k, v, 2, tokens, HEADS, KV, D,
                                 STRIDE, STRIDE, starts, false);
    numbers_near(d, d_want, rows * STRIDE, tolerance, "backward of documents, %d first (%s)", length[0], rig->label);
    memset(starts, 0, (size_t)rows * sizeof *starts); /* one document is no document */
    float *joined = rig_floats(rig, rows * output);
    rig->ops->attention_forward(rig->device, o, log_sum, x, k, v, 2, tokens, HEADS, KV, D, STRIDE, STRIDE, starts, false);
    rig->ops->attention_forward(rig->device, joined, log_sum, x, k, v, 2, tokens, HEADS, KV, D, STRIDE, STRIDE, NULL, false);
    numbers_same(o, joined, rows * output * 4, "one document (%s)", rig->label);
}

static void attention_each(struct rig *rig)
{
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        attention_case(rig, lengths[i]);
}

static void attention_stays_in_a_document(void **state)
{
    (void)state;
    rig_each(attention_each);
}

/* ---- a stage ---- */

enum { TOKENS = 150, VOCABULARY = 60 };

static struct stage *open_stage(struct rig *rig, bool apart, bool recompute)
{
    struct stage_shape shape = {.model = {.hidden = 32, .layers = 2, .heads = 4, .kv_heads = 2, .ffn = 48, .vocabulary = VOCABULARY,
                                          .head_width = 8, .rope_theta = 10000, .norm_epsilon = 1e-5f},
                                .layers = 2, .first = true, .last = true, .sequences = 2, .tokens = TOKENS, .slots = 1, .apart = apart,
                                .recompute = recompute};
    struct stage *stage;
    struct why why = {0};
    if (stage_new(rig->ops, rig->device, &shape, &stage, &why) != 0)
        fail_msg("%s", why.text);
    stage_fresh(stage, 9);
    return stage;
}

static void check_gradients(struct stage *packed, struct stage *alone)
{
    static float got[10000], want[10000];
    static double wide[10000];
    for (int i = 0; i < stage_tensor_count(packed); i++) {
        struct tensor_info info;
        stage_tensor(packed, i, &info);
        int64_t count = info.shape[0] * (info.dims == 2 ? info.shape[1] : 1);
        assert_true(count <= 10000);
        stage_tensor_get(packed, i, got, true);
        stage_tensor_get(alone, i, want, true);
        for (int64_t j = 0; j < count; j++)
            wide[j] = (double)want[j];
        numbers_near(got, wide, count, 2e-5, "gradient of %s", info.name);
    }
}

static void stage_case(struct rig *rig, bool recompute)
{
    static const int length[2][3] = {{40, 1, 109}, {64, 80, 6}}; /* of the two sequences */
    struct stage *packed = open_stage(rig, true, recompute), *alone = open_stage(rig, false, recompute);
    uint32_t ids[2 * TOKENS], targets[2 * TOKENS];
    bool begins[2 * TOKENS] = {false};
    struct dice dice = {4};
    double want = 0;
    for (int i = 0; i < 2 * TOKENS; i++) {
        ids[i] = (uint32_t)dice_below(&dice, VOCABULARY);
        targets[i] = dice_below(&dice, 5) ? (uint32_t)dice_below(&dice, VOCABULARY) : UINT32_MAX;
    }
    for (int s = 0; s < 2; s++)
        for (int i = 0, at = s * TOKENS; i < 3; at += length[s][i++]) {
            begins[at] = true;
            stage_forward(alone, 0, ids + at, NULL, 1, length[s][i]);
            want += stage_loss(alone, 0, targets + at, 0.01f);
            stage_backward(alone, 0, NULL);
        }
    stage_documents(packed, 0, begins, 2, TOKENS);
    stage_forward(packed, 0, ids, NULL, 2, TOKENS);
    double loss = stage_loss(packed, 0, targets, 0.01f);
    stage_backward(packed, 0, NULL);
    if (!(fabs(loss - want) <= 1e-5 * want))
        fail_msg("loss %.7f of the packed sequences, %.7f of the documents", loss, want);
    check_gradients(packed, alone);
    stage_free(packed);
    stage_free(alone);
}

static void stage_each(struct rig *rig)
{
    stage_case(rig, false);
    stage_case(rig, true);
}

static void packed_is_one_by_one(void **state)
{
    (void)state;
    rig_each(stage_each);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(attention_stays_in_a_document), cmocka_unit_test(packed_is_one_by_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
