/*
 * A stage whose upstream neighbour is not to be trusted: the test speaks for r0s0. Whatever it sends, the stage says in one line what
 * is wrong with it, computes nothing from it, stays alive and obeys STOP.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "ssh/base/mem.h"
#include "tests/helpers/train.h"

enum { KEEP = 8, ROWS = 48, IDS = 50, CODED = ROWS * KEEP * 2 }; /* of the profile of train.c: bf16, 8 of 32 channels */

struct foe {
    struct train train;
    struct link *link;
    bool up, down;
    char reason[1200];
};

static int on_up(struct link *link, const struct wire_hello *peer, void *arg, struct why *why)
{
    struct foe *foe = arg;
    (void)link, (void)peer, (void)why;
    foe->up = true;
    return 0;
}

static void on_down(struct link *link, int err, const char *reason, void *arg)
{
    struct foe *foe = arg;
    (void)err;
    foe->down = true;
    snprintf(foe->reason, sizeof foe->reason, "%s", reason);
    link_free(link);
    foe->link = NULL;
}

static bool road_up(struct head *head, void *arg)
{
    const struct foe *foe = arg;
    return foe->up && head_find(head, "r0s1")->ready == READY_ROADS;
}

static bool road_down(struct head *head, void *arg)
{
    const struct foe *foe = arg;
    (void)head;
    return foe->down;
}

static void dial(struct foe *foe, const char *name, uint64_t profile_hash)
{
    static const struct link_callbacks callbacks = {.up = on_up, .down = on_down};
    struct head *head = &foe->train.head;
    struct why why = {0};
    struct road *road = road_tcp_dial(head->loop, head_find(head, "r0s1")->hello.announce, &why);
    assert_non_null(road);
    struct link_settings settings = {.run_id = head->run_id,
                                     .incarnation = 1,
                                     .heartbeat_ns = head->timeouts.heartbeat_ns,
                                     .silent_ns = head->timeouts.silent_ns,
                                     .greet_ns = head->timeouts.greet_ns};
    settings.hello = (struct wire_hello){.version = WIRE_VERSION, .role = ROLE_STAGE, .program = "foe", .host = "a"};
    settings.hello.pid = (uint32_t)getpid();
    settings.hello.profile_hash = profile_hash;
    snprintf(settings.hello.name, sizeof settings.hello.name, "%s", name);
    foe->up = foe->down = false;
    foe->link = link_new(head->loop, road, &settings, &callbacks, foe);
}

/* A stage that is loaded and waits for r0s0. */
static void foe_begin(struct foe *foe)
{
    int loaded = READY_LOADED;
    *foe = (struct foe){0};
    train_begin(&foe->train, 2, true);
    foe->train.profile.vocabulary = 200; /* token ids of one byte can be too large */
    foe->train.peers[1] = head_start_stage(&foe->train.head, "r0s1", "b");
    head_until(&foe->train.head, train_all_connected, NULL, TRAIN_PATIENCE, "hello");
    train_assign(&foe->train, 1);
    head_until(&foe->train.head, train_all_ready, &loaded, TRAIN_PATIENCE, "loaded");
    head_say(foe->train.peers[1], WIRE_ROAD, &(struct wire_road){.peer = "r0s0"});
}

static void foe_dial(struct foe *foe)
{
    dial(foe, "r0s0", profile_hash(&foe->train.profile));
    head_until(&foe->train.head, road_up, foe, TRAIN_PATIENCE, "the road");
}

static void foe_end(struct foe *foe)
{
    head_stop(&foe->train.head, 5000);
    head_until(&foe->train.head, train_all_gone, NULL, TRAIN_PATIENCE, "the end after STOP");
    assert_int_equal(foe->train.peers[1]->status, 0);
    link_free(foe->link);
    train_end(&foe->train);
}

static void send(struct foe *foe, enum wire_type type, const void *message, uint64_t step, uint32_t micro_batch)
{
    assert_int_equal(link_send(foe->link, type, message, step, micro_batch), 0);
}

static const struct wire_stamp good_stamp = {.kind = STAMP_TRAIN, .micro_batches = 6, .keep = KEEP, .learning_rate = 1e-3f};

static void send_marked(struct foe *foe, uint32_t bytes, uint8_t marks)
{
    uint8_t *body = mem_new(bytes);
    struct wire_act act = {.sequences = 2, .tokens = 24, .id_bytes = 1, .marks = marks, .body = {body, bytes}};
    send(foe, WIRE_ACT, &act, 1, 0);
    mem_free(body);
}

static void send_act(struct foe *foe, uint32_t bytes, uint8_t id, uint32_t checksum)
{
    uint8_t *body = mem_new(bytes);
    memset(body, id, IDS);
    struct wire_act act = {.sequences = 2, .tokens = 24, .id_bytes = 1, .mask_checksum = checksum, .body = {body, bytes}};
    send(foe, WIRE_ACT, &act, 1, 0);
    mem_free(body);
}

static bool halted(struct head *head, void *arg)
{
    (void)arg;
    return head_event(head, "r0s1", "drift") != NULL;
}

/* ---- what it sends ---- */

static void act_before_stamp(struct foe *foe)
{
    send_act(foe, IDS + CODED, 1, 0);
}

static void stamp_of_another_profile(struct foe *foe)
{
    struct wire_stamp stamp = good_stamp;
    stamp.micro_batches = 60000;
    send(foe, WIRE_STAMP, &stamp, 1, 0);
}

static void stamp_that_applies_nothing(struct foe *foe)
{
    struct wire_stamp stamp = good_stamp;
    stamp.apply = 1;
    send(foe, WIRE_STAMP, &stamp, 1, 0);
}

static void stamp_with_a_version_nobody_has(struct foe *foe)
{
    struct wire_stamp stamp = good_stamp;
    stamp.codec_version = 77;
    send(foe, WIRE_STAMP, &stamp, 1, 0);
}

static void two_stamps(struct foe *foe)
{
    struct wire_stamp stamp = good_stamp;
    send(foe, WIRE_STAMP, &stamp, 1, 0);
    send(foe, WIRE_STAMP, &stamp, 2, 0);
    send(foe, WIRE_STAMP, &stamp, 3, 0);
}

static void act_of_the_wrong_size(struct foe *foe)
{
    send(foe, WIRE_STAMP, &good_stamp, 1, 0);
    send_act(foe, IDS + CODED - 1, 1, 0);
}

static void act_without_the_marks_it_speaks_of(struct foe *foe)
{
    send(foe, WIRE_STAMP, &good_stamp, 1, 0);
    send_marked(foe, IDS + CODED, 1);
}

static void act_with_an_id_beyond_the_vocabulary(struct foe *foe)
{
    send(foe, WIRE_STAMP, &good_stamp, 1, 0);
    send_act(foe, IDS + CODED, 200, 0);
}

static void act_with_another_mask(struct foe *foe)
{
    send(foe, WIRE_STAMP, &good_stamp, 1, 0);
    send_act(foe, IDS + CODED, 1, 0xbad);
}

static void codec_state_of_another_boundary(struct foe *foe)
{
    uint8_t body[64] = {0};
    send(foe, WIRE_CODEC_STATE, &(struct wire_codec_state){.boundary = 5, .version = 1, .body = {body, sizeof body}}, 1, 0);
}

static void codec_state_of_another_size(struct foe *foe)
{
    uint8_t body[62] = {0};
    send(foe, WIRE_CODEC_STATE, &(struct wire_codec_state){.boundary = 0, .version = 1, .body = {body, sizeof body}}, 1, 0);
}

static void codec_state_that_is_not_finite(struct foe *foe)
{
    uint8_t body[64];
    memset(body, 0xff, sizeof body);
    send(foe, WIRE_CODEC_STATE, &(struct wire_codec_state){.boundary = 0, .version = 1, .body = {body, sizeof body}}, 1, 0);
}

static void calibration_of_a_codec_without(struct foe *foe)
{
    struct wire_stamp stamp = {.kind = STAMP_CALIBRATE, .micro_batches = 4};
    send(foe, WIRE_STAMP, &stamp, 0, 0);
}

static void a_piece_of_a_table_that_is_not_tied(struct foe *foe)
{
    uint8_t body[64] = {0};
    send(foe, WIRE_TIED, &(struct wire_tied){.body = {body, sizeof body}}, 1, 0);
}

static void what_does_not_agree_is_named(void **state)
{
    (void)state;
    static const struct {
        void (*send)(struct foe *foe);
        const char *words;
    } cases[] = {
        {act_before_stamp, "the activations of step 1, micro-batch 0, came from r0s0"},
        {stamp_of_another_profile, "has 60000 micro-batches and a budget of 8: not this profile"},
        {stamp_that_applies_nothing, "applies an optimiser step that was not computed"},
        {stamp_with_a_version_nobody_has, "asks for version 77 of the codec state"},
        {two_stamps, "two stamps came at once"},
        {act_of_the_wrong_size, "have 817 bytes instead of 818"},
        {act_without_the_marks_it_speaks_of, "have 818 bytes instead of 825"},
        {act_with_an_id_beyond_the_vocabulary, "a token id beyond the vocabulary in step 1, micro-batch 0"},
        {act_with_another_mask, "the masks of boundary 0 differ in step 1, micro-batch 0: checksum "},
        {codec_state_of_another_boundary, "sent the codec state of boundary 5"},
        {codec_state_of_another_size, "codec state version 1 has 62 bytes, 64 are right"},
        {codec_state_that_is_not_finite, "the reference of version 1 is not finite in channel 0"},
        {calibration_of_a_codec_without, "has 4 micro-batches and a budget of 0: not this profile"},
        {a_piece_of_a_table_that_is_not_tied, "piece 0 of 0 of the tied embedding's gradient"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct foe foe;
        foe_begin(&foe);
        foe_dial(&foe);
        cases[i].send(&foe);
        head_until(&foe.train.head, halted, NULL, TRAIN_PATIENCE, cases[i].words);
        const struct wire_event *event = &head_event(&foe.train.head, "r0s1", "drift")->event;
        assert_int_equal(event->level, EVENT_ALERT);
        if (!strstr(event->text, cases[i].words))
            fail_msg("'%s' does not say '%s'", event->text, cases[i].words);
        foe_end(&foe);
    }
}

static bool lost(struct head *head, void *arg)
{
    (void)arg;
    return head_event(head, "r0s1", "peer-lost") != NULL;
}

static void what_has_no_place_ends_the_road(void **state)
{
    (void)state;
    struct foe foe;
    foe_begin(&foe);
    foe_dial(&foe);
    send(&foe, WIRE_GRAD, &(struct wire_grad){.squares = -1, .loss = -1}, 1, 0);
    head_until(&foe.train.head, road_down, &foe, TRAIN_PATIENCE, "the end of the road");
    assert_non_null(strstr(foe.reason, "a GRAD has no place on this road"));
    head_until(&foe.train.head, lost, NULL, TRAIN_PATIENCE, "peer-lost");
    foe_end(&foe);
}

static void strangers_are_refused(void **state)
{
    (void)state;
    struct foe foe;
    foe_begin(&foe);
    dial(&foe, "r0s0", 12345);
    head_until(&foe.train.head, road_down, &foe, TRAIN_PATIENCE, "the refusal of another profile");
    assert_non_null(strstr(foe.reason, "works by another profile"));
    dial(&foe, "r0s7", profile_hash(&foe.train.profile)); /* of this run, but nobody announced it */
    head_for(&foe.train.head, 200 * CLOCK_MS);
    assert_true(foe.up && !foe.down);
    send(&foe, WIRE_STAMP, &good_stamp, 1, 0);
    head_until(&foe.train.head, road_down, &foe, TRAIN_PATIENCE, "the refusal of a stranger");
    assert_non_null(strstr(foe.reason, "before the scheduler announced this road"));
    assert_int_equal(foe.train.peers[1]->ready, READY_LOADED);
    foe_dial(&foe); /* the right one is still welcome */
    foe_end(&foe);
}

static void more_than_the_credit_ends_the_road(void **state)
{
    (void)state;
    struct foe foe;
    foe_begin(&foe);
    foe_dial(&foe);
    for (int i = 0; i < 400 && !foe.down; i++) {
        send_act(&foe, IDS + CODED, 1, 0);
        loop_run_once(foe.train.head.loop, 0);
    }
    head_until(&foe.train.head, road_down, &foe, TRAIN_PATIENCE, "the end of the road");
    assert_non_null(strstr(foe.reason, "more messages came than there is credit for"));
    foe_end(&foe);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_agree_is_named),
        cmocka_unit_test(what_has_no_place_ends_the_road),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(more_than_the_credit_ends_the_road),
    };
    head_program(); /* or skip */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
