/* The console's end of the road against a scheduler that is played here, over a pair of roads in memory. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "console/client.h"
#include "ssh/base/clock.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"
#include "ssh/link/link.h"
#include "ssh/link/road.h"

#define RUN_ID 0x1234

struct scene {
    struct loop *loop;
    struct link *scheduler;
    struct client *client;
    uint8_t role;          /* what the played scheduler says it is */
    bool mute;             /* greets and then says nothing */
    int32_t refuse;        /* err of the reply */
    struct wire_order order;
    int orders, downs;
};

static void send_state(struct link *link)
{
    struct wire_run_state run = {.run = "sea", .run_id = RUN_ID, .phase = PHASE_TRAINING, .step = 3, .steps = 10, .loss = 2.5,
                                 .validation_loss = NAN};
    struct wire_process_row process = {.process = "r0s0", .host = "a", .role = ROLE_STAGE, .state = PROCESS_READY};
    struct wire_knob_row knob = {.name = "mask.rate", .value = "0.95"};
    link_send(link, WIRE_RUN_STATE, &run, 0, 0);
    link_send(link, WIRE_PROCESS_ROW, &process, 0, 0);
    link_send(link, WIRE_KNOB_ROW, &knob, 0, 0);
    link_send(link, WIRE_STATE_END, &(struct wire_state_end){0}, 0, 0);
}

static void answer(struct scene *scene, struct link *link)
{
    struct wire_reply reply = {.request = scene->order.request, .err = scene->refuse, .ledger = 9, .text = "as you say"};
    struct wire_ledger_row row = {.id = 9, .name = "mask.rate", .old_value = "0.95", .new_value = "0.9", .state = LEDGER_ACTIVE,
                                  .step = 5};
    link_send(link, WIRE_REPLY, &reply, 0, 0);
    if (!scene->refuse)
        link_send(link, WIRE_LEDGER_ROW, &row, 0, 0);
}

static int on_message(struct link *link, const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg,
                      struct why *why)
{
    struct scene *scene = arg;
    if (scene->mute)
        return 0;
    if (header->type == WIRE_WATCH) {
        send_state(link);
        return 0;
    }
    assert_int_equal(header->type, WIRE_ORDER);
    int err = wire_decode(header->type, payload, bytes, &scene->order, why);
    scene->orders++;
    answer(scene, link);
    return err;
}

static void on_down(struct link *link, int err, const char *reason, void *arg)
{
    (void)link, (void)err, (void)reason, (void)arg;
}

static void client_down(struct client *client, int err, const char *reason, void *arg)
{
    struct scene *scene = arg;
    (void)client, (void)err, (void)reason;
    scene->downs++;
}

static void begin(struct scene *scene)
{
    static const struct link_callbacks callbacks = {.message = on_message, .down = on_down};
    static const struct client_callbacks client_callbacks = {.down = client_down};
    struct client_settings settings = {.run_id = RUN_ID, .timeouts = timeouts_derive(2 * CLOCK_SECOND), .follow = true};
    struct link_settings link = {
        .run_id = RUN_ID,
        .hello = {.version = WIRE_VERSION, .role = scene->role ? scene->role : ROLE_SCHEDULER, .program = "kedged test",
                  .name = "kedged", .pid = (uint32_t)getpid()},
        .heartbeat_ns = 40 * CLOCK_MS, .silent_ns = 10 * CLOCK_SECOND, .greet_ns = CLOCK_SECOND,
    };
    struct road *one, *other;
    struct why why = {0};
    scene->loop = loop_new(&why);
    assert_non_null(scene->loop);
    road_pair(scene->loop, 4096, &one, &other);
    scene->scheduler = link_new(scene->loop, one, &link, &callbacks, scene);
    scene->client = client_new(scene->loop, other, &settings, &client_callbacks, scene);
}

static void end(struct scene *scene)
{
    client_free(scene->client);
    link_free(scene->scheduler);
    loop_run_once(scene->loop, CLOCK_MS);
    loop_free(scene->loop);
}

static void the_state_comes_whole(void **unused)
{
    struct scene scene = {0};
    struct why why = {0};
    (void)unused;
    begin(&scene);
    assert_int_equal(client_wait_complete(scene.client, &why), 0);
    struct state *state = client_state(scene.client);
    assert_true(state->has_run && state->run.step == 3 && isnan(state->run.validation_loss));
    assert_int_equal(state->process_count, 1);
    assert_string_equal(state_find_knob(state, "mask.rate")->value, "0.95");
    assert_true(client_is_live(scene.client));
    end(&scene);
}

static bool has_ledger(struct client *client, void *arg)
{
    (void)arg;
    return state_find_ledger(client_state(client), 9) != NULL;
}

static void an_order_gets_its_reply(void **unused)
{
    struct scene scene = {0};
    struct why why = {0};
    struct wire_reply reply;
    (void)unused;
    begin(&scene);
    assert_int_equal(client_order(scene.client, ORDER_SET, "mask.rate", "0.9", &reply, &why), 0);
    assert_int_equal(reply.ledger, 9);
    assert_string_equal(scene.order.name, "mask.rate");
    assert_string_equal(scene.order.value, "0.9");
    assert_non_null(strchr(scene.order.who, '@'));
    assert_int_equal(client_wait(scene.client, has_ledger, NULL, CLOCK_SECOND, &why), 0);
    scene.refuse = ERR_INVALID;
    assert_int_equal(client_order(scene.client, ORDER_SET, "mask.rate", "7", &reply, &why), ERR_INVALID);
    assert_string_equal(why.text, "as you say");
    scene.refuse = 4711; /* not a kind of error that we know */
    why = (struct why){0};
    assert_int_equal(client_order(scene.client, ORDER_PAUSE, "", "", NULL, &why), ERR_REFUSED);
    assert_int_equal(scene.orders, 3);
    end(&scene);
}

static void silence_ends_at_a_deadline(void **unused)
{
    struct scene scene = {.mute = true};
    struct why why = {0};
    (void)unused;
    begin(&scene);
    assert_int_equal(client_wait_complete(scene.client, &why), ERR_TIMEOUT);
    end(&scene);
}

static void a_lost_scheduler_is_an_outcome(void **unused)
{
    struct scene scene = {0};
    struct why why = {0};
    (void)unused;
    begin(&scene);
    assert_int_equal(client_wait_complete(scene.client, &why), 0);
    link_free(scene.scheduler);
    scene.scheduler = NULL;
    assert_int_equal(client_order(scene.client, ORDER_STOP, "", "", NULL, &why), ERR_GONE);
    assert_int_equal(scene.downs, 1);
    assert_true(client_is_down(scene.client));
    assert_true(client_down_reason(scene.client)[0] != '\0');
    assert_int_equal(client_state(scene.client)->run.step, 3); /* what was heard stays readable */
    end(&scene);
}

static void who_is_no_scheduler_is_refused(void **unused)
{
    struct scene scene = {.role = ROLE_STAGE};
    struct why why = {0};
    (void)unused;
    begin(&scene);
    assert_int_equal(client_wait_complete(scene.client, &why), ERR_GONE);
    assert_non_null(strstr(why.text, "instead of a scheduler"));
    end(&scene);
}

static void too_long_a_value_is_no_order(void **unused)
{
    struct scene scene = {0};
    struct why why = {0};
    char value[200];
    (void)unused;
    memset(value, '1', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    begin(&scene);
    assert_int_equal(client_order(scene.client, ORDER_SET, "mask.rate", value, NULL, &why), ERR_INVALID);
    assert_int_equal(scene.orders, 0);
    end(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_state_comes_whole),          cmocka_unit_test(an_order_gets_its_reply),
        cmocka_unit_test(silence_ends_at_a_deadline),     cmocka_unit_test(a_lost_scheduler_is_an_outcome),
        cmocka_unit_test(who_is_no_scheduler_is_refused), cmocka_unit_test(too_long_a_value_is_no_order),
    };
    log_set_level(LOG_ERROR); /* what is refused below is refused on purpose */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
