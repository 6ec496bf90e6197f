/*
 * Real stages as processes: what they compute is what one thread computes (tests/helpers/pipeline.h), bit for bit, whatever
 * the road, the depth, the codec and the knobs; and what is not finite is never applied.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/pipeline.h"
#include "tests/helpers/train.h"

/* ---- numbers ---- */

static void one_stage_is_the_pipeline(void **state)
{
    (void)state;
    struct train train;
    train_begin(&train, 1, true);
    train_run(&train);
    train_stop(&train);
    train_as_pipeline(&train);
    train_end(&train);
}

static void two_stages_over_tls_are_the_pipeline(void **state)
{
    (void)state;
    struct train train;
    train_begin(&train, 2, false);
    train_run(&train);
    struct head_peer *first = train.peers[0];
    head_for(&train.head, 1200 * CLOCK_MS); /* the road's sample of the second */
    assert_true(first->act_sent > 0 && first->act_sent < first->act_dense);
    assert_true(first->newest.memory_bytes > 0 && first->newest.sent_act_bytes > 0 && first->newest.received_act_bytes > 0);
    train_stop(&train);
    train_as_pipeline(&train);
    train_end(&train);
}

static void three_stages_are_the_pipeline_whatever_the_road(void **state)
{
    (void)state;
    struct train train;
    train_begin(&train, 3, true);
    train.in_flight = 6;
    train.profile.in_flight = 0;
    train.profile.slow_delay_ns = 3 * CLOCK_MS;
    train.profile.slow_jitter_ns = 5 * CLOCK_MS;
    train.profile.slow_rate_bps = 20000000;
    train.profile.values = VALUES_INT8;
    train.profile.recompute = true;
    train_run(&train);
    train_stop(&train);
    train_as_pipeline(&train);
    train_end(&train);
}

static void a_tied_head_is_one_table_on_two_stages(void **state)
{
    (void)state;
    for (int stages = 1; stages <= 3; stages++) {
        struct train train;
        train_begin(&train, stages, true);
        train.profile.head_tie = HEAD_TIED;
        train.profile.vocabulary = stages == 3 ? WIRE_TIED_FLOATS / 32 + 1 : 256; /* more than one piece, wider token ids */
        train_run(&train);
        train_stop(&train);
        train_as_pipeline(&train);
        train_end(&train);
    }
}

/* Masked, and with a tied head, which is frozen: its gradient goes nowhere. */
static void adapters_are_trained_on_two_stages(void **state)
{
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        struct train train;
        train_begin(&train, 2, true);
        train.profile.head_tie = tied ? HEAD_TIED : HEAD_UNTIED;
        train.profile.lora_rank = 3;
        train.profile.lora_alpha = 6;
        snprintf(train.profile.lora_targets, sizeof train.profile.lora_targets, "%s", tied ? "q,v" : "q,k,v,o,gate,up,down");
        train_run(&train);
        train_stop(&train);
        train_as_pipeline(&train);
        train_end(&train);
    }
}

static void losses(bool slow, int in_flight, double *out)
{
    struct train train;
    train_begin(&train, 2, true);
    train.in_flight = in_flight;
    train.profile.record = slow;
    train.profile.slow_delay_ns = slow ? 10 * CLOCK_MS : 0;
    train_run(&train);
    for (int i = 0; i < TRAIN_STEPS; i++)
        out[i] = train.peers[0]->loss[i + 1];
    if (slow) { /* what was recorded can be read */
        assert_int_equal(access(place_file(&train.head.place, "capture/r0s0-r0s1.capture"), R_OK), 0);
        assert_true(train.peers[0]->newest.wait_grad_ns + train.peers[0]->newest.wait_send_ns > 10 * CLOCK_MS);
    }
    train_stop(&train);
    train_end(&train);
}

static void two_runs_have_the_same_bits(void **state)
{
    (void)state;
    double one[TRAIN_STEPS], other[TRAIN_STEPS];
    losses(false, 1, one);
    losses(true, 6, other);
    assert_memory_equal(one, other, sizeof one);
}

static void a_knob_acts_from_its_step_on(void **state)
{
    (void)state;
    struct train train;
    struct backend backend;
    struct pipeline pipeline;
    train_begin(&train, 2, true);
    train_form(&train);
    struct wire_knob knob = {.ledger = 9, .from_step = 3, .name = "mask.rate", .value = "0.5"};
    head_say(train.peers[0], WIRE_KNOB, &knob);
    train_start(&train);
    head_until(&train.head, train_all_done, NULL, TRAIN_PATIENCE, "done");
    assert_int_equal(train.head.knob_used.ledger, 9);
    assert_int_equal(train.head.knob_used.step, 3);
    assert_string_equal(train.head.knob_used.value, "0.5");
    train.head.knob_used.step = 0;
    head_say(train.peers[0], WIRE_KNOB, &knob); /* said again: the same answer, and nothing changes */
    head_for(&train.head, 100 * CLOCK_MS);
    assert_int_equal(train.head.knob_used.step, 3);
    train_stop(&train);
    backend_open(&backend, 1);
    pipeline_init(&pipeline, &backend, &train.profile, train.layers);
    pipeline_evaluate(&pipeline, 0);
    for (int step = 1; step <= TRAIN_STEPS; step++) {
        pipeline.profile.mask_rate = step < 3 ? 0.75 : 0.5;
        train_same_number(train.peers[0]->loss[step], pipeline_train(&pipeline, (uint64_t)step).loss, "loss", step);
    }
    pipeline_clear(&pipeline);
    backend_close(&backend);
    train_end(&train);
}

/* ---- numbers that are not finite ---- */

/* The fresh model of the profile as a Hugging Face folder, with one weight that is not a number. */
static void write_broken_model(struct train *train, char folder[PROFILE_TEXT])
{
    struct backend backend;
    struct pipeline pipeline;
    struct buf head, body;
    train->profile.stages = 1;
    backend_open(&backend, 1);
    pipeline_init(&pipeline, &backend, &train->profile, (const int64_t[]){4});
    train->profile.stages = train->stages;
    buf_init(&head, 1 << 16);
    buf_init(&body, 1 << 24);
    buf_put(&head, "00000000{", 9);
    for (int i = 0; i < stage_tensor_count(pipeline.stage[0]); i++) {
        struct tensor_info info;
        stage_tensor(pipeline.stage[0], i, &info);
        size_t count = (size_t)(info.shape[0] * (info.dims > 1 ? info.shape[1] : 1)), at = buf_used(&body);
        float *values = mem_array(count, sizeof *values);
        stage_tensor_get(pipeline.stage[0], i, values, false);
        if (strcmp(info.name, "model.layers.2.mlp.down_proj.weight") == 0)
            values[3] = NAN;
        buf_put(&body, values, count * sizeof *values);
        mem_free(values);
        buf_format(&head, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%ld", i ? "," : "", info.name, (long)info.shape[0]);
        buf_format(&head, info.dims > 1 ? ",%ld]" : "]", (long)info.shape[1]);
        buf_format(&head, ",\"data_offsets\":[%zu,%zu]}", at, buf_used(&body));
    }
    buf_put(&head, "}", 1);
    uint64_t length = buf_used(&head) - 8;
    memcpy(head.data, &length, 8);
    struct buf file;
    buf_init(&file, 1 << 25);
    buf_put(&file, buf_peek(&head), buf_used(&head));
    buf_put(&file, buf_peek(&body), buf_used(&body));
    assert_int_equal(file_make_folders(place_file(&train->head.place, "model"), 0700, NULL), 0);
    snprintf(folder, PROFILE_TEXT, "%.200s/model", train->head.place.folder);
    assert_int_equal(
        file_write(place_file(&train->head.place, "model/model.safetensors"), buf_peek(&file), buf_used(&file), 0600, NULL),
        0);
    static const char config[] =
        "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":32,\"num_hidden_layers\":4,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":48,\"vocab_size\":256,"
        "\"rope_theta\":10000.0,\"rms_norm_eps\":1e-05,\"tie_word_embeddings\":false,\"hidden_act\":\"silu\"}";
    assert_int_equal(file_write(place_file(&train->head.place, "model/config.json"), config, sizeof config - 1, 0600, NULL),
                     0);
    buf_clear(&head);
    buf_clear(&body);
    buf_clear(&file);
    pipeline_clear(&pipeline);
    backend_close(&backend);
}

static bool frozen(struct head *head, void *arg)
{
    (void)arg;
    return head_event(head, "r0s0", "frozen") != NULL;
}

static bool went_on(struct head *head, void *arg)
{
    (void)arg;
    return head_find(head, "r0s1")->newest.step > 3;
}

static void what_is_not_finite_is_never_applied(void **state)
{
    (void)state;
    struct train train;
    char folder[PROFILE_TEXT];
    train_begin(&train, 2, true);
    write_broken_model(&train, folder);
    memcpy(train.profile.model_path, folder, sizeof folder);
    train.profile.norm_epsilon = 1e-5;
    train.profile.steps = 20;
    train_form(&train);
    train_start(&train);
    head_until(&train.head, frozen, NULL, TRAIN_PATIENCE, "frozen");
    head_for(&train.head, 200 * CLOCK_MS);
    int bad = 0;
    for (int i = 0; i < train.head.event_count; i++)
        bad += strcmp(train.head.events[i].event.code, "non-finite") == 0;
    assert_int_equal(bad, 3); /* one alert a step, and no fourth step */
    assert_true(isnan(train.peers[0]->loss[1]));
    assert_int_equal(train.peers[1]->newest.step, 3);
    assert_int_equal(train.peers[1]->newest.skipped, 2); /* the third waits for the next stamp */
    train_start(&train);                                 /* people may go on */
    head_until(&train.head, went_on, NULL, TRAIN_PATIENCE, "step 4");
    train_stop(&train);
    train_end(&train);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_stage_is_the_pipeline),
        cmocka_unit_test(two_stages_over_tls_are_the_pipeline),
        cmocka_unit_test(three_stages_are_the_pipeline_whatever_the_road),
        cmocka_unit_test(a_tied_head_is_one_table_on_two_stages),
        cmocka_unit_test(adapters_are_trained_on_two_stages),
        cmocka_unit_test(two_runs_have_the_same_bits),
        cmocka_unit_test(a_knob_acts_from_its_step_on),
        cmocka_unit_test(what_is_not_finite_is_never_applied),
    };
    head_program(); /* or skip */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
