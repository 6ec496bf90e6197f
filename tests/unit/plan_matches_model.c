/* The plan's formulas against their owners: memory of a stage, bytes of a codec, names of number formats, limits of the
 * wire. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gpu/math/codec.h"
#include "gpu/model/model.h"
#include "gpu/model/token_table.h"
#include "gpu/train/shape.h"
#include "scheduler/plan.h"
#include "ssh/wire/wire.h"
#include "tests/helpers/dice.h"

static int64_t between(struct dice *dice, int64_t first, int64_t last)
{
    return first + (int64_t)dice_below(dice, (uint64_t)(last - first + 1));
}

static void random_profile(struct dice *dice, struct profile *p)
{
    profile_defaults(p);
    profile_add_host(p, "a", NULL);
    p->kv_heads = between(dice, 1, 4);
    p->heads = p->kv_heads * between(dice, 1, 4);
    p->hidden = p->heads * 2 * between(dice, 16, 64);
    p->layers = between(dice, 1, 24);
    p->stages = between(dice, 1, p->layers < 8 ? p->layers : 8);
    p->head_width = dice_below(dice, 2) ? 2 * between(dice, 8, 64) : 0;
    p->qkv_bias = dice_below(dice, 3) == 0;
    p->qk_norm = !p->qkv_bias && dice_below(dice, 2);
    p->ffn = between(dice, 32, 2000);
    p->vocabulary = between(dice, 256, 70000);
    p->head_tie = (int)dice_below(dice, 2);
    p->frozen = p->head_tie == HEAD_TIED || dice_below(dice, 2) ? 0 : between(dice, 1, p->layers);
    p->sequence = between(dice, 16, 512);
    p->micro_batch = between(dice, 1, 8);
    p->micro_batches = between(dice, 1, 16);
    p->in_flight = between(dice, 0, 8);
    p->recompute = dice_below(dice, 2);
    p->precision = (int)dice_below(dice, 2);
    p->moments = (int)dice_below(dice, 3);
    p->lora_rank = dice_below(dice, 2) ? 16 * between(dice, 1, 4) : 0; /* fills lines: what the plan does not count is their gaps */
    profile_lora_letters(1 + (uint32_t)dice_below(dice, (1 << LORA_TARGETS) - 1), p->lora_targets, sizeof p->lora_targets);
    p->data_documents = (int)dice_below(dice, 2);
    p->codec = (int)dice_below(dice, CODEC_ENTROPY + 1);
    p->decoding = p->codec == CODEC_MASK && dice_below(dice, 2) ? DECODING_MMSE : DECODING_PLAIN;
    p->reference = (int)dice_below(dice, REFERENCE_TOKENS + 1);
    p->context = between(dice, 1, 4);
    p->rank = dice_below(dice, 2) ? between(dice, 0, 300) : 0;
    p->bits = between(dice, 1, 8);
    p->forward_share = (double)between(dice, 10, 90) / 100;
    p->values = (int)dice_below(dice, 4);
    p->mask_rate = (double)dice_below(dice, 1000) / 1000;
}

static struct stage_shape shape_of(const struct profile *p, const struct plan_stage *stage)
{
    int64_t still = p->frozen - stage->first_layer;
    return (struct stage_shape){
        .model = shape_of_profile(p), .lora = shape_lora(p),
        .first_layer = stage->first_layer, .layers = stage->layers,
        .first = stage->stage == 0, .last = stage->stage == p->stages - 1,
        .sequences = p->micro_batch, .tokens = p->sequence, .slots = stage->in_flight, .recompute = p->recompute,
        .half_products = p->precision == PRECISION_BF16, .words_only = shape_words_only(p),
        .still = still < 0 ? 0 : still < stage->layers ? still : stage->layers,
        .moments = (enum stage_moments)p->moments, .apart = p->data_documents == DOCUMENTS_APART,
    };
}

static void check_near(const char *what, uint64_t planned, uint64_t real)
{
    double gap = (double)planned / (double)real - 1;
    if (gap > 0.02 || gap < -0.02)
        fail_msg("%s: planned %llu, taken %llu", what, (unsigned long long)planned, (unsigned long long)real);
}

static uint64_t codecs_of(const struct profile *p, const struct plan_stage *stage)
{
    struct codec_settings settings;
    struct model_shape shape = shape_of_profile(p);
    shape_codec(p, 0, &settings);
    settings.slots = stage->in_flight;
    uint64_t sum = shape_needs_table(p) ? 4 * (uint64_t)token_table_count(&shape, p->rank) : 0;
    for (int side = 0; side < 2; side++) {
        settings.one_way = stage->first_layer + (side ? stage->layers : 0) <= p->frozen;
        enum codec_way own = side ? CODEC_FORWARD : CODEC_BACKWARD;
        if (side ? stage->stage + 1 < p->stages : stage->stage > 0)
            sum += codec_memory_bytes(&settings) + codec_owner_bytes(&settings, own);
    }
    return sum;
}

static void memory(void **state)
{
    (void)state;
    struct dice dice = {11};
    static struct profile p;
    static struct plan plan;
    for (int round = 0; round < 300; round++) {
        struct why why = {0};
        random_profile(&dice, &p);
        assert_int_equal(plan_make_for(&p, 4, &plan, &why), 0);
        for (int i = 0; i < plan.stage_count; i++) {
            const struct plan_stage *stage = &plan.stages[i];
            struct stage_shape shape = shape_of(&p, stage);
            assert_int_equal(stage_check(&shape, &why), 0);
            struct stage_memory real = stage_memory(&shape);
            assert_int_equal(stage->parameters, real.parameters);
            assert_int_equal(stage->trained, real.trained);
            check_near("weights", stage->weights_bytes, real.weights);
            check_near("gradients", stage->gradients_bytes, real.gradients);
            check_near("optimizer", stage->optimizer_bytes, real.optimizer);
            check_near("activations", stage->activations_bytes, real.activations);
            check_near("buffers", stage->buffers_bytes, real.scratch + real.host);
            check_near("total", stage->total_bytes - stage->boundary_bytes - stage->copy_bytes - stage->device_bytes -
                                    stage->process_bytes, real.total);
            check_near("boundary", stage->boundary_bytes + 1000000, codecs_of(&p, stage) + 1000000);
        }
    }
}

static void bytes(void **state)
{
    (void)state;
    struct dice dice = {12};
    static struct profile p;
    for (int round = 0; round < 2000; round++) {
        random_profile(&dice, &p);
        struct codec_settings settings;
        shape_codec(&p, 0, &settings);
        int64_t keep = codec_keep(&settings, p.mask_rate);
        struct codec_use use = {.rows = p.micro_batch * p.sequence, .keep = keep, .format_override = -1};
        assert_int_equal(plan_keep(&p), keep);
        for (int way = 0; way < 2; way++) {
            uint64_t row = plan_token_bytes(&p, way == CODEC_BACKWARD);
            assert_int_equal((uint64_t)use.rows * row, codec_bytes(&settings, &use, (enum codec_way)way));
            assert_int_equal(plan_state_bytes(&p, way == CODEC_BACKWARD), codec_state_bytes(&settings, (enum codec_way)way));
            assert_int_equal(plan_made_bytes(&p, way == CODEC_BACKWARD), codec_made_bytes(&settings, (enum codec_way)way));
        }
        for (int one_way = 0; one_way < 2; one_way++) {
            settings.one_way = one_way;
            assert_int_equal(plan_saved_boundary(&p, false) + (one_way ? 0 : plan_saved_boundary(&p, true)), codec_save_bytes(&settings));
        }
    }
}

/* A profile's choice is handed to the codec as a number. */
static void same_numbers(void **state)
{
    (void)state;
    assert_int_equal(CODEC_DENSE, CODEC_KIND_DENSE);
    assert_int_equal(CODEC_MASK, CODEC_KIND_MASK);
    assert_int_equal(VALUES_FP32, FORMAT_FP32);
    assert_int_equal(VALUES_BF16, FORMAT_BF16);
    assert_int_equal(VALUES_INT8, FORMAT_INT8);
    assert_int_equal(VALUES_INT4, FORMAT_INT4);
    assert_int_equal(GAIN_ONE, CODEC_GAIN_ONE);
    assert_int_equal(GAIN_UNBIASED, CODEC_GAIN_UNBIASED);
    assert_int_equal(GAIN_RMS, CODEC_GAIN_RMS);
    assert_int_equal(REFERENCE_NONE, CODEC_REFERENCE_NONE);
    assert_int_equal(REFERENCE_MEAN, CODEC_REFERENCE_MEAN);
    assert_int_equal(REFERENCE_TOKENS, CODEC_REFERENCE_TOKENS);
    assert_int_equal(CODEC_SUBSPACE, CODEC_KIND_SUBSPACE);
    assert_int_equal(CODEC_PRINCIPAL, CODEC_KIND_PRINCIPAL);
    assert_int_equal(CODEC_TOPK, CODEC_KIND_TOPK);
    assert_int_equal(CODEC_HYBRID, CODEC_KIND_HYBRID);
    assert_int_equal(CODEC_ENTROPY, CODEC_KIND_ENTROPY);
}

static void wire_limits(void **state)
{
    (void)state;
    assert_true(wire_find(WIRE_ACT)->max_bytes >= PROFILE_MESSAGE_BYTES + 1024);
    assert_true(wire_find(WIRE_ASSIGN)->max_bytes >= PROFILE_SETTINGS_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory),
        cmocka_unit_test(bytes),
        cmocka_unit_test(same_numbers),
        cmocka_unit_test(wire_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
