/* The slow filter on an owned clock: rate, delay, jitter, cut, corrupt byte, flushing; and a flipped bit under TLS. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/buf.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "tests/helpers/certs.h"
#include "tests/helpers/ends.h"

static struct loop *loop;

/* One end of a bare road: sends bytes 0, 1, 2, … and checks and dates what it gets. */
struct pump {
    struct road *road;
    size_t to_send, sent, got;
    uint64_t first_ns, last_ns; /* arrival of the first and last byte */
    size_t wrong, wrong_at;     /* bytes that are not as sent */
    size_t received_per_ms[2000];
    uint64_t start_ns;
    int end_err;
    char end_text[600];
    bool done, finish, finished;
    size_t done_at;
};

static void pump_read(struct pump *pump)
{
    uint8_t bytes[5000];
    struct why why = {0};
    ssize_t count;
    while ((count = road_read(pump->road, bytes, sizeof bytes, &why)) > 0) {
        uint64_t now = clock_now_ns(), ms = (now - pump->start_ns) / CLOCK_MS;
        for (ssize_t i = 0; i < count; i++)
            if (bytes[i] != (uint8_t)(pump->got + (size_t)i)) {
                pump->wrong++;
                pump->wrong_at = pump->got + (size_t)i;
            }
        if (pump->got == 0)
            pump->first_ns = now;
        pump->last_ns = now;
        pump->got += (size_t)count;
        if (ms < sizeof pump->received_per_ms / sizeof *pump->received_per_ms)
            pump->received_per_ms[ms] += (size_t)count;
    }
    if (count != ERR_AGAIN) {
        pump->end_err = (int)count;
        snprintf(pump->end_text, sizeof pump->end_text, "%s", why.text);
        road_want(pump->road, false, false);
        pump->done = true;
    }
    pump->done |= pump->done_at && pump->got >= pump->done_at;
}

static void pump_write(struct pump *pump)
{
    uint8_t bytes[3000];
    struct why why = {0};
    while (pump->sent < pump->to_send) {
        size_t count = pump->to_send - pump->sent < sizeof bytes ? pump->to_send - pump->sent : sizeof bytes;
        for (size_t i = 0; i < count; i++)
            bytes[i] = (uint8_t)(pump->sent + i);
        ssize_t written = road_write(pump->road, bytes, count, &why);
        if (written == ERR_AGAIN)
            return;
        if (written < 0) {
            pump->end_err = (int)written;
            pump->done = true;
            return;
        }
        pump->sent += (size_t)written;
    }
    if (pump->finish && !pump->finished)
        pump->finished = road_finish(pump->road, &why) == 0;
    if (!pump->finish || pump->finished)
        road_want(pump->road, true, false);
}

static void pump_ready(void *arg)
{
    struct pump *pump = arg;
    pump_write(pump);
    if (!pump->done)
        pump_read(pump);
}

static void pump_begin(struct pump *pump, struct road *road, size_t to_send)
{
    struct why why = {0};
    memset(pump, 0, sizeof *pump);
    pump->road = road;
    pump->to_send = to_send;
    pump->start_ns = clock_now_ns();
    assert_int_equal(road_start(road, &why), 0);
    road_on_ready(road, pump_ready, pump);
    road_want(road, true, true);
}

static struct pump a, b;

static void begin(const struct slow_settings *settings, size_t room, size_t a_sends, size_t b_sends)
{
    struct road *one, *other;
    road_pair(loop, room, &one, &other);
    pump_begin(&a, road_slow(loop, one, settings), a_sends);
    pump_begin(&b, other, b_sends);
    b.done_at = a_sends;
}

static int set_up(void **state)
{
    (void)state;
    struct why why = {0};
    clock_own(50 * CLOCK_SECOND);
    loop = loop_new(&why);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    road_free(a.road);
    road_free(b.road);
    a.road = b.road = NULL;
    loop_run_once(loop, 0);
    loop_free(loop);
    clock_disown();
    return 0;
}

static void rate_is_within_a_tenth(void **state)
{
    (void)state;
    static const uint64_t rates[] = {1000000, 10000000, 200000000};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        size_t bytes = (size_t)rates[i] / 8; /* one second */
        begin(&(struct slow_settings){.rate_bps = rates[i]}, 1 << 20, bytes, bytes);
        a.done_at = bytes;
        assert_true(loop_until(loop, &b.done, 3 * CLOCK_SECOND) && loop_until(loop, &a.done, 3 * CLOCK_SECOND));
        assert_in_range(b.last_ns - b.start_ns, 900 * CLOCK_MS, 1100 * CLOCK_MS);
        assert_in_range(a.last_ns - a.start_ns, 900 * CLOCK_MS, 1100 * CLOCK_MS);
        assert_int_equal(a.wrong + b.wrong, 0);
        /* No burst anywhere: no 10 ms hold more than 10 ms of the rate and one piece. */
        for (size_t ms = 0; ms + 10 < 1000; ms++) {
            size_t sum = 0;
            for (size_t k = 0; k < 10; k++)
                sum += b.received_per_ms[ms + k];
            assert_true(sum <= bytes / 100 + bytes / 500 + 3000);
        }
        if (i + 1 < sizeof rates / sizeof *rates) {
            road_free(a.road);
            road_free(b.road);
        }
    }
}

static void delay_is_exact(void **state)
{
    (void)state;
    begin(&(struct slow_settings){.delay_ns = 80 * CLOCK_MS}, 1 << 20, 100000, 100);
    a.done_at = 100;
    assert_true(loop_until(loop, &b.done, CLOCK_SECOND) && loop_until(loop, &a.done, CLOCK_SECOND));
    assert_in_range(b.first_ns - b.start_ns, 80 * CLOCK_MS, 81 * CLOCK_MS);
    assert_in_range(a.first_ns - a.start_ns, 80 * CLOCK_MS, 81 * CLOCK_MS);
    assert_int_equal(a.wrong + b.wrong, 0);
}

static void delay_does_not_lower_the_rate(void **state)
{
    (void)state;
    begin(&(struct slow_settings){.rate_bps = 80000000, .delay_ns = 200 * CLOCK_MS}, 1 << 20, 10000000, 0);
    assert_true(loop_until(loop, &b.done, 3 * CLOCK_SECOND));
    assert_in_range(b.last_ns - b.start_ns, 1200 * CLOCK_MS, 1210 * CLOCK_MS);
}

static void jitter_keeps_order(void **state)
{
    (void)state;
    struct slow_settings settings = {.rate_bps = 8000000, .delay_ns = 20 * CLOCK_MS, .jitter_ns = 30 * CLOCK_MS, .seed = 3};
    begin(&settings, 1 << 20, 1000000, 0);
    assert_true(loop_until(loop, &b.done, 3 * CLOCK_SECOND));
    assert_int_equal(b.wrong, 0);
    assert_int_equal(b.got, 1000000);
    assert_in_range(b.first_ns - b.start_ns, 20 * CLOCK_MS, 52 * CLOCK_MS);
    size_t quiet = 0;
    for (size_t ms = 100; ms < 900; ms++)
        quiet += b.received_per_ms[ms] == 0;
    assert_true(quiet > 100); /* without jitter some bytes come every 2 ms */
}

static void cut_is_after_that_byte(void **state)
{
    (void)state;
    begin(&(struct slow_settings){.cut_after_bytes = 12345}, 1000, 100000, 0);
    assert_true(loop_until(loop, &b.done, CLOCK_SECOND) && loop_until(loop, &a.done, CLOCK_SECOND));
    assert_int_equal(b.got, 12345);
    assert_int_equal(b.end_err, ERR_GONE);
    assert_int_equal(a.end_err, ERR_GONE);
    assert_int_equal(b.wrong, 0);
}

static void one_bit_flips(void **state)
{
    (void)state;
    static const uint64_t bytes[] = {1, 2, 2999, 3001, 50000};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        begin(&(struct slow_settings){.corrupt_byte = bytes[i]}, 700, 50000, 0);
        assert_true(loop_until(loop, &b.done, CLOCK_SECOND));
        assert_int_equal(b.wrong, 1);
        assert_int_equal(b.wrong_at, bytes[i] - 1);
        if (i + 1 < sizeof bytes / sizeof *bytes) {
            road_free(a.road);
            road_free(b.road);
        }
    }
}

static void finish_delivers_all_first(void **state)
{
    (void)state;
    begin(&(struct slow_settings){.rate_bps = 8000000, .delay_ns = 50 * CLOCK_MS}, 1000, 100000, 0);
    a.finish = true;
    b.done_at = 0;
    assert_true(loop_until(loop, &b.done, CLOCK_SECOND));
    assert_int_equal(b.got, 100000);
    assert_int_equal(b.end_err, ERR_GONE);
    assert_true(a.finished);
}

static void end_comes_after_the_bytes(void **state)
{
    (void)state;
    begin(&(struct slow_settings){.delay_ns = 50 * CLOCK_MS}, 100000, 0, 500);
    b.finish = true;
    assert_true(loop_until(loop, &a.done, CLOCK_SECOND));
    assert_int_equal(a.got, 500);
    assert_int_equal(a.end_err, ERR_GONE);
    assert_in_range(a.last_ns - a.start_ns, 50 * CLOCK_MS, 51 * CLOCK_MS);
}

static void idle_filter_costs_no_turns(void **state)
{
    (void)state;
    begin(&(struct slow_settings){.rate_bps = 8000000, .delay_ns = CLOCK_MS}, 1000, 1000, 0);
    assert_true(loop_until(loop, &b.done, CLOCK_SECOND));
    loop_for(loop, CLOCK_SECOND);
    assert_true(loop_next_ns(loop) == UINT64_MAX);
}

/* ---- under TLS: a flipped bit is noticed, and ends the link with words on both sides ---- */

static void flipped_bit_under_tls(void **state)
{
    (void)state;
    char folder[400];
    struct why why = {0};
    struct end left = {0}, right = {0};
    struct road *one, *other;
    certs_make(ENDS_RUN, folder, sizeof folder);
    struct credentials *mine = certs_load(folder, "left"), *theirs = certs_load(folder, "right");
    struct link_settings left_settings = ends_settings("left"), right_settings = ends_settings("right");
    road_pair(loop, 65536, &one, &other);
    one = road_slow(loop, one, &(struct slow_settings){.corrupt_byte = 100000});
    end_begin(&left, loop, road_tls(loop, one, mine, false, &why), &left_settings);
    end_begin(&right, loop, road_tls(loop, other, theirs, true, &why), &right_settings);
    assert_true(loop_until(loop, &left.is_up, CLOCK_SECOND) && loop_until(loop, &right.is_up, CLOCK_SECOND));
    link_send_encoded(left.link, WIRE_ACT, mem_new(200000), 200000, 1, 0);
    loop_until(loop, &right.is_down, CLOCK_SECOND);
    loop_until(loop, &left.is_down, 2 * CLOCK_SECOND);
    if (right.down_err != ERR_INVALID || left.down_err != ERR_INVALID)
        fail_msg("'%s' '%s'", left.down_reason, right.down_reason);
    assert_int_equal(right.messages[LANE_ACT], 0);
    assert_int_equal(right.down_err, ERR_INVALID);
    assert_non_null(strstr(right.down_reason, "sent bytes that were changed on the way"));
    assert_int_equal(left.down_err, ERR_INVALID);
    assert_non_null(strstr(left.down_reason, "says that our bytes were changed on the way"));
    end_free(&left, loop);
    end_free(&right, loop);
    credentials_free(mine);
    credentials_free(theirs);
    certs_remove(folder);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(rate_is_within_a_tenth),
        TEST(delay_is_exact),
        TEST(delay_does_not_lower_the_rate),
        TEST(jitter_keeps_order),
        TEST(cut_is_after_that_byte),
        TEST(one_bit_flips),
        TEST(finish_delivers_all_first),
        TEST(end_comes_after_the_bytes),
        TEST(idle_filter_costs_no_turns),
        TEST(flipped_bit_under_tls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
