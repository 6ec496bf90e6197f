/*
 * Real Hugging Face folders through the whole forward pass: the mean loss of the first 32 reference windows against the
 * figures of an independent fp64 forward. Needs the data folder beside the checkout; skipped where it is absent.
 */
#include "gpu/model/checkpoint.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "ssh/base/mem.h"
#include "tests/helpers/backend.h"

#define DATA "../shared/data"
#define WINDOWS 32
#define TOKENS 128

static struct backend cpu;

/* question + "\n" + answer + "\n\n" of every line, as many bytes as the windows need. */
static void read_text(uint8_t *text, size_t wanted)
{
    FILE *file = fopen(DATA "/gsm8k_test.jsonl", "r");
    char *line = NULL;
    size_t room = 0, used = 0;
    assert_non_null(file);
    while (used < wanted && getline(&line, &room, file) > 0) {
        json_t *json = json_loads(line, 0, NULL);
        const char *question = json_string_value(json_object_get(json, "question"));
        const char *answer = json_string_value(json_object_get(json, "answer"));
        assert_true(question && answer);
        char *both = mem_format("%s\n%s\n\n", question, answer);
        size_t bytes = strlen(both), part = bytes < wanted - used ? bytes : wanted - used;
        memcpy(text + used, both, part);
        used += part;
        mem_free(both);
        json_decref(json);
    }
    free(line);
    fclose(file);
    assert_int_equal(used, wanted);
}

static double mean_loss(const char *folder, bool recompute)
{
    enum { SEQUENCES = 8 };
    static uint8_t text[WINDOWS * TOKENS + 1];
    uint32_t ids[SEQUENCES * TOKENS], targets[SEQUENCES * TOKENS];
    struct why why = {0};
    struct stage *stage;
    struct stage_shape shape = {.first = true, .last = true, .sequences = SEQUENCES, .tokens = TOKENS, .slots = 1,
                                .recompute = recompute};
    double loss = 0;
    assert_int_equal(checkpoint_shape(folder, &shape.model, &why), 0);
    shape.layers = shape.model.layers;
    assert_int_equal(stage_new(cpu.ops, cpu.device, &shape, &stage, &why), 0);
    assert_int_equal(stage_load(stage, folder, &why), 0);
    read_text(text, sizeof text);
    for (int window = 0; window < WINDOWS; window += SEQUENCES) {
        for (int i = 0; i < SEQUENCES * TOKENS; i++) {
            ids[i] = text[window * TOKENS + i];
            targets[i] = text[window * TOKENS + i + 1];
        }
        assert_null(stage_forward(stage, 0, ids, NULL, SEQUENCES, TOKENS));
        loss += stage_loss(stage, 0, targets, 0);
    }
    stage_free(stage);
    return loss / (WINDOWS * TOKENS);
}

static void check_loss(const char *folder, double expected)
{
    double loss = mean_loss(folder, false);
    if (!(fabs(loss - expected) <= 1e-5 * expected))
        fail_msg("%s: mean loss %.7f, %.7f is right", folder, loss, expected);
}

static void losses_are_those_of_the_reference(void **state)
{
    (void)state;
    check_loss(DATA "/base-mild", 1.645840);
    check_loss(DATA "/base-tiny", 2.393784);
}

/* A folder made by others, with grouped heads spelled out: its shape, and weights that give a sane loss. */
static void a_foreign_folder_loads(void **state)
{
    (void)state;
    struct model_shape shape;
    struct why why = {0};
    assert_int_equal(checkpoint_shape(DATA "/llama-2m", &shape, &why), 0);
    assert_int_equal(shape.hidden, 64);
    assert_int_equal(shape.layers, 2);
    assert_int_equal(shape.head_width, 32);
    assert_int_equal(shape.vocabulary, 1024);
    assert_false(shape.tied);
    double loss = mean_loss(DATA "/llama-2m", true);
    assert_true(fabs(loss - log(1024)) < 0.1); /* fresh weights: about the uniform guess */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_the_reference),
        cmocka_unit_test(a_foreign_folder_loads),
    };
    if (access(DATA "/base-mild/config.json", R_OK) != 0) {
        printf("%s is not here: the loss of real checkpoints would have been compared\n", DATA);
        return 77;
    }
    backend_open(&cpu, 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    backend_close(&cpu);
    return failed;
}
