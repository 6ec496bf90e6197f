/* What a CPU device takes for itself while a stage steps, against the plan (scheduler/plan.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gpu/model/model.h"
#include "gpu/train/shape.h"
#include "scheduler/plan.h"
#include "ssh/base/mem.h"
#include "tests/helpers/rig.h"

/* A step of a stage that is all of a small model; its device has then held what the plan says at the most. */
static size_t scratch_of_step(const struct stage_shape *shape, int threads)
{
    struct rig rig;
    struct stage *stage;
    struct why why = {0};
    rig_open(&rig, NULL, threads);
    int64_t rows = shape->sequences * shape->tokens;
    uint32_t *ids = mem_array((size_t)rows, sizeof *ids);
    assert_int_equal(stage_new(rig.ops, rig.device, shape, &stage, &why), 0);
    stage_fresh(stage, 1);
    stage_forward(stage, 0, ids, NULL, shape->sequences, shape->tokens);
    stage_loss(stage, 0, ids, 1);
    stage_backward(stage, 0, NULL);
    size_t held = rig_scratch(&rig);
    stage_free(stage);
    mem_free(ids);
    rig_close(&rig);
    return held;
}

static void device(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {{256, 704, 8000, 256}, {64, 2000, 300, 700}, {512, 600, 600, 40}}; /* hidden ffn vocabulary tokens */
    static struct profile p;
    static struct plan plan;
    for (int i = 0; i < 6; i++) {
        const int64_t *size = sizes[i / 2];
        if (i % 2 && !__builtin_cpu_supports("avx512bf16"))
            continue; /* products in fp32 of rounded numbers: not counted */
        struct why why = {0};
        profile_defaults(&p);
        profile_add_host(&p, "a", NULL);
        p.heads = p.kv_heads = 2;
        p.layers = p.stages = p.micro_batches = 1;
        p.hidden = size[0];
        p.ffn = size[1];
        p.vocabulary = size[2];
        p.sequence = size[3];
        p.micro_batch = 2;
        p.precision = i % 2 ? PRECISION_BF16 : PRECISION_FP32;
        assert_int_equal(plan_make_for(&p, 3, &plan, &why), 0);
        struct stage_shape shape = {.model = shape_of_profile(&p), .layers = 1, .first = true, .last = true, .sequences = p.micro_batch,
                                    .tokens = p.sequence, .slots = 1, .half_products = p.precision == PRECISION_BF16};
        size_t held = scratch_of_step(&shape, plan.stages[0].threads);
        if (held > plan.stages[0].device_bytes)
            fail_msg("sizes %d: planned %llu, held %zu", i, (unsigned long long)plan.stages[0].device_bytes, held);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
