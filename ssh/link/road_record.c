/*
 * Copies all that passes into a capture file (format: ssh/wire/decode.h). It sits above TLS, where bytes can be read,
 * so the file is private. Each chunk is one writev: after a crash at most the last one is torn, which decode_file says.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "ssh/base/clock.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"
#include "ssh/link/road.h"
#include "ssh/wire/decode.h"

#define RECORD_HEAD_BYTES 13 /* u64 time, u8 direction, u32 length */

enum record_direction { RECORD_READ, RECORD_WRITTEN };

struct road_record {
    struct road road;
    struct road *below;
    int fd; /* −1 when the capture has ended */
    char *path;
};

static void record_put(struct road_record *record, enum record_direction direction, const uint8_t *bytes, size_t count)
{
    uint8_t head[RECORD_HEAD_BYTES];
    uint64_t now = clock_now_ns();
    for (int i = 0; i < 8; i++)
        head[i] = (uint8_t)(now >> 8 * i);
    head[8] = (uint8_t)direction;
    for (int i = 0; i < 4; i++)
        head[9 + i] = (uint8_t)(count >> 8 * i);
    struct iovec parts[] = {{head, sizeof head}, {(void *)(uintptr_t)bytes, count}};
    ssize_t written = record->fd < 0 ? 0 : writev(record->fd, parts, 2);
    if (record->fd < 0 || (written >= 0 && (size_t)written == sizeof head + count))
        return;
    log_at(LOG_WARN, "link", "capture %s ends here: %s", record->path, written < 0 ? strerror(errno) : "the disk is full");
    close(record->fd);
    record->fd = -1;
}

static int road_record_start(struct road *base, struct why *why)
{
    return road_start(((struct road_record *)base)->below, why);
}

static void road_record_want(struct road *base, bool read, bool write)
{
    road_want(((struct road_record *)base)->below, read, write);
}

static ssize_t road_record_read(struct road *base, uint8_t *bytes, size_t room, struct why *why)
{
    struct road_record *record = (struct road_record *)base;
    ssize_t count = road_read(record->below, bytes, room, why);
    if (count > 0)
        record_put(record, RECORD_READ, bytes, (size_t)count);
    return count;
}

static ssize_t road_record_write(struct road *base, const uint8_t *bytes, size_t count, struct why *why)
{
    struct road_record *record = (struct road_record *)base;
    ssize_t written = road_write(record->below, bytes, count, why);
    if (written > 0)
        record_put(record, RECORD_WRITTEN, bytes, (size_t)written);
    return written;
}

static int road_record_finish(struct road *base, struct why *why)
{
    return road_finish(((struct road_record *)base)->below, why);
}

static void road_record_free(struct road *base)
{
    struct road_record *record = (struct road_record *)base;
    if (record->fd >= 0)
        close(record->fd);
    road_free(record->below);
    mem_free(record->path);
    mem_free(record);
}

static void road_record_describe(const struct road *base, char *out, size_t size)
{
    char below[200];
    road_describe(((const struct road_record *)base)->below, below, sizeof below);
    snprintf(out, size, "record %s", below);
}

static void road_record_set_queue(struct road *base, size_t bytes)
{
    road_set_queue(((struct road_record *)base)->below, bytes);
}

static const char *road_record_tls_peer(const struct road *base)
{
    return road_tls_peer(((const struct road_record *)base)->below);
}

static void road_record_ready(void *arg)
{
    struct road_record *record = arg;
    if (record->road.ready)
        record->road.ready(record->road.ready_arg);
}

static const struct road_ops road_record_ops = {
    .name = "record",
    .start = road_record_start,
    .want = road_record_want,
    .read = road_record_read,
    .write = road_record_write,
    .finish = road_record_finish,
    .free = road_record_free,
    .describe = road_record_describe,
    .set_queue = road_record_set_queue,
    .tls_peer = road_record_tls_peer,
};

struct road *road_record(struct loop *loop, struct road *below, const char *path, struct why *why)
{
    (void)loop;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, DECODE_MAGIC, strlen(DECODE_MAGIC)) != (ssize_t)strlen(DECODE_MAGIC)) {
        why_errno(why, "cannot write the capture %s", path);
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    struct road_record *record = mem_new(sizeof *record);
    record->road.ops = &road_record_ops;
    record->below = below;
    record->fd = fd;
    record->path = mem_text(path);
    road_on_ready(below, road_record_ready, record);
    return &record->road;
}
