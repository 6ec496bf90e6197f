/* Frames: however messages are cut, mixed and fed, they come out whole and in order; what is wrong ends the parser. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/buf.h"
#include "ssh/base/mem.h"
#include "ssh/wire/frame.h"
#include "ssh/wire/wire.h"
#include "tests/helpers/dice.h"

#define RUN_ID UINT64_C(0x1122334455667788)
#define LANE_MESSAGES 40
#define ROOM ((size_t)64 << 20)

/* ---- sending side: messages of several lanes, cut at random ---- */

struct message {
    struct frame_header header;
    uint8_t *payload;
    size_t sent;
};

struct lane {
    struct message messages[LANE_MESSAGES];
    int next;     /* being cut into frames */
    int received; /* have come out of the parser */
};

struct traffic {
    struct lane lanes[LANE_COUNT];
    int received;
};

/* Types of a lane; the parser does not look into payloads. */
static uint16_t random_type(struct dice *dice, int lane)
{
    size_t count;
    const struct wire_message *messages = wire_all(&count);
    for (;;) {
        const struct wire_message *message = &messages[dice_below(dice, count)];
        if ((int)message->lane == lane)
            return (uint16_t)message->type;
    }
}

static void put_frame(struct buf *stream, const struct frame_header *header, const uint8_t *bytes)
{
    uint8_t head[FRAME_HEADER_BYTES];
    frame_encode(header, head);
    assert_int_equal(buf_put(stream, head, sizeof head), 0);
    assert_int_equal(buf_put(stream, bytes, header->frame_bytes), 0);
}

static void make_messages(struct dice *dice, struct traffic *traffic, int lane, size_t most)
{
    for (int i = 0; i < LANE_MESSAGES; i++) {
        struct message *message = &traffic->lanes[lane].messages[i];
        message->header = (struct frame_header){
            .type = random_type(dice, lane), .lane = (uint8_t)lane, .run_id = RUN_ID,
            .incarnation = (uint32_t)dice_u64(dice), .step = dice_u64(dice), .micro_batch = (uint32_t)dice_u64(dice),
        };
        size_t limit = wire_find(message->header.type)->max_bytes;
        limit = limit < most ? limit : most;
        message->header.message_bytes = (uint32_t)(dice_below(dice, 8) ? dice_below(dice, limit + 1) : 0);
        message->payload = mem_new(message->header.message_bytes + 1u);
        dice_bytes(dice, message->payload, message->header.message_bytes);
    }
}

/* Append one frame of the lane's next message, of a random length (an empty message is one empty frame). */
static void cut_frame(struct dice *dice, struct lane *lane, struct buf *stream)
{
    struct message *message = &lane->messages[lane->next];
    size_t left = message->header.message_bytes - message->sent, most = dice_below(dice, 3) ? left : left / 8 + 1;
    struct frame_header header = message->header;
    header.frame_bytes = (uint32_t)(left ? 1 + dice_below(dice, most) : 0);
    header.flags = header.frame_bytes < left ? FRAME_MORE : 0;
    put_frame(stream, &header, message->payload + message->sent);
    message->sent += header.frame_bytes;
    if (!header.flags)
        lane->next++;
}

static void make_stream(struct dice *dice, struct traffic *traffic, size_t most, struct buf *stream)
{
    static const int used[] = {LANE_CONTROL, LANE_ACT, LANE_TELEM}; /* SYNC and BULK have no messages yet */
    int open = 0;
    buf_init(stream, ROOM);
    memset(traffic, 0, sizeof *traffic);
    for (size_t i = 0; i < 3; i++, open++)
        make_messages(dice, traffic, used[i], most);
    while (open) {
        struct lane *lane = &traffic->lanes[used[dice_below(dice, 3)]];
        if (lane->next == LANE_MESSAGES)
            continue;
        cut_frame(dice, lane, stream);
        open -= lane->next == LANE_MESSAGES;
    }
}

static void free_traffic(struct traffic *traffic, struct buf *stream)
{
    for (int i = 0; i < LANE_COUNT; i++)
        for (int j = 0; j < LANE_MESSAGES; j++)
            mem_free(traffic->lanes[i].messages[j].payload);
    buf_clear(stream);
}

/* ---- receiving side ---- */

static int check_message(const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg, struct why *why)
{
    struct traffic *traffic = arg;
    (void)why;
    assert_true(header->lane < LANE_COUNT);
    struct lane *lane = &traffic->lanes[header->lane];
    assert_true(lane->received < LANE_MESSAGES);
    const struct message *expected = &lane->messages[lane->received++];
    assert_int_equal(bytes, expected->header.message_bytes);
    assert_int_equal(header->message_bytes, bytes);
    assert_int_equal(header->frame_bytes, bytes);
    assert_int_equal(header->type, expected->header.type);
    assert_int_equal(header->flags, 0);
    assert_int_equal(header->run_id, RUN_ID);
    assert_int_equal(header->incarnation, expected->header.incarnation);
    assert_int_equal(header->step, expected->header.step);
    assert_int_equal(header->micro_batch, expected->header.micro_batch);
    if (bytes)
        assert_memory_equal(payload, expected->payload, bytes);
    traffic->received++;
    return 0;
}

/* Feed exact copies, so that a read beyond the fed bytes is seen by the sanitizer. */
static int feed(struct frame_parser *parser, const uint8_t *bytes, size_t count, struct why *why)
{
    uint8_t *exact = mem_copy(bytes, count);
    int err = frame_parser_feed(parser, exact, count, why);
    mem_free(exact);
    return err;
}

static void run_traffic(uint64_t seed, size_t most, size_t split)
{
    struct dice dice = {seed};
    struct traffic traffic;
    struct buf stream;
    make_stream(&dice, &traffic, most, &stream);
    struct frame_parser *parser = frame_parser_new(seed % 2 ? RUN_ID : 0, check_message, &traffic);
    struct why why = {0};
    while (buf_used(&stream)) {
        size_t count = 1 + dice_below(&dice, split);
        count = count < buf_used(&stream) ? count : buf_used(&stream);
        if (feed(parser, buf_peek(&stream), count, &why) != 0)
            fail_msg("%s", why.text);
        buf_consume(&stream, count);
        assert_true(frame_parser_held(parser) <= LANE_COUNT * (most > 4096 ? 2 * most : 4096));
    }
    assert_int_equal(traffic.received, 3 * LANE_MESSAGES);
    frame_parser_free(parser);
    free_traffic(&traffic, &stream);
}

static void messages_come_out_however_they_are_cut_and_fed(void **state)
{
    (void)state;
    static const size_t splits[] = {1, 2, 40, 1000, 100000};
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++)
        for (uint64_t seed = 1; seed <= 4; seed++)
            run_traffic(seed + 10 * i, i < 3 ? 300 : 20000, splits[i]);
}

static void headers_go_there_and_back(void **state)
{
    (void)state;
    static const uint8_t expected[FRAME_HEADER_BYTES] = {
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30,
        31, 32, 33, 34, 35, 36,
    };
    const struct frame_header header = {
        .frame_bytes = 0x04030201, .message_bytes = 0x08070605, .type = 0x0a09, .lane = 11, .flags = 12,
        .run_id = UINT64_C(0x14131211100f0e0d), .incarnation = 0x18171615, .step = UINT64_C(0x201f1e1d1c1b1a19),
        .micro_batch = 0x24232221,
    };
    uint8_t bytes[FRAME_HEADER_BYTES];
    struct frame_header back;
    frame_encode(&header, bytes);
    assert_memory_equal(bytes, expected, sizeof expected);
    frame_decode(bytes, &back);
    assert_int_equal(back.frame_bytes, header.frame_bytes);
    assert_int_equal(back.message_bytes, header.message_bytes);
    assert_int_equal(back.type, header.type);
    assert_int_equal(back.lane, header.lane);
    assert_int_equal(back.flags, header.flags);
    assert_int_equal(back.run_id, header.run_id);
    assert_int_equal(back.incarnation, header.incarnation);
    assert_int_equal(back.step, header.step);
    assert_int_equal(back.micro_batch, header.micro_batch);
}

/* ---- what ends a parser ---- */

static int count_message(const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg, struct why *why)
{
    (void)header;
    (void)payload;
    (void)bytes;
    (void)why;
    ++*(int *)arg;
    return 0;
}

/* A frame that completes an ACT of 100 bytes, of which 40 have come; a bad row changes one thing. */
#define GOOD .frame_bytes = 60, .message_bytes = 100, .type = WIRE_ACT, .lane = LANE_ACT, .run_id = RUN_ID, \
             .incarnation = 1, .step = 5, .micro_batch = 2

struct bad_frame {
    const char *reason;
    struct frame_header header;
};

/* Each row has one thing wrong, on purpose over what GOOD says. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
static const struct bad_frame bad_first[] = { /* as the first frame of a message */
    {"another run", {GOOD, .frame_bytes = 100, .run_id = RUN_ID + 1}},
    {"another run", {GOOD, .frame_bytes = 100, .run_id = 0}},
    {"unknown message type 0", {GOOD, .frame_bytes = 100, .type = 0}},
    {"unknown message type 10", {GOOD, .frame_bytes = 100, .type = 10}},
    {"unknown message type 65535", {GOOD, .frame_bytes = 100, .type = 65535}},
    {"came on lane 0 (control), it belongs on lane act", {GOOD, .frame_bytes = 100, .lane = LANE_CONTROL}},
    {"came on lane 5 (unknown)", {GOOD, .frame_bytes = 100, .lane = LANE_COUNT}},
    {"came on lane 255 (unknown)", {GOOD, .frame_bytes = 100, .lane = 255}},
    {"HELLO came on lane 1", {GOOD, .frame_bytes = 100, .type = WIRE_HELLO}},
    {"unknown flags 0x02", {GOOD, .frame_bytes = 100, .flags = 2}},
    {"unknown flags 0x81", {GOOD, .flags = 0x81}},
    {"announces 268435457 bytes, at most 268435456", {GOOD, .message_bytes = (256u << 20) + 1, .flags = FRAME_MORE}},
    {"announces 4294967295 bytes", {GOOD, .message_bytes = UINT32_MAX, .flags = FRAME_MORE}},
    {"DONE announces 9 bytes, at most 8",
     {GOOD, .frame_bytes = 9, .message_bytes = 9, .type = WIRE_DONE, .lane = LANE_CONTROL}},
    {"has 101 bytes, only 100 remain", {GOOD, .frame_bytes = 101}},
    {"has 4294967295 bytes, only 100 remain", {GOOD, .frame_bytes = UINT32_MAX, .flags = FRAME_MORE}},
    {"leaves 40 bytes of the message missing", {GOOD}},
    {"leaves 100 bytes of the message missing", {GOOD, .frame_bytes = 0}},
    {"says that more follows", {GOOD, .frame_bytes = 100, .flags = FRAME_MORE}},
    {"says that more follows", {GOOD, .frame_bytes = 0, .message_bytes = 0, .flags = FRAME_MORE}},
    {"is empty and says that more follows", {GOOD, .frame_bytes = 0, .flags = FRAME_MORE}},
};
static const struct bad_frame bad_second[] = { /* after a frame of 40 bytes with FRAME_MORE */
    {"another run", {GOOD, .run_id = RUN_ID ^ 1}},
    {"the type changed inside a ACT", {GOOD, .type = WIRE_GRAD}},
    {"the message length changed", {GOOD, .frame_bytes = 61, .message_bytes = 101}},
    {"the incarnation changed", {GOOD, .incarnation = 2}},
    {"the step changed inside a ACT on lane act", {GOOD, .step = 6}},
    {"the micro-batch changed", {GOOD, .micro_batch = 3}},
    {"has 61 bytes, only 60 remain", {GOOD, .frame_bytes = 61}},
    {"has 100 bytes, only 60 remain", {GOOD, .frame_bytes = 100}},
    {"leaves 1 bytes of the message missing", {GOOD, .frame_bytes = 59}},
    {"says that more follows", {GOOD, .flags = FRAME_MORE}},
    {"is empty and says that more follows", {GOOD, .frame_bytes = 0, .flags = FRAME_MORE}},
    {"unknown flags", {GOOD, .flags = 4}},
};
static const struct frame_header first_half = {GOOD, .frame_bytes = 40, .flags = FRAME_MORE};
static const struct frame_header whole = {GOOD, .frame_bytes = 100};
#pragma GCC diagnostic pop

static const uint8_t zeros[100];

/* The parser refuses `row` after `lead` (may be NULL), says why, holds nothing and stays dead. */
static void check_refused(const struct frame_header *lead, const struct bad_frame *row, size_t split)
{
    int received = 0;
    struct why why = {0}, again = {0};
    struct buf stream;
    uint8_t head[FRAME_HEADER_BYTES];
    buf_init(&stream, ROOM);
    put_frame(&stream, &whole, zeros);
    if (lead)
        put_frame(&stream, lead, zeros);
    frame_encode(&row->header, head);
    assert_int_equal(buf_put(&stream, head, sizeof head), 0);
    struct frame_parser *parser = frame_parser_new(RUN_ID, count_message, &received);
    int err = 0;
    while (!err && buf_used(&stream)) {
        size_t count = split < buf_used(&stream) ? split : buf_used(&stream);
        err = feed(parser, buf_peek(&stream), count, &why);
        buf_consume(&stream, count);
    }
    if (err != ERR_INVALID || !strstr(why.text, row->reason))
        fail_msg("%d '%s', expected '%s'", err, why.text, row->reason);
    assert_int_equal(buf_used(&stream), 0); /* only the last byte of the header decided */
    assert_int_equal(received, 1);
    assert_int_equal(frame_parser_held(parser), 0);
    put_frame(&stream, &whole, zeros);
    assert_int_equal(feed(parser, buf_peek(&stream), buf_used(&stream), &again), ERR_INVALID);
    assert_string_equal(again.text, why.text);
    assert_int_equal(frame_parser_feed(parser, NULL, 0, NULL), ERR_INVALID);
    assert_int_equal(received, 1);
    frame_parser_free(parser);
    buf_clear(&stream);
}

static void what_is_wrong_is_named_and_final(void **state)
{
    (void)state;
    static const size_t splits[] = {1, 7, 10000};
    for (size_t s = 0; s < 3; s++) {
        for (size_t i = 0; i < sizeof bad_first / sizeof *bad_first; i++)
            check_refused(NULL, &bad_first[i], splits[s]);
        for (size_t i = 0; i < sizeof bad_second / sizeof *bad_second; i++)
            check_refused(&first_half, &bad_second[i], splits[s]);
    }
}

static int refuse_third(const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg, struct why *why)
{
    int *count = arg;
    (void)header;
    (void)payload;
    (void)bytes;
    return ++*count == 3 ? why_set(why, ERR_REFUSED, "not that one") : 0;
}

static int fail_silently(const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg, struct why *why)
{
    (void)header;
    (void)payload;
    (void)bytes;
    (void)arg;
    (void)why;
    return ERR_FULL;
}

static void a_receiver_may_refuse(void **state)
{
    (void)state;
    int count = 0;
    struct why why = {0};
    struct buf stream;
    buf_init(&stream, ROOM);
    for (int i = 0; i < 5; i++)
        put_frame(&stream, &whole, zeros);
    struct frame_parser *parser = frame_parser_new(RUN_ID, refuse_third, &count);
    assert_int_equal(feed(parser, buf_peek(&stream), buf_used(&stream), &why), ERR_REFUSED);
    assert_string_equal(why.text, "not that one");
    assert_int_equal(feed(parser, buf_peek(&stream), buf_used(&stream), NULL), ERR_REFUSED);
    assert_int_equal(count, 3);
    frame_parser_free(parser);
    parser = frame_parser_new(RUN_ID, fail_silently, NULL);
    why = (struct why){0};
    assert_int_equal(feed(parser, buf_peek(&stream), buf_used(&stream), &why), ERR_FULL);
    assert_true(why.text[0] != 0);
    frame_parser_free(parser);
    frame_parser_free(NULL);
    buf_clear(&stream);
}

/* ---- memory ---- */

static void memory_follows_what_came_not_what_was_announced(void **state)
{
    (void)state;
    int received = 0;
    struct frame_header header = whole;
    uint8_t head[FRAME_HEADER_BYTES], byte = 0;
    header.message_bytes = 256u << 20;
    header.frame_bytes = 128u << 20;
    header.flags = FRAME_MORE;
    struct frame_parser *parser = frame_parser_new(RUN_ID, count_message, &received);
    frame_encode(&header, head);
    assert_int_equal(feed(parser, head, sizeof head, NULL), 0);
    assert_int_equal(frame_parser_held(parser), 0);
    for (int i = 1; i <= 10000; i++) {
        assert_int_equal(frame_parser_feed(parser, &byte, 1, NULL), 0);
        assert_true(frame_parser_held(parser) <= (i <= 4096 ? 4096 : 2u * (unsigned)i));
    }
    frame_parser_free(parser);
    assert_int_equal(received, 0);
}

static void large_buffers_are_given_back(void **state)
{
    (void)state;
    int received = 0;
    size_t bytes = (size_t)20 << 20;
    struct frame_header header = whole;
    uint8_t head[FRAME_HEADER_BYTES], *payload = mem_new(bytes);
    header.message_bytes = header.frame_bytes = (uint32_t)bytes;
    struct frame_parser *parser = frame_parser_new(RUN_ID, count_message, &received);
    frame_encode(&header, head);
    assert_int_equal(frame_parser_feed(parser, head, sizeof head, NULL), 0);
    assert_int_equal(frame_parser_feed(parser, payload, bytes / 2, NULL), 0);
    assert_in_range(frame_parser_held(parser), bytes / 2, bytes);
    assert_int_equal(frame_parser_feed(parser, payload, bytes - bytes / 2, NULL), 0);
    assert_int_equal(received, 1);
    assert_int_equal(frame_parser_held(parser), 0);
    frame_parser_free(parser);
    mem_free(payload);
}

static int note_address(const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg, struct why *why)
{
    (void)header;
    (void)bytes;
    (void)why;
    *(const uint8_t **)arg = payload;
    return 0;
}

static void a_message_that_is_here_whole_is_not_copied(void **state)
{
    (void)state;
    const uint8_t *address = NULL;
    struct buf stream;
    buf_init(&stream, ROOM);
    put_frame(&stream, &whole, zeros);
    struct frame_parser *parser = frame_parser_new(RUN_ID, note_address, &address);
    assert_int_equal(frame_parser_feed(parser, buf_peek(&stream), buf_used(&stream), NULL), 0);
    assert_ptr_equal(address, buf_peek(&stream) + FRAME_HEADER_BYTES);
    assert_int_equal(frame_parser_held(parser), 0);
    frame_parser_free(parser);
    buf_clear(&stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_come_out_however_they_are_cut_and_fed),
        cmocka_unit_test(headers_go_there_and_back),
        cmocka_unit_test(what_is_wrong_is_named_and_final),
        cmocka_unit_test(a_receiver_may_refuse),
        cmocka_unit_test(memory_follows_what_came_not_what_was_announced),
        cmocka_unit_test(large_buffers_are_given_back),
        cmocka_unit_test(a_message_that_is_here_whole_is_not_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
