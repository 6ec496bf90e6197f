/*
 * Text that grows by cached keys and values is the text that the whole forward pass would write, for every family, whatever pieces
 * the prompt comes in; choices follow temperature, top-p and the seed.
 */
#include "gpu/model/generate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "gpu/model/checkpoint.h"
#include "ssh/base/mem.h"
#include "tests/helpers/backend.h"

#define FIXTURES "tests/ops/fixtures/families"

enum { CONTEXT = 24, PROMPT = 5, VOCABULARY = 40 };

static const char *const families[] = {"llama2", "llama3", "llama-linear", "mistral", "qwen2", "qwen2-tied", "qwen3", "smollm2"};
enum { FAMILIES = sizeof families / sizeof *families };

static struct backend cpu;

static uint32_t best_of(const float *logits)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < VOCABULARY; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static struct stage *whole_model(const char *folder)
{
    struct stage_shape shape = {.first = true, .last = true, .sequences = 1, .tokens = CONTEXT, .slots = 1, .frozen = true};
    struct why why = {0};
    struct stage *stage;
    assert_int_equal(checkpoint_shape(folder, &shape.model, &why), 0);
    shape.layers = shape.model.layers;
    struct stage_memory memory = stage_memory(&shape);
    assert_true(memory.gradients == 0 && memory.optimizer == 0);
    if (stage_new(cpu.ops, cpu.device, &shape, &stage, &why) != 0 || stage_load(stage, folder, &why) != 0)
        fail_msg("%s", why.text);
    return stage;
}

/* The text and the logits behind each of its tokens, each by a forward pass over all tokens before. */
static void write_slowly(const char *folder, uint32_t ids[CONTEXT], float logits[CONTEXT][VOCABULARY])
{
    struct stage *stage = whole_model(folder);
    float all[CONTEXT * VOCABULARY];
    for (uint32_t i = 0; i < PROMPT; i++)
        ids[i] = (7 * i + 3) % VOCABULARY;
    for (int64_t length = PROMPT; length <= CONTEXT; length++) {
        stage_forward(stage, 0, ids, NULL, 1, length);
        stage_logits(stage, all);
        memcpy(logits[length - 1], all + (length - 1) * VOCABULARY, sizeof logits[0]);
        if (length < CONTEXT)
            ids[length] = best_of(logits[length - 1]);
    }
    stage_free(stage);
}

static void check_logits(const char *family, const float *got, const float *want, int64_t length)
{
    double wide[VOCABULARY];
    for (int i = 0; i < VOCABULARY; i++)
        wide[i] = (double)want[i];
    double difference = backend_difference(got, wide, VOCABULARY);
    if (!(difference <= 1e-5))
        fail_msg("%s: the logits behind token %d differ by %.3g", family, (int)length, difference);
}

static void cached_is_uncached(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        char folder[200];
        uint32_t ids[CONTEXT];
        static float slow[CONTEXT][VOCABULARY];
        float logits[VOCABULARY];
        struct generator *generator;
        struct choice greedy = {.temperature = 0};
        struct why why = {0};
        snprintf(folder, sizeof folder, FIXTURES "/%s", families[f]);
        write_slowly(folder, ids, slow);
        if (generator_new(cpu.ops, cpu.device, folder, NULL, CONTEXT, &generator, &why) != 0)
            fail_msg("%s", why.text);
        for (int piece = 1; piece <= PROMPT; piece++) { /* the prompt in pieces of one, two, … */
            generator_rewind(generator);
            for (int64_t done = 0; done < PROMPT; done += piece)
                generator_feed(generator, ids + done, PROMPT - done < piece ? PROMPT - done : piece, logits);
            assert_int_equal(generator_length(generator), PROMPT);
            check_logits(families[f], logits, slow[PROMPT - 1], PROMPT);
        }
        for (int64_t length = PROMPT; length < CONTEXT; length++) {
            uint32_t next = choice_make(&greedy, logits, VOCABULARY);
            if (next != ids[length])
                fail_msg("%s: token %d is %u, %u is right", families[f], (int)length, next, ids[length]);
            generator_feed(generator, &next, 1, logits);
            check_logits(families[f], logits, slow[length], length + 1);
        }
        generator_free(generator);
    }
}

static void a_window_ends_the_text(void **state)
{
    (void)state;
    struct generator *generator;
    struct why why = {0};
    assert_int_equal(generator_new(cpu.ops, cpu.device, FIXTURES "/mistral", NULL, 25, &generator, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "fewer tokens"));
    why = (struct why){0};
    assert_int_equal(generator_new(cpu.ops, cpu.device, FIXTURES "/nothing", NULL, 25, &generator, &why), ERR_ABSENT);
}

/* 100,000 throws: shares within four standard deviations of what they should be. */
static void check_shares(struct choice choice, const double *wanted, int count)
{
    static const float logits[] = {0.5f, 2, -1, 1};
    int seen[4] = {0}, throws = 100000;
    for (int i = 0; i < throws; i++)
        seen[choice_make(&choice, logits, 4)]++;
    for (int i = 0; i < count; i++) {
        double deviation = sqrt(wanted[i] * (1 - wanted[i]) * throws);
        if (fabs(seen[i] - wanted[i] * throws) > 4 * deviation)
            fail_msg("token %d was chosen %d times of %d, %.0f is right", i, seen[i], throws, wanted[i] * throws);
    }
}

static void choices_have_their_shares(void **state)
{
    (void)state;
    double e[] = {exp(0.5), exp(2), exp(-1), exp(1)}, sum = e[0] + e[1] + e[2] + e[3];
    check_shares((struct choice){.temperature = 1, .top_p = 1, .state = 5},
                 (double[]){e[0] / sum, e[1] / sum, e[2] / sum, e[3] / sum}, 4);
    double h[] = {exp(0.25), exp(1), exp(-0.5), exp(0.5)}, half = h[0] + h[1] + h[2] + h[3];
    check_shares((struct choice){.temperature = 2, .top_p = 1, .state = 5},
                 (double[]){h[0] / half, h[1] / half, h[2] / half, h[3] / half}, 4);
    double top = e[1] + e[3]; /* 0.61 + 0.22 ≥ 0.8: the other two are out */
    check_shares((struct choice){.temperature = 1, .top_p = 0.8f, .state = 9}, (double[]){0, e[1] / top, 0, e[3] / top}, 4);
    check_shares((struct choice){.temperature = 1, .top_p = 0, .state = 9}, (double[]){0, 1, 0, 0}, 4);
    struct choice one = {.temperature = 1, .top_p = 1, .state = 77}, two = one;
    static const float flat[64];
    for (int i = 0; i < 100; i++)
        assert_int_equal(choice_make(&one, flat, 64), choice_make(&two, flat, 64));
    struct choice greedy = {.temperature = 0};
    assert_int_equal(choice_make(&greedy, flat, 64), 0); /* the first of equals */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cached_is_uncached),
        cmocka_unit_test(a_window_ends_the_text),
        cmocka_unit_test(choices_have_their_shares),
    };
    backend_open(&cpu, 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    backend_close(&cpu);
    return failed;
}
