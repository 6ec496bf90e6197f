#include "tests/helpers/train.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "ssh/base/file.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/pipeline.h"

static void write_text(const char *path)
{
    static const char *const words[] = {"the ",      "anchor ", "is ",        "carried ", "ahead, ",
                                        "dropped, ", "and ",    "the ship\n", "hauls ",   "on it. "};
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
    profile->steps = TRAIN_STEPS;
    profile->timeout_ns = TRAIN_TIMEOUT;
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

bool train_all_ready(struct head *head, void *arg)
{
    int state = *(int *)arg;
    for (int i = 0; i < head->peer_count; i++)
        if (head->peers[i].ready < state)
            return false;
    return true;
}

bool train_all_connected(struct head *head, void *arg)
{
    (void)arg;
    for (int i = 0; i < head->peer_count; i++)
        if (!head->peers[i].link)
            return false;
    return true;
}

bool train_all_done(struct head *head, void *arg)
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

bool train_all_gone(struct head *head, void *arg)
{
    (void)arg;
    for (int i = 0; i < head->peer_count; i++)
        if (head->peers[i].pid > 0)
            return false;
    return true;
}

bool train_step_sampled(struct head *head, void *arg)
{
    return !isnan(head_find(head, "r0s0")->loss[*(uint64_t *)arg]);
}

void train_assign(struct train *train, int stage)
{
    struct buf settings;
    buf_init(&settings, PROFILE_SETTINGS_BYTES);
    assert_int_equal(profile_to_settings(&train->profile, &settings, NULL), 0);
    struct wire_assign message = {.replicas = 1,
                                  .stage = (uint16_t)stage,
                                  .stages = (uint16_t)train->stages,
                                  .threads = 1,
                                  .first_step = 1,
                                  .layers = (uint16_t)train->layers[stage],
                                  .in_flight = (uint16_t)train->in_flight};
    for (int i = 0; i < stage; i++)
        message.first_layer = (uint16_t)(message.first_layer + train->layers[i]);
    message.settings = (struct wire_bytes){buf_peek(&settings), (uint32_t)buf_used(&settings)};
    head_say(train->peers[stage], WIRE_ASSIGN, &message);
    buf_clear(&settings);
}

static void train_tell_road(struct train *train, int boundary)
{
    struct head_peer *from = train->peers[boundary], *to = train->peers[boundary + 1];
    struct wire_road dial = {.dial = 1, .side = ROAD_DOWNSTREAM}, wait = {.dial = 0, .side = ROAD_UPSTREAM};
    memcpy(dial.peer, to->name, sizeof dial.peer);
    memcpy(dial.address, to->hello.announce, sizeof dial.address);
    memcpy(wait.peer, from->name, sizeof wait.peer);
    head_say(from, WIRE_ROAD, &dial); /* the dialler first: it may come before the other knows of it */
    head_say(to, WIRE_ROAD, &wait);
}

void train_form(struct train *train)
{
    int loaded = READY_LOADED, roads = READY_ROADS;
    for (int i = 0; i < train->stages; i++) {
        char name[16];
        snprintf(name, sizeof name, "r0s%d", i);
        train->peers[i] = head_start_stage(&train->head, name, i % 2 ? "b" : "a");
    }
    head_until(&train->head, train_all_connected, NULL, TRAIN_PATIENCE, "hello");
    for (int i = 0; i < train->stages; i++)
        train_assign(train, i);
    head_until(&train->head, train_all_ready, &loaded, TRAIN_PATIENCE, "loaded");
    for (int i = 0; i + 1 < train->stages; i++)
        train_tell_road(train, i);
    head_until(&train->head, train_all_ready, &roads, TRAIN_PATIENCE, "roads");
}

void train_begin(struct train *train, int stages, bool plain)
{
    static const int64_t split[4][3] = {{0}, {4}, {2, 2}, {1, 2, 1}};
    *train = (struct train){.stages = stages, .in_flight = 3};
    head_begin(&train->head, TRAIN_TIMEOUT, plain);
    make_profile(&train->profile, stages, plain);
    write_text(place_file(&train->head.place, "text"));
    snprintf(train->profile.data_paths, sizeof train->profile.data_paths, "%s", train->head.place.path);
    memcpy(train->layers, split[stages], sizeof split[stages]);
}

void train_start(struct train *train)
{
    struct wire_start message = {.first_step = 1, .last_step = (uint64_t)train->profile.steps + 1};
    for (int i = 0; i < train->stages; i++)
        if (train->peers[i]->link)
            head_say(train->peers[i], WIRE_START, &message);
}

void train_stop(struct train *train)
{
    head_stop(&train->head, 5000);
    head_until(&train->head, train_all_gone, NULL, 10 * CLOCK_SECOND, "the end after STOP");
    for (int i = 0; i < train->stages; i++)
        if (WIFEXITED(train->peers[i]->status))
            assert_int_equal(WEXITSTATUS(train->peers[i]->status), 0);
}

void train_run(struct train *train)
{
    train_form(train);
    train_start(train);
    head_until(&train->head, train_all_done, NULL, TRAIN_PATIENCE, "done");
}

void train_end(struct train *train)
{
    head_end(&train->head);
}

void train_same_number(double a, double b, const char *what, int step)
{
    if (memcmp(&a, &b, sizeof a) != 0)
        fail_msg("%s of step %d: %.17g is not %.17g", what, step, a, b);
}

void train_as_pipeline(struct train *train)
{
    struct backend backend;
    struct pipeline pipeline;
    struct pipeline_step steps[TRAIN_STEPS];
    double validation[TRAIN_STEPS + 1];
    backend_open(&backend, 1);
    pipeline_init(&pipeline, &backend, &train->profile, train->layers);
    pipeline_run(&pipeline, steps, validation);
    const struct head_peer *first = train->peers[0], *last = train->peers[train->stages - 1];
    for (int i = 0; i < TRAIN_STEPS; i++) {
        assert_true(isfinite(steps[i].loss));
        train_same_number(first->loss[i + 1], steps[i].loss, "loss", i + 1);
        train_same_number(last->loss[i + 1], steps[i].loss, "loss at the last stage", i + 1);
        train_same_number(first->norm[i + 1], steps[i].norm, "norm", i + 1);
    }
    assert_true(steps[TRAIN_STEPS - 1].loss < steps[0].loss);
    const int evaluated[] = {0, 2, 4, 5};
    for (int i = 0; i < 4; i++)
        train_same_number(last->validation[evaluated[i]], validation[i], "validation loss", evaluated[i]);
    pipeline_clear(&pipeline);
    backend_close(&backend);
}
