/*
 * Every model family against `transformers` in fp64: a small random model as save_pretrained writes it is loaded from its folder;
 * logits, loss and the gradient of every parameter, in one stage and in two, with and without recomputation. Also read: the same
 * config.json with the keys of older files. fixtures/make_family_fixtures.py made the numbers.
 */
#include "gpu/model/model.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "gpu/model/checkpoint.h"
#include "gpu/model/safetensors.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/backend.h"
#include "tests/helpers/fixture.h"
#include "tests/helpers/place.h"

#define FIXTURES "tests/ops/fixtures/families"

enum { SEQUENCES = FIXTURE_SEQUENCES, TOKENS = FIXTURE_TOKENS, ROWS = FIXTURE_ROWS, VOCABULARY = FIXTURE_VOCABULARY, HIDDEN = 24 };

static struct backend cpu;

static const struct family {
    const char *name;
    bool tied, bias, norm;
    int64_t window, head_width;
    int scaling;
} families[] = {
    {.name = "llama2", .head_width = 6},
    {.name = "llama3", .head_width = 6, .scaling = SCALING_LLAMA3},
    {.name = "llama-linear", .head_width = 6, .scaling = SCALING_LINEAR},
    {.name = "mistral", .head_width = 8, .window = 24},
    {.name = "qwen2", .head_width = 6, .bias = true},
    {.name = "qwen2-tied", .head_width = 6, .bias = true, .tied = true},
    {.name = "qwen3", .head_width = 10, .norm = true},
    {.name = "smollm2", .head_width = 8, .tied = true},
};
enum { FAMILIES = sizeof families / sizeof *families };

static const char *folder_of(const struct family *family)
{
    static char folder[200];
    snprintf(folder, sizeof folder, FIXTURES "/%s", family->name);
    return folder;
}

static struct model_shape shape_of(const struct family *family)
{
    struct model_shape shape;
    struct why why = {0};
    if (checkpoint_shape(folder_of(family), &shape, &why) != 0)
        fail_msg("%s: %s", family->name, why.text);
    return shape;
}

static struct stage *stage_of(const struct family *family, const struct model_shape *model, int64_t first, int64_t layers,
                              bool recompute)
{
    struct stage_shape shape = {.model = *model, .first_layer = first, .layers = layers, .first = first == 0,
                                .last = first + layers == model->layers, .sequences = SEQUENCES, .tokens = TOKENS, .slots = 2,
                                .recompute = recompute};
    struct why why = {0};
    struct stage *stage;
    if (stage_new(cpu.ops, cpu.device, &shape, &stage, &why) != 0 || stage_load(stage, folder_of(family), &why) != 0)
        fail_msg("%s: %s", family->name, why.text);
    return stage;
}

static const char *numbers_of(const struct family *family)
{
    static char path[220];
    snprintf(path, sizeof path, "%s.safetensors", folder_of(family));
    return path;
}

static void one_stage_is_transformers(void **state)
{
    (void)state;
    uint32_t ids[ROWS], targets[ROWS];
    int count = fixture_batch(ids, targets);
    for (int f = 0; f < 2 * FAMILIES; f++) {
        const struct family *family = &families[f / 2];
        struct model_shape shape = shape_of(family);
        struct stage *stage = stage_of(family, &shape, 0, 2, f % 2);
        stage_forward(stage, 1, ids, NULL, SEQUENCES, TOKENS);
        fixture_logits(numbers_of(family), stage);
        fixture_loss(numbers_of(family), stage_loss(stage, 1, targets, 1.0f / (float)count) / count);
        stage_backward(stage, 1, NULL);
        fixture_gradients(numbers_of(family), stage, 2e-5);
        stage_free(stage);
    }
}

/* The two gradients of a tied table are summed, as the worker does it. */
static void sum_tied(struct stage *first, struct stage *last)
{
    int64_t count = stage_tied_count(first);
    float *values = mem_array((size_t)count + 1, sizeof *values);
    if (count) {
        stage_tied_get(last, 0, count, values);
        stage_tied_add(first, 0, count, values);
        stage_tied_get(first, 0, count, values);
        stage_tied_set(last, 0, count, values);
    }
    mem_free(values);
}

static void two_stages_are_transformers(void **state)
{
    (void)state;
    uint32_t ids[ROWS], targets[ROWS];
    int count = fixture_batch(ids, targets);
    for (int f = 0; f < 2 * FAMILIES; f++) {
        const struct family *family = &families[f / 2];
        struct model_shape shape = shape_of(family);
        struct stage *first = stage_of(family, &shape, 0, 1, f % 2), *last = stage_of(family, &shape, 1, 1, f % 2);
        stage_forward(last, 0, NULL, stage_forward(first, 0, ids, NULL, SEQUENCES, TOKENS), SEQUENCES, TOKENS);
        fixture_logits(numbers_of(family), last);
        fixture_loss(numbers_of(family), stage_loss(last, 0, targets, 1.0f / (float)count) / count);
        stage_backward(first, 0, stage_backward(last, 0, NULL));
        sum_tied(first, last);
        fixture_gradients(numbers_of(family), first, 2e-5);
        fixture_gradients(numbers_of(family), last, 2e-5);
        stage_free(first);
        stage_free(last);
    }
}

static void configs_are_read(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        const struct family *family = &families[f];
        struct model_shape s = shape_of(family);
        assert_true(s.hidden == HIDDEN && s.layers == 2 && s.vocabulary == VOCABULARY);
        assert_int_equal(s.head_width, family->head_width);
        assert_int_equal(s.window, family->window);
        assert_int_equal(s.tied, family->tied);
        assert_int_equal(s.qkv_bias, family->bias);
        assert_int_equal(s.qk_norm, family->norm);
        assert_int_equal(s.scaling, family->scaling);
    }
}

static bool same_shape(const struct model_shape *a, const struct model_shape *b)
{
    float frequency[2][16];
    model_frequency(a, frequency[0]);
    model_frequency(b, frequency[1]);
    return a->hidden == b->hidden && a->layers == b->layers && a->heads == b->heads && a->kv_heads == b->kv_heads &&
           a->ffn == b->ffn && a->vocabulary == b->vocabulary && a->head_width == b->head_width && a->window == b->window &&
           a->tied == b->tied && a->qkv_bias == b->qkv_bias && a->qk_norm == b->qk_norm && a->norm_epsilon == b->norm_epsilon &&
           memcmp(frequency[0], frequency[1], (size_t)a->head_width / 2 * sizeof(float)) == 0;
}

static void older_configs_say_the_same(void **state)
{
    (void)state;
    struct place place;
    place_init(&place);
    for (int f = 0; f < FAMILIES; f++) {
        struct model_shape new = shape_of(&families[f]), old;
        struct why why = {0};
        char path[200];
        uint8_t *text;
        size_t bytes;
        snprintf(path, sizeof path, FIXTURES "/hub/%s.json", families[f].name);
        assert_int_equal(file_read(path, 1 << 16, &text, &bytes, &why), 0);
        assert_int_equal(file_write(place_file(&place, "config.json"), text, bytes, 0600, &why), 0);
        mem_free(text);
        if (checkpoint_shape(place.folder, &old, &why) != 0)
            fail_msg("%s", why.text);
        if (!same_shape(&new, &old))
            fail_msg("%s: the older file describes another model", families[f].name);
    }
    place_clear(&place);
}

/* A head of its own starts from the table of a tied checkpoint; a tied one cannot start from two tables. */
static void a_tied_checkpoint_may_be_untied(void **state)
{
    (void)state;
    const struct family *family = &families[FAMILIES - 1];
    struct model_shape shape = shape_of(family);
    uint32_t ids[ROWS], targets[ROWS];
    fixture_batch(ids, targets);
    assert_true(shape.tied);
    shape.tied = false;
    struct stage *first = stage_of(family, &shape, 0, 1, false), *last = stage_of(family, &shape, 1, 1, false), *other;
    struct why why = {0};
    stage_forward(last, 0, NULL, stage_forward(first, 0, ids, NULL, SEQUENCES, TOKENS), SEQUENCES, TOKENS);
    fixture_logits(numbers_of(family), last);
    assert_int_equal(stage_tied_count(first), 0);
    stage_free(first);
    stage_free(last);

    shape = shape_of(&families[0]);
    assert_false(shape.tied);
    shape.tied = true;
    struct stage_shape whole = {.model = shape, .layers = 2, .first = true, .last = true, .sequences = 1, .tokens = 4, .slots = 1};
    assert_int_equal(stage_new(cpu.ops, cpu.device, &whole, &other, &why), 0);
    assert_int_equal(stage_load(other, folder_of(&families[0]), &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "model.head"));
    stage_free(other);
}

static void a_window_ends_the_sequence(void **state)
{
    (void)state;
    struct model_shape shape = shape_of(&families[3]);
    struct stage_shape whole = {.model = shape, .layers = 2, .first = true, .last = true, .sequences = 1, .tokens = 24, .slots = 1};
    struct why why = {0};
    assert_int_equal(stage_check(&whole, &why), 0);
    whole.tokens = 25;
    assert_int_equal(stage_check(&whole, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "train.sequence"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configs_are_read),
        cmocka_unit_test(older_configs_say_the_same),
        cmocka_unit_test(one_stage_is_transformers),
        cmocka_unit_test(two_stages_are_transformers),
        cmocka_unit_test(a_tied_checkpoint_may_be_untied),
        cmocka_unit_test(a_window_ends_the_sequence),
    };
    backend_open(&cpu, 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    backend_close(&cpu);
    return failed;
}
