/*
 * Priority, pace and rate over roads with limits, on an owned clock. The language has no message on SYNC and BULK yet,
 * so here the sending half of a link (out.c) meets a reader of bare frames; where ACT and CONTROL suffice, whole links
 * are used.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/link/out.h"
#include "tests/helpers/ends.h"

#define ALL ((1u << LANE_COUNT) - 1)

static struct loop *loop;

/* ---- a sender without a link, a reader without a parser ---- */

struct reader {
    struct road *road;
    uint8_t header[FRAME_HEADER_BYTES];
    size_t header_used, payload_left;
    struct frame_header now;
    uint64_t bytes[LANE_COUNT], messages[LANE_COUNT];
    uint64_t slowest_ns[LANE_COUNT]; /* from put (the message's step) to its last byte */
    size_t largest_frame;
};

struct sender {
    struct out out;
    struct road *road;
    struct loop_timer *kick;
    bool want_write;
    size_t top_up_bytes[LANE_COUNT]; /* keep so much queued */
    size_t message_bytes;
};

static void put(struct sender *sender, int lane, size_t bytes)
{
    struct frame_header header = {.message_bytes = (uint32_t)bytes, .type = 60, .lane = (uint8_t)lane};
    header.step = clock_now_ns();
    assert_int_equal(lane_put(&sender->out.lanes, &header, mem_new(bytes)), 0);
    if (!sender->want_write)
        loop_timer_set(sender->kick, 0);
}

static void sender_flush(void *arg)
{
    struct sender *sender = arg;
    struct why why = {0};
    uint64_t wait_ns;
    for (int lane = 0; lane < LANE_COUNT; lane++)
        while (sender->out.lanes.lane[lane].queued_bytes < sender->top_up_bytes[lane])
            put(sender, lane, sender->message_bytes);
    int result = out_flush(&sender->out, sender->road, ALL, &wait_ns, &why);
    assert_true(result >= 0);
    if (result == OUT_WAIT)
        loop_timer_set(sender->kick, wait_ns);
    sender->want_write = result == OUT_ROAD;
    road_want(sender->road, false, sender->want_write);
}

static void reader_frame(struct reader *reader)
{
    frame_decode(reader->header, &reader->now);
    reader->payload_left = reader->now.frame_bytes;
    if (reader->now.frame_bytes > reader->largest_frame)
        reader->largest_frame = reader->now.frame_bytes;
}

static void reader_end(struct reader *reader)
{
    int lane = reader->now.lane;
    reader->header_used = 0;
    reader->bytes[lane] += FRAME_HEADER_BYTES + reader->now.frame_bytes;
    if (reader->now.flags & FRAME_MORE)
        return;
    uint64_t passed_ns = clock_now_ns() - reader->now.step;
    reader->messages[lane]++;
    if (passed_ns > reader->slowest_ns[lane])
        reader->slowest_ns[lane] = passed_ns;
}

static void reader_ready(void *arg)
{
    struct reader *reader = arg;
    static uint8_t bytes[65536];
    struct why why = {0};
    ssize_t count;
    while ((count = road_read(reader->road, bytes, sizeof bytes, &why)) > 0)
        for (size_t used = 0; used < (size_t)count;) {
            if (reader->header_used < FRAME_HEADER_BYTES) {
                reader->header[reader->header_used++] = bytes[used++];
                if (reader->header_used == FRAME_HEADER_BYTES)
                    reader_frame(reader);
            } else {
                size_t left = (size_t)count - used, take = left < reader->payload_left ? left : reader->payload_left;
                reader->payload_left -= take;
                used += take;
            }
            if (reader->header_used == FRAME_HEADER_BYTES && reader->payload_left == 0)
                reader_end(reader);
        }
}

static void begin(struct sender *sender, struct reader *reader, const struct slow_settings *slow, uint64_t pace_bps,
                  struct pace *uplink)
{
    struct why why = {0};
    memset(sender, 0, sizeof *sender);
    memset(reader, 0, sizeof *reader);
    road_pair(loop, 1 << 20, &sender->road, &reader->road);
    if (slow)
        sender->road = road_slow(loop, sender->road, slow);
    out_init(&sender->out, 64 << 20, pace_bps, uplink);
    sender->kick = loop_timer_new(loop, sender_flush, sender);
    sender->message_bytes = 1 << 20;
    assert_int_equal(road_start(sender->road, &why), 0);
    road_on_ready(sender->road, sender_flush, sender);
    road_on_ready(reader->road, reader_ready, reader);
    road_want(reader->road, true, false);
    loop_timer_set(sender->kick, 0);
}

static void end(struct sender *sender, struct reader *reader)
{
    out_clear(&sender->out);
    loop_timer_free(sender->kick);
    road_free(sender->road);
    road_free(reader->road);
}

static int set_up(void **state)
{
    (void)state;
    struct why why = {0};
    clock_own(1000 * CLOCK_SECOND);
    loop = loop_new(&why);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    loop_run_once(loop, 0);
    loop_free(loop);
    clock_disown();
    return 0;
}

static struct sender s, s2;
static struct reader r, r2;

/* ---- priority ---- */

static void bulk_does_not_delay_control_and_act(void **state)
{
    (void)state;
    static const uint64_t rates[] = {1000000, 10000000, 200000000};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        begin(&s, &r, &(struct slow_settings){.rate_bps = rates[i]}, 0, NULL);
        s.top_up_bytes[LANE_BULK] = 4 << 20;
        size_t act = (size_t)rates[i] / 8 / 500; /* 2 ms of the road */
        for (int turn = 0; turn < 100; turn++) {
            loop_for(loop, 37 * CLOCK_MS);
            put(&s, LANE_CONTROL, 100);
            put(&s, LANE_ACT, act);
        }
        loop_for(loop, 200 * CLOCK_MS);
        assert_int_equal(r.messages[LANE_CONTROL], 100);
        assert_int_equal(r.messages[LANE_ACT], 100);
        /* The first megabit is sent before the rate is known: a frame of 16 KB is 130 ms then. */
        uint64_t limit_ns = rates[i] > 1000000 ? 50 * CLOCK_MS : 200 * CLOCK_MS;
        assert_in_range(r.slowest_ns[LANE_CONTROL], 1, limit_ns);
        assert_in_range(r.slowest_ns[LANE_ACT], 1, limit_ns);
        /* And bulk has the rest of the road: 3.9 s. */
        uint64_t all = r.bytes[LANE_BULK] + r.bytes[LANE_ACT] + r.bytes[LANE_CONTROL];
        assert_in_range(all * 8, rates[i] * 38 / 10, rates[i] * 4);
        end(&s, &r);
    }
}

static void once_the_rate_is_known_a_slow_road_is_prompt_too(void **state)
{
    (void)state;
    begin(&s, &r, &(struct slow_settings){.rate_bps = 1000000}, 0, NULL);
    s.top_up_bytes[LANE_BULK] = 4 << 20;
    loop_for(loop, CLOCK_SECOND);
    r.largest_frame = 0;
    for (int turn = 0; turn < 50; turn++) {
        loop_for(loop, 67 * CLOCK_MS);
        put(&s, LANE_CONTROL, 100);
    }
    loop_for(loop, 100 * CLOCK_MS);
    assert_int_equal(r.messages[LANE_CONTROL], 50);
    assert_in_range(r.slowest_ns[LANE_CONTROL], 1, 50 * CLOCK_MS);
    assert_in_range(r.largest_frame, 900, 1700); /* 10 ms are 1,250 bytes */
    assert_in_range(s.out.rate.bits_per_second, 850000, 1150000);
    end(&s, &r);
}

static void bulk_has_its_floor_under_act(void **state)
{
    (void)state;
    begin(&s, &r, &(struct slow_settings){.rate_bps = 10000000}, 0, NULL);
    s.top_up_bytes[LANE_BULK] = s.top_up_bytes[LANE_ACT] = s.top_up_bytes[LANE_SYNC] = 2 << 20;
    loop_for(loop, 20 * CLOCK_SECOND);
    double all = (double)(r.bytes[LANE_BULK] + r.bytes[LANE_ACT] + r.bytes[LANE_SYNC]);
    assert_in_range((uint64_t)all, 24000000, 25000000);
    assert_true((double)r.bytes[LANE_BULK] > 0.015 * all && (double)r.bytes[LANE_BULK] < 0.03 * all);
    assert_true((double)r.bytes[LANE_SYNC] > 0.015 * all && (double)r.bytes[LANE_SYNC] < 0.03 * all);
    assert_int_equal(s.out.lanes.lane[LANE_BULK].blocked, HOLD_KERNEL | HOLD_PRIORITY);
    assert_int_equal(s.out.lanes.lane[LANE_ACT].blocked, HOLD_KERNEL);
    end(&s, &r);
}

/* ---- pace ---- */

static void road_keeps_its_pace(void **state)
{
    (void)state;
    static const uint64_t rates[] = {100000, 8000000, 100000000};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        begin(&s, &r, NULL, rates[i], NULL);
        s.top_up_bytes[LANE_ACT] = 4 << 20;
        loop_for(loop, 5 * CLOCK_SECOND);
        assert_in_range(r.bytes[LANE_ACT] * 8, rates[i] * 48 / 10, rates[i] * 52 / 10 + 100000);
        assert_int_equal(s.out.lanes.lane[LANE_ACT].blocked, HOLD_PACE);
        end(&s, &r);
    }
}

static void uplink_is_shared_fairly(void **state)
{
    (void)state;
    struct pace uplink;
    pace_init(&uplink, 8000000, clock_now_ns());
    begin(&s, &r, NULL, 0, &uplink);
    begin(&s2, &r2, NULL, 0, &uplink);
    s.top_up_bytes[LANE_ACT] = s2.top_up_bytes[LANE_ACT] = 4 << 20;
    loop_for(loop, 10 * CLOCK_SECOND);
    uint64_t both = r.bytes[LANE_ACT] + r2.bytes[LANE_ACT];
    assert_in_range(both, 9800000, 10100000);
    assert_in_range(r.bytes[LANE_ACT], both * 45 / 100, both * 55 / 100);
    assert_int_equal(s.out.lanes.lane[LANE_ACT].blocked, HOLD_UPLINK);
    end(&s, &r);
    end(&s2, &r2);
}

static void act_goes_before_the_bulk_of_another_road(void **state)
{
    (void)state;
    struct pace uplink;
    pace_init(&uplink, 8000000, clock_now_ns());
    begin(&s, &r, NULL, 0, &uplink);
    begin(&s2, &r2, NULL, 0, &uplink);
    s.top_up_bytes[LANE_ACT] = s2.top_up_bytes[LANE_BULK] = 4 << 20;
    loop_for(loop, 20 * CLOCK_SECOND);
    uint64_t both = r.bytes[LANE_ACT] + r2.bytes[LANE_BULK];
    assert_in_range(both, 19600000, 20200000);
    assert_in_range(r2.bytes[LANE_BULK], both * 12 / 1000, both * 5 / 100);
    /* Alone it has all of it. */
    s.top_up_bytes[LANE_ACT] = 0;
    loop_for(loop, 6 * CLOCK_SECOND);
    uint64_t before = r2.bytes[LANE_BULK];
    loop_for(loop, 10 * CLOCK_SECOND);
    assert_in_range(r2.bytes[LANE_BULK] - before, 9700000, 10100000);
    end(&s, &r);
    end(&s2, &r2);
}

static void control_passes_a_saturated_uplink(void **state)
{
    (void)state;
    struct pace uplink;
    pace_init(&uplink, 8000000, clock_now_ns());
    begin(&s, &r, NULL, 0, &uplink);
    begin(&s2, &r2, NULL, 0, &uplink);
    s.top_up_bytes[LANE_ACT] = 4 << 20;
    for (int turn = 0; turn < 100; turn++) {
        loop_for(loop, 41 * CLOCK_MS);
        put(&s2, LANE_CONTROL, 200);
    }
    loop_for(loop, 41 * CLOCK_MS);
    assert_int_equal(r2.messages[LANE_CONTROL], 100);
    assert_in_range(r2.slowest_ns[LANE_CONTROL], 0, 2 * CLOCK_MS);
    end(&s, &r);
    end(&s2, &r2);
}

/* ---- whole links ---- */

static struct end a, b;

static void begin_links(const struct slow_settings *slow, uint64_t pace_bps)
{
    struct road *one, *other;
    struct link_settings left = ends_settings("left"), right = ends_settings("right");
    left.pace_bps = pace_bps;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    road_pair(loop, 65536, &one, &other);
    end_begin(&a, loop, slow ? road_slow(loop, one, slow) : one, &left);
    end_begin(&b, loop, other, &right);
    assert_true(loop_until(loop, &a.is_up, CLOCK_SECOND) && loop_until(loop, &b.is_up, CLOCK_SECOND));
}

static uint64_t event_slowest_ns, sample_last[2];

static int on_message(struct end *at, const struct frame_header *header, const uint8_t *payload, size_t bytes)
{
    (void)at;
    struct why why = {0};
    if (header->type == WIRE_DONE) {
        struct wire_done done;
        assert_int_equal(wire_decode(WIRE_DONE, payload, bytes, &done, &why), 0);
        if (clock_now_ns() - done.step > event_slowest_ns)
            event_slowest_ns = clock_now_ns() - done.step;
    } else if (header->type == WIRE_SAMPLE) {
        struct wire_sample sample;
        assert_int_equal(wire_decode(WIRE_SAMPLE, payload, bytes, &sample, &why), 0);
        assert_true(sample.step >= sample_last[header->micro_batch]);
        sample_last[header->micro_batch] = sample.step;
    }
    return 0;
}

static void heartbeats_and_control_pass_act(void **state)
{
    (void)state;
    begin_links(&(struct slow_settings){.rate_bps = 10000000, .delay_ns = 20 * CLOCK_MS}, 0);
    b.on_message = on_message;
    event_slowest_ns = 0;
    for (int turn = 0; turn < 200; turn++) {
        struct link_counters counters;
        link_get_counters(a.link, LANE_ACT, &counters);
        while (counters.queued_bytes < 3 << 20) {
            link_send_encoded(a.link, WIRE_ACT, mem_new(1 << 20), 1 << 20, 1, 0);
            link_get_counters(a.link, LANE_ACT, &counters);
        }
        link_send(a.link, WIRE_DONE, &(struct wire_done){.step = clock_now_ns()}, 0, 0);
        loop_for(loop, 53 * CLOCK_MS);
    }
    assert_true(b.messages[LANE_CONTROL] >= 195);
    assert_in_range(event_slowest_ns, 20 * CLOCK_MS, 70 * CLOCK_MS);
    assert_in_range(link_rate_bps(a.link), 9000000, 11000000);
    assert_in_range(link_rtt_ns(a.link), 40 * CLOCK_MS, 70 * CLOCK_MS);
    end_free(&a, loop);
    end_free(&b, loop);
}

static void slow_reader_gets_the_latest_telemetry(void **state)
{
    (void)state;
    struct link_counters counters;
    begin_links(&(struct slow_settings){.rate_bps = 100000}, 0);
    b.on_message = on_message;
    memset(sample_last, 0, sizeof sample_last);
    for (uint64_t step = 1; step <= 5000; step++) {
        struct wire_sample sample = {.step = step};
        assert_int_equal(link_send(a.link, WIRE_SAMPLE, &sample, 0, (uint32_t)(step % 2)), 0);
        loop_for(loop, CLOCK_MS);
    }
    link_get_counters(a.link, LANE_TELEM, &counters);
    assert_in_range(counters.queued_messages, 0, 2);
    assert_in_range(counters.dropped_messages, 4000, 4990);
    loop_for(loop, CLOCK_SECOND);
    assert_int_equal(sample_last[0], 5000);
    assert_int_equal(sample_last[1], 4999);
    end_free(&a, loop);
    end_free(&b, loop);
}

static void pace_of_a_link_may_change(void **state)
{
    (void)state;
    begin_links(NULL, 8000000);
    link_send_encoded(a.link, WIRE_ACT, mem_new(20 << 20), 20 << 20, 1, 0);
    loop_for(loop, 2 * CLOCK_SECOND);
    struct link_counters counters;
    link_get_counters(b.link, LANE_ACT, &counters);
    assert_in_range(counters.received_bytes, 1900000, 2100000);
    link_set_pace(a.link, 80000000);
    loop_for(loop, CLOCK_SECOND);
    link_get_counters(b.link, LANE_ACT, &counters);
    assert_in_range(counters.received_bytes, 11500000, 12500000);
    link_set_pace(a.link, 0);
    loop_for(loop, CLOCK_MS);
    assert_int_equal(b.messages[LANE_ACT], 1);
    end_free(&a, loop);
    end_free(&b, loop);
}

/* ---- the kernel's queue ---- */

/* A real TCP peer that reads little: what lies between a CONTROL message and the peer is bounded, however much ACT is
 * queued. */
static void kernel_queue_is_short(void **state)
{
    (void)state;
    static uint8_t bytes[1 << 20];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    struct why why = {0};
    char address[64];
    int listening = socket(AF_INET, SOCK_STREAM, 0), small = 16384;
    clock_disown();
    setsockopt(listening, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_int_equal(bind(listening, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listening, 1), 0);
    getsockname(listening, (struct sockaddr *)&at, &length);
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(at.sin_port));
    memset(&s, 0, sizeof s);
    s.road = road_tcp_dial(loop, address, &why);
    out_init(&s.out, 64 << 20, 0, NULL);
    s.kick = loop_timer_new(loop, sender_flush, &s);
    s.message_bytes = 1 << 20;
    s.top_up_bytes[LANE_ACT] = 8 << 20;
    for (int i = 0; i < 100 && road_start(s.road, &why) == ERR_AGAIN; i++)
        loop_run_once(loop, 10 * CLOCK_MS);
    int fd = accept(listening, NULL, NULL);
    assert_true(fd >= 0);
    road_on_ready(s.road, sender_flush, &s);
    loop_timer_set(s.kick, 0);
    for (int i = 0; i < 20; i++) /* until the kernel takes no more */
        loop_run_once(loop, 5 * CLOCK_MS);
    uint64_t taken = 0;
    struct frame_header seen = {.message_bytes = 50, .type = 26, .lane = LANE_CONTROL};
    uint8_t *marker = mem_new(50);
    memset(marker, 0xab, 50);
    assert_int_equal(lane_put(&s.out.lanes, &seen, marker), 0);
    bool found = false;
    for (int i = 0; i < 1000 && !found; i++) {
        ssize_t count = recv(fd, bytes, 4096, MSG_DONTWAIT);
        if (count > 0) {
            taken += (uint64_t)count;
            found = memmem(bytes, (size_t)count, "\xab\xab\xab\xab\xab\xab\xab\xab", 8) != NULL;
        }
        loop_run_once(loop, count > 0 ? 0 : 2 * CLOCK_MS);
    }
    assert_true(found);
    assert_in_range(taken, 1, 300 * 1024);
    close(fd);
    close(listening);
    out_clear(&s.out);
    loop_timer_free(s.kick);
    road_free(s.road);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bulk_does_not_delay_control_and_act),
        TEST(once_the_rate_is_known_a_slow_road_is_prompt_too),
        TEST(bulk_has_its_floor_under_act),
        TEST(road_keeps_its_pace),
        TEST(uplink_is_shared_fairly),
        TEST(act_goes_before_the_bulk_of_another_road),
        TEST(control_passes_a_saturated_uplink),
        TEST(heartbeats_and_control_pass_act),
        TEST(slow_reader_gets_the_latest_telemetry),
        TEST(pace_of_a_link_may_change),
        TEST(kernel_queue_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
