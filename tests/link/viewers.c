/* Consoles that look at a run, over pair roads on an owned clock: state then stream, slow ones, orders, goodbyes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/viewers.h"
#include "ssh/base/clock.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"
#include "tests/helpers/ends.h"

#define QUEUE_BYTES (256 * 1024)
#define EVENTS 20

struct seen { /* of one console */
    int rows[256]; /* by wire type */
    bool ended;    /* STATE_END came */
    uint64_t newest_event, step;
    bool events_ascend;
    bool replied;
    struct wire_reply reply;
};

static struct loop *loop;
static struct record *record;
static struct viewers *viewers;
static struct loop_timer *tick;
static struct end console;
static struct seen seen;
static int orders;

static int on_message(struct end *end, const struct frame_header *header, const uint8_t *payload, size_t bytes)
{
    struct seen *by = end->user;
    union {
        struct wire_run_state state;
        struct wire_process_row process;
        struct wire_event_row event;
        struct wire_reply reply;
        struct wire_road_row road;
        struct wire_ledger_row ledger;
        struct wire_knob_row knob;
        struct wire_state_end end;
    } row;
    struct why why = {0};
    if (wire_decode(header->type, payload, bytes, &row, &why) < 0)
        fail_msg("%s", why.text);
    by->rows[header->type]++;
    if (header->type == WIRE_STATE_END)
        by->ended = true;
    if (header->type == WIRE_RUN_STATE)
        by->step = row.state.step;
    if (header->type == WIRE_EVENT_ROW) {
        by->events_ascend = by->events_ascend && row.event.id == by->newest_event + 1;
        by->newest_event = row.event.id;
    }
    if (header->type == WIRE_REPLY) {
        by->reply = row.reply;
        by->replied = true;
    }
    return 0;
}

static void take_order(const struct wire_order *order, struct wire_reply *reply, void *arg)
{
    (void)arg;
    orders++;
    *reply = (struct wire_reply){.request = order->request, .ledger = 3};
    snprintf(reply->text, sizeof reply->text, "accepted: %s=%s", order->name, order->value);
}

static void on_tick(void *arg)
{
    (void)arg;
    viewers_tick(viewers);
    loop_timer_set(tick, VIEWERS_TICK_NS);
}

static int set_up(void **state)
{
    (void)state;
    struct link_settings settings = ends_settings("kedged");
    clock_own(1000 * CLOCK_SECOND);
    loop = loop_new(NULL);
    record = record_new();
    record->state.row.phase = PHASE_TRAINING;
    record_touch(record, &record->state.version);
    record->process_count = 2;
    for (int i = 0; i < 2; i++) {
        record->processes[i].row.role = ROLE_STAGE;
        record_touch(record, &record->processes[i].version);
    }
    record->road_count = 2;
    record->roads[0].row.lane = LANE_ACT;
    record->roads[1].row.lane = LANE_BULK; /* nothing was ever sent on it: no row */
    for (int i = 0; i < 2; i++)
        record_touch(record, &record->roads[i].version);
    record->knob_count = 1;
    record_touch(record, &record->knobs[0].version);
    record_add_ledger(record);
    for (int i = 0; i < EVENTS; i++)
        record_add_event(record);
    settings.queue_max_bytes = QUEUE_BYTES;
    settings.hello.role = ROLE_SCHEDULER;
    viewers = viewers_new(loop, record, &settings, take_order, NULL);
    tick = loop_timer_new(loop, on_tick, NULL);
    loop_timer_set(tick, VIEWERS_TICK_NS);
    memset(&console, 0, sizeof console);
    memset(&seen, 0, sizeof seen);
    seen.events_ascend = true;
    console.on_message = on_message;
    console.user = &seen;
    orders = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    end_free(&console, loop);
    viewers_free(viewers);
    loop_timer_free(tick);
    loop_run_once(loop, 0);
    loop_free(loop);
    record_free(record);
    clock_disown();
    return 0;
}

/* A console that looks; what kedged sends to it passes at `rate_bps` (0 = at once). */
static void begin(struct end *end, enum wire_role role, uint64_t rate_bps)
{
    struct road *one, *other;
    struct link_settings settings = ends_settings("console");
    settings.hello.role = (uint8_t)role;
    settings.hello.host[0] = '\0';
    road_pair(loop, 4096, &one, &other);
    if (rate_bps > 0)
        one = road_slow(loop, one, &(struct slow_settings){.rate_bps = rate_bps});
    viewers_add(viewers, one);
    end_begin(end, loop, other, &settings);
}

static void watch(uint8_t follow, uint64_t from_event)
{
    struct wire_watch message = {.follow = follow, .from_event = from_event};
    assert_true(loop_until(loop, &console.is_up, 4 * CLOCK_SECOND));
    assert_int_equal(link_send(console.link, WIRE_WATCH, &message, 0, 0), 0);
}

static void state_then_stream(void **state)
{
    (void)state;
    begin(&console, ROLE_CONSOLE, 0);
    watch(1, 0);
    assert_true(loop_until(loop, &seen.ended, CLOCK_SECOND));
    assert_int_equal(seen.rows[WIRE_RUN_STATE], 1);
    assert_int_equal(seen.rows[WIRE_PROCESS_ROW], 2);
    assert_int_equal(seen.rows[WIRE_ROAD_ROW], 1);
    assert_int_equal(seen.rows[WIRE_KNOB_ROW], 1);
    assert_int_equal(seen.rows[WIRE_LEDGER_ROW], 1);
    assert_int_equal(seen.rows[WIRE_EVENT_ROW], EVENTS);
    assert_int_equal(record->state.row.viewers, 1);
    loop_for(loop, CLOCK_SECOND);
    assert_int_equal(seen.rows[WIRE_PROCESS_ROW], 2); /* nothing changed: nothing is sent */
    record->processes[1].row.step = 5;
    record_touch(record, &record->processes[1].version);
    record_add_event(record);
    loop_for(loop, CLOCK_SECOND);
    assert_int_equal(seen.rows[WIRE_PROCESS_ROW], 3);
    assert_int_equal(seen.newest_event, EVENTS + 1);
    assert_true(seen.events_ascend);
    record->roads[1].row.sent_bytes = 1;
    record_touch(record, &record->roads[1].version);
    loop_for(loop, CLOCK_SECOND);
    assert_int_equal(seen.rows[WIRE_ROAD_ROW], 2);
    assert_int_equal(seen.rows[WIRE_STATE_END], 1);
}

static void changes_are_gathered(void **state)
{
    (void)state;
    begin(&console, ROLE_CONSOLE, 0);
    watch(1, 0);
    assert_true(loop_until(loop, &seen.ended, CLOCK_SECOND));
    int before = seen.rows[WIRE_RUN_STATE];
    for (int i = 1; i <= 500; i++) { /* 100 steps a second */
        record->state.row.step = (uint64_t)i;
        record_touch(record, &record->state.version);
        loop_for(loop, CLOCK_SECOND / 100);
    }
    assert_in_range(seen.rows[WIRE_RUN_STATE] - before, 18, 21); /* four a second */
}

static void one_look_is_no_stream(void **state)
{
    (void)state;
    begin(&console, ROLE_CONSOLE, 0);
    watch(0, 15);
    assert_true(loop_until(loop, &seen.ended, CLOCK_SECOND));
    assert_int_equal(seen.rows[WIRE_EVENT_ROW], EVENTS - 15);
    record_add_event(record);
    loop_for(loop, 2 * CLOCK_SECOND);
    assert_int_equal(seen.rows[WIRE_EVENT_ROW], EVENTS - 15);
    seen.ended = false;
    watch(1, EVENTS); /* it may ask again */
    assert_true(loop_until(loop, &seen.ended, CLOCK_SECOND));
    assert_int_equal(seen.rows[WIRE_EVENT_ROW], EVENTS - 15 + 1);
}

static void rings_begin_with_their_oldest(void **state)
{
    (void)state;
    for (int i = 0; i < RECORD_EVENTS; i++)
        record_add_event(record);
    seen.newest_event = EVENTS;
    begin(&console, ROLE_CONSOLE, 0);
    watch(0, 0);
    assert_true(loop_until(loop, &seen.ended, CLOCK_SECOND));
    assert_int_equal(seen.newest_event, RECORD_EVENTS + EVENTS);
    assert_int_equal(seen.rows[WIRE_EVENT_ROW], RECORD_EVENTS);
    assert_true(seen.events_ascend);
}

static void slow_viewer_loses_telemetry_only(void **state)
{
    (void)state;
    begin(&console, ROLE_CONSOLE, 16000); /* 2 kB a second: some states a second at most */
    watch(1, 0);
    assert_true(loop_until(loop, &seen.ended, 20 * CLOCK_SECOND));
    for (int i = 1; i <= 400; i++) {
        record->state.row.step = (uint64_t)i;
        record_touch(record, &record->state.version);
        for (int p = 0; p < 2; p++) {
            snprintf(record->processes[p].row.waiting, WIRE_TEXT, "%0399d", i);
            record_touch(record, &record->processes[p].version);
        }
        if (i % 20 == 0)
            record_add_event(record);
        loop_for(loop, CLOCK_SECOND / 10);
    }
    assert_false(console.is_down);
    assert_in_range(seen.rows[WIRE_RUN_STATE], 20, 155); /* of 160 */
    loop_for(loop, 5 * CLOCK_SECOND);
    assert_int_equal(seen.step, 400); /* the newest one arrives */
    assert_int_equal(seen.newest_event, EVENTS + 20);
    assert_true(seen.events_ascend);
}

static void viewer_that_does_not_read_is_dropped(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR);
    begin(&console, ROLE_CONSOLE, 8000);
    watch(1, 0);
    assert_true(loop_until(loop, &seen.ended, 20 * CLOCK_SECOND));
    assert_int_equal(viewers_count(viewers), 1);
    for (int i = 0; i < 900; i++)
        snprintf(record_add_event(record)->row.text, WIRE_TEXT, "%0399d", i);
    loop_for(loop, CLOCK_SECOND);
    assert_int_equal(viewers_count(viewers), 0);
    assert_int_equal(record->state.row.viewers, 0);
}

static void orders_are_answered(void **state)
{
    (void)state;
    begin(&console, ROLE_CONSOLE, 0);
    assert_true(loop_until(loop, &console.is_up, CLOCK_SECOND));
    struct wire_order order = {.kind = ORDER_SET, .request = 42, .who = "anna@home", .name = "mask.rate", .value = "0.9"};
    assert_int_equal(link_send(console.link, WIRE_ORDER, &order, 0, 0), 0);
    assert_true(loop_until(loop, &seen.replied, CLOCK_SECOND));
    assert_int_equal(seen.reply.request, 42);
    assert_int_equal(seen.reply.ledger, 3);
    assert_string_equal(seen.reply.text, "accepted: mask.rate=0.9");
    assert_int_equal(orders, 1);
    assert_int_equal(seen.rows[WIRE_RUN_STATE], 0); /* who does not watch gets no state */
}

static void others_are_refused(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR);
    begin(&console, ROLE_STAGE, 0);
    assert_true(loop_until(loop, &console.is_down, CLOCK_SECOND));
    assert_non_null(strstr(console.down_reason, "this socket is for consoles"));
    end_free(&console, loop);
    memset(&console, 0, sizeof console);
    begin(&console, ROLE_CONSOLE, 0);
    assert_true(loop_until(loop, &console.is_up, CLOCK_SECOND));
    struct wire_done done = {.step = 3};
    link_send(console.link, WIRE_DONE, &done, 0, 0);
    assert_true(loop_until(loop, &console.is_down, CLOCK_SECOND));
    assert_non_null(strstr(console.down_reason, "a console may not say DONE to kedged"));
    loop_for(loop, CLOCK_SECOND);
    assert_int_equal(viewers_count(viewers), 0);
}

static void last_words(void **state)
{
    (void)state;
    begin(&console, ROLE_CONSOLE, 0);
    watch(1, 0);
    assert_true(loop_until(loop, &seen.ended, CLOCK_SECOND));
    record->state.row.phase = PHASE_STOPPED;
    record->state.row.step = 77;
    record_touch(record, &record->state.version);
    viewers_end(viewers, "run laptop is stopped: stopped by anna@home", CLOCK_SECOND);
    assert_true(loop_until(loop, &console.is_down, CLOCK_SECOND));
    assert_int_equal(seen.step, 77);
    assert_int_equal(console.down_err, 0);
    assert_non_null(strstr(console.down_reason, "run laptop is stopped"));
    loop_for(loop, CLOCK_SECOND);
    assert_int_equal(viewers_count(viewers), 0);
    struct end late = {.on_message = on_message, .user = &seen};
    log_set_level(LOG_ERROR);
    begin(&late, ROLE_CONSOLE, 0);
    assert_true(loop_until(loop, &late.is_down, CLOCK_SECOND));
    end_free(&late, loop);
}

static void too_many_viewers(void **state)
{
    (void)state;
    static struct end crowd[VIEWERS_MAX];
    memset(crowd, 0, sizeof crowd);
    log_set_level(LOG_ERROR);
    for (int i = 0; i < VIEWERS_MAX; i++)
        begin(&crowd[i], ROLE_CONSOLE, 0);
    begin(&console, ROLE_CONSOLE, 0);
    assert_true(loop_until(loop, &console.is_down, CLOCK_SECOND));
    assert_int_equal(viewers_count(viewers), VIEWERS_MAX);
    for (int i = 0; i < VIEWERS_MAX; i++)
        end_free(&crowd[i], loop);
    loop_for(loop, CLOCK_SECOND);
    assert_int_equal(viewers_count(viewers), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(state_then_stream),
        TEST(changes_are_gathered),
        TEST(one_look_is_no_stream),
        TEST(rings_begin_with_their_oldest),
        TEST(slow_viewer_loses_telemetry_only),
        TEST(viewer_that_does_not_read_is_dropped),
        TEST(orders_are_answered),
        TEST(others_are_refused),
        TEST(last_words),
        TEST(too_many_viewers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
