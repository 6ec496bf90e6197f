/*
 * An SSH session against a peer that says anything. The first byte says whether the peer greets as OpenSSH does, whether the rest is raw or
 * comes as plain packets (type, length, payload), and how it is split; the clock goes on between the pieces. Nothing may crash, leak or
 * stay: whatever comes, the session and its command end within their deadlines, each once.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ssh/base/buf.h"
#include "ssh/base/clock.h"
#include "ssh/base/why.h"
#include "ssh/link/road.h"
#include "ssh/session/blob.h"
#include "ssh/session/exec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_down(struct session *session, int err, const char *reason, void *arg)
{
    unsigned *downs = arg;
    (void)session, (void)err;
    if ((*downs)++ || !*reason)
        BUG("down was told %u times, now with '%s'", *downs, reason);
}

static void on_done(struct exec *exec, int err, const char *reason, void *arg)
{
    unsigned *dones = arg;
    (void)reason;
    if ((*dones)++ || !err)
        BUG("a command ended well, or twice");
    exec_free(exec);
}

/* A packet before there are keys: length, padding, type, payload (RFC 4253 §6). */
static void put_packet(struct buf *stream, uint8_t type, const uint8_t *payload, size_t bytes)
{
    static const uint8_t zeros[16];
    uint8_t padding = (uint8_t)(8 - (bytes + 6) % 8 + 8), head[2] = {padding, type};
    blob_put_u32(stream, (uint32_t)(2 + bytes + padding));
    buf_put(stream, head, sizeof head);
    buf_put(stream, payload, bytes);
    buf_put(stream, zeros, padding);
}

/* What a server offers, so that more than the first packet is looked at. */
static void put_kexinit(struct buf *stream)
{
    static const char *const lists[10] = {"curve25519-sha256,ecdh-sha2-nistp256,diffie-hellman-group14-sha256", "ssh-ed25519,ecdsa-sha2-nistp256",
                                          "aes128-ctr", "aes128-ctr", "hmac-sha2-256", "hmac-sha2-256", "none", "none", "", ""};
    struct buf body;
    buf_init(&body, 2000);
    buf_put(&body, "sixteen letters.", 16);
    for (int i = 0; i < 10; i++)
        blob_put_string(&body, lists[i], strlen(lists[i]));
    buf_put(&body, "\0\0\0\0\0", 5);
    put_packet(stream, 20, buf_peek(&body), buf_used(&body));
    buf_clear(&body);
}

static void make_stream(struct buf *stream, uint8_t mode, const uint8_t *data, size_t size)
{
    if (mode & 1)
        buf_put(stream, "SSH-2.0-OpenSSH_9.2\r\n", 21);
    if (mode & 2)
        put_kexinit(stream);
    if (mode & 4) {
        buf_put(stream, data, size);
        return;
    }
    while (size >= 2) {
        size_t bytes = data[1] < size - 2 ? data[1] : size - 2;
        put_packet(stream, data[0], data + 2, bytes);
        data += 2 + bytes, size -= 2 + bytes;
    }
}

static void play(struct loop *loop, struct road *peer, struct buf *stream, size_t piece, const unsigned *downs)
{
    uint8_t said[4096];
    struct why why = {0};
    for (int quiet = 0; !*downs && quiet < 400;) {
        size_t count = buf_used(stream) < piece ? buf_used(stream) : piece;
        ssize_t written = count ? road_write(peer, buf_peek(stream), count, &why) : 0;
        if (written > 0)
            buf_consume(stream, (size_t)written);
        while (road_read(peer, said, sizeof said, &why) > 0)
            ;
        loop_run_once(loop, 0);
        clock_advance_ns(count ? CLOCK_MS : 100 * CLOCK_MS);
        quiet += !count;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct session_callbacks callbacks = {.down = on_down};
    static const struct session_settings settings = {.name = "host", .host = "127.0.0.1", .port = 22, .user = "somebody",
                                                     .greet_ns = 5 * CLOCK_SECOND, .silent_ns = 5 * CLOCK_SECOND, .ask_ns = 5 * CLOCK_SECOND};
    struct why why = {0};
    struct buf stream;
    unsigned downs = 0, dones = 0;
    if (size < 1)
        return 0;
    buf_init(&stream, 1 << 20);
    make_stream(&stream, data[0], data + 1, size - 1);
    clock_own(CLOCK_SECOND);
    struct loop *loop = loop_new(&why);
    struct road *mine, *theirs;
    road_pair(loop, 1 << 16, &mine, &theirs);
    struct session *session = session_new(loop, mine, &settings, &callbacks, &downs);
    exec_run(session, "a test", "true", NULL, 0, 100, 5 * CLOCK_SECOND, on_done, &dones);
    play(loop, theirs, &stream, (size_t)(data[0] >> 3) * 16 + 1, &downs);
    for (int i = 0; i < 10; i++)
        loop_run_once(loop, 0);
    if (downs != 1 || dones != 1)
        BUG("the session was down %u times, its command %u times", downs, dones);
    session_free(session);
    road_free(theirs);
    loop_run_once(loop, 0);
    loop_free(loop);
    buf_clear(&stream);
    return 0;
}
