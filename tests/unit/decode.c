/* Captures as text: the words of a small capture, and what is said of torn, damaged and broken ones. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/buf.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/wire/decode.h"
#include "ssh/wire/wire.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/message.h"
#include "tests/helpers/place.h"

#define ROOM ((size_t)1 << 20)
#define READ 0
#define WRITTEN 1
#define START_NS UINT64_C(987654321000000)

static struct place place;

static int set_up(void **state)
{
    (void)state;
    return place_init(&place);
}

static int tear_down(void **state)
{
    (void)state;
    place_clear(&place);
    return 0;
}

/* ---- making captures ---- */

static void put_chunk(struct buf *capture, uint64_t time_ns, uint8_t direction, const void *bytes, size_t count)
{
    uint32_t length = (uint32_t)count;
    assert_int_equal(buf_put(capture, &time_ns, 8), 0);
    assert_int_equal(buf_put(capture, &direction, 1), 0);
    assert_int_equal(buf_put(capture, &length, 4), 0);
    assert_int_equal(buf_put(capture, bytes, count), 0);
}

/* The frames of a message: `first` bytes of payload in the first one, the rest in a second one if any. */
static void put_message(struct buf *stream, enum wire_type type, const void *payload, uint64_t step, size_t first)
{
    struct buf encoded;
    uint8_t head[FRAME_HEADER_BYTES];
    buf_init(&encoded, ROOM);
    assert_int_equal(wire_encode((uint16_t)type, payload, &encoded, NULL), 0);
    struct frame_header header = {
        .message_bytes = (uint32_t)buf_used(&encoded), .type = (uint16_t)type, .run_id = 77, .incarnation = 1, .step = step,
        .lane = (uint8_t)wire_find((uint16_t)type)->lane, .micro_batch = step ? 3 : 0,
    };
    while (true) {
        size_t left = buf_used(&encoded);
        header.frame_bytes = (uint32_t)(first < left ? first : left);
        header.flags = header.frame_bytes < left ? FRAME_MORE : 0;
        frame_encode(&header, head);
        assert_int_equal(buf_put(stream, head, sizeof head), 0);
        assert_int_equal(buf_put(stream, buf_peek(&encoded), header.frame_bytes), 0);
        buf_consume(&encoded, header.frame_bytes);
        first = left;
        if (!header.flags)
            break;
    }
    buf_clear(&encoded);
}

static const struct wire_hello hello = {
    .version = 1, .role = ROLE_STAGE, .program = "kedge-worker 0.1.0", .name = "r0s1", .host = "b → c", .pid = 4711,
    .profile_hash = UINT64_MAX, .announce = "127.0.0.1:4000",
};
static const struct wire_bye bye = {.err = ERR_GONE, .text = "so long"};

static void begin(struct buf *capture)
{
    buf_init(capture, ROOM);
    assert_int_equal(buf_put(capture, DECODE_MAGIC, 16), 0);
}

/* HELLO written and read, an ACT in two frames spread over three chunks with a BYE read between them. */
static void put_conversation(struct buf *capture)
{
    const uint8_t body[1000] = {0};
    const struct wire_act act = {.sequences = 4, .tokens = 128, .id_bytes = 1, .mask_checksum = 9, .body = {body, 1000}};
    const struct wire_stamp stamp = {.kind = STAMP_TRAIN, .micro_batches = 8, .keep = 13, .learning_rate = 3e-4f,
                                     .clip_scale = 1, .apply = 1, .mask_rate = 0.95f, .codec_version = 2};
    const struct wire_grad grad = {.squares = 0.1, .loss = (double)NAN, .targets = 512};
    struct buf stream;
    buf_init(&stream, ROOM);
    put_message(&stream, WIRE_HELLO, &hello, 0, 1000);
    put_chunk(capture, START_NS, WRITTEN, buf_peek(&stream), buf_used(&stream));
    put_chunk(capture, START_NS + 2500000, READ, buf_peek(&stream), buf_used(&stream));
    buf_clear(&stream);
    put_message(&stream, WIRE_STAMP, &stamp, 7, 1000);
    put_message(&stream, WIRE_ACT, &act, 7, 300);
    put_chunk(capture, START_NS + 3000000, WRITTEN, buf_peek(&stream), 200);
    put_chunk(capture, START_NS + 4000000, WRITTEN, buf_peek(&stream) + 200, 1);
    struct buf other;
    buf_init(&other, ROOM);
    put_message(&other, WIRE_GRAD, &grad, 7, 5);
    put_message(&other, WIRE_BYE, &bye, 0, 1000);
    put_chunk(capture, START_NS + 4500000, READ, buf_peek(&other), buf_used(&other));
    put_chunk(capture, START_NS + UINT64_C(61000000000), WRITTEN, buf_peek(&stream) + 201, buf_used(&stream) - 201);
    buf_clear(&other);
    buf_clear(&stream);
}

static const char conversation[] =
    "0.000000 > control step=0 micro_batch=0 HELLO version=1 role=4 program=\"kedge-worker 0.1.0\" name=\"r0s1\""
    " host=\"b → c\" pid=4711 profile_hash=18446744073709551615 host_nonce=0 announce=\"127.0.0.1:4000\"\n"
    "0.002500 < control step=0 micro_batch=0 HELLO version=1 role=4 program=\"kedge-worker 0.1.0\" name=\"r0s1\""
    " host=\"b → c\" pid=4711 profile_hash=18446744073709551615 host_nonce=0 announce=\"127.0.0.1:4000\"\n"
    "0.003000 > act     step=7 micro_batch=3 STAMP kind=0 micro_batches=8 keep=13 learning_rate=0.0003 clip_scale=1 apply=1"
    " mask_rate=0.95 codec_version=2 sync_every=0 sync_rank=0 sync_rate=0 sync_merge=0 sync_since=0 sync_number=0 join_replica=0 join_life=0 join_step=0"
    " capture=0 basis=0 mix=0\n"
    "0.004500 < act     step=7 micro_batch=3 GRAD mask_checksum=0 squares=0.1 loss=nan targets=512 body=0 bytes\n"
    "0.004500 < control step=0 micro_batch=0 BYE err=-2 text=\"so long\"\n"
    "61.000000 > act     step=7 micro_batch=3 ACT sequences=4 tokens=128 id_bytes=1 marks=0 mask_checksum=9 body=1000 bytes\n";

/* ---- reading them ---- */

/* Decode and compare; returns the err, its words in `why`. */
static int decode(const struct buf *capture, size_t count, const char *expected, struct why *why)
{
    char *text = NULL;
    size_t length = 0;
    assert_int_equal(file_write(place_file(&place, "capture"), buf_peek(capture), count, 0600, NULL), 0);
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    int err = decode_file(place.path, out, why);
    fclose(out);
    assert_string_equal(text, expected);
    free(text);
    return err;
}

static void a_conversation_as_text(void **state)
{
    (void)state;
    struct buf capture;
    struct why why = {0};
    begin(&capture);
    put_conversation(&capture);
    if (decode(&capture, buf_used(&capture), conversation, &why) != 0)
        fail_msg("%s", why.text);
    buf_clear(&capture);
}

static void an_empty_capture_is_fine(void **state)
{
    (void)state;
    struct buf capture;
    begin(&capture);
    put_chunk(&capture, START_NS, READ, "", 0);
    assert_int_equal(decode(&capture, 16, "", NULL), 0);
    assert_int_equal(decode(&capture, buf_used(&capture), "", NULL), 0);
    buf_clear(&capture);
}

static void a_torn_last_chunk_is_said(void **state)
{
    (void)state;
    struct buf capture;
    char expected[sizeof conversation + 100];
    begin(&capture);
    put_conversation(&capture);
    size_t whole = buf_used(&capture);
    put_chunk(&capture, START_NS, READ, "0123456789", 10);
    for (size_t missing = 1; missing < 23; missing++) {
        size_t count = buf_used(&capture) - missing;
        snprintf(expected, sizeof expected, "%sthe capture is torn: its last chunk lacks %zu bytes\n", conversation,
                 count - whole < 13 ? 13 - (count - whole) : missing);
        assert_int_equal(decode(&capture, count, expected, NULL), 0);
    }
    buf_clear(&capture);
}

static void another_file_is_refused(void **state)
{
    (void)state;
    static const char *const heads[] = {"", "kedge-capture 1", "kedge-capture 2\n", "SQLite format 3 and more of it"};
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        struct why why = {0};
        assert_int_equal(file_write(place_file(&place, "other"), heads[i], strlen(heads[i]), 0600, NULL), 0);
        assert_int_equal(decode_file(place.path, out, &why), ERR_INVALID);
        assert_non_null(strstr(why.text, "is not a kedge capture"));
        assert_non_null(strstr(why.text, place.path));
    }
    assert_int_equal(decode_file(place_file(&place, "absent"), out, NULL), ERR_ABSENT);
    fclose(out);
    assert_int_equal(length, 0);
    free(text);
}

static void a_damaged_chunk_is_refused_with_its_place(void **state)
{
    (void)state;
    struct buf capture;
    struct why why = {0};
    char place_text[100];
    begin(&capture);
    put_conversation(&capture);
    snprintf(place_text, sizeof place_text, "the chunk at offset %zu has the direction 2", buf_used(&capture));
    put_chunk(&capture, START_NS, 2, "x", 1);
    assert_int_equal(decode(&capture, buf_used(&capture), conversation, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, place_text));
    buf_clear(&capture);
}

static void a_direction_that_breaks_does_not_end_the_other(void **state)
{
    (void)state;
    struct buf capture, stream;
    struct why why = {0};
    uint8_t rubbish[64];
    begin(&capture);
    buf_init(&stream, ROOM);
    memset(rubbish, 0, sizeof rubbish);
    put_chunk(&capture, START_NS, READ, rubbish, sizeof rubbish);
    put_chunk(&capture, START_NS + 1000, READ, rubbish, sizeof rubbish);
    put_message(&stream, WIRE_BYE, &bye, 0, 1000);
    put_chunk(&capture, START_NS + 2000, WRITTEN, buf_peek(&stream), buf_used(&stream));
    assert_int_equal(decode(&capture, buf_used(&capture),
                            "0.000000 < the stream breaks here: a frame of the unknown message type 0 came\n"
                            "0.000002 > control step=0 micro_batch=0 BYE err=-2 text=\"so long\"\n", &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "what was read breaks before offset 93"));
    buf_clear(&stream);
    buf_clear(&capture);
}

static void a_payload_that_is_not_valid_is_said(void **state)
{
    (void)state;
    struct buf capture;
    uint8_t head[FRAME_HEADER_BYTES], bytes[FRAME_HEADER_BYTES + 1];
    const struct frame_header header = {.frame_bytes = 1, .message_bytes = 1, .type = WIRE_DONE, .lane = LANE_CONTROL};
    begin(&capture);
    frame_encode(&header, head);
    memcpy(bytes, head, sizeof head);
    bytes[FRAME_HEADER_BYTES] = 1;
    put_chunk(&capture, START_NS, READ, bytes, sizeof bytes);
    assert_int_equal(decode(&capture, buf_used(&capture), "0.000000 < control step=0 micro_batch=0 DONE is not valid:"
                            " DONE: field step is cut off\n", NULL), 0);
    buf_clear(&capture);
}

static void a_full_disk_is_told(void **state)
{
    (void)state;
    struct buf capture;
    struct why why = {0};
    begin(&capture);
    put_conversation(&capture);
    assert_int_equal(file_write(place_file(&place, "capture"), buf_peek(&capture), buf_used(&capture), 0600, NULL), 0);
    FILE *out = fopen("/dev/full", "w");
    assert_non_null(out);
    assert_int_equal(decode_file(place.path, out, &why), ERR_FULL);
    fclose(out);
    buf_clear(&capture);
}

/* Every message of the language has a line: one newline, its name, all its fields. */
static void every_message_is_one_line(void **state)
{
    (void)state;
    struct dice dice = {5};
    size_t count;
    const struct wire_message *messages = wire_all(&count);
    for (size_t i = 0; i < count; i++) {
        const struct wire_message *message = &messages[i];
        char *text = NULL, name[40];
        size_t length = 0;
        struct buf encoded;
        buf_init(&encoded, ROOM);
        void *payload = message_random(&dice, message, 100);
        assert_int_equal(wire_encode((uint16_t)message->type, payload, &encoded, NULL), 0);
        const struct frame_header header = {.type = (uint16_t)message->type, .lane = (uint8_t)message->lane, .step = 3};
        FILE *out = open_memstream(&text, &length);
        decode_print(out, 1, WRITTEN, &header, buf_peek(&encoded), buf_used(&encoded));
        fclose(out);
        assert_ptr_equal(strchr(text, '\n'), text + length - 1);
        assert_non_null(strstr(text, message->name));
        assert_null(strstr(text, "is not valid"));
        for (size_t j = 0; j < message->field_count; j++) {
            snprintf(name, sizeof name, " %s=", message->fields[j].name);
            assert_non_null(strstr(text, name));
        }
        free(text);
        message_free(message, payload);
        buf_clear(&encoded);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_conversation_as_text),
        TEST(an_empty_capture_is_fine),
        TEST(a_torn_last_chunk_is_said),
        TEST(another_file_is_refused),
        TEST(a_damaged_chunk_is_refused_with_its_place),
        TEST(a_direction_that_breaks_does_not_end_the_other),
        TEST(a_payload_that_is_not_valid_is_said),
        TEST(a_full_disk_is_told),
        TEST(every_message_is_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
