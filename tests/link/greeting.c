/* Links over pair roads, on an owned clock: greeting, round trip, silence, refusals, parting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <stdlib.h>
#include <unistd.h>

#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"
#include "tests/helpers/ends.h"

static struct loop *loop;
static struct end a, b;

static int set_up(void **state)
{
    (void)state;
    struct why why = {0};
    clock_own(1000 * CLOCK_SECOND);
    loop = loop_new(&why);
    assert_non_null(loop);
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    end_free(&a, loop);
    end_free(&b, loop);
    loop_free(loop);
    clock_disown();
    return 0;
}

static void begin(const struct link_settings *left, const struct link_settings *right)
{
    struct road *one, *other;
    road_pair(loop, 4096, &one, &other);
    end_begin(&a, loop, one, left);
    end_begin(&b, loop, other, right);
}

static void begin_up(void)
{
    struct link_settings left = ends_settings("left"), right = ends_settings("right");
    begin(&left, &right);
    assert_true(loop_until(loop, &a.is_up, CLOCK_SECOND));
    assert_true(loop_until(loop, &b.is_up, CLOCK_SECOND));
}

static void both_sides_greet(void **state)
{
    (void)state;
    struct link_settings left = ends_settings("left"), right = ends_settings("right");
    right.incarnation = 7;
    begin(&left, &right);
    assert_false(a.is_up);
    assert_null(link_peer(a.link));
    assert_true(loop_until(loop, &a.is_up, CLOCK_SECOND) && loop_until(loop, &b.is_up, CLOCK_SECOND));
    assert_string_equal(a.peer.name, "right");
    assert_string_equal(link_peer(b.link)->name, "left");
    assert_int_equal(link_peer_incarnation(a.link), 7);
    assert_string_equal(link_describe(a.link), "pair → right");
}

static void round_trip_is_known_soon(void **state)
{
    (void)state;
    begin_up();
    assert_int_equal(link_rtt_ns(a.link), 0);
    loop_for(loop, CLOCK_SECOND + CLOCK_MS);
    assert_in_range(link_rtt_ns(a.link), 1, CLOCK_MS);
    assert_in_range(link_rtt_ns(b.link), 1, CLOCK_MS);
}

static void link_stays_up_while_nobody_speaks(void **state)
{
    (void)state;
    begin_up();
    loop_for(loop, 3600 * CLOCK_SECOND);
    assert_true(link_is_up(a.link) && link_is_up(b.link));
}

static void who_slept_does_not_judge(void **state)
{
    (void)state;
    begin_up();
    clock_advance_ns(60 * CLOCK_SECOND); /* no turn in between: the process was stopped */
    loop_for(loop, 10 * CLOCK_SECOND);
    assert_true(link_is_up(a.link) && link_is_up(b.link));
}

/* ---- a peer that is only bytes ---- */

static struct road *raw;

static void begin_raw(void)
{
    struct link_settings settings = ends_settings("left");
    struct road *one;
    road_pair(loop, 1 << 20, &one, &raw);
    end_begin(&a, loop, one, &settings);
    loop_for(loop, CLOCK_MS);
}

static void write_frame(const struct frame_header *header, const void *payload, size_t bytes)
{
    uint8_t frame[2000];
    struct why why = {0};
    assert_true(bytes <= sizeof frame - FRAME_HEADER_BYTES);
    frame_encode(header, frame);
    if (bytes)
        memcpy(frame + FRAME_HEADER_BYTES, payload, bytes);
    ssize_t count = (ssize_t)(FRAME_HEADER_BYTES + bytes);
    assert_int_equal(road_write(raw, frame, (size_t)count, &why), count);
}

static struct frame_header header_of(enum wire_type type, size_t bytes)
{
    return (struct frame_header){.frame_bytes = (uint32_t)bytes, .message_bytes = (uint32_t)bytes, .type = (uint16_t)type,
                                 .lane = (uint8_t)wire_find((uint16_t)type)->lane, .run_id = ENDS_RUN, .incarnation = 1};
}

static void write_message(enum wire_type type, const void *message)
{
    struct buf bytes;
    struct why why = {0};
    buf_init(&bytes, 1000);
    assert_int_equal(wire_encode((uint16_t)type, message, &bytes, &why), 0);
    struct frame_header header = header_of(type, buf_used(&bytes));
    write_frame(&header, buf_peek(&bytes), buf_used(&bytes));
    buf_clear(&bytes);
}

static void raw_greets(void)
{
    struct link_settings settings = ends_settings("right");
    write_message(WIRE_HELLO, &settings.hello);
    assert_true(loop_until(loop, &a.is_up, CLOCK_SECOND));
}

/* The link ends with `err` and these words, and has told the peer in a BYE. */
static void assert_ended(int err, const char *words)
{
    uint8_t bytes[4000];
    struct why why = {0};
    loop_for(loop, CLOCK_MS);
    ssize_t count = road_read(raw, bytes, sizeof bytes, &why);
    road_free(raw);
    assert_true(loop_until(loop, &a.is_down, 10 * CLOCK_SECOND));
    if (a.down_err != err || !strstr(a.down_reason, words))
        fail_msg("%s: '%s' is not '%s'", why_name(a.down_err), a.down_reason, words);
    if (err != ERR_INVALID && err != ERR_REFUSED)
        return;
    assert_true(count > 0);
    bool told = false;
    for (ssize_t i = 0; i + (ssize_t)strlen(words) <= count; i++)
        told |= memcmp(bytes + i, words, strlen(words)) == 0;
    if (!told)
        fail_msg("the peer was not told: %s", words);
}

static void unknown_type(void **state)
{
    (void)state;
    begin_raw();
    raw_greets();
    struct frame_header header = header_of(WIRE_DONE, 8);
    header.type = 55;
    write_frame(&header, "12345678", 8);
    assert_ended(ERR_INVALID, "unknown message type 55");
}

static void oversized_message(void **state)
{
    (void)state;
    begin_raw();
    raw_greets();
    struct frame_header header = header_of(WIRE_DONE, 9);
    write_frame(&header, "123456789", 9);
    assert_ended(ERR_INVALID, "a DONE announces 9 bytes, at most 8 are allowed");
    assert_non_null(strstr(a.down_reason, "right at pair: "));
}

static void wrong_run(void **state)
{
    (void)state;
    begin_raw();
    struct frame_header header = header_of(WIRE_HELLO, 0);
    header.run_id = 5;
    write_frame(&header, NULL, 0);
    assert_ended(ERR_INVALID, "a frame of another run came");
}

static void speaking_before_greeting(void **state)
{
    (void)state;
    begin_raw();
    struct frame_header header = header_of(WIRE_DONE, 8);
    write_frame(&header, "12345678", 8);
    assert_ended(ERR_INVALID, "a DONE came before the HELLO");
}

static void greeting_twice(void **state)
{
    (void)state;
    struct link_settings settings = ends_settings("right");
    begin_raw();
    raw_greets();
    write_message(WIRE_HELLO, &settings.hello);
    assert_ended(ERR_INVALID, "a second HELLO came");
}

static void other_version(void **state)
{
    (void)state;
    begin_raw();
    struct frame_header header = header_of(WIRE_HELLO, 30);
    uint8_t payload[30] = {WIRE_VERSION + 1}; /* and nothing else is as we know it */
    write_frame(&header, payload, sizeof payload);
    char words[100];
    snprintf(words, sizeof words, "the HELLO has version %d of the language, this program speaks %d", WIRE_VERSION + 1, WIRE_VERSION);
    assert_ended(ERR_REFUSED, words);
}

static void incarnation_may_not_change(void **state)
{
    (void)state;
    begin_raw();
    raw_greets();
    struct frame_header header = header_of(WIRE_DONE, 8);
    header.incarnation = 2;
    write_frame(&header, "12345678", 8);
    assert_ended(ERR_INVALID, "the incarnation changed from 1 to 2");
}

static void broken_heartbeat(void **state)
{
    (void)state;
    begin_raw();
    raw_greets();
    struct frame_header header = header_of(WIRE_HEARTBEAT, 3);
    write_frame(&header, "123", 3);
    assert_ended(ERR_INVALID, "HEARTBEAT");
}

static void silence_before_the_greeting(void **state)
{
    (void)state;
    uint64_t begin_ns = clock_now_ns();
    begin_raw();
    assert_true(loop_until(loop, &a.is_down, 20 * CLOCK_SECOND));
    assert_int_equal(clock_now_ns() - begin_ns, 5 * CLOCK_SECOND);
    assert_ended(ERR_TIMEOUT, "did not greet within ");
}

static void silence_after_the_greeting(void **state)
{
    (void)state;
    begin_raw();
    raw_greets();
    loop_for(loop, CLOCK_SECOND);
    struct wire_heartbeat beat = {.sent_ns = 1};
    write_message(WIRE_HEARTBEAT, &beat);
    uint64_t begin_ns = clock_now_ns();
    assert_true(loop_until(loop, &a.is_down, 20 * CLOCK_SECOND));
    assert_in_range(clock_now_ns() - begin_ns, 3 * CLOCK_SECOND, 3 * CLOCK_SECOND + CLOCK_MS);
    assert_ended(ERR_TIMEOUT, "right at pair: nothing heard for ");
}

static void peer_goes_without_a_word(void **state)
{
    (void)state;
    begin_raw();
    raw_greets();
    assert_ended(ERR_GONE, "right at pair closed the connection");
}

static void peer_goes_before_the_greeting(void **state)
{
    (void)state;
    begin_raw();
    assert_ended(ERR_GONE, "pair closed the connection before it had greeted");
}

static void goodbye_with_a_strange_code(void **state)
{
    (void)state;
    begin_raw();
    raw_greets();
    write_message(WIRE_BYE, &(struct wire_bye){.err = -12345, .text = "no"});
    assert_ended(ERR_GONE, "right at pair ended the link: no");
}

static void lying_echo_measures_nothing(void **state)
{
    (void)state;
    begin_raw();
    raw_greets();
    write_message(WIRE_HEARTBEAT, &(struct wire_heartbeat){.sent_ns = 5, .echo_ns = UINT64_MAX, .held_ns = 0});
    write_message(WIRE_HEARTBEAT, &(struct wire_heartbeat){.sent_ns = 5, .echo_ns = 1, .held_ns = UINT64_MAX});
    loop_for(loop, CLOCK_MS);
    assert_true(a.is_up);
    assert_int_equal(link_rtt_ns(a.link), 0);
    road_free(raw);
}

/* ---- refusing, parting, freeing ---- */

static int refuse(struct end *end, struct why *why)
{
    (void)end;
    return why_set(why, ERR_REFUSED, "no process of that name is in the plan");
}

static void refusal_is_told(void **state)
{
    (void)state;
    struct link_settings left = ends_settings("left"), right = ends_settings("right");
    b.on_up = refuse;
    begin(&left, &right);
    assert_true(loop_until(loop, &a.is_down, 5 * CLOCK_SECOND) && loop_until(loop, &b.is_down, 5 * CLOCK_SECOND));
    assert_int_equal(a.down_err, ERR_REFUSED);
    assert_int_equal(b.down_err, ERR_REFUSED);
    assert_string_equal(a.down_reason, "right at pair ended the link: no process of that name is in the plan");
    assert_string_equal(b.down_reason, "left at pair: no process of that name is in the plan");
}

static int refuse_message(struct end *end, const struct frame_header *header, const uint8_t *payload, size_t bytes)
{
    (void)end, (void)header, (void)payload, (void)bytes;
    return ERR_INVALID;
}

static void message_may_be_refused(void **state)
{
    (void)state;
    begin_up();
    b.on_message = refuse_message;
    link_send(a.link, WIRE_DONE, &(struct wire_done){.step = 1}, 0, 0);
    link_send(a.link, WIRE_DONE, &(struct wire_done){.step = 2}, 0, 0);
    assert_true(loop_until(loop, &b.is_down, 5 * CLOCK_SECOND) && loop_until(loop, &a.is_down, 5 * CLOCK_SECOND));
    assert_int_equal(b.messages[LANE_CONTROL], 1);
    assert_int_equal(b.down_err, ERR_INVALID);
    assert_int_equal(a.down_err, ERR_INVALID);
}

static void close_flushes_control(void **state)
{
    (void)state;
    begin_up();
    for (int i = 0; i < 1000; i++) /* 44 KB through a road of 4 KB */
        assert_int_equal(link_send(a.link, WIRE_DONE, &(struct wire_done){.step = 1}, 0, 0), 0);
    link_send_encoded(a.link, WIRE_ACT, mem_new(1000000), 1000000, 1, 0);
    link_close(a.link, 0, "done", CLOCK_SECOND);
    link_close(a.link, ERR_INVALID, "only the first one counts", CLOCK_SECOND);
    assert_int_equal(link_send(a.link, WIRE_DONE, &(struct wire_done){.step = 1}, 0, 0), ERR_GONE);
    assert_false(a.is_down);
    assert_true(loop_until(loop, &b.is_down, 5 * CLOCK_SECOND) && loop_until(loop, &a.is_down, 5 * CLOCK_SECOND));
    assert_int_equal(b.messages[LANE_CONTROL], 1000);
    assert_int_equal(b.messages[LANE_ACT], 0);
    assert_int_equal(a.down_err, 0);
    assert_string_equal(b.down_reason, "left at pair said goodbye: done");
    assert_int_equal(b.down_err, 0);
}

static void close_does_not_wait_longer_than_asked(void **state)
{
    (void)state;
    begin_raw();
    raw_greets();
    for (int i = 0; i < 100; i++)
        link_send(a.link, WIRE_DONE, &(struct wire_done){.step = 1}, 0, 0);
    link_close(a.link, 0, "done", 700 * CLOCK_MS);
    uint64_t begin_ns = clock_now_ns();
    assert_true(loop_until(loop, &a.is_down, 5 * CLOCK_SECOND)); /* the raw peer never closes */
    assert_int_equal(clock_now_ns() - begin_ns, 700 * CLOCK_MS);
    road_free(raw);
}

static void close_before_the_road_stands(void **state)
{
    (void)state;
    struct link_settings left = ends_settings("left");
    struct why why = {0};
    struct road *road = road_tcp_dial(loop, "192.0.2.1:4711", &why); /* no answer from there */
    end_begin(&a, loop, road, &left);
    link_close(a.link, 0, "changed my mind", CLOCK_SECOND);
    assert_false(a.is_down);
    loop_run_once(loop, 0);
    assert_true(a.is_down);
    assert_int_equal(a.down_err, 0);
}

static void queue_has_a_maximum(void **state)
{
    (void)state;
    struct link_settings left = ends_settings("left"), right = ends_settings("right");
    left.queue_max_bytes = 10000;
    begin(&left, &right);
    assert_true(loop_until(loop, &a.is_up, CLOCK_SECOND) && loop_until(loop, &b.is_up, CLOCK_SECOND));
    int taken = 0;
    while (link_send_encoded(a.link, WIRE_ACT, mem_new(1000), 1000, 1, 0) == 0)
        taken++;
    assert_int_equal(taken, 9);
    assert_int_equal(link_send_encoded(a.link, WIRE_ACT, mem_new(1000), 1000, 1, 0), ERR_FULL);
    assert_int_equal(link_send(a.link, WIRE_DONE, &(struct wire_done){.step = 1}, 0, 0), 0); /* lanes are apart */
    assert_int_equal(a.drained, 0);
    loop_for(loop, 10 * CLOCK_MS);
    assert_int_equal(a.drained, 1);
    assert_int_equal(b.messages[LANE_ACT], 9);
    assert_int_equal(link_send_encoded(a.link, WIRE_ACT, mem_new(50000), 50000, 1, 0), 0); /* an empty lane takes any size */
    loop_for(loop, 10 * CLOCK_MS);
    assert_int_equal(b.messages[LANE_ACT], 10);
    assert_int_equal(a.drained, 1);
}

static void pause_holds_and_says_why(void **state)
{
    (void)state;
    struct link_counters counters;
    begin_up();
    link_pause(a.link, LANE_ACT, HOLD_OPERATOR);
    link_pause(a.link, LANE_ACT, HOLD_GRANT);
    link_send_encoded(a.link, WIRE_ACT, mem_new(10), 10, 1, 0);
    loop_for(loop, CLOCK_SECOND);
    link_resume(a.link, LANE_ACT, HOLD_OPERATOR);
    loop_for(loop, CLOCK_SECOND);
    assert_int_equal(b.messages[LANE_ACT], 0);
    link_get_counters(a.link, LANE_ACT, &counters);
    assert_int_equal(counters.hold_reasons, HOLD_GRANT);
    assert_int_equal(counters.queued_messages, 1);
    link_resume(a.link, LANE_ACT, HOLD_GRANT);
    loop_for(loop, CLOCK_MS);
    assert_int_equal(b.messages[LANE_ACT], 1);
    assert_string_equal(link_hold_name(HOLD_GRANT), "grant");
}

static void free_now(struct end *end)
{
    link_free(end->link);
    end->link = NULL;
}

static int free_on_up(struct end *end, struct why *why)
{
    (void)why;
    free_now(end);
    return 0;
}

static int free_on_message(struct end *end, const struct frame_header *header, const uint8_t *payload, size_t bytes)
{
    (void)header;
    free_now(end);
    uint8_t sum = 0;
    for (size_t i = 0; i < bytes; i++) /* still readable */
        sum = (uint8_t)(sum + payload[i]);
    assert_int_equal(sum, 1);
    return 0;
}

static void freeing_inside_up(void **state)
{
    (void)state;
    struct link_settings left = ends_settings("left"), right = ends_settings("right");
    a.on_up = free_on_up;
    begin(&left, &right);
    assert_true(loop_until(loop, &b.is_down, 5 * CLOCK_SECOND));
    assert_false(a.is_down);
    assert_int_equal(b.down_err, ERR_GONE);
}

static void freeing_inside_message(void **state)
{
    (void)state;
    begin_up();
    b.on_message = free_on_message;
    for (int i = 0; i < 5; i++)
        link_send(a.link, WIRE_DONE, &(struct wire_done){.step = 1}, 0, 0);
    assert_true(loop_until(loop, &a.is_down, 5 * CLOCK_SECOND));
    assert_int_equal(b.messages[LANE_CONTROL], 1);
    assert_false(b.is_down);
}

static void freeing_inside_down(void **state)
{
    (void)state;
    begin_up();
    a.on_down = b.on_down = free_now;
    link_close(a.link, 0, "done", CLOCK_SECOND);
    assert_true(loop_until(loop, &b.is_down, 5 * CLOCK_SECOND) && loop_until(loop, &a.is_down, 5 * CLOCK_SECOND));
}

static void both_close_at_once(void **state)
{
    (void)state;
    begin_up();
    link_close(a.link, 0, "done", CLOCK_SECOND);
    link_close(b.link, 0, "done too", CLOCK_SECOND);
    assert_true(loop_until(loop, &b.is_down, 5 * CLOCK_SECOND) && loop_until(loop, &a.is_down, 5 * CLOCK_SECOND));
    assert_int_equal(a.down_err, 0);
    assert_int_equal(b.down_err, 0);
}

static void refusals_are_logged(void **state)
{
    (void)state;
    char path[400];
    uint8_t *text;
    size_t bytes;
    struct why why = {0};
    const char *temp = getenv("TMP");
    snprintf(path, sizeof path, "%s/greeting.%ld.log", temp ? temp : "/tmp", (long)getpid());
    assert_int_equal(log_open(path, "test", 0, &why), 0);
    begin_raw();
    struct frame_header header = header_of(WIRE_HELLO, 0);
    header.run_id = 5;
    write_frame(&header, NULL, 0);
    assert_ended(ERR_INVALID, "a frame of another run came");
    log_close();
    assert_int_equal(file_read(path, 1 << 20, &text, &bytes, &why), 0);
    assert_non_null(strstr((char *)text, "warn link: pair: a frame of another run came: run id 0000000000000005, ours is "));
    mem_free(text);
    unlink(path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(both_sides_greet),
        TEST(round_trip_is_known_soon),
        TEST(link_stays_up_while_nobody_speaks),
        TEST(who_slept_does_not_judge),
        TEST(unknown_type),
        TEST(oversized_message),
        TEST(wrong_run),
        TEST(speaking_before_greeting),
        TEST(greeting_twice),
        TEST(other_version),
        TEST(incarnation_may_not_change),
        TEST(broken_heartbeat),
        TEST(silence_before_the_greeting),
        TEST(silence_after_the_greeting),
        TEST(peer_goes_without_a_word),
        TEST(peer_goes_before_the_greeting),
        TEST(goodbye_with_a_strange_code),
        TEST(lying_echo_measures_nothing),
        TEST(refusal_is_told),
        TEST(message_may_be_refused),
        TEST(close_flushes_control),
        TEST(close_does_not_wait_longer_than_asked),
        TEST(close_before_the_road_stands),
        TEST(queue_has_a_maximum),
        TEST(pause_holds_and_says_why),
        TEST(freeing_inside_up),
        TEST(freeing_inside_message),
        TEST(freeing_inside_down),
        TEST(both_close_at_once),
        TEST(refusals_are_logged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
