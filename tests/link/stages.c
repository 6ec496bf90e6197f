/*
 * Real stages as processes, driven by a kedged of a few lines (tests/helpers/head.h): what they compute is what one thread computes
 * (tests/helpers/pipeline.h), bit for bit, whatever the road and the depth; and what they do when a peer dies, kedged goes away,
 * an order comes, or numbers stop being finite.
 */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/head.h"
#include "tests/helpers/pipeline.h"

#define STEPS 5
#define PATIENCE (60 * CLOCK_SECOND)
#define TIMEOUT (4 * CLOCK_SECOND)

struct train { /* one run of real processes */
    struct head head;
    struct profile profile;
    int stages, in_flight;
    int64_t layers[4];
    struct head_peer *peers[4];
};

static void write_text(const char *path)
{
    static const char *const words[] = {"the ", "anchor ", "is ", "carried ", "ahead, ", "dropped, ", "and ", "the ship\n", "hauls ", "on it. "};
    struct dice dice = {7};
    struct buf text;
    buf_init(&text, 1 << 20);
    for (int i = 0; i < 4000; i++)
        buf_format(&text, "%s", words[dice_below(&dice, sizeof words / sizeof *words)]);
    assert_int_equal(file_write(path, buf_peek(&text), buf_used(&text), 0600, NULL), 0);
    buf_clear(&text);
}

static void make_profile(struct profile *profile, int stages, bool plain)
{
    profile_defaults(profile);
    profile->seed = 11;
    profile->steps = STEPS;
    profile->timeout_ns = TIMEOUT;
    profile->hidden = 32;
    profile->layers = 4;
    profile->heads = 4;
    profile->kv_heads = 2;
    profile->ffn = 48;
    profile->vocabulary = 256;
    profile->validation_windows = 5;
    profile->sequence = 24;
    profile->micro_batch = 2;
    profile->micro_batches = 6;
    profile->learning_rate = 0.01;
    profile->warmup = 2;
    profile->evaluate_every = 2;
    profile->stages = stages;
    profile->codec = CODEC_MASK;
    profile->values = VALUES_BF16;
    profile->gain = GAIN_ONE;
    profile->reference = REFERENCE_MEAN;
    profile->refresh = 2;
    profile->debug_checksum = true;
    profile->mask_rate = 0.75;
    profile->security = plain ? SECURITY_PLAIN : SECURITY_TLS;
}

/* ---- driving ---- */

static bool all_ready(struct head *head, void *arg)
{
    int state = *(int *)arg;
    for (int i = 0; i < head->peer_count; i++)
        if (head->peers[i].ready < state)
            return false;
    return true;
}

static bool all_connected(struct head *head, void *arg)
{
    (void)arg;
    for (int i = 0; i < head->peer_count; i++)
        if (!head->peers[i].link)
            return false;
    return true;
}

/* In a run that should succeed: an alert is the end of hope. */
static bool all_done(struct head *head, void *arg)
{
    (void)arg;
    for (int i = 0; i < head->event_count; i++)
        if (head->events[i].event.level == EVENT_ALERT) {
            head_show_logs(head);
            fail_msg("%s: %s", head->events[i].from, head->events[i].event.text);
        }
    for (int i = 0; i < head->peer_count; i++)
        if (!head->peers[i].done)
            return false;
    return true;
}

static bool all_gone(struct head *head, void *arg)
{
    (void)arg;
    for (int i = 0; i < head->peer_count; i++)
        if (head->peers[i].pid > 0)
            return false;
    return true;
}

static bool step_sampled(struct head *head, void *arg)
{
    return !isnan(head_find(head, "r0s0")->loss[*(uint64_t *)arg]);
}

static void assign(struct train *train, int stage)
{
    struct buf settings;
    buf_init(&settings, PROFILE_SETTINGS_BYTES);
    assert_int_equal(profile_to_settings(&train->profile, &settings, NULL), 0);
    struct wire_assign message = {.stage = (uint16_t)stage, .stages = (uint16_t)train->stages, .threads = 1, .first_step = 1,
                                  .layers = (uint16_t)train->layers[stage], .in_flight = (uint16_t)train->in_flight};
    for (int i = 0; i < stage; i++)
        message.first_layer = (uint16_t)(message.first_layer + train->layers[i]);
    message.settings = (struct wire_bytes){buf_peek(&settings), (uint32_t)buf_used(&settings)};
    head_say(train->peers[stage], WIRE_ASSIGN, &message);
    buf_clear(&settings);
}

static void tell_road(struct train *train, int boundary)
{
    struct head_peer *from = train->peers[boundary], *to = train->peers[boundary + 1];
    struct wire_road dial = {.dial = 1, .boundary_side = 1}, wait = {.dial = 0, .boundary_side = 0};
    memcpy(dial.peer, to->name, sizeof dial.peer);
    memcpy(dial.address, to->hello.announce, sizeof dial.address);
    memcpy(wait.peer, from->name, sizeof wait.peer);
    head_say(from, WIRE_ROAD, &dial); /* the dialler first: it may come before the other knows of it */
    head_say(to, WIRE_ROAD, &wait);
}

static void form(struct train *train)
{
    int loaded = READY_LOADED, roads = READY_ROADS;
    for (int i = 0; i < train->stages; i++) {
        char name[16];
        snprintf(name, sizeof name, "r0s%d", i);
        train->peers[i] = head_start_stage(&train->head, name, i % 2 ? "b" : "a");
    }
    head_until(&train->head, all_connected, NULL, PATIENCE, "hello");
    for (int i = 0; i < train->stages; i++)
        assign(train, i);
    head_until(&train->head, all_ready, &loaded, PATIENCE, "loaded");
    for (int i = 0; i + 1 < train->stages; i++)
        tell_road(train, i);
    head_until(&train->head, all_ready, &roads, PATIENCE, "roads");
}

static void train_begin(struct train *train, int stages, bool plain)
{
    static const int64_t split[4][3] = {{0}, {4}, {2, 2}, {1, 2, 1}};
    *train = (struct train){.stages = stages, .in_flight = 3};
    head_begin(&train->head, TIMEOUT, plain);
    make_profile(&train->profile, stages, plain);
    write_text(place_file(&train->head.place, "text"));
    snprintf(train->profile.data_paths, sizeof train->profile.data_paths, "%s", train->head.place.path);
    memcpy(train->layers, split[stages], sizeof split[stages]);
}

static void start(struct train *train)
{
    struct wire_start message = {.first_step = 1, .last_step = (uint64_t)train->profile.steps + 1};
    for (int i = 0; i < train->stages; i++)
        if (train->peers[i]->link)
            head_say(train->peers[i], WIRE_START, &message);
}

/* STOP, and all processes end by themselves, with code 0. */
static void train_stop(struct train *train)
{
    head_stop(&train->head, 5000);
    head_until(&train->head, all_gone, NULL, 10 * CLOCK_SECOND, "the end after STOP");
    for (int i = 0; i < train->stages; i++)
        if (WIFEXITED(train->peers[i]->status))
            assert_int_equal(WEXITSTATUS(train->peers[i]->status), 0);
}

static void train_run(struct train *train)
{
    form(train);
    start(train);
    head_until(&train->head, all_done, NULL, PATIENCE, "done");
}

static void train_end(struct train *train)
{
    head_end(&train->head);
}

static void assert_same_number(double a, double b, const char *what, int step)
{
    if (memcmp(&a, &b, sizeof a) != 0)
        fail_msg("%s of step %d: %.17g is not %.17g", what, step, a, b);
}

/* After the processes have ended: while this computes, nobody turns the loop. */
static void assert_as_pipeline(struct train *train)
{
    struct backend backend;
    struct pipeline pipeline;
    struct pipeline_step steps[STEPS];
    double validation[STEPS + 1];
    backend_open(&backend, 1);
    pipeline_init(&pipeline, &backend, &train->profile, train->layers);
    pipeline_run(&pipeline, steps, validation);
    const struct head_peer *first = train->peers[0], *last = train->peers[train->stages - 1];
    for (int i = 0; i < STEPS; i++) {
        assert_true(isfinite(steps[i].loss));
        assert_same_number(first->loss[i + 1], steps[i].loss, "loss", i + 1);
        assert_same_number(last->loss[i + 1], steps[i].loss, "loss at the last stage", i + 1);
        assert_same_number(first->norm[i + 1], steps[i].norm, "norm", i + 1);
    }
    assert_true(steps[STEPS - 1].loss < steps[0].loss);
    const int evaluated[] = {0, 2, 4, 5};
    for (int i = 0; i < 4; i++)
        assert_same_number(last->validation[evaluated[i]], validation[i], "validation loss", evaluated[i]);
    pipeline_clear(&pipeline);
    backend_close(&backend);
}

/* ---- numbers ---- */

static void one_stage_is_the_pipeline(void **state)
{
    (void)state;
    struct train train;
    train_begin(&train, 1, true);
    train_run(&train);
    train_stop(&train);
    assert_as_pipeline(&train);
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
    assert_as_pipeline(&train);
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
    assert_as_pipeline(&train);
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
        assert_as_pipeline(&train);
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
    for (int i = 0; i < STEPS; i++)
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
    double one[STEPS], other[STEPS];
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
    form(&train);
    struct wire_knob knob = {.ledger = 9, .from_step = 3, .name = "mask.rate", .value = "0.5"};
    head_say(train.peers[0], WIRE_KNOB, &knob);
    start(&train);
    head_until(&train.head, all_done, NULL, PATIENCE, "done");
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
    for (int step = 1; step <= STEPS; step++) {
        pipeline.profile.mask_rate = step < 3 ? 0.75 : 0.5;
        assert_same_number(train.peers[0]->loss[step], pipeline_train(&pipeline, (uint64_t)step).loss, "loss", step);
    }
    pipeline_clear(&pipeline);
    backend_close(&backend);
    train_end(&train);
}

/* ---- life ---- */

static void hold_and_start_change_nothing(void **state)
{
    (void)state;
    struct train train;
    train_begin(&train, 2, true);
    form(&train);
    start(&train);
    uint64_t first = 1;
    head_until(&train.head, step_sampled, &first, PATIENCE, "step 1");
    for (int i = 0; i < 2; i++)
        head_say(train.peers[i], WIRE_HOLD, &(struct wire_hold){.reason = "pause"});
    head_for(&train.head, 300 * CLOCK_MS);
    int samples = train.peers[0]->samples;
    assert_false(all_done(&train.head, NULL));
    head_for(&train.head, 300 * CLOCK_MS);
    assert_int_equal(train.peers[0]->samples, samples); /* it stands */
    start(&train);
    head_until(&train.head, all_done, NULL, PATIENCE, "done");
    train_stop(&train);
    assert_as_pipeline(&train);
    train_end(&train);
}

struct loss_news {
    const char *one, *other;
};

static bool neighbours_told(struct head *head, void *arg)
{
    const struct loss_news *news = arg;
    return head_event(head, news->one, "peer-lost") && head_event(head, news->other, "peer-lost");
}

static void a_killed_stage_is_told_by_its_neighbours(void **state)
{
    (void)state;
    struct train train;
    struct loss_news news = {"r0s0", "r0s2"};
    train_begin(&train, 3, false);
    train.profile.steps = 50;
    train.profile.slow_delay_ns = 20 * CLOCK_MS; /* so that it is in the middle of something */
    form(&train);
    start(&train);
    uint64_t second = 2;
    head_until(&train.head, step_sampled, &second, PATIENCE, "step 2");
    uint64_t killed_ns = clock_now_ns();
    kill(train.peers[1]->pid, SIGKILL);
    head_until(&train.head, neighbours_told, &news, 2 * train.head.timeouts.heartbeat_ns, "peer-lost within two heartbeats");
    const struct head_event *told = head_event(&train.head, "r0s0", "peer-lost");
    assert_int_equal(told->event.level, EVENT_ALERT);
    assert_non_null(strstr(told->event.text, "lost r0s1: "));
    assert_true(told->at_ns - killed_ns < 2 * train.head.timeouts.heartbeat_ns);
    int samples = train.peers[0]->samples;
    head_for(&train.head, 300 * CLOCK_MS);
    assert_int_equal(train.peers[0]->samples, samples); /* idle, not dead */
    assert_true(train.peers[0]->pid > 0 && train.peers[2]->pid > 0);
    start(&train); /* it cannot go on, and says so */
    head_for(&train.head, 200 * CLOCK_MS);
    assert_non_null(strstr(train.head.events[train.head.event_count - 1].event.text, "cannot go on"));
    train_stop(&train);
    assert_true(WIFSIGNALED(train.peers[1]->status));
    train_end(&train);
}

static void kedged_may_go_away(void **state)
{
    (void)state;
    struct train train;
    train_begin(&train, 2, true);
    train.profile.steps = 30;
    train.profile.slow_delay_ns = 5 * CLOCK_MS;
    form(&train);
    start(&train);
    uint64_t first = 1;
    head_until(&train.head, step_sampled, &first, PATIENCE, "step 1");
    train.head.deaf = true;
    for (int i = 0; i < 2; i++) {
        link_free(train.peers[i]->link);
        train.peers[i]->link = NULL;
        train.peers[i]->ready = 0;
    }
    head_for(&train.head, 500 * CLOCK_MS);
    train.head.deaf = false;
    int roads = READY_ROADS;
    head_until(&train.head, all_connected, NULL, PATIENCE, "hello again");
    head_until(&train.head, all_ready, &roads, PATIENCE, "ready again");
    assert_int_equal(train.peers[0]->hellos, 2);
    assert_true(train.peers[0]->hello.profile_hash == profile_hash(&train.profile));
    start(&train); /* a kedged that comes back says it again */
    head_until(&train.head, all_done, NULL, PATIENCE, "done");
    assert_int_equal(train.head.event_count, 0);
    train_stop(&train);
    train_end(&train);
}

static void stop_is_obeyed_in_the_middle_of_a_step(void **state)
{
    (void)state;
    struct train train;
    train_begin(&train, 2, true);
    train.profile.steps = 60;
    train.profile.slow_delay_ns = 100 * CLOCK_MS;
    form(&train);
    start(&train);
    head_for(&train.head, 300 * CLOCK_MS);
    uint64_t asked_ns = clock_now_ns();
    train_stop(&train);
    assert_true(clock_now_ns() - asked_ns < 4 * CLOCK_SECOND);
    for (int i = 0; i < 2; i++)
        assert_true(train.peers[i]->said_bye);
    train_end(&train);
}

static void a_stage_that_cannot_load_says_why(void **state)
{
    (void)state;
    struct train train;
    train_begin(&train, 1, true);
    snprintf(train.profile.data_paths, sizeof train.profile.data_paths, "%s/absent", train.head.place.folder);
    train.peers[0] = head_start_stage(&train.head, "r0s0", "a");
    head_until(&train.head, all_connected, NULL, PATIENCE, "hello");
    assign(&train, 0);
    head_until(&train.head, all_gone, NULL, PATIENCE, "the end");
    assert_true(WIFEXITED(train.peers[0]->status) && WEXITSTATUS(train.peers[0]->status) != 0);
    uint8_t *log;
    size_t bytes;
    assert_int_equal(file_read(place_file(&train.head.place, "log/r0s0.log"), 1 << 20, &log, &bytes, NULL), 0);
    assert_non_null(strstr((char *)log, "absent"));
    mem_free(log);
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
    assert_int_equal(file_write(place_file(&train->head.place, "model/model.safetensors"), buf_peek(&file), buf_used(&file), 0600, NULL), 0);
    static const char config[] = "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":32,\"num_hidden_layers\":4,"
                                 "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":48,\"vocab_size\":256,"
                                 "\"rope_theta\":10000.0,\"rms_norm_eps\":1e-05,\"tie_word_embeddings\":false,\"hidden_act\":\"silu\"}";
    assert_int_equal(file_write(place_file(&train->head.place, "model/config.json"), config, sizeof config - 1, 0600, NULL), 0);
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
    form(&train);
    start(&train);
    head_until(&train.head, frozen, NULL, PATIENCE, "frozen");
    head_for(&train.head, 200 * CLOCK_MS);
    int bad = 0;
    for (int i = 0; i < train.head.event_count; i++)
        bad += strcmp(train.head.events[i].event.code, "non-finite") == 0;
    assert_int_equal(bad, 3); /* one alert a step, and no fourth step */
    assert_true(isnan(train.peers[0]->loss[1]));
    assert_int_equal(train.peers[1]->newest.step, 3);
    assert_int_equal(train.peers[1]->newest.skipped, 2); /* the third waits for the next stamp */
    start(&train); /* people may go on */
    head_until(&train.head, went_on, NULL, PATIENCE, "step 4");
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
        cmocka_unit_test(two_runs_have_the_same_bits),
        cmocka_unit_test(a_knob_acts_from_its_step_on),
        cmocka_unit_test(hold_and_start_change_nothing),
        cmocka_unit_test(a_killed_stage_is_told_by_its_neighbours),
        cmocka_unit_test(kedged_may_go_away),
        cmocka_unit_test(stop_is_obeyed_in_the_middle_of_a_step),
        cmocka_unit_test(a_stage_that_cannot_load_says_why),
        cmocka_unit_test(what_is_not_finite_is_never_applied),
    };
    head_program(); /* or skip */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
