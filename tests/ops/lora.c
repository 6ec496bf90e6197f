/*
 * LoRA against `peft` in fp64 (fixtures/make_adapter_fixtures.py made the numbers): adapters as PEFT saved them on the models of
 * families.c; logits, loss and the gradients of A and B, in one stage and in two, with and without recomputation. And what goes out:
 * the adapter reads back with the same bits, the merged model and the cached text generator say what base and adapter say together,
 * and training moves nothing but adapters.
 */
#include "gpu/model/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "gpu/model/adapter.h"
#include "gpu/model/export.h"
#include "gpu/model/generate.h"
#include "gpu/model/safetensors.h"
#include "ssh/base/mem.h"
#include "tests/helpers/backend.h"
#include "tests/helpers/fixture.h"
#include "tests/helpers/place.h"

#define FIXTURES "tests/ops/fixtures"

enum { SEQUENCES = FIXTURE_SEQUENCES, TOKENS = FIXTURE_TOKENS, ROWS = FIXTURE_ROWS, VOCABULARY = FIXTURE_VOCABULARY };

static struct backend cpu;
static struct place place;

static const char *const names[] = {"llama3", "mistral", "qwen2", "qwen3", "smollm2"};
enum { NAMES = sizeof names / sizeof *names };

static const char *base_of(const char *name)
{
    static char folder[200];
    snprintf(folder, sizeof folder, FIXTURES "/families/%s", name);
    return folder;
}

static const char *adapter_of(const char *name)
{
    static char folder[200];
    snprintf(folder, sizeof folder, FIXTURES "/adapters/%s", name);
    return folder;
}

static const char *numbers_of(const char *name)
{
    static char path[220];
    snprintf(path, sizeof path, "%s.safetensors", adapter_of(name));
    return path;
}

static struct stage_shape shape_of(const char *name, int64_t first, int64_t layers)
{
    struct stage_shape shape = {.first_layer = first, .layers = layers, .sequences = SEQUENCES, .tokens = TOKENS, .slots = 2};
    struct why why = {0};
    if (checkpoint_shape(base_of(name), &shape.model, &why) != 0 || adapter_read(adapter_of(name), &shape.lora, &why) != 0)
        fail_msg("%s", why.text);
    shape.first = first == 0;
    shape.last = first + layers == shape.model.layers;
    return shape;
}

/* `adapter` NULL: as a run begins. */
static struct stage *stage_of(const struct stage_shape *shape, const char *base, const char *adapter)
{
    struct why why = {0};
    struct stage *stage;
    int err = stage_new(cpu.ops, cpu.device, shape, &stage, &why);
    if (!err)
        err = stage_load(stage, base, &why);
    if (!err && adapter)
        err = stage_load_adapters(stage, adapter, &why);
    else if (!err && shape->lora.rank)
        stage_fresh_adapters(stage, 5);
    if (err)
        fail_msg("%s", why.text);
    return stage;
}

static void one_stage_is_peft(void **state)
{
    (void)state;
    uint32_t ids[ROWS], targets[ROWS];
    int count = fixture_batch(ids, targets);
    for (int i = 0; i < 2 * NAMES; i++) {
        const char *name = names[i / 2];
        struct stage_shape shape = shape_of(name, 0, 2);
        shape.recompute = i % 2;
        struct stage *stage = stage_of(&shape, base_of(name), adapter_of(name));
        stage_forward(stage, 1, ids, NULL, SEQUENCES, TOKENS);
        fixture_logits(numbers_of(name), stage);
        fixture_loss(numbers_of(name), stage_loss(stage, 1, targets, 1.0f / (float)count) / count);
        stage_backward(stage, 1, NULL);
        fixture_gradients(numbers_of(name), stage, 2e-5);
        stage_free(stage);
    }
}

static void two_stages_are_peft(void **state)
{
    (void)state;
    uint32_t ids[ROWS], targets[ROWS];
    int count = fixture_batch(ids, targets);
    for (int i = 0; i < NAMES; i++) {
        struct stage_shape front = shape_of(names[i], 0, 1), back = shape_of(names[i], 1, 1);
        struct stage *first = stage_of(&front, base_of(names[i]), adapter_of(names[i]));
        struct stage *last = stage_of(&back, base_of(names[i]), adapter_of(names[i]));
        assert_int_equal(stage_tied_count(first) + stage_tied_count(last), 0); /* what is frozen has nothing to exchange */
        stage_forward(last, 0, NULL, stage_forward(first, 0, ids, NULL, SEQUENCES, TOKENS), SEQUENCES, TOKENS);
        fixture_logits(numbers_of(names[i]), last);
        fixture_loss(numbers_of(names[i]), stage_loss(last, 0, targets, 1.0f / (float)count) / count);
        stage_backward(first, 0, stage_backward(last, 0, NULL));
        fixture_gradients(numbers_of(names[i]), first, 2e-5);
        fixture_gradients(numbers_of(names[i]), last, 2e-5);
        stage_free(first);
        stage_free(last);
    }
}

/* With products of bf16 nobody needs the model's own weights in fp32: they are there once, in two bytes, and gradients are near. */
static void weights_in_bf16_alone_are_near_peft(void **state)
{
    (void)state;
    uint32_t ids[ROWS], targets[ROWS];
    int count = fixture_batch(ids, targets);
    for (int i = 0; i < 2 * NAMES; i++) {
        const char *name = names[i / 2];
        struct stage_shape shape = shape_of(name, 0, 2);
        shape.half_products = true;
        shape.recompute = i % 2;
        uint64_t both = stage_memory(&shape).weights;
        shape.words_only = true;
        struct stage_memory memory = stage_memory(&shape);
        assert_true(memory.weights < 2 * (memory.parameters - memory.trained) + 4 * memory.trained + 8192);
        assert_true(both >= memory.weights + 4 * (memory.parameters - memory.trained) - 2 * VOCABULARY * (uint64_t)shape.model.hidden);
        struct stage *stage = stage_of(&shape, base_of(name), adapter_of(name));
        stage_forward(stage, 1, ids, NULL, SEQUENCES, TOKENS);
        stage_loss(stage, 1, targets, 1.0f / (float)count);
        stage_backward(stage, 1, NULL);
        fixture_gradients(numbers_of(name), stage, 0.06); /* models this small average little: a bf16 is off by 2^-9 */
        stage_free(stage);
    }
}

/* Tensors of the stages' files, in one export each. */
static void export(const char *name, const struct stage_shape *shape, const char *path, bool merge, const char *out)
{
    struct export_result result;
    struct why why = {0};
    const struct export_settings settings = {.shape = shape->model, .lora = shape->lora, .merge = merge, .files = &path, .file_count = 1,
                                             .origin = base_of(name), .format = WEIGHTS_F32, .shard_bytes = merge ? 8000 : 100,
                                             .out = out};
    if (export_write(&settings, &result, &why) != 0)
        fail_msg("%s: %s", name, why.text);
    assert_int_equal(result.shards > 1, merge);
}

static void what_goes_out_is_the_same_model(void **state)
{
    (void)state;
    uint32_t ids[ROWS], targets[ROWS];
    fixture_batch(ids, targets);
    for (int i = 0; i < NAMES; i++) {
        const char *name = names[i];
        char file[400], adapter[400], merged[400];
        uint64_t bytes, hash;
        struct why why = {0};
        struct stage_shape shape = shape_of(name, 0, 2), whole = shape;
        struct stage *before = stage_of(&shape, base_of(name), adapter_of(name));
        snprintf(file, sizeof file, "%s/%s.safetensors", place.folder, name);
        snprintf(adapter, sizeof adapter, "%s/%s-adapter", place.folder, name);
        snprintf(merged, sizeof merged, "%s/%s-merged", place.folder, name);
        assert_int_equal(stage_save(before, file, &bytes, &hash, &why), 0);
        export(name, &shape, file, false, adapter);
        export(name, &shape, file, true, merged);
        struct stage *again = stage_of(&shape, base_of(name), adapter);
        assert_true(stage_hash(again) == stage_hash(before));
        whole.lora = (struct lora_shape){.rank = 0};
        struct stage *one = stage_of(&whole, merged, NULL);
        stage_forward(one, 0, ids, NULL, SEQUENCES, TOKENS);
        fixture_logits(numbers_of(name), one);
        stage_free(before);
        stage_free(again);
        stage_free(one);
    }
}

static void text_is_generated_with_it(void **state)
{
    (void)state;
    uint32_t ids[ROWS], targets[ROWS];
    float last[VOCABULARY], logits[ROWS * VOCABULARY];
    struct generator *generator;
    struct why why = {0};
    fixture_batch(ids, targets);
    for (int i = 0; i < NAMES; i++) {
        struct stage_shape shape = shape_of(names[i], 0, 2);
        struct stage *stage = stage_of(&shape, base_of(names[i]), adapter_of(names[i]));
        if (generator_new(cpu.ops, cpu.device, base_of(names[i]), adapter_of(names[i]), TOKENS, &generator, &why) != 0)
            fail_msg("%s", why.text);
        generator_feed(generator, ids, TOKENS - 3, last);
        generator_feed(generator, ids + TOKENS - 3, 3, last);
        stage_forward(stage, 0, ids, NULL, 1, TOKENS);
        stage_logits(stage, logits);
        for (int v = 0; v < VOCABULARY; v++)
            assert_true(fabsf(last[v] - logits[(TOKENS - 1) * VOCABULARY + v]) < 1e-4f);
        generator_free(generator);
        stage_free(stage);
    }
}

/* A run begins with what the base says, bit by bit; a step moves A and B and nothing else; gradients and moments are theirs alone. */
static void only_adapters_are_trained(void **state)
{
    (void)state;
    static float before[ROWS * VOCABULARY], after[ROWS * VOCABULARY];
    uint32_t ids[ROWS], targets[ROWS];
    int count = fixture_batch(ids, targets);
    const struct adamw settings = {.learning_rate = 0.01f, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .gradient_scale = 1};
    struct stage_shape shape = shape_of("qwen3", 0, 2), whole = shape;
    whole.lora = (struct lora_shape){.rank = 0};
    struct stage_memory memory = stage_memory(&shape), full = stage_memory(&whole);
    assert_int_equal(memory.parameters, full.parameters + memory.trained);
    assert_int_equal(memory.weights, full.weights + memory.gradients);
    assert_int_equal(memory.optimizer, 2 * memory.gradients);
    assert_true(memory.gradients >= 4 * memory.trained && memory.gradients < full.gradients / 2);
    assert_int_equal(stage_word_count(&shape), memory.trained);

    struct stage *plain = stage_of(&whole, base_of("qwen3"), NULL), *stage = stage_of(&shape, base_of("qwen3"), NULL);
    stage_forward(plain, 0, ids, NULL, SEQUENCES, TOKENS);
    stage_logits(plain, before);
    for (int step = 1; step <= 3; step++) {
        stage_forward(stage, 0, ids, NULL, SEQUENCES, TOKENS);
        stage_logits(stage, after);
        assert_int_equal(memcmp(before, after, sizeof before) == 0, step == 1);
        stage_loss(stage, 0, targets, 1.0f / (float)count);
        stage_backward(stage, 0, NULL);
        stage_step(stage, &settings, step);
    }
    for (int i = 0; i < stage_tensor_count(stage); i++) { /* without what was trained the base is as it was */
        struct tensor_info info;
        stage_tensor(stage, i, &info);
        float *zeros = mem_array((size_t)(info.shape[0] * info.shape[1]), sizeof *zeros);
        assert_non_null(strstr(info.name, ".lora_"));
        stage_tensor_set(stage, i, zeros);
        mem_free(zeros);
    }
    stage_forward(stage, 0, ids, NULL, SEQUENCES, TOKENS);
    stage_logits(stage, after);
    assert_memory_equal(before, after, sizeof before);
    stage_free(plain);
    stage_free(stage);
}

/* Snapshots are the adapters alone, and bring them over. */
static void words_are_adapters(void **state)
{
    (void)state;
    struct stage_shape shape = shape_of("llama3", 0, 2);
    struct stage *from = stage_of(&shape, base_of("llama3"), adapter_of("llama3")), *to = stage_of(&shape, base_of("llama3"), NULL);
    uint16_t *words = mem_array((size_t)stage_word_count(&shape), sizeof *words);
    uint16_t *again = mem_array((size_t)stage_word_count(&shape), sizeof *again);
    stage_words_get(from, words);
    stage_words_set(to, words);
    stage_words_get(to, again);
    assert_memory_equal(words, again, (size_t)stage_word_count(&shape) * sizeof *words);
    mem_free(words);
    mem_free(again);
    stage_free(from);
    stage_free(to);
}

static void others_are_refused(void **state)
{
    (void)state;
    struct why why = {0};
    struct stage *stage;
    struct stage_shape shape = shape_of("llama3", 0, 2);
    shape.lora.alpha = 9;
    assert_int_equal(stage_new(cpu.ops, cpu.device, &shape, &stage, &why), 0);
    assert_int_equal(stage_load_adapters(stage, adapter_of("llama3"), &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "another rank, alpha or other targets"));
    stage_free(stage);
    why = (struct why){0};
    assert_int_equal(stage_open(cpu.ops, cpu.device, &shape, base_of("smollm2"), adapter_of("llama3"), &stage, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "base_model.model.model.layers.0."));
    why = (struct why){0};
    assert_int_equal(stage_open(cpu.ops, cpu.device, &shape, base_of("llama3"), base_of("llama3"), &stage, &why), ERR_ABSENT);
    assert_non_null(strstr(why.text, "adapter_config.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_stage_is_peft),         cmocka_unit_test(two_stages_are_peft),
        cmocka_unit_test(what_goes_out_is_the_same_model), cmocka_unit_test(text_is_generated_with_it),
        cmocka_unit_test(only_adapters_are_trained), cmocka_unit_test(words_are_adapters),
        cmocka_unit_test(others_are_refused),        cmocka_unit_test(weights_in_bf16_alone_are_near_peft),
    };
    backend_open(&cpu, 2);
    if (place_init(&place) != 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    place_clear(&place);
    backend_close(&cpu);
    return failed;
}
