/* What the plan says about siblings is what gpu/train really sends and keeps: bytes of a period of rounds, memory, and the tensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/model/carve.h"
#include "gpu/train/follow.h"
#include "gpu/train/shape.h"
#include "gpu/train/siblings.h"
#include "scheduler/plan.h"
#include "ssh/base/mem.h"

static struct profile profile;
static struct plan plan;

static void set(const char *name, const char *value)
{
    struct why why = {0};
    if (profile_set(&profile, name, value, &why) < 0)
        fail_msg("%s", why.text);
}

static struct stage_shape shape_of(const struct plan_stage *stage)
{
    return (struct stage_shape){
        .model = shape_of_profile(&profile), .lora = shape_lora(&profile),
        .first_layer = stage->first_layer, .layers = stage->layers, .first = stage->stage == 0, .last = stage->stage == profile.stages - 1,
        .sequences = 1, .tokens = 2, .slots = 1};
}

static void get_zeros(void *arg, int tensor, float *out)
{
    const struct siblings_list *list = arg;
    memset(out, 0, (size_t)(list->tensors[tensor].rows * list->tensors[tensor].columns) * sizeof *out);
}

/* Two rounds of every fragment, so that alternating PowerSGD has sent either factor. */
static uint64_t sent_bytes(struct siblings_list *list)
{
    struct sync *sync;
    struct why why = {0};
    uint64_t bytes = 0;
    struct sync_weights weights = {get_zeros, NULL, list};
    uint8_t *out = mem_array(sync_bound_bytes(&list->settings, list->tensors, list->count), 1);
    assert_int_equal(sync_new(&list->settings, list->tensors, list->count, &sync, &why), 0);
    sync_begin(sync, &weights);
    for (int round = 0; round < 2; round++)
        for (int f = 0; f < list->settings.fragments; f++)
            for (int e = 0; e < sync_exchanges(sync, f); e++) {
                struct sync_part part = {.bytes = out, .share = 1};
                part.count = sync_contribute(sync, f, e, &weights, out);
                bytes += part.count;
                assert_int_equal(sync_receive(sync, f, e, &part, 1, 0, &(struct sync_outer){.rate = 1}, &why), 0);
            }
    sync_free(sync);
    mem_free(out);
    return bytes / 2;
}

/* What one that joins copies at a time. */
static uint64_t copied_bytes(const struct siblings_list *list)
{
    struct sync *sync;
    uint64_t most = 0;
    assert_int_equal(sync_new(&list->settings, list->tensors, list->count, &sync, NULL), 0);
    for (int f = 0; f < list->settings.fragments && profile.rejoin; f++)
        most = sync_state_bytes(sync, f) > most ? sync_state_bytes(sync, f) : most;
    sync_free(sync);
    return most;
}

/* What waits for an anchor that follows, at most. */
static void check_follow(const struct siblings_list *list, const struct plan_stage *stage)
{
    struct sync *sync;
    uint64_t state, all = 0, bound = plan_follow_memory(&profile, stage, &state);
    assert_int_equal(sync_new(&list->settings, list->tensors, list->count, &sync, NULL), 0);
    for (int f = 0; f < list->settings.fragments; f++)
        all += sync_state_bytes(sync, f);
    assert_int_equal(state, all);
    assert_int_equal(bound, follow_bound(sync, list->settings.fragments, (int)profile.replicas));
    assert_true(plan_replay_memory(&profile, stage) >= sync_memory(&list->settings, list->tensors, list->count) + copied_bytes(list));
    sync_free(sync);
}

static void check_all(void)
{
    struct why why = {0};
    if (plan_make_for(&profile, 4, &plan, &why) < 0)
        fail_msg("%s", why.text);
    for (int i = 0; i < plan.stage_count; i++) {
        struct stage_shape shape = shape_of(&plan.stages[i]);
        struct siblings_list list;
        siblings_list(&profile, &shape, &list);
        if (profile.sync_table != TABLE_TOUCHED)
            assert_int_equal(plan_sync_bytes(&profile, &plan.stages[i]), sent_bytes(&list));
        assert_int_equal(plan.stages[i].sync_bytes, sync_memory(&list.settings, list.tensors, list.count) + copied_bytes(&list) +
                                                      siblings_buffer_bytes(&profile, &list, (int)profile.replicas));
        check_follow(&list, &plan.stages[i]);
        siblings_list_clear(&list);
    }
}

static void test_bytes_and_memory(void **state)
{
    (void)state;
    static const char *const payloads[] = {"fp32", "bf16", "int8", "int4", "e3m0", "powersgd"};
    static const char *const tables[] = {"payload", "bf16", "int8", "rows", "powersgd"};
    profile_defaults(&profile);
    assert_non_null(profile_add_host(&profile, "a", NULL));
    set("replicas.count", "2");
    set("model.hidden", "40");
    set("model.heads", "4");
    set("model.kv_heads", "2");
    set("model.ffn", "72");
    set("model.layers", "5");
    set("sync.rank", "6");
    set("sync.table_rank", "20");
    for (int stages = 1; stages <= 3; stages++)
        for (int tied = 0; tied < 2; tied++)
            for (size_t i = 0; i < sizeof payloads / sizeof *payloads; i++)
                for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
                    for (int two_sided = 0; two_sided < 2; two_sided++) {
                        char number[8];
                        snprintf(number, sizeof number, "%d", stages);
                        set("pipeline.stages", number);
                        set("model.head", tied ? "tied" : "untied");
                        set("model.qkv_bias", tied ? "yes" : "no");
                        set("model.qk_norm", two_sided ? "yes" : "no");
                        set("model.head_width", tied ? "16" : "0");
                        set("sync.pattern", two_sided ? "strided" : "sequential");
                        set("replicas.rejoin", stages == 3 ? "no" : "yes");
                        set("sync.payload", payloads[i]);
                        set("sync.table", tables[t]);
                        set("sync.power", two_sided ? "two-sided" : "alternating");
                        set("replicas.count", stages == 2 ? "3" : "2");
                        set("sync.overlap", tied ? "0" : "6");
                        set("lora.rank", "0");
                        check_all();
                        set("lora.rank", tied ? "3" : "1");
                        set("lora.targets", stages == 2 ? "q,v" : "k,o,gate,up,down");
                        check_all();
                    }
}

/* The longest table of roads that a profile can ask for fits. */
static void test_roads(void **state)
{
    (void)state;
    struct why why = {0};
    profile_defaults(&profile);
    assert_non_null(profile_add_host(&profile, "a", NULL));
    set("model.layers", "64");
    int most = 0;
    for (int replicas = 1; replicas <= PROFILE_MAX_REPLICAS; replicas++) {
        int stages = PROFILE_MAX_STAGES / replicas;
        char number[8];
        snprintf(number, sizeof number, "%d", replicas);
        set("replicas.count", number);
        snprintf(number, sizeof number, "%d", stages);
        set("pipeline.stages", number);
        assert_int_equal(plan_make_for(&profile, 4, &plan, &why), 0);
        assert_int_equal(plan.road_count, replicas * (stages - 1) + stages * replicas * (replicas - 1) / 2);
        most = plan.road_count > most ? plan.road_count : most;
        for (int i = 0; i < plan.road_count; i++) {
            const struct plan_stage *from = &plan.stages[plan.roads[i].from], *to = &plan.stages[plan.roads[i].to];
            assert_true(plan.roads[i].sibling ? from->stage == to->stage && from->replica < to->replica
                                              : from->stage + 1 == to->stage && from->replica == to->replica);
        }
    }
    assert_int_equal(most, PLAN_ROADS);
    set("replicas.count", "16");
    set("pipeline.stages", "5");
    assert_int_equal(plan_make_for(&profile, 4, &plan, &why), ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes_and_memory), cmocka_unit_test(test_roads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
