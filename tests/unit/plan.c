/* The plan: every layer once and no better deal possible, cores and uplinks shared, bytes as the wire encodes them, 80
 * columns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "scheduler/plan.h"
#include "ssh/base/mem.h"
#include "ssh/wire/frame.h"
#include "ssh/wire/wire.h"
#include "tests/helpers/dice.h"

static struct profile profile;
static struct plan plan;

static int64_t between(struct dice *dice, int64_t first, int64_t last)
{
    return first + (int64_t)dice_below(dice, (uint64_t)(last - first + 1));
}

static void plain_profile(int64_t stages, int64_t layers, int hosts)
{
    profile_defaults(&profile);
    profile.stages = stages;
    profile.layers = layers;
    for (int i = 0; i < hosts; i++) {
        char name[16];
        snprintf(name, sizeof name, "h%d", i);
        profile_add_host(&profile, name, NULL);
    }
}

static void make(int cores)
{
    struct why why = {0};
    if (plan_make_for(&profile, cores, &plan, &why))
        fail_msg("%s", why.text);
}

static uint64_t encoded(uint16_t type, const void *payload)
{
    struct buf buf;
    buf_init(&buf, 1 << 26);
    assert_int_equal(wire_encode(type, payload, &buf, NULL), 0);
    uint64_t bytes = FRAME_HEADER_BYTES + buf_used(&buf);
    buf_clear(&buf);
    return bytes;
}

static double layer_cost(void)
{
    double h = (double)profile.hidden, kv = h * (double)profile.kv_heads / (double)profile.heads;
    return h * h * 2 + h * kv * 2 + h * (double)profile.sequence + 3 * h * (double)profile.ffn;
}

static double slowest(void)
{
    double most = 0;
    for (int i = 0; i < plan.stage_count; i++) {
        double cost = plan.stages[i].layers * layer_cost();
        if (i == plan.stage_count - 1)
            cost += (double)profile.hidden * (double)profile.vocabulary;
        most = cost > most ? cost : most;
    }
    return most;
}

/* Can `layers` be dealt to the stages so that none costs more than `limit`? */
static bool possible(double limit)
{
    double layer = layer_cost(), head = (double)profile.hidden * (double)profile.vocabulary;
    int64_t of_last = (int64_t)((limit - head) / layer), of_others = (int64_t)(limit / layer);
    return profile.stages == 1
               ? of_last >= profile.layers
               : of_last >= 1 && of_others >= 1 && of_last + of_others * (profile.stages - 1) >= profile.layers;
}

static void layers_are_dealt_as_evenly_as_can_be(void **state)
{
    (void)state;
    struct dice dice = {41};
    for (int round = 0; round < 1000; round++) {
        int64_t layers = between(&dice, 1, 64);
        plain_profile(between(&dice, 1, layers < 16 ? layers : 16), layers, 1);
        profile.vocabulary = between(&dice, 256, 200000);
        make(1);
        int next = 0;
        for (int i = 0; i < plan.stage_count; i++) {
            assert_int_equal(plan.stages[i].first_layer, next);
            assert_true(plan.stages[i].layers >= 1);
            next += plan.stages[i].layers;
        }
        assert_int_equal(next, layers);
        assert_true(possible(slowest() * 1.000001));
        assert_false(possible(slowest() * 0.999999));
    }
    plain_profile(2, 6, 1);
    make(1);
    assert_int_equal(plan.stages[0].layers, 3);
    profile.vocabulary = 128000; /* the head weighs more than all layers */
    make(1);
    assert_int_equal(plan.stages[0].layers, 5);
}

static void layers_may_be_given(void **state)
{
    (void)state;
    static const int expected[] = {2, 1, 1, 2};
    static const char *const wrong[] = {"2,1,1", "2,1,1,3", "2,1,1,2,", "2,1,1,x", "0,2,2,2", "2,1,,2", ",2,1,1,2", "-2,4,2,2", "2, 1,1,2",
                                        "99999999999999999999,1,1,2"};
    plain_profile(4, 6, 1);
    profile.replicas = 2;
    snprintf(profile.stage_layers, sizeof profile.stage_layers, "2,1,1,2");
    make(1);
    for (int i = 0, first = 0; i < plan.stage_count; i++) {
        first = plan.stages[i].stage ? first : 0;
        assert_int_equal(plan.stages[i].layers, expected[plan.stages[i].stage]);
        assert_int_equal(plan.stages[i].first_layer, first);
        first += plan.stages[i].layers;
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct why why = {0};
        snprintf(profile.stage_layers, sizeof profile.stage_layers, "%s", wrong[i]);
        assert_int_equal(plan_make_for(&profile, 1, &plan, &why), ERR_INVALID);
        assert_non_null(strstr(why.text, "pipeline.layers"));
    }
}

/* No gradient crosses a cut that only has what is not trained before it. */
static void what_is_not_trained_sends_no_gradients(void **state)
{
    (void)state;
    static const struct wire_grad empty = {.squares = -1, .loss = -1};
    plain_profile(4, 8, 1);
    profile.codec = CODEC_SUBSPACE;
    profile.micro_batches = 5;
    for (profile.frozen = 0; profile.frozen <= 8; profile.frozen++) {
        make(1);
        for (int i = 0; i < plan.road_count; i++) {
            const struct plan_road *road = &plan.roads[i];
            bool none = plan.stages[road->to].first_layer <= profile.frozen;
            assert_int_equal(road->backward_bytes_per_step == 5 * encoded(WIRE_GRAD, &empty), none);
            assert_int_equal(road->dense_backward_bytes_per_step == 5 * encoded(WIRE_GRAD, &empty), none);
            assert_true(road->forward_bytes_per_step > 5 * encoded(WIRE_GRAD, &empty));
        }
    }
}

static void hosts_in_file_order(void **state)
{
    (void)state;
    for (int stages = 1; stages <= 16; stages++) {
        for (int hosts = 1; hosts <= stages; hosts++) {
            int used[PROFILE_HOSTS] = {0};
            plain_profile(stages, 16, hosts);
            make(8);
            for (int i = 0; i < stages; i++) {
                used[plan.stages[i].host]++;
                assert_true(i == 0 ? plan.stages[i].host == 0 : plan.stages[i].host - plan.stages[i - 1].host <= 1);
                assert_true(i == 0 || plan.stages[i].host >= plan.stages[i - 1].host);
            }
            for (int h = 0; h < hosts; h++)
                assert_true(used[h] >= stages / hosts && used[h] <= stages / hosts + 1);
        }
    }
    plain_profile(2, 4, 2);
    make(8);
    assert_string_equal(plan.stages[0].process, "r0s0");
    assert_string_equal(plan.stages[1].process, "r0s1");
}

static void cores_and_uplinks_are_shared(void **state)
{
    (void)state;
    plain_profile(3, 6, 2); /* h0 has stages 0 and 1 */
    profile.hosts[0].uplink_bps = 90000000;
    make(8);
    assert_int_equal(plan.stages[0].threads, 2); /* local hosts are one machine */
    assert_int_equal(plan.stages[2].threads, 2);
    assert_true(plan.stages[0].uplink_bps == 45000000 && plan.stages[1].uplink_bps == 45000000);
    assert_true(plan.stages[2].uplink_bps == 0);
    make(2);
    assert_int_equal(plan.stages[0].threads, 1);
    profile.hosts[1].threads = 7;
    make(2);
    assert_int_equal(plan.stages[2].threads, 7);
    assert_int_equal(plan.stages[1].threads, 1);
    assert_true(plan_cores() >= 1);
}

static void in_flight(void **state)
{
    (void)state;
    plain_profile(4, 8, 1);
    profile.micro_batches = 64;
    make(1);
    assert_int_equal(plan.stages[0].in_flight, 10);
    assert_int_equal(plan.stages[3].in_flight, 4);
    profile.micro_batches = 5;
    make(1);
    assert_int_equal(plan.stages[0].in_flight, 5);
    profile.in_flight = 3;
    make(1);
    assert_int_equal(plan.stages[0].in_flight, 3);
}

/* What a stage would send in a step with refresh = 1, message by message. */
static void bytes_are_those_of_the_messages(void **state)
{
    (void)state;
    static const int64_t vocabularies[] = {256, 257, 65536, 65537};
    static const uint8_t id_bytes[] = {1, 2, 2, 4};
    uint8_t *body = mem_new(4 * WIRE_TIED_FLOATS);
    for (size_t i = 0; i < 4; i++) {
        plain_profile(2, 4, 1);
        profile.vocabulary = vocabularies[i];
        profile.hidden = 200;
        profile.sequence = 33;
        profile.micro_batch = 3;
        profile.micro_batches = 5;
        profile.refresh = 1;
        make(1);
        assert_int_equal(plan.keep, 10);
        assert_int_equal(plan.tokens_per_step, 3 * 33 * 5);
        struct wire_stamp stamp = {.kind = STAMP_TRAIN, .micro_batches = 5};
        struct wire_codec_state means = {.version = 1, .body = {body, 2 * 200}};
        struct wire_act act = {.sequences = 3, .tokens = 33, .id_bytes = id_bytes[i],
                               .body = {body, 3 * (33 + 1) * id_bytes[i] + 3 * 33 * 2 * 10}};
        struct wire_grad grad = {.squares = -1, .loss = -1, .body = {body, 3 * 33 * 2 * 10}};
        assert_int_equal(plan.roads[0].forward_bytes_per_step,
                         encoded(WIRE_STAMP, &stamp) + encoded(WIRE_CODEC_STATE, &means) + 5 * encoded(WIRE_ACT, &act));
        assert_int_equal(plan.roads[0].backward_bytes_per_step, 5 * encoded(WIRE_GRAD, &grad));
        uint64_t forward = plan.roads[0].forward_bytes_per_step, backward = plan.roads[0].backward_bytes_per_step, tied = 0;
        for (int64_t left = vocabularies[i] * 200; left > 0; left -= WIRE_TIED_FLOATS) {
            struct wire_tied piece = {.body = {body, (uint32_t)(left < WIRE_TIED_FLOATS ? left : WIRE_TIED_FLOATS) * 4}};
            tied += encoded(WIRE_TIED, &piece);
        }
        profile.head_tie = HEAD_TIED;
        make(1);
        assert_int_equal(plan.roads[0].forward_bytes_per_step, forward + tied);
        assert_int_equal(plan.roads[0].backward_bytes_per_step, backward + tied);
        profile.head_tie = HEAD_UNTIED;
        make(1);
        act.body.bytes = 3 * (33 + 1) * id_bytes[i] + 3 * 33 * 2 * 200;
        grad.body.bytes = 3 * 33 * 2 * 200;
        assert_int_equal(plan.roads[0].dense_forward_bytes_per_step,
                         encoded(WIRE_STAMP, &stamp) + 5 * encoded(WIRE_ACT, &act));
        assert_int_equal(plan.roads[0].dense_backward_bytes_per_step, 5 * encoded(WIRE_GRAD, &grad));
    }
    mem_free(body);
}

/* 95 % of the channels stay: K/H of the dense bytes, and at most 2 % more for headers, ids and means. */
static void the_mask_saves_what_it_says(void **state)
{
    (void)state;
    plain_profile(3, 6, 1);
    profile.hidden = 2048;
    profile.heads = 32;
    profile.kv_heads = 8;
    profile.vocabulary = 128256;
    profile.sequence = 2048;
    make(1);
    double share = (double)plan.keep / 2048;
    assert_int_equal(plan.keep, 102);
    for (int i = 0; i < plan.road_count; i++) {
        const struct plan_road *road = &plan.roads[i];
        double forward = (double)road->forward_bytes_per_step / (double)road->dense_forward_bytes_per_step;
        double backward = (double)road->backward_bytes_per_step / (double)road->dense_backward_bytes_per_step;
        assert_true(forward > share && forward < share * 1.02 && backward > share && backward < share * 1.01);
    }
    profile.codec = CODEC_DENSE;
    make(1);
    assert_int_equal(plan.keep, 0);
    assert_int_equal(plan.roads[0].forward_bytes_per_step, plan.roads[0].dense_forward_bytes_per_step);
}

static void what_cannot_be_planned_is_refused(void **state)
{
    (void)state;
    struct plan before;
    struct why why = {0};
    memset(&plan, 0x5a, sizeof plan);
    before = plan;
    plain_profile(2, 4, 0);
    assert_int_equal(plan_make_for(&profile, 1, &plan, &why), ERR_INVALID);
    plain_profile(5, 4, 1);
    why = (struct why){0};
    assert_int_equal(plan_make_for(&profile, 1, &plan, &why), ERR_INVALID);
    assert_string_equal(why.text, "pipeline.stages = 5 is more than the 4 layers of the model");
    plain_profile(PROFILE_MAX_STAGES + 1, 1000, 1);
    assert_int_equal(plan_make_for(&profile, 1, &plan, &why), ERR_INVALID);
    plain_profile(2, 4, 1);
    profile.heads = 3;
    assert_int_equal(plan_make_for(&profile, 1, &plan, &why), ERR_INVALID);
    plain_profile(2, 4, 1);
    profile.sequence = profile.micro_batch = 65535; /* not one message */
    assert_int_equal(plan_make_for(&profile, 1, &plan, &why), ERR_INVALID);
    plain_profile(1, 1024, 1);
    profile.hidden = profile.heads = profile.kv_heads = 2;
    profile.sequence = 65535;
    profile.micro_batch = 256;
    profile.ffn = 262144;
    profile.in_flight = profile.micro_batches = 65535; /* 2^70 bytes */
    assert_int_equal(plan_make_for(&profile, 1, &plan, &why), ERR_INVALID);
    assert_memory_equal(&plan, &before, sizeof plan);
}

static char *print(void (*printer)(const struct plan *, const struct profile *, FILE *))
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    printer(&plan, &profile, out);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void fits_in_80_columns(void **state)
{
    (void)state;
    for (int64_t stages = 1; stages <= PROFILE_MAX_STAGES; stages += 21) {
        plain_profile(stages, 1024, 0);
        profile_add_host(&profile, "a-host-whose-name-is-of-forty-letters-ab", NULL);
        snprintf(profile.name, sizeof profile.name, "a-run-whose-name-is-of-just-forty-letter");
        profile.hidden = 32768;
        profile.ffn = 262144;
        profile.vocabulary = 1048576;
        profile.sequence = 2;
        profile.micro_batch = 1000;
        profile.micro_batches = 65535;
        profile.in_flight = 65535;
        profile.mask_rate = 1.0 / 3;
        profile.hosts[0].threads = 1024;
        make(1);
        char *text = print(plan_print), *rest = NULL;
        for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
            size_t columns = 0;
            for (const char *at = line; *at; at++)
                columns += ((unsigned char)*at & 0xc0) != 0x80;
            if (columns > 80)
                fail_msg("%zu columns: %s", columns, line);
        }
        free(text);
    }
}

static void text_and_json_say_the_same(void **state)
{
    (void)state;
    plain_profile(3, 9, 2);
    snprintf(profile.name, sizeof profile.name, "demo");
    make(4);
    char *text = print(plan_print), *json = print(plan_print_json);
    assert_non_null(strstr(text, "Run demo: 3 stages on 2 hosts, 8192 tokens a step."));
    assert_non_null(strstr(text, "% of the bytes of a dense exchange.\n"));
    json_t *all = json_loads(json, 0, NULL);
    assert_non_null(all);
    assert_int_equal(json_integer_value(json_object_get(all, "version")), 1);
    assert_string_equal(json_string_value(json_object_get(all, "run")), "demo");
    json_t *stages = json_object_get(all, "stages"), *roads = json_object_get(all, "roads");
    assert_int_equal(json_array_size(stages), 3);
    assert_int_equal(json_array_size(roads), 2);
    for (int i = 0; i < 3; i++) {
        json_t *stage = json_array_get(stages, (size_t)i), *memory = json_object_get(stage, "memory_bytes");
        assert_string_equal(json_string_value(json_object_get(stage, "process")), plan.stages[i].process);
        assert_int_equal(json_integer_value(json_object_get(stage, "layers")), plan.stages[i].layers);
        assert_int_equal(json_integer_value(json_object_get(memory, "total")), plan.stages[i].total_bytes);
    }
    json_t *forward = json_object_get(json_object_get(json_array_get(roads, 1), "bytes_per_step"), "forward");
    assert_int_equal(json_integer_value(forward), plan.roads[1].forward_bytes_per_step);
    json_decref(all);
    free(json);
    free(text);

    plain_profile(1, 9, 1);
    make(4);
    text = print(plan_print);
    assert_non_null(strstr(text, "One stage: nothing travels between processes."));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_dealt_as_evenly_as_can_be),
        cmocka_unit_test(layers_may_be_given),
        cmocka_unit_test(what_is_not_trained_sends_no_gradients), cmocka_unit_test(hosts_in_file_order),
        cmocka_unit_test(cores_and_uplinks_are_shared),         cmocka_unit_test(in_flight),
        cmocka_unit_test(bytes_are_those_of_the_messages),      cmocka_unit_test(the_mask_saves_what_it_says),
        cmocka_unit_test(what_cannot_be_planned_is_refused),    cmocka_unit_test(fits_in_80_columns),
        cmocka_unit_test(text_and_json_say_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
