/*
 * A stage apart from its numbers: memory is what was said and nothing is taken in steps; slots do not touch each other;
 * recomputation changes no bit; fresh weights do not depend on how layers are dealt; what cannot be is refused; our own
 * mistakes are bugs.
 */
#include "gpu/model/model.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "ssh/base/mem.h"
#include "tests/helpers/backend.h"
#include "tests/helpers/bug.h"
#include "tests/helpers/dice.h"

enum { SEQUENCES = 3, TOKENS = 10, ROWS = SEQUENCES * TOKENS, HIDDEN = 24, VOCABULARY = 50, SLOTS = 3 };

static struct backend cpu;

static struct stage_shape plain_shape(int64_t first_layer, int64_t layers)
{
    struct stage_shape shape = {.model = {.hidden = HIDDEN,
                                          .layers = 4,
                                          .heads = 4,
                                          .kv_heads = 2,
                                          .ffn = 36,
                                          .vocabulary = VOCABULARY,
                                          .head_width = 6,
                                          .rope_theta = 10000,
                                          .norm_epsilon = 1e-5f},
                                .first_layer = first_layer,
                                .layers = layers,
                                .sequences = SEQUENCES,
                                .tokens = TOKENS,
                                .slots = SLOTS};
    shape.first = first_layer == 0;
    shape.last = first_layer + layers == shape.model.layers;
    return shape;
}

static struct stage *open_stage(const struct stage_shape *shape, uint64_t seed)
{
    struct stage *stage;
    struct why why = {0};
    if (stage_new(cpu.ops, cpu.device, shape, &stage, &why) != 0)
        fail_msg("%s", why.text);
    stage_fresh(stage, seed);
    return stage;
}

struct feed { /* of one micro-batch */
    uint32_t ids[ROWS], targets[ROWS];
    float *x, *dy; /* device */
};

static void feed_init(struct feed *feed, uint64_t number)
{
    struct dice dice = {number};
    float values[ROWS * HIDDEN];
    for (int i = 0; i < ROWS; i++) {
        feed->ids[i] = (uint32_t)dice_below(&dice, VOCABULARY);
        feed->targets[i] = (uint32_t)dice_below(&dice, VOCABULARY);
    }
    for (int i = 0; i < ROWS * HIDDEN; i++)
        values[i] = (float)dice_below(&dice, 2001) / 1000.0f - 1;
    feed->x = backend_tensor(&cpu, values, ROWS * HIDDEN);
    for (int i = 0; i < ROWS * HIDDEN; i++)
        values[i] = (float)dice_below(&dice, 2001) / 1000.0f - 1;
    feed->dy = backend_tensor(&cpu, values, ROWS * HIDDEN);
}

static void feed_clear(struct feed *feed)
{
    cpu.ops->free(cpu.device, feed->x);
    cpu.ops->free(cpu.device, feed->dy);
}

static void forward(struct stage *stage, const struct stage_shape *shape, const struct feed *feed, int slot,
                    int64_t sequences)
{
    const float *y =
        stage_forward(stage, slot, shape->first ? feed->ids : NULL, shape->first ? NULL : feed->x, sequences, TOKENS);
    assert_true(shape->last == !y);
}

/* Backward, and its dx into out[rows·H] (zeros on the first stage). */
static void backward(struct stage *stage, const struct stage_shape *shape, const struct feed *feed, int slot,
                     int64_t sequences, float *out)
{
    if (shape->last)
        assert_true(stage_loss(stage, slot, feed->targets, 0.01f) > 0);
    const float *dx = stage_backward(stage, slot, shape->last ? NULL : feed->dy);
    assert_true(shape->first == !dx);
    memset(out, 0, ROWS * HIDDEN * sizeof *out);
    if (dx)
        backend_get(&cpu, out, dx, sequences * TOKENS * HIDDEN);
}

/* All gradients, one behind the other; mem_free. */
static float *all_gradients(struct stage *stage, size_t *bytes)
{
    float *all = NULL;
    size_t count = 0;
    for (int i = 0; i < stage_tensor_count(stage); i++) {
        struct tensor_info info;
        stage_tensor(stage, i, &info);
        size_t size = (size_t)(info.shape[0] * info.shape[1]);
        all = mem_grow(all, count + size, sizeof *all);
        stage_tensor_get(stage, i, all + count, true);
        count += size;
    }
    *bytes = count * sizeof *all;
    return all;
}

static const struct {
    int64_t first_layer, layers;
} deals[] = {{0, 4}, {0, 1}, {1, 2}, {2, 2}, {3, 1}};

/* ---- slots and recomputation ---- */

/* Three micro-batches, one of them short: each alone, or all forward and then all backward; with recomputation and without.
 * Weight gradients accumulate in the same order, so every bit must be the same. (The last stage runs backward right after
 * its forward.) */
static void in_flight(const struct stage_shape *shape, bool together, const struct feed *feeds,
                      float dx[SLOTS][ROWS * HIDDEN], float **gradients, size_t *bytes)
{
    static const int64_t sequences[SLOTS] = {SEQUENCES, 1, 2};
    struct stage *stage = open_stage(shape, 1);
    for (int i = 0; i < SLOTS; i++) {
        forward(stage, shape, &feeds[i], i, sequences[i]);
        if (!together || shape->last)
            backward(stage, shape, &feeds[i], i, sequences[i], dx[i]);
    }
    for (int i = 0; i < SLOTS && together && !shape->last; i++)
        backward(stage, shape, &feeds[i], i, sequences[i], dx[i]);
    *gradients = all_gradients(stage, bytes);
    stage_free(stage);
}

static void slots_and_recomputation_change_no_bit(void **state)
{
    (void)state;
    static float expected_dx[SLOTS][ROWS * HIDDEN], dx[SLOTS][ROWS * HIDDEN];
    struct feed feeds[SLOTS];
    for (int i = 0; i < SLOTS; i++)
        feed_init(&feeds[i], 100 + (uint64_t)i);
    for (size_t d = 0; d < sizeof deals / sizeof *deals; d++) {
        struct stage_shape shape = plain_shape(deals[d].first_layer, deals[d].layers);
        float *expected, *gradients;
        size_t bytes;
        in_flight(&shape, false, feeds, expected_dx, &expected, &bytes);
        for (int way = 1; way < 4; way++) {
            shape.recompute = way & 2;
            in_flight(&shape, way & 1, feeds, dx, &gradients, &bytes);
            assert_memory_equal(dx, expected_dx, sizeof dx);
            assert_memory_equal(gradients, expected, bytes);
            mem_free(gradients);
        }
        mem_free(expected);
    }
    for (int i = 0; i < SLOTS; i++)
        feed_clear(&feeds[i]);
}

static void inputs_and_gradients_may_be_written_in_place(void **state)
{
    (void)state;
    struct stage_shape shape = plain_shape(1, 2);
    struct feed feed;
    static float values[ROWS * HIDDEN], expected[ROWS * HIDDEN], dx[ROWS * HIDDEN];
    feed_init(&feed, 5);
    for (int recompute = 0; recompute < 2; recompute++) {
        shape.recompute = recompute;
        struct stage *stage = open_stage(&shape, 1);
        forward(stage, &shape, &feed, 2, SEQUENCES);
        backward(stage, &shape, &feed, 2, SEQUENCES, expected);
        backend_get(&cpu, values, feed.x, ROWS * HIDDEN);
        cpu.ops->copy_in(cpu.device, stage_input(stage, 1), values, sizeof values);
        stage_forward(stage, 1, NULL, stage_input(stage, 1), SEQUENCES, TOKENS);
        backend_get(&cpu, values, feed.dy, ROWS * HIDDEN);
        cpu.ops->copy_in(cpu.device, stage_gradient(stage), values, sizeof values);
        backend_get(&cpu, dx, stage_backward(stage, 1, stage_gradient(stage)), ROWS * HIDDEN);
        assert_memory_equal(dx, expected, sizeof dx);
        stage_free(stage);
    }
    feed_clear(&feed);
    shape = plain_shape(0, 4);
    struct stage *whole = open_stage(&shape, 1);
    assert_null(stage_input(whole, 0));
    assert_null(stage_gradient(whole));
    stage_free(whole);
}

/* ---- fresh weights ---- */

static void check_deviation(const char *name, const float *values, int64_t count, double deviation)
{
    double sum = 0, squares = 0, largest = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
        largest = fmax(largest, fabs((double)values[i]));
    }
    double root = sqrt((double)count);
    if (!(fabs(sum / (double)count) < 5 * deviation / root &&
          fabs(sqrt(squares / (double)count) / deviation - 1) < 5 / root && largest > 2 * deviation &&
          largest < 4.95 * deviation))
        fail_msg("%s: mean %.3g, deviation %.4g instead of %.4g, largest %.3g", name, sum / (double)count,
                 sqrt(squares / (double)count), deviation, largest);
}

static void fresh_weights_spread_as_they_should(void **state)
{
    (void)state;
    struct stage_shape shape = plain_shape(0, 4);
    const struct {
        const char *part;
        double deviation; /* 0: ones */
    } rules[] = { /* the first that fits */
        {"embed_tokens.weight", 0.5}, {"lm_head.weight", 0.02}, {"norm.weight", 0}, {"o_proj.weight", 1 / sqrt(24.0 * 8)},
        {"down_proj.weight", 1 / sqrt(36.0 * 8)}, {"proj.weight", 1 / sqrt(24.0)},
    };
    struct stage *stage = open_stage(&shape, 3);
    for (int i = 0; i < stage_tensor_count(stage); i++) {
        struct tensor_info info;
        size_t rule = 0;
        stage_tensor(stage, i, &info);
        int64_t count = info.shape[0] * info.shape[1];
        float *values = mem_array((size_t)count, sizeof *values);
        stage_tensor_get(stage, i, values, false);
        while (!strstr(info.name, rules[rule].part))
            rule++;
        if (rules[rule].deviation > 0)
            check_deviation(info.name, values, count, rules[rule].deviation);
        for (int64_t j = 0; j < count && rules[rule].deviation == 0; j++)
            assert_true(values[j] == 1);
        mem_free(values);
    }
    stage_free(stage);
}

static void find(struct stage *stage, const char *name, float *values)
{
    struct tensor_info info;
    for (int i = 0; i < stage_tensor_count(stage); i++) {
        stage_tensor(stage, i, &info);
        if (strcmp(info.name, name) == 0) {
            stage_tensor_get(stage, i, values, false);
            return;
        }
    }
    fail_msg("no tensor %s", name);
}

static void fresh_weights_do_not_depend_on_the_split(void **state)
{
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        struct stage_shape shape = plain_shape(0, 4);
        shape.model.tied = tied;
        struct stage *whole = open_stage(&shape, 3), *other = open_stage(&shape, 4), *again = open_stage(&shape, 3);
        assert_true(stage_hash(whole) == stage_hash(again) && stage_hash(whole) != stage_hash(other));
        int64_t parameters = 0;
        for (int64_t first = 0; first < 4; first += 2) {
            struct stage_shape part = plain_shape(first, 2);
            part.model.tied = tied;
            struct stage *stage = open_stage(&part, 3);
            parameters += model_parameters(&part);
            for (int i = 0; i < stage_tensor_count(stage); i++) {
                static float ours[VOCABULARY * HIDDEN * 2], theirs[VOCABULARY * HIDDEN * 2];
                struct tensor_info info;
                stage_tensor(stage, i, &info);
                stage_tensor_get(stage, i, ours, false);
                find(whole, info.name, theirs);
                assert_memory_equal(ours, theirs, (size_t)(info.shape[0] * info.shape[1]) * sizeof *ours);
            }
            assert_int_equal(stage_tied_count(stage), tied ? VOCABULARY * HIDDEN : 0);
            stage_free(stage);
        }
        assert_int_equal(parameters, model_parameters(&shape) + (tied ? VOCABULARY * HIDDEN : 0));
        assert_int_equal(stage_tied_count(whole), 0);
        stage_free(whole);
        stage_free(other);
        stage_free(again);
    }
}

/* ---- memory ---- */

static void memory_is_what_was_said_and_steps_take_none(void **state)
{
    (void)state;
    struct backend_count *count;
    const struct ops *counted = backend_counted(&cpu, &count);
    const struct adamw settings = {
        .learning_rate = 0.001f, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .gradient_scale = 1};
    struct feed feed;
    feed_init(&feed, 1);
    for (size_t d = 0; d < sizeof deals / sizeof *deals; d++)
        for (int way = 0; way < 4; way++) {
            struct stage_shape shape = plain_shape(deals[d].first_layer, deals[d].layers);
            struct stage *stage;
            struct why why = {0};
            static float dx[ROWS * HIDDEN];
            shape.recompute = way & 1;
            shape.model.tied = way & 2;
            struct stage_memory memory = stage_memory(&shape);
            assert_int_equal(stage_new(counted, cpu.device, &shape, &stage, &why), 0);
            assert_int_equal(count->bytes, memory.total - memory.host);
            assert_int_equal(memory.host, shape.first ? SLOTS * ROWS * 4 : 0);
            assert_int_equal(memory.total, memory.weights + memory.gradients + memory.optimizer + memory.activations +
                                               memory.scratch + memory.host);
            assert_true(memory.weights >= 4 * memory.parameters && memory.weights < 4 * memory.parameters + 64 * 40);
            uint64_t calls = count->calls;
            stage_fresh(stage, 1);
            for (int step = 1; step < 3; step++) {
                forward(stage, &shape, &feed, 1, SEQUENCES);
                backward(stage, &shape, &feed, 1, SEQUENCES, dx);
                stage_step(stage, &settings, step);
            }
            assert_int_equal(count->calls, calls);
            stage_free(stage);
            assert_int_equal(count->blocks, 0);
        }
    feed_clear(&feed);
}

static void recomputation_keeps_inputs_only(void **state)
{
    (void)state;
    struct stage_shape shape = plain_shape(1, 2);
    shape.slots = 100;
    uint64_t kept = stage_memory(&shape).activations;
    shape.recompute = true;
    uint64_t recomputed = stage_memory(&shape).activations;
    shape.slots = 101;
    uint64_t input = ROWS * HIDDEN * 4; /* a whole number of 64-byte lines here */
    assert_int_equal(stage_memory(&shape).activations - recomputed, input);
    assert_true(recomputed < kept / 10);
}

static void every_failing_allocation_is_reported(void **state)
{
    (void)state;
    struct backend_count *count;
    const struct ops *counted = backend_counted(&cpu, &count);
    struct stage_shape shape = plain_shape(0, 4);
    for (uint64_t n = 1; n <= 6; n++) {
        struct stage *stage = NULL;
        struct why why = {0};
        count->fail_at = count->calls + n;
        assert_int_equal(stage_new(counted, cpu.device, &shape, &stage, &why), ERR_MEMORY);
        assert_null(stage);
        assert_non_null(strstr(why.text, "layers 0 to 3 need"));
        assert_int_equal(count->blocks, 0);
    }
}

/* ---- what cannot be ---- */

static void refuse(struct stage_shape shape, const char *word)
{
    struct stage *stage = NULL;
    struct why why = {0};
    assert_int_equal(stage_new(cpu.ops, cpu.device, &shape, &stage, &why), ERR_INVALID);
    assert_null(stage);
    if (!strstr(why.text, word))
        fail_msg("'%s' does not say '%s'", why.text, word);
}

static void shapes_that_cannot_be_are_refused(void **state)
{
    (void)state;
    const struct stage_shape good = plain_shape(0, 4);
    struct stage_shape bad;
    bad = good, bad.model.hidden = 0, refuse(bad, "hidden");
    bad = good, bad.model.hidden = INT64_MAX, refuse(bad, "hidden");
    bad = good, bad.model.layers = -1, refuse(bad, "layers");
    bad = good, bad.model.ffn = INT64_MIN, refuse(bad, "ffn");
    bad = good, bad.model.vocabulary = INT64_MAX / 2, refuse(bad, "vocabulary");
    bad = good, bad.model.kv_heads = 3, refuse(bad, "kv_heads do not divide");
    bad = good, bad.model.head_width = 5, refuse(bad, "halves");
    bad = good, bad.model.rope_theta = 0, refuse(bad, "rope_theta");
    bad = good, bad.model.rope_theta = NAN, refuse(bad, "rope_theta");
    bad = good, bad.model.norm_epsilon = -1, refuse(bad, "norm_epsilon");
    bad = good, bad.layers = 5, refuse(bad, "layers 0 to 4");
    bad = good, bad.layers = 0, refuse(bad, "layers");
    bad = good, bad.first_layer = -1, refuse(bad, "layers");
    bad = good, bad.last = false, refuse(bad, "do not agree");
    bad = good, bad.first = false, refuse(bad, "do not agree");
    bad = good, bad.tokens = 0, refuse(bad, "micro-batch");
    bad = good, bad.sequences = INT64_MAX, refuse(bad, "micro-batch");
    bad = good, bad.slots = 0, refuse(bad, "in flight");
    bad = good, bad.head_rows = -1, refuse(bad, "logits");
    bad = plain_shape(0, 1), bad.model.layers = 1024, bad.layers = 1023, bad.model.ffn = 1 << 19, bad.sequences = 1 << 11,
    bad.tokens = 1 << 11, bad.slots = 4096, refuse(bad, "cannot be counted");
}

struct mistake {
    struct stage *stage;
    uint32_t *ids;
    int kind;
};

static void make_mistake(void *arg)
{
    struct mistake *m = arg;
    switch (m->kind) {
    case 0: stage_forward(m->stage, SLOTS, m->ids, NULL, 1, 1); break;
    case 1: stage_forward(m->stage, 0, m->ids, NULL, SEQUENCES + 1, TOKENS); break;
    case 2: m->ids[3] = VOCABULARY, stage_forward(m->stage, 0, m->ids, NULL, SEQUENCES, TOKENS); break;
    case 3: stage_backward(m->stage, 0, NULL); break; /* nothing went forward */
    case 4: stage_forward(m->stage, 0, m->ids, NULL, 1, 1), stage_backward(m->stage, 0, NULL); break; /* no loss yet */
    case 5:
        stage_forward(m->stage, 0, m->ids, NULL, 1, 1), m->ids[0] = VOCABULARY, stage_loss(m->stage, 0, m->ids, 1);
        break;
    case 6: stage_forward(m->stage, 0, m->ids, NULL, 1, 1), stage_loss(m->stage, 1, m->ids, 1); break; /* another slot */
    default: break;
    }
}

static void our_own_mistakes_are_bugs(void **state)
{
    (void)state;
    struct stage_shape shape = plain_shape(0, 4);
    uint32_t ids[2 * ROWS] = {0};
    struct mistake mistake = {open_stage(&shape, 1), ids, 0};
    for (; mistake.kind <= 6; mistake.kind++)
        if (!bug_text(make_mistake, &mistake))
            fail_msg("mistake %d was not found", mistake.kind);
    assert_null(bug_text(make_mistake, &mistake)); /* and none is none */
    assert_true(model_ids_fit(&shape.model, ids, 2 * ROWS));
    ids[7] = VOCABULARY;
    assert_false(model_ids_fit(&shape.model, ids, 2 * ROWS));
    stage_free(mistake.stage);
}

/* The name of what stays as it is when the first `still` layers of this stage are not trained. */
static bool stays(const char *name, int64_t first_layer, int64_t still)
{
    int64_t layer;
    if (strncmp(name, "model.embed_tokens", 18) == 0)
        return still > 0;
    return sscanf(name, "model.layers.%" SCNd64 ".", &layer) == 1 && layer < first_layer + still;
}

/* What is trained has the same gradients and takes the same step, bit for bit; the rest does not move, and no gradient is handed on. */
static void layers_at_the_beginning_may_stay(void **state)
{
    (void)state;
    const struct {
        int64_t first_layer, layers, still;
        bool recompute;
    } rows[] = {{0, 4, 1, false}, {0, 4, 4, true}, {0, 2, 1, true}, {0, 2, 2, false}, {1, 2, 1, false}, {1, 2, 2, true}, {2, 2, 1, true}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct stage_shape shape = plain_shape(rows[r].first_layer, rows[r].layers);
        struct stage *stages[2];
        struct feed feed;
        float unused[ROWS * HIDDEN], before[VOCABULARY * 36], after[2][VOCABULARY * 36];
        double squares = 0;
        feed_init(&feed, 7 + r);
        shape.recompute = rows[r].recompute;
        struct stage_memory learns = stage_memory(&shape);
        shape.still = rows[r].still;
        struct stage_memory stays_so = stage_memory(&shape);
        uint64_t layer = 4 * (2 * HIDDEN + 3 * HIDDEN * HIDDEN + 3 * HIDDEN * 36);
        uint64_t table = shape.first ? 4 * VOCABULARY * HIDDEN : 0; /* the embedding is as still as layers are */
        const uint64_t gaps = 64 * 20;
        uint64_t spared = learns.gradients - stays_so.gradients, wanted = (uint64_t)rows[r].still * layer + table;
        assert_true(spared >= wanted && spared < wanted + gaps * (uint64_t)rows[r].still && learns.weights == stays_so.weights);
        assert_int_equal(learns.optimizer - stays_so.optimizer, 2 * spared);
        assert_true(rows[r].still > 1 ? stays_so.activations < learns.activations : stays_so.activations == learns.activations);
        for (int i = 0; i < 2; i++) {
            shape.still = i ? rows[r].still : 0;
            stages[i] = open_stage(&shape, 3);
            forward(stages[i], &shape, &feed, 0, SEQUENCES);
            if (i) {
                if (shape.last)
                    stage_loss(stages[i], 0, feed.targets, 0.01f);
                assert_null(stage_backward(stages[i], 0, shape.last ? NULL : feed.dy));
            } else {
                backward(stages[i], &shape, &feed, 0, SEQUENCES, unused);
            }
        }
        for (int i = 0; i < stage_tensor_count(stages[0]); i++) {
            struct tensor_info info;
            stage_tensor(stages[0], i, &info);
            stage_tensor_get(stages[0], i, before, true);
            for (int64_t k = 0; k < info.shape[0] * info.shape[1] && !stays(info.name, shape.first_layer, shape.still); k++)
                squares += (double)before[k] * (double)before[k];
        }
        assert_true(fabs(stage_gradient_squares(stages[1]) - squares) <= 1e-6 * squares);
        const struct adamw settings = {
            .learning_rate = 0.01f, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f, .gradient_scale = 1};
        for (int k = 0; k < 2; k++)
            stage_step(stages[k], &settings, 1);
        struct stage *fresh = open_stage(&shape, 3);
        for (int i = 0; i < stage_tensor_count(stages[0]); i++) {
            struct tensor_info info;
            stage_tensor(stages[0], i, &info);
            size_t bytes = (size_t)(info.shape[0] * info.shape[1]) * sizeof(float);
            for (int k = 0; k < 2; k++)
                stage_tensor_get(stages[k], i, after[k], false);
            stage_tensor_get(fresh, i, before, false);
            assert_memory_equal(after[1], stays(info.name, shape.first_layer, shape.still) ? before : after[0], bytes);
            assert_memory_not_equal(after[0], before, bytes);
        }
        for (int k = 0; k < 2; k++)
            stage_free(stages[k]);
        stage_free(fresh);
        feed_clear(&feed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_and_recomputation_change_no_bit),
        cmocka_unit_test(inputs_and_gradients_may_be_written_in_place),
        cmocka_unit_test(fresh_weights_spread_as_they_should),
        cmocka_unit_test(fresh_weights_do_not_depend_on_the_split),
        cmocka_unit_test(memory_is_what_was_said_and_steps_take_none),
        cmocka_unit_test(recomputation_keeps_inputs_only),
        cmocka_unit_test(every_failing_allocation_is_reported),
        cmocka_unit_test(shapes_that_cannot_be_are_refused),
        cmocka_unit_test(layers_at_the_beginning_may_stay),
        cmocka_unit_test(our_own_mistakes_are_bugs),
    };
    backend_open(&cpu, 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    backend_close(&cpu);
    return failed;
}
