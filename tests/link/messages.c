/* What is sent is what arrives: random messages of random sizes on all lanes the language uses, over roads that take
 * and give as they like, with and without TLS; counters agree; a capture of it decodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/hash.h"
#include "ssh/base/mem.h"
#include "ssh/wire/decode.h"
#include "tests/helpers/certs.h"
#include "tests/helpers/ends.h"
#include "tests/helpers/flaky.h"

#define MESSAGES 300

static struct loop *loop;
static struct end a, b;
static char folder[400];
static struct credentials *left, *right;

/* What was sent on a lane, in order: hashes of (type, step, micro-batch, payload). */
struct ledger {
    uint64_t hash[MESSAGES];
    size_t count;
};
static struct ledger sent[2][LANE_COUNT], got[2][LANE_COUNT];
static bool all_here;
static size_t total;

static int make_credentials(void **state)
{
    (void)state;
    certs_make(ENDS_RUN, folder, sizeof folder);
    left = certs_load(folder, "left");
    right = certs_load(folder, "right");
    return 0;
}

static int remove_credentials(void **state)
{
    (void)state;
    credentials_free(left);
    credentials_free(right);
    certs_remove(folder);
    return 0;
}

static uint64_t fingerprint(uint16_t type, uint64_t step, uint32_t micro_batch, const uint8_t *payload, size_t bytes)
{
    uint64_t hash = hash_add(HASH_START, &type, sizeof type);
    hash = hash_add(hash, &step, sizeof step);
    hash = hash_add(hash, &micro_batch, sizeof micro_batch);
    return hash_finish(bytes ? hash_add(hash, payload, bytes) : hash);
}

static int note(struct end *end, const struct frame_header *header, const uint8_t *payload, size_t bytes)
{
    struct ledger *ledger = &got[end == &b][header->lane];
    assert_true(ledger->count < MESSAGES);
    ledger->hash[ledger->count++] = fingerprint(header->type, header->step, header->micro_batch, payload, bytes);
    all_here = --total == 0;
    return 0;
}

static void send_random(uint64_t *random, struct end *end, int direction)
{
    static const enum wire_type types[] = {WIRE_ASSIGN, WIRE_EVENT,  WIRE_ACT,  WIRE_GRAD,
                                           WIRE_STAMP,  WIRE_SAMPLE, WIRE_REPLY};
    enum wire_type type = types[flaky_random(random, sizeof types / sizeof *types)];
    const struct wire_message *message = wire_find((uint16_t)type);
    size_t most = message->max_bytes < 300000 ? message->max_bytes : flaky_random(random, 10) ? 3000 : 300000;
    size_t bytes = (size_t)flaky_random(random, most + 1);
    uint8_t *payload = bytes ? mem_new(bytes) : NULL;
    for (size_t i = 0; i < bytes; i++)
        payload[i] = (uint8_t)flaky_random(random, 256);
    uint64_t step = flaky_random(random, UINT64_MAX);
    struct ledger *ledger = &sent[direction][message->lane];
    /* A key of its own for every TELEM message: none replaces another. */
    uint32_t micro_batch = (uint32_t)ledger->count;
    ledger->hash[ledger->count++] = fingerprint((uint16_t)type, step, micro_batch, payload, bytes);
    total++;
    assert_int_equal(link_send_encoded(end->link, type, payload, bytes, step, micro_batch), 0);
}

static void check_counters(const struct end *from, const struct end *to)
{
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        struct link_counters out, in;
        link_get_counters(from->link, (enum wire_lane)lane, &out);
        link_get_counters(to->link, (enum wire_lane)lane, &in);
        assert_int_equal(out.sent_bytes, in.received_bytes);
        assert_int_equal(out.sent_frames, in.received_frames);
        assert_int_equal(out.sent_messages, in.received_messages);
        assert_int_equal(out.queued_bytes, 0);
        assert_int_equal(out.queued_messages, 0);
        assert_int_equal(out.dropped_messages, 0);
    }
}

static bool all_arrived(const struct end *from, const struct end *to)
{
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        struct link_counters out, in;
        link_get_counters(from->link, (enum wire_lane)lane, &out);
        link_get_counters(to->link, (enum wire_lane)lane, &in);
        if (out.sent_bytes != in.received_bytes || out.queued_bytes)
            return false;
    }
    return true;
}

static void exchange(struct road *one, struct road *other, uint64_t seed, int messages)
{
    struct link_settings mine = ends_settings("left"), theirs = ends_settings("right");
    uint64_t random = seed;
    mine.heartbeat_ns = theirs.heartbeat_ns = 1000 * CLOCK_SECOND; /* none is under way when the counters are compared */
    mine.silent_ns = theirs.silent_ns = 3000 * CLOCK_SECOND;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    memset(sent, 0, sizeof sent);
    memset(got, 0, sizeof got);
    a.on_message = b.on_message = note;
    all_here = false;
    total = 0;
    end_begin(&a, loop, one, &mine);
    end_begin(&b, loop, other, &theirs);
    for (int i = 0; i < messages; i++) { /* the first ones before the greeting is over */
        send_random(&random, i % 2 ? &b : &a, i % 2 ? 0 : 1);
        if (flaky_random(&random, 5) == 0)
            loop_run_once(loop, 0);
    }
    if (total && !loop_until(loop, &all_here, 60 * CLOCK_SECOND))
        fail_msg("%zu missing; '%s' '%s'", total, a.down_reason, b.down_reason);
    /* A heartbeat may be under way still, on a road that takes a byte at a time. */
    for (int i = 0; i < 100 && !(all_arrived(&a, &b) && all_arrived(&b, &a)); i++)
        loop_for(loop, 100 * CLOCK_MS);
    for (int direction = 0; direction < 2; direction++)
        for (int lane = 0; lane < LANE_COUNT; lane++) {
            assert_int_equal(sent[direction][lane].count, got[direction][lane].count);
            assert_memory_equal(sent[direction][lane].hash, got[direction][lane].hash, sizeof sent[0][0].hash);
        }
    check_counters(&a, &b);
    check_counters(&b, &a);
    end_free(&a, loop);
    end_free(&b, loop);
}

static int disown_clock(void **state)
{
    (void)state;
    clock_disown();
    return 0;
}

static void begin_loop(void)
{
    struct why why = {0};
    loop = loop_new(&why);
    assert_non_null(loop);
}

static void over_flaky_roads(void **state)
{
    (void)state;
    clock_own(1000 * CLOCK_SECOND);
    begin_loop();
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct road *one, *other;
        road_pair(loop, 1 + (size_t)seed * 300, &one, &other);
        exchange(road_flaky(loop, one, seed), road_flaky(loop, other, seed + 1000), seed, MESSAGES / 10);
    }
    loop_free(loop);
}

static void over_tls_over_flaky_roads(void **state)
{
    (void)state;
    struct why why = {0};
    clock_own(1000 * CLOCK_SECOND);
    begin_loop();
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct road *one, *other;
        road_pair(loop, 1 + (size_t)seed * 300, &one, &other);
        one = road_tls(loop, road_flaky(loop, one, seed), left, false, &why);
        other = road_tls(loop, road_flaky(loop, other, seed + 1000), right, true, &why);
        exchange(road_flaky(loop, one, seed + 5), other, seed, MESSAGES / 10);
    }
    loop_free(loop);
}

static void over_slow_road_with_jitter(void **state)
{
    (void)state;
    clock_own(1000 * CLOCK_SECOND);
    begin_loop();
    struct slow_settings settings = {.rate_bps = 20000000, .delay_ns = 30 * CLOCK_MS, .jitter_ns = 20 * CLOCK_MS};
    struct road *one, *other;
    road_pair(loop, 5000, &one, &other);
    exchange(road_slow(loop, one, &settings), other, 3, MESSAGES / 2);
    loop_free(loop);
}

/* ---- real sockets ---- */

static struct road *accepted;

static void on_accept(struct road *road, const char *from, void *arg)
{
    (void)from, (void)arg;
    accepted = road;
}

static void over_sockets(bool tls)
{
    struct why why = {0};
    begin_loop();
    struct listener *listener = listener_tcp(loop, "127.0.0.1:0", on_accept, NULL, &why);
    struct road *one = road_tcp_dial(loop, listener_address(listener), &why), *other;
    accepted = NULL;
    road_start(one, &why);
    for (int i = 0; i < 100 && !accepted; i++)
        loop_run_once(loop, 10 * CLOCK_MS);
    assert_non_null(accepted);
    other = accepted;
    if (tls) {
        one = road_tls(loop, one, left, false, &why);
        other = road_tls(loop, other, right, true, &why);
    }
    exchange(one, other, 99, MESSAGES);
    listener_free(listener);
    loop_free(loop);
}

static void over_tcp(void **state)
{
    (void)state;
    over_sockets(false);
}

static void over_tcp_and_tls(void **state)
{
    (void)state;
    over_sockets(true);
}

/* ---- captures ---- */

static void capture_decodes(void **state)
{
    (void)state;
    char path[600], text_path[600];
    struct why why = {0};
    struct road *one, *other;
    snprintf(path, sizeof path, "%s/road.capture", folder);
    snprintf(text_path, sizeof text_path, "%s/road.text", folder);
    clock_own(1000 * CLOCK_SECOND);
    begin_loop();
    road_pair(loop, 500, &one, &other);
    one = road_record(loop, road_flaky(loop, one, 5), path, &why);
    assert_non_null(one);
    struct link_settings mine = ends_settings("left"), theirs = ends_settings("right");
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    end_begin(&a, loop, one, &mine);
    end_begin(&b, loop, other, &theirs);
    struct wire_event event = {.level = EVENT_ALERT, .step = 12, .code = "drift", .text = "masks differ"};
    assert_int_equal(link_send(b.link, WIRE_EVENT, &event, 0, 0), 0);
    loop_for(loop, 3 * CLOCK_SECOND);
    link_close(a.link, 0, "enough", CLOCK_SECOND);
    assert_true(loop_until(loop, &b.is_down, CLOCK_SECOND));
    end_free(&a, loop);
    end_free(&b, loop);
    loop_free(loop);

    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    FILE *out = fopen(text_path, "w");
    int err = decode_file(path, out, &why);
    fclose(out);
    if (err)
        fail_msg("%s", why.text);
    uint8_t *text;
    size_t bytes;
    assert_int_equal(file_read(text_path, 1 << 20, &text, &bytes, &why), 0);
    static const char *const expected[] = {"HELLO", "HEARTBEAT", "EVENT", "masks differ", "BYE", "enough"};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (!strstr((char *)text, expected[i]))
            fail_msg("no '%s' in:\n%s", expected[i], (char *)text);
    mem_free(text);
}

static void full_disk_ends_the_capture_not_the_road(void **state)
{
    (void)state;
    struct why why = {0};
    struct road *one, *other;
    if (access("/dev/full", W_OK) != 0)
        skip();
    begin_loop();
    road_pair(loop, 5000, &one, &other);
    assert_null(road_record(loop, one, "/dev/full", &why)); /* not even the head fits */
    assert_int_equal(why.err, ERR_FULL);
    why = (struct why){0};
    assert_null(road_record(loop, one, "/nowhere/at/all", &why));
    assert_int_equal(why.err, ERR_ABSENT);
    road_free(one);
    road_free(other);
    loop_free(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(over_flaky_roads, disown_clock),
        cmocka_unit_test_teardown(over_tls_over_flaky_roads, disown_clock),
        cmocka_unit_test_teardown(over_slow_road_with_jitter, disown_clock),
        cmocka_unit_test_teardown(over_tcp, disown_clock),
        cmocka_unit_test_teardown(over_tcp_and_tls, disown_clock),
        cmocka_unit_test_teardown(capture_decodes, disown_clock),
        cmocka_unit_test_teardown(full_disk_ends_the_capture_not_the_road, disown_clock),
    };
    return cmocka_run_group_tests(tests, make_credentials, remove_credentials);
}
