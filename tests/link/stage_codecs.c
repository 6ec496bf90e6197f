/*
 * Codecs with statistics between real stages: measured, shipped and switched as in one thread (tests/helpers/pipeline.h),
 * bit for bit;
 * what is too old is not used, and says so.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/helpers/pipeline.h"
#include "tests/helpers/train.h"

static void begin(struct train *train, int stages, int codec, int reference)
{
    train_begin(train, stages, true);
    train->profile.codec = codec;
    train->profile.reference = reference;
    train->profile.refresh = 2; /* measured in step 3, used in step 5 */
    train->profile.late = 2;
    train->profile.calibrate = 3;
}

static void run(struct train *train)
{
    train_run(train);
    train_stop(train);
    train_as_pipeline(train);
    train_end(train);
}

static void subspace_on_tokens_is_the_pipeline(void **state)
{
    (void)state;
    struct train train;
    begin(&train, 3, CODEC_SUBSPACE, REFERENCE_TOKENS);
    train.profile.slow_delay_ns = 2 * CLOCK_MS;
    train.profile.slow_jitter_ns = 3 * CLOCK_MS;
    run(&train);
}

static void entropy_on_tokens_is_the_pipeline(void **state)
{
    (void)state;
    struct train train;
    begin(&train, 3, CODEC_ENTROPY, REFERENCE_TOKENS);
    train.profile.slow_delay_ns = 2 * CLOCK_MS;
    train.profile.slow_jitter_ns = 3 * CLOCK_MS;
    run(&train);
    begin(&train, 3, CODEC_ENTROPY, REFERENCE_MEAN);
    train.profile.rank = 6;
    run(&train);
}

static void a_limited_rank_is_the_pipeline(void **state)
{
    (void)state;
    struct train train;
    begin(&train, 2, CODEC_SUBSPACE, REFERENCE_TOKENS);
    train.profile.rank = 6;
    train.profile.calibrate = 9; /* more than micro-batches of a step */
    run(&train);
}

static void principal_and_hybrid_on_means_are_the_pipeline(void **state)
{
    (void)state;
    struct train train;
    begin(&train, 3, CODEC_PRINCIPAL, REFERENCE_MEAN);
    run(&train);
    begin(&train, 3, CODEC_HYBRID, REFERENCE_MEAN);
    run(&train);
}

static void mask_and_topk_on_tokens_are_the_pipeline(void **state)
{
    (void)state;
    struct train train;
    begin(&train, 3, CODEC_MASK, REFERENCE_TOKENS);
    train.profile.gain = GAIN_RMS;
    run(&train);
    begin(&train, 3, CODEC_MASK, REFERENCE_TOKENS);
    train.profile.decoding = DECODING_MMSE;
    train.profile.rank = 20;
    run(&train);
    begin(&train, 2, CODEC_TOPK, REFERENCE_TOKENS);
    run(&train);
}

static void more_than_one_version_may_wait(void **state)
{
    (void)state;
    struct train train;
    begin(&train, 3, CODEC_SUBSPACE, REFERENCE_NONE);
    train.profile.refresh = 1; /* 2 waits for 5 while 3 is measured */
    train.profile.late = 3;
    run(&train);
}

static const struct head_event *stale_event(const struct head *head)
{
    for (int i = 0; i < head->event_count; i++)
        if (strstr(head->events[i].event.text, "older than boundary.stale"))
            return &head->events[i];
    return NULL;
}

static void what_is_too_old_is_not_used(void **state)
{
    (void)state;
    struct train train;
    begin(&train, 2, CODEC_SUBSPACE, REFERENCE_TOKENS);
    train.profile.refresh = 100;
    train.profile.stale = 2;
    train_run(&train);
    const struct head_event *said = stale_event(&train.head);
    assert_non_null(said);
    assert_int_equal(said->event.step, 4); /* version 1, stale after step 3 */
    train_stop(&train);
    train_as_pipeline(&train);
    train_end(&train);
}

static void a_rate_changes_while_it_runs(void **state)
{
    (void)state;
    struct train train;
    struct backend backend;
    struct pipeline pipeline;
    begin(&train, 2, CODEC_SUBSPACE, REFERENCE_TOKENS);
    train_form(&train);
    struct wire_knob knob = {.ledger = 9, .from_step = 3, .name = "mask.rate", .value = "0.5"};
    head_say(train.peers[0], WIRE_KNOB, &knob);
    train_start(&train);
    head_until(&train.head, train_all_done, NULL, TRAIN_PATIENCE, "done");
    train_stop(&train);
    backend_open(&backend, 1);
    pipeline_init(&pipeline, &backend, &train.profile, train.layers);
    pipeline_calibrate(&pipeline);
    for (int step = 1; step <= TRAIN_STEPS; step++) {
        pipeline.profile.mask_rate = step < 3 ? 0.75 : 0.5;
        train_same_number(train.peers[0]->loss[step], pipeline_train(&pipeline, (uint64_t)step).loss, "loss", step);
    }
    pipeline_clear(&pipeline);
    backend_close(&backend);
    train_end(&train);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(subspace_on_tokens_is_the_pipeline),
        cmocka_unit_test(entropy_on_tokens_is_the_pipeline),
        cmocka_unit_test(a_limited_rank_is_the_pipeline),
        cmocka_unit_test(principal_and_hybrid_on_means_are_the_pipeline),
        cmocka_unit_test(mask_and_topk_on_tokens_are_the_pipeline),
        cmocka_unit_test(more_than_one_version_may_wait),
        cmocka_unit_test(what_is_too_old_is_not_used),
        cmocka_unit_test(a_rate_changes_while_it_runs),
    };
    head_program(); /* or skip */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
