/* The lanes' queues alone: order, floors, cutting, latest-wins, maxima. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/mem.h"
#include "ssh/link/lane.h"

#define ALL 0x1fu

static struct lanes lanes;

static int set_up(void **state)
{
    (void)state;
    lanes_init(&lanes, 100000);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    lanes_clear(&lanes);
    return 0;
}

static int put(int lane, size_t bytes, uint32_t key)
{
    struct frame_header header = {.message_bytes = (uint32_t)bytes, .type = 60, .lane = (uint8_t)lane, .micro_batch = key};
    uint8_t *payload = bytes ? mem_new(bytes) : NULL;
    for (size_t i = 0; i < bytes; i++)
        payload[i] = (uint8_t)(key + i);
    return lane_put(&lanes, &header, payload);
}

/* The lane and key of the next frame of at most `most` bytes. */
static int cut(size_t most, uint32_t *key)
{
    int lane = lane_pick(&lanes, ALL, most);
    struct lane_frame frame;
    if (lane < 0)
        return lane;
    lane_cut(&lanes, lane, most, &frame);
    if (key)
        *key = frame.header.micro_batch;
    lane_frame_clear(&frame);
    return lane;
}

static void higher_lanes_go_first(void **state)
{
    (void)state;
    static const int put_order[] = {LANE_BULK, LANE_TELEM, LANE_CONTROL, LANE_SYNC, LANE_ACT};
    static const int expected[] = {LANE_CONTROL, LANE_ACT, LANE_TELEM, LANE_SYNC, LANE_BULK};
    for (int i = 0; i < LANE_COUNT; i++)
        put(put_order[i], 10, 0);
    for (int i = 0; i < LANE_COUNT; i++)
        assert_int_equal(cut(1000, NULL), expected[i]);
    assert_int_equal(cut(1000, NULL), -1);
    assert_true(lanes_empty(&lanes));
}

static void one_lane_keeps_its_order(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 100; i++)
        put(LANE_ACT, i, i);
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t key = 999;
        assert_int_equal(cut(5000, &key), LANE_ACT);
        assert_int_equal(key, i);
    }
}

static void cut_frames_make_the_message(void **state)
{
    (void)state;
    struct lane_frame frame;
    size_t got = 0, frames = 0;
    put(LANE_BULK, 10000, 7);
    assert_int_equal(lanes.lane[LANE_BULK].queued_bytes, 10000 + FRAME_HEADER_BYTES);
    do {
        lane_cut(&lanes, LANE_BULK, 1036, &frame);
        assert_int_equal(frame.header.message_bytes, 10000);
        assert_true(frame.header.frame_bytes <= 1000);
        for (size_t i = 0; i < frame.header.frame_bytes; i++)
            assert_int_equal(frame.payload[i], (uint8_t)(7 + got + i));
        got += frame.header.frame_bytes;
        frames++;
        assert_int_equal(frame.header.flags, got < 10000 ? FRAME_MORE : 0);
        assert_int_equal(frame.owned != NULL, got == 10000);
        lane_frame_clear(&frame);
    } while (got < 10000);
    assert_int_equal(frames, 10);
    assert_int_equal(lanes.lane[LANE_BULK].queued_bytes, 0);
    assert_int_equal(lanes.lane[LANE_BULK].sent_bytes, 10000 + 10 * FRAME_HEADER_BYTES);
    assert_int_equal(lanes.lane[LANE_BULK].sent_messages, 1);
}

static void lower_lanes_have_a_floor(void **state)
{
    (void)state;
    size_t sent[LANE_COUNT] = {0};
    for (int turn = 0; turn < 20000; turn++) {
        for (int lane = LANE_ACT; lane < LANE_COUNT; lane++)
            if (lanes.lane[lane].queued_bytes < 5000)
                put(lane, 4000, (uint32_t)turn); /* a key of its own: TELEM does not replace */
        int lane = lane_pick(&lanes, ALL, 1000);
        struct lane_frame frame;
        lane_cut(&lanes, lane, 1000, &frame);
        sent[lane] += FRAME_HEADER_BYTES + frame.header.frame_bytes;
        lane_frame_clear(&frame);
    }
    double all = (double)(sent[LANE_ACT] + sent[LANE_SYNC] + sent[LANE_BULK] + sent[LANE_TELEM]);
    assert_true((double)sent[LANE_BULK] > 0.015 * all && (double)sent[LANE_BULK] < 0.025 * all);
    assert_true((double)sent[LANE_SYNC] > 0.015 * all && (double)sent[LANE_SYNC] < 0.025 * all);
    assert_true((double)sent[LANE_TELEM] > 0.015 * all && (double)sent[LANE_TELEM] < 0.025 * all);
    assert_true((double)sent[LANE_ACT] > 0.92 * all);
}

static void floor_is_not_saved_up(void **state)
{
    (void)state;
    for (int turn = 0; turn < 1000; turn++) { /* BULK has nothing to send meanwhile */
        put(LANE_ACT, 900, 0);
        cut(1000, NULL);
    }
    put(LANE_BULK, 50000, 0);
    for (int turn = 0; turn < 40; turn++) {
        put(LANE_ACT, 900, 0);
        assert_int_equal(cut(1000, NULL), LANE_ACT);
    }
}

static void control_is_never_behind_a_floor(void **state)
{
    (void)state;
    put(LANE_BULK, 50000, 0);
    for (int turn = 0; turn < 1000; turn++) {
        put(LANE_CONTROL, 900, 0);
        assert_int_equal(cut(1000, NULL), LANE_CONTROL);
    }
}

static void latest_telemetry_wins(void **state)
{
    (void)state;
    uint32_t key;
    for (int i = 0; i < 10; i++)
        for (uint32_t k = 0; k < 3; k++)
            put(LANE_TELEM, 20 + (size_t)i, k);
    assert_int_equal(lanes.lane[LANE_TELEM].queued_messages, 3);
    assert_int_equal(lanes.lane[LANE_TELEM].dropped_messages, 27);
    assert_int_equal(lanes.lane[LANE_TELEM].queued_bytes, 3 * (29 + FRAME_HEADER_BYTES));
    for (uint32_t k = 0; k < 3; k++) {
        assert_int_equal(cut(1000, &key), LANE_TELEM);
        assert_int_equal(key, k);
    }
}

static void telemetry_under_way_stays_whole(void **state)
{
    (void)state;
    struct lane_frame frame;
    put(LANE_TELEM, 100, 5);
    lane_cut(&lanes, LANE_TELEM, 60, &frame);
    lane_frame_clear(&frame);
    put(LANE_TELEM, 7, 5);
    assert_int_equal(lanes.lane[LANE_TELEM].dropped_messages, 0);
    lane_cut(&lanes, LANE_TELEM, 1000, &frame);
    assert_int_equal(frame.header.message_bytes, 100);
    lane_frame_clear(&frame);
    lane_cut(&lanes, LANE_TELEM, 1000, &frame);
    assert_int_equal(frame.header.message_bytes, 7);
    lane_frame_clear(&frame);
}

static void queue_has_a_maximum(void **state)
{
    (void)state;
    assert_int_equal(put(LANE_ACT, 200000, 0), 0); /* an empty lane takes any size */
    assert_int_equal(put(LANE_ACT, 1, 0), ERR_FULL);
    assert_int_equal(put(LANE_BULK, 1, 0), 0);
    assert_false(lane_drained(&lanes, LANE_ACT));
    while (lanes.lane[LANE_ACT].queued_bytes > 50000)
        cut(10000, NULL);
    assert_true(lane_drained(&lanes, LANE_ACT));
    assert_false(lane_drained(&lanes, LANE_ACT)); /* once */
    assert_false(lane_drained(&lanes, LANE_BULK));
}

static void paused_lane_waits(void **state)
{
    (void)state;
    put(LANE_ACT, 10, 0);
    put(LANE_BULK, 10, 0);
    lanes.lane[LANE_ACT].paused = 1;
    assert_int_equal(cut(1000, NULL), LANE_BULK);
    assert_int_equal(cut(1000, NULL), -1);
    lanes.lane[LANE_ACT].paused = 0;
    assert_int_equal(cut(1000, NULL), LANE_ACT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(higher_lanes_go_first),
        TEST(one_lane_keeps_its_order),
        TEST(cut_frames_make_the_message),
        TEST(lower_lanes_have_a_floor),
        TEST(floor_is_not_saved_up),
        TEST(control_is_never_behind_a_floor),
        TEST(latest_telemetry_wins),
        TEST(telemetry_under_way_stays_whole),
        TEST(queue_has_a_maximum),
        TEST(paused_lane_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
