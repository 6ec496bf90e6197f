/*
 * A link against a peer that sends anything. The first byte says whether the peer greets first, whether the rest are
 * raw bytes or records that are made frames of (type, length, payload), and how they are split; the clock goes on
 * between the pieces. Nothing may crash, leak or stay: whatever comes, the link ends within its deadlines.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ssh/base/buf.h"
#include "ssh/base/clock.h"
#include "ssh/base/why.h"
#include "ssh/link/link.h"
#include "ssh/link/road.h"

#define FUZZ_RUN 1

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_message(struct link *link, const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg,
                      struct why *why)
{
    (void)payload, (void)bytes, (void)arg, (void)why;
    if (header->type == WIRE_DONE)
        link_close(link, 0, "enough", CLOCK_SECOND);
    return header->type == WIRE_STOP ? ERR_INVALID : 0;
}

static void on_down(struct link *link, int err, const char *reason, void *arg)
{
    (void)link, (void)err, (void)reason;
    *(bool *)arg = true;
}

static struct link_settings fuzz_settings(void)
{
    struct link_settings settings = {
        .run_id = FUZZ_RUN,
        .incarnation = 1,
        .heartbeat_ns = CLOCK_SECOND,
        .silent_ns = 3 * CLOCK_SECOND,
        .greet_ns = 5 * CLOCK_SECOND,
    };
    settings.hello = (struct wire_hello){.version = WIRE_VERSION, .role = ROLE_STAGE};
    settings.hello.program[0] = settings.hello.name[0] = settings.hello.host[0] = 'a';
    return settings;
}

static void put_frame(struct buf *stream, uint16_t type, const uint8_t *payload, size_t bytes)
{
    uint8_t head[FRAME_HEADER_BYTES];
    const struct wire_message *message = wire_find(type);
    struct frame_header header = {
        .frame_bytes = (uint32_t)bytes,
        .message_bytes = (uint32_t)bytes,
        .type = type,
        .lane = message ? (uint8_t)message->lane : 0,
        .run_id = FUZZ_RUN,
        .incarnation = 1,
    };
    frame_encode(&header, head);
    buf_put(stream, head, sizeof head);
    buf_put(stream, payload, bytes);
}

static void make_stream(struct buf *stream, uint8_t mode, const uint8_t *data, size_t size)
{
    struct link_settings settings = fuzz_settings();
    struct buf hello;
    struct why why = {0};
    buf_init(&hello, 1000);
    if ((mode & 1) && wire_encode(WIRE_HELLO, &settings.hello, &hello, &why) == 0)
        put_frame(stream, WIRE_HELLO, buf_peek(&hello), buf_used(&hello));
    buf_clear(&hello);
    if (mode & 2) {
        buf_put(stream, data, size);
        return;
    }
    while (size >= 2) {
        size_t bytes = data[1] < size - 2 ? data[1] : size - 2;
        put_frame(stream, data[0], data + 2, bytes);
        data += 2 + bytes, size -= 2 + bytes;
    }
}

static void play(struct loop *loop, struct road *peer, struct buf *stream, size_t piece, const bool *down)
{
    struct why why = {0};
    while (buf_used(stream) && !*down) {
        size_t count = buf_used(stream) < piece ? buf_used(stream) : piece;
        ssize_t written = road_write(peer, buf_peek(stream), count, &why);
        if (written > 0)
            buf_consume(stream, (size_t)written);
        loop_run_once(loop, 0);
        clock_advance_ns(CLOCK_MS);
    }
    for (int i = 0; i < 200 && !*down; i++) {
        loop_run_once(loop, 0);
        clock_advance_ns(100 * CLOCK_MS);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct link_callbacks callbacks = {.message = on_message, .down = on_down};
    struct link_settings settings = fuzz_settings();
    struct why why = {0};
    struct buf stream;
    bool down = false;
    if (size < 1)
        return 0;
    buf_init(&stream, 1 << 20);
    make_stream(&stream, data[0], data + 1, size - 1);
    clock_own(CLOCK_SECOND);
    struct loop *loop = loop_new(&why);
    struct road *mine, *theirs;
    road_pair(loop, 1 << 16, &mine, &theirs);
    struct link *link = link_new(loop, mine, &settings, &callbacks, &down);
    play(loop, theirs, &stream, (size_t)(data[0] >> 2) * 8 + 1, &down);
    if (!down)
        BUG("the link is still there");
    link_free(link);
    road_free(theirs);
    loop_run_once(loop, 0);
    loop_free(loop);
    buf_clear(&stream);
    return 0;
}
