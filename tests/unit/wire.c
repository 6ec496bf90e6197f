/* The language: every row of the table goes there and back, and nothing that is not exactly right is taken. */
#include <math.h>
#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/mem.h"
#include "ssh/wire/wire.h"
#include "tests/helpers/bug.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/message.h"

#define ROUNDS 100
#define TAIL_BYTES 300
#define ROOM ((size_t)512 << 20)

typedef void row_test(const struct wire_message *message, struct dice *dice);

static void for_every_row(row_test *test, uint64_t seed)
{
    size_t count;
    const struct wire_message *messages = wire_all(&count);
    struct dice dice = {seed};
    for (size_t i = 0; i < count; i++)
        test(&messages[i], &dice);
}

static size_t number_bytes(enum wire_kind kind)
{
    static const size_t bytes[] = {[WIRE_U8] = 1, [WIRE_U16] = 2, [WIRE_U32] = 4, [WIRE_U64] = 8,
                                   [WIRE_I32] = 4, [WIRE_F32] = 4, [WIRE_F64] = 8, [WIRE_TAIL] = 0};
    return bytes[kind];
}

static void encode(const struct wire_message *message, const void *payload, struct buf *out)
{
    struct why why = {0};
    buf_init(out, ROOM);
    if (wire_encode((uint16_t)message->type, payload, out, &why) != 0)
        fail_msg("%s", why.text);
}

/* A decode that must be refused with words that name the message and have `part` in them. */
static void refused(const struct wire_message *message, const uint8_t *bytes, size_t count, const char *part)
{
    struct why why = {0};
    /* A copy of the exact size: a read beyond it is seen by the sanitizer. */
    uint8_t *exact = mem_copy(bytes, count);
    void *payload = mem_new(message->struct_bytes);
    int err = wire_decode((uint16_t)message->type, exact, count, payload, &why);
    if (err != ERR_INVALID || !strstr(why.text, message->name) || !strstr(why.text, part))
        fail_msg("%s of %zu bytes: %d '%s', not '%s'", message->name, count, err, why.text, part);
    mem_free(payload);
    mem_free(exact);
}

/* ---- the table itself ---- */

static void the_table_is_complete_and_ordered(void **state)
{
    (void)state;
    static const enum wire_type all[] = {
        WIRE_HELLO, WIRE_HEARTBEAT, WIRE_BYE, WIRE_SPAWN, WIRE_SIGNAL, WIRE_PROCESS, WIRE_ASSIGN, WIRE_ROAD, WIRE_READY,
        WIRE_START, WIRE_HOLD, WIRE_STOP, WIRE_EVENT, WIRE_DONE, WIRE_SAVE, WIRE_SAVED, WIRE_KEPT, WIRE_KNOB, WIRE_KNOB_USED, WIRE_STAMP, WIRE_ACT, WIRE_GRAD,
        WIRE_CODEC_STATE, WIRE_TIED,
        WIRE_CAPTURE, WIRE_GRANT, WIRE_USE, WIRE_MARK, WIRE_SNAPSHOT, WIRE_CHUNK, WIRE_HELD, WIRE_WANT, WIRE_BASIS, WIRE_METER, WIRE_STATISTICS,
        WIRE_FOLLOW,
        WIRE_SAMPLE, WIRE_ROAD_SAMPLE, WIRE_HOST, WIRE_SPECTRUM, WIRE_WATCH, WIRE_RUN_STATE, WIRE_PROCESS_ROW, WIRE_ROAD_ROW,
        WIRE_EVENT_ROW, WIRE_LEDGER_ROW, WIRE_KNOB_ROW, WIRE_STATE_END, WIRE_ORDER, WIRE_REPLY, WIRE_ANCHOR_ROW, WIRE_METER_ROW, WIRE_HOST_ROW,
        WIRE_SPECTRUM_ROW,
        WIRE_SYNC, WIRE_OUTER, WIRE_AGREE, WIRE_PART, WIRE_PARTED, WIRE_LEAVE, WIRE_HAVE, WIRE_JOIN, WIRE_ENTER, WIRE_ENTERED, WIRE_PULL, WIRE_STATE,
    };
    size_t count;
    const struct wire_message *messages = wire_all(&count);
    assert_int_equal(count, sizeof all / sizeof *all);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(messages[i].type, all[i]);
        assert_true(i == 0 || messages[i].type > messages[i - 1].type);
        assert_ptr_equal(wire_find((uint16_t)messages[i].type), &messages[i]);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(messages[i].name, messages[j].name);
    }
    assert_null(wire_find(0));
    assert_null(wire_find(99));
    assert_null(wire_find(UINT16_MAX));
}

/* Fields cover the struct in order; between them is only what alignment needs. */
static void check_cover(const struct wire_message *message, struct dice *dice)
{
    size_t end = 0, widest = 1;
    (void)dice;
    for (size_t i = 0; i < message->field_count; i++) {
        const struct wire_field *field = &message->fields[i];
        size_t align = field->kind == WIRE_STRING ? 1 : field->kind == WIRE_TAIL ? alignof(struct wire_bytes) : field->size;
        if (field->kind == WIRE_TAIL)
            assert_int_equal(i, message->field_count - 1);
        else if (field->kind != WIRE_STRING)
            assert_int_equal(field->size, number_bytes(field->kind));
        assert_int_equal(field->offset, (end + align - 1) / align * align);
        end = field->offset + field->size;
        widest = align > widest ? align : widest;
    }
    assert_int_equal(message->struct_bytes, (end + widest - 1) / widest * widest);
}

static void no_member_is_forgotten(void **state)
{
    (void)state;
    for_every_row(check_cover, 0);
}

static void check_maximum(const struct wire_message *message, struct dice *dice)
{
    size_t most = 0;
    bool tail = false;
    (void)dice;
    for (size_t i = 0; i < message->field_count; i++) {
        const struct wire_field *field = &message->fields[i];
        most += field->kind == WIRE_STRING ? 2 + field->size - 1 : number_bytes(field->kind);
        if (field->kind == WIRE_TAIL) {
            tail = true;
            most += 4;
        }
    }
    if (!tail)
        assert_int_equal(message->max_bytes, most);
    else
        assert_true(message->max_bytes > most);
    assert_true(message->max_bytes <= 256u << 20);
    assert_true(message->lane < LANE_COUNT);
}

static void maxima_are_exact(void **state)
{
    (void)state;
    for_every_row(check_maximum, 0);
    assert_int_equal(wire_find(WIRE_ASSIGN)->max_bytes, 56 + 131072);
    assert_int_equal(wire_find(WIRE_ACT)->max_bytes, 256 << 20);
    assert_int_equal(wire_find(WIRE_GRAD)->max_bytes, 256 << 20);
    assert_int_equal(wire_find(WIRE_CODEC_STATE)->max_bytes, 16 << 20);
}

/* ---- there and back ---- */

static void check_round_trip(const struct wire_message *message, struct dice *dice)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct buf buf;
        struct why why = {0};
        void *sent = message_random(dice, message, TAIL_BYTES), *got = mem_new(message->struct_bytes);
        memset(got, 0xa5, message->struct_bytes);
        encode(message, sent, &buf);
        assert_true(buf_used(&buf) <= message->max_bytes);
        uint8_t *exact = mem_copy(buf_peek(&buf), buf_used(&buf));
        if (wire_decode((uint16_t)message->type, exact, buf_used(&buf), got, &why) != 0)
            fail_msg("%s", why.text);
        if (!message_same(message, sent, got))
            fail_msg("%s changed on its way", message->name);
        mem_free(exact);
        mem_free(got);
        message_free(message, sent);
        buf_clear(&buf);
    }
}

static void every_message_goes_there_and_back(void **state)
{
    (void)state;
    for_every_row(check_round_trip, 11);
}

static void numbers_are_little_endian_at_their_width(void **state)
{
    (void)state;
    const struct wire_spawn spawn = {.process = "r0s1", .role = ROLE_STAGE, .incarnation = 0x01020304, .listen = "é"};
    static const uint8_t expected[] = {4, 0, 'r', '0', 's', '1', 4, 4, 3, 2, 1, 2, 0, 0xc3, 0xa9, 0, 0};
    const struct wire_sample sample = {.loss = 1.0, .learning_rate = -2.0f};
    struct buf buf;
    encode(wire_find(WIRE_SPAWN), &spawn, &buf);
    assert_int_equal(buf_used(&buf), sizeof expected);
    assert_memory_equal(buf_peek(&buf), expected, sizeof expected);
    buf_clear(&buf);
    encode(wire_find(WIRE_SAMPLE), &sample, &buf);
    static const uint8_t one[] = {0, 0, 0, 0, 0, 0, 0xf0, 0x3f}, minus_two[] = {0, 0, 0, 0xc0};
    assert_memory_equal(buf_peek(&buf) + 9, one, 8);
    assert_memory_equal(buf_peek(&buf) + 25, minus_two, 4);
    buf_clear(&buf);
}

static void a_tail_points_into_the_payload(void **state)
{
    (void)state;
    const uint8_t body[] = {9, 8, 7};
    const struct wire_codec_state sent = {.boundary = 1, .version = 2, .body = {body, sizeof body}};
    struct wire_codec_state got;
    struct buf buf;
    encode(wire_find(WIRE_CODEC_STATE), &sent, &buf);
    assert_int_equal(wire_decode(WIRE_CODEC_STATE, buf_peek(&buf), buf_used(&buf), &got, NULL), 0);
    assert_ptr_equal(got.body.data, buf_peek(&buf) + 10);
    assert_int_equal(got.body.bytes, 3);
    buf_clear(&buf);
}

static void encoding_appends(void **state)
{
    (void)state;
    const struct wire_done done = {.step = 5};
    struct buf buf;
    encode(wire_find(WIRE_DONE), &done, &buf);
    assert_int_equal(wire_encode(WIRE_DONE, &done, &buf, NULL), 0);
    assert_int_equal(buf_used(&buf), 16);
    buf_clear(&buf);
}

/* ---- what is refused ---- */

static void check_cut(const struct wire_message *message, struct dice *dice)
{
    struct buf buf;
    void *payload = message_random(dice, message, TAIL_BYTES);
    encode(message, payload, &buf);
    for (size_t count = 0; count < buf_used(&buf); count++)
        refused(message, buf_peek(&buf), count, "is cut off");
    message_free(message, payload);
    buf_clear(&buf);
}

static void every_cut_payload_is_refused(void **state)
{
    (void)state;
    for_every_row(check_cut, 12);
}

static void check_left_over(const struct wire_message *message, struct dice *dice)
{
    struct buf buf;
    char *payload = message_random(dice, message, TAIL_BYTES);
    for (size_t i = 0; i < message->field_count; i++) /* texts of length 0 leave room below the maximum */
        if (message->fields[i].kind == WIRE_STRING)
            payload[message->fields[i].offset] = 0;
    encode(message, payload, &buf);
    assert_int_equal(buf_put(&buf, "", 1), 0);
    refused(message, buf_peek(&buf), buf_used(&buf),
            buf_used(&buf) > message->max_bytes ? "over its maximum" : "1 bytes are left over");
    message_free(message, payload);
    buf_clear(&buf);
}

static void a_left_over_byte_is_refused(void **state)
{
    (void)state;
    for_every_row(check_left_over, 13);
}

static void check_over_maximum(const struct wire_message *message, struct dice *dice)
{
    (void)dice;
    if (message->max_bytes > 1 << 20)
        return; /* the same line of code, without the 256 MiB */
    uint8_t *bytes = mem_new(message->max_bytes + 1u);
    refused(message, bytes, message->max_bytes + 1u, "over its maximum");
    mem_free(bytes);
}

static void over_its_maximum_is_refused(void **state)
{
    (void)state;
    for_every_row(check_over_maximum, 0);
}

/* Where field `index` begins in an encoded payload whose texts before it are as in `payload`. */
static size_t wire_offset(const struct wire_message *message, const char *payload, size_t index)
{
    size_t offset = 0;
    for (size_t i = 0; i < index; i++) {
        const struct wire_field *field = &message->fields[i];
        offset += field->kind == WIRE_STRING ? 2 + strlen(payload + field->offset) : number_bytes(field->kind);
    }
    return offset;
}

static void check_bad_text(const struct wire_message *message, size_t index, char *payload)
{
    static const char *const bad[] = {"\n", "\x1b", "\x7f", "\xff", "\xc0\x80", "\xc2\x85", "\xe2\x80\xae", "\xed\xa0\x80"};
    const struct wire_field *field = &message->fields[index];
    struct buf buf;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memset(payload + field->offset, 'x', 6);
        payload[field->offset + 6] = 0;
        encode(message, payload, &buf);
        uint8_t *bytes = mem_copy(buf_peek(&buf), buf_used(&buf));
        memcpy(bytes + wire_offset(message, payload, index) + 2 + 1, bad[i], strlen(bad[i]));
        refused(message, bytes, buf_used(&buf), "control character");
        refused(message, bytes, buf_used(&buf), field->name);
        mem_free(bytes);
        buf_clear(&buf);
    }
}

static void check_long_text(const struct wire_message *message, size_t index, char *payload)
{
    const struct wire_field *field = &message->fields[index];
    struct buf buf;
    memset(payload + field->offset, 'x', field->size - 1);
    payload[field->offset + field->size - 1] = 0;
    for (size_t i = 0; i < message->field_count; i++) /* others short, so that the sum stays below the maximum */
        if (message->fields[i].kind == WIRE_STRING && i != index)
            payload[message->fields[i].offset] = 0;
    encode(message, payload, &buf);
    size_t at = wire_offset(message, payload, index);
    uint8_t *bytes = mem_new(buf_used(&buf) + 1);
    memcpy(bytes, buf_peek(&buf), at + 2);
    memset(bytes + at + 2, 'x', field->size);
    memcpy(bytes + at + 2 + field->size, buf_peek(&buf) + at + 2 + field->size - 1, buf_used(&buf) - at - 1 - field->size);
    bytes[at] = (uint8_t)field->size;
    bytes[at + 1] = (uint8_t)(field->size >> 8);
    refused(message, bytes, buf_used(&buf) + 1, buf_used(&buf) + 1 > message->max_bytes ? "maximum" : field->name);
    mem_free(bytes);
    buf_clear(&buf);
}

static void check_texts(const struct wire_message *message, struct dice *dice)
{
    for (size_t i = 0; i < message->field_count; i++) {
        if (message->fields[i].kind != WIRE_STRING)
            continue;
        char *payload = message_random(dice, message, 0);
        check_bad_text(message, i, payload);
        check_long_text(message, i, payload);
        message_free(message, payload);
    }
}

static void bad_and_long_texts_are_refused(void **state)
{
    (void)state;
    for_every_row(check_texts, 14);
}

static void check_ranges(const struct wire_message *message, struct dice *dice)
{
    for (size_t i = 0; i < message->field_count; i++) {
        const struct wire_field *field = &message->fields[i];
        if (field->least == 0 && field->most == 0)
            continue;
        struct buf buf;
        char *payload = message_random(dice, message, 0);
        encode(message, payload, &buf);
        uint8_t *bytes = mem_copy(buf_peek(&buf), buf_used(&buf));
        void *got = mem_new(message->struct_bytes);
        size_t at = wire_offset(message, payload, i);
        assert_int_equal(field->kind, WIRE_U8);
        for (unsigned value = 0; value < 256; value++) {
            bytes[at] = (uint8_t)value;
            if (value < field->least || value > field->most)
                refused(message, bytes, buf_used(&buf), field->name);
            else
                assert_int_equal(wire_decode((uint16_t)message->type, bytes, buf_used(&buf), got, NULL), 0);
        }
        mem_free(got);
        mem_free(bytes);
        message_free(message, payload);
        buf_clear(&buf);
    }
}

static void numbers_out_of_their_range_are_refused(void **state)
{
    (void)state;
    for_every_row(check_ranges, 15);
}

static void a_lying_tail_is_refused(void **state)
{
    (void)state;
    const struct wire_codec_state sent = {.boundary = 1, .body = {(const uint8_t *)"abc", 3}};
    const struct wire_message *message = wire_find(WIRE_CODEC_STATE);
    struct buf buf;
    encode(message, &sent, &buf);
    uint8_t *bytes = mem_copy(buf_peek(&buf), buf_used(&buf));
    bytes[6] = 4;
    refused(message, bytes, buf_used(&buf), "field body is cut off");
    memset(bytes + 6, 0xff, 4);
    refused(message, bytes, buf_used(&buf), "field body is cut off");
    bytes[6] = 2;
    memset(bytes + 7, 0, 3);
    refused(message, bytes, buf_used(&buf), "1 bytes are left over");
    mem_free(bytes);
    buf_clear(&buf);
}

static void an_unknown_type_is_refused(void **state)
{
    (void)state;
    struct why why = {0};
    char payload[4096];
    assert_int_equal(wire_decode(99, (const uint8_t *)"", 0, payload, &why), ERR_INVALID);
    assert_string_equal(why.text, "message type 99 is unknown");
}

static void whatever_comes_is_decoded_or_refused(void **state)
{
    (void)state;
    struct dice dice = {16};
    size_t count, taken = 0;
    const struct wire_message *messages = wire_all(&count);
    for (int round = 0; round < 20000; round++) {
        const struct wire_message *message = &messages[dice_below(&dice, count)];
        struct buf buf;
        void *payload = message_random(&dice, message, 40);
        encode(message, payload, &buf);
        size_t bytes = buf_used(&buf);
        uint8_t *exact = mem_copy(buf_peek(&buf), bytes);
        void *got = mem_new(message->struct_bytes);
        if (bytes)
            exact[dice_below(&dice, bytes)] ^= (uint8_t)(1 << dice_below(&dice, 8));
        struct why why = {0};
        int err = wire_decode((uint16_t)message->type, exact, bytes, got, &why);
        assert_true(err == 0 || (err == ERR_INVALID && why.text[0]));
        if (err == 0) { /* then it encodes to the same bytes */
            buf_clear(&buf);
            encode(message, got, &buf);
            assert_int_equal(buf_used(&buf), bytes);
            assert_memory_equal(buf_peek(&buf), exact, bytes);
            taken++;
        }
        mem_free(got);
        mem_free(exact);
        message_free(message, payload);
        buf_clear(&buf);
    }
    assert_true(taken > 1000); /* flips in numbers are just other numbers */
}

/* ---- the sender's side ---- */

static void what_decode_would_refuse_goes_out_as_question_marks(void **state)
{
    (void)state;
    struct wire_bye sent = {.err = -1, .text = "line\nbell\a \xe2\x86 → end"}, got;
    struct buf buf;
    encode(wire_find(WIRE_BYE), &sent, &buf);
    assert_int_equal(wire_decode(WIRE_BYE, buf_peek(&buf), buf_used(&buf), &got, NULL), 0);
    assert_string_equal(got.text, "line?bell? ?? → end");
    buf_clear(&buf);
    /* What snprintf cut in the middle of a character. */
    memset(sent.text, 'x', sizeof sent.text);
    memcpy(sent.text + 398, "\xe2", 2);
    encode(wire_find(WIRE_BYE), &sent, &buf);
    assert_int_equal(wire_decode(WIRE_BYE, buf_peek(&buf), buf_used(&buf), &got, NULL), 0);
    assert_string_equal(got.text + 398, "?");
    buf_clear(&buf);
}

static void no_room_is_err_full_and_appends_nothing(void **state)
{
    (void)state;
    const struct wire_done done = {.step = 1};
    struct why why = {0};
    struct buf buf;
    buf_init(&buf, 12);
    assert_int_equal(buf_put(&buf, "12345", 5), 0);
    assert_int_equal(wire_encode(WIRE_DONE, &done, &buf, &why), ERR_FULL);
    assert_non_null(strstr(why.text, "DONE"));
    assert_int_equal(buf_used(&buf), 5);
    buf_clear(&buf);
    uint8_t *settings = mem_new((128 << 10) + 1);
    struct wire_assign assign = {.settings = {settings, (128 << 10) + 1}};
    buf_init(&buf, ROOM);
    why = (struct why){0};
    assert_int_equal(wire_encode(WIRE_ASSIGN, &assign, &buf, &why), ERR_FULL);
    assert_non_null(strstr(why.text, "over its maximum"));
    assert_int_equal(buf_used(&buf), 0);
    assign.settings.bytes--;
    assert_int_equal(wire_encode(WIRE_ASSIGN, &assign, &buf, NULL), 0);
    assert_int_equal(buf_used(&buf), wire_find(WIRE_ASSIGN)->max_bytes);
    mem_free(settings);
    buf_clear(&buf);
}

static void encode_hold(void *arg)
{
    struct buf buf;
    buf_init(&buf, ROOM);
    wire_encode(WIRE_HOLD, arg, &buf, NULL);
}

static void encode_ready(void *arg)
{
    struct buf buf;
    buf_init(&buf, ROOM);
    wire_encode(WIRE_READY, arg, &buf, NULL);
}

static void encode_unknown(void *arg)
{
    struct buf buf;
    buf_init(&buf, ROOM);
    wire_encode(99, arg, &buf, NULL);
}

static void our_own_mistakes_are_bugs(void **state)
{
    (void)state;
    struct wire_hold hold;
    struct wire_ready ready = {.state = READY_JOINED + 1};
    memset(hold.reason, 'x', sizeof hold.reason);
    const char *text = bug_text(encode_hold, &hold);
    assert_non_null(text);
    assert_non_null(strstr(text, "HOLD.reason is not terminated"));
    text = bug_text(encode_ready, &ready);
    assert_non_null(text);
    assert_non_null(strstr(text, "READY.state is outside of 1..4"));
    assert_non_null(bug_text(encode_unknown, &ready));
}

/* ---- names ---- */

static void names_cover_their_enumerations(void **state)
{
    (void)state;
    static const struct { const char *(*name)(int); int least, most; } rows[] = {
        {wire_lane_name, LANE_CONTROL, LANE_TELEM}, {wire_role_name, ROLE_CONSOLE, ROLE_ANCHOR},
        {wire_phase_name, PHASE_FORMING, PHASE_STOPPED}, {wire_wait_name, WAIT_NONE, WAIT_SYNC},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int j = rows[i].least; j <= rows[i].most; j++)
            assert_string_not_equal(rows[i].name(j), "unknown");
        assert_string_equal(rows[i].name(rows[i].least - 1), "unknown");
        assert_string_equal(rows[i].name(rows[i].most + 1), "unknown");
    }
    assert_int_equal(WAIT_SYNC + 1, WAIT_CAUSES);
    assert_int_equal(LANE_TELEM + 1, LANE_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_complete_and_ordered),
        cmocka_unit_test(no_member_is_forgotten),
        cmocka_unit_test(maxima_are_exact),
        cmocka_unit_test(every_message_goes_there_and_back),
        cmocka_unit_test(numbers_are_little_endian_at_their_width),
        cmocka_unit_test(a_tail_points_into_the_payload),
        cmocka_unit_test(encoding_appends),
        cmocka_unit_test(every_cut_payload_is_refused),
        cmocka_unit_test(a_left_over_byte_is_refused),
        cmocka_unit_test(over_its_maximum_is_refused),
        cmocka_unit_test(bad_and_long_texts_are_refused),
        cmocka_unit_test(numbers_out_of_their_range_are_refused),
        cmocka_unit_test(a_lying_tail_is_refused),
        cmocka_unit_test(an_unknown_type_is_refused),
        cmocka_unit_test(whatever_comes_is_decoded_or_refused),
        cmocka_unit_test(what_decode_would_refuse_goes_out_as_question_marks),
        cmocka_unit_test(no_room_is_err_full_and_appends_nothing),
        cmocka_unit_test(our_own_mistakes_are_bugs),
        cmocka_unit_test(names_cover_their_enumerations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
