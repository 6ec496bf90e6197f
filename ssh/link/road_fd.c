#include "ssh/link/road_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ssh/base/mem.h"

void road_fd_init(struct road_fd *road, struct loop *loop, const struct road_ops *ops, const char *what)
{
    road->road.ops = ops;
    road->loop = loop;
    road->read_fd = road->write_fd = -1;
    road->read_flags = road->write_flags = -1;
    snprintf(road->what, sizeof road->what, "%s", what);
}

static void road_fd_ready(int fd, bool readable, bool writable, void *arg)
{
    (void)fd, (void)readable, (void)writable;
    struct road_fd *road = arg;
    road->dry = false;
    if (road->road.ready)
        road->road.ready(road->road.ready_arg);
}

/* Returns the flags to restore, −1 when they were right. */
static int road_fd_make_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_NONBLOCK))
        return -1;
    return fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 ? flags : -1;
}

void road_fd_open(struct road_fd *road, int read_fd, int write_fd)
{
    struct stat status;
    road->read_fd = read_fd;
    road->write_fd = write_fd;
    road->socket = fstat(write_fd, &status) == 0 && S_ISSOCK(status.st_mode) && read_fd == write_fd;
    int read_flags = road_fd_make_nonblocking(read_fd), write_flags = road_fd_make_nonblocking(write_fd);
    if (!road->socket) {
        road->read_flags = read_flags;
        road->write_flags = write_flags;
    }
    road->read_watch = loop_watch_new(road->loop, read_fd, road_fd_ready, road);
    road->write_watch =
        read_fd == write_fd ? road->read_watch : loop_watch_new(road->loop, write_fd, road_fd_ready, road);
}

static void road_fd_close_write(struct road_fd *road)
{
    if (road->write_fd < 0)
        return;
    if (road->write_watch != road->read_watch)
        loop_watch_free(road->write_watch);
    if (road->write_flags >= 0)
        fcntl(road->write_fd, F_SETFL, road->write_flags);
    if (road->write_fd != road->read_fd)
        close(road->write_fd);
    road->write_watch = NULL;
    road->write_fd = -1;
}

void road_fd_close(struct road_fd *road)
{
    road_fd_close_write(road);
    if (road->read_fd < 0)
        return;
    loop_watch_free(road->read_watch);
    if (road->read_flags >= 0)
        fcntl(road->read_fd, F_SETFL, road->read_flags);
    close(road->read_fd);
    road->read_watch = NULL;
    road->read_fd = -1;
}

int road_fd_start(struct road *base, struct why *why)
{
    (void)base, (void)why;
    return 0;
}

void road_fd_want(struct road *base, bool read, bool write)
{
    struct road_fd *road = (struct road_fd *)base;
    road->want_read = read;
    road->want_write = write;
    if (road->starting)
        return;
    if (road->read_watch && road->read_watch == road->write_watch) {
        loop_watch_want(road->read_watch, read, write);
        return;
    }
    if (road->read_watch)
        loop_watch_want(road->read_watch, read, false);
    if (road->write_watch)
        loop_watch_want(road->write_watch, false, write);
}

/* What errno means for a road: not now, the peer or the way to it is gone, or a fault here. */
static int road_fd_errno(struct why *why)
{
    switch (errno) {
    case EAGAIN:
    case EINTR:
        return ERR_AGAIN;
    case EPIPE:
    case ECONNRESET:
        return why_set(why, ERR_GONE, "closed the connection (%s)", strerror(errno));
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case ECONNABORTED:
        return why_set(why, ERR_GONE, "is lost: %s", strerror(errno));
    default:
        return why_errno(why, "fails");
    }
}

ssize_t road_fd_read(struct road *base, uint8_t *bytes, size_t room, struct why *why)
{
    struct road_fd *road = (struct road_fd *)base;
    if (road->read_fd < 0)
        return why_set(why, ERR_GONE, "is closed");
    if (road->dry)
        return ERR_AGAIN;
    ssize_t count = read(road->read_fd, bytes, room);
    if (count > 0) {
        /* More may have come meanwhile; then the descriptor says so, which costs less than to be told "no" after each
         * read. */
        road->dry = (size_t)count < room;
        return count;
    }
    if (count == 0)
        return why_set(why, ERR_GONE, "closed the connection");
    return road_fd_errno(why);
}

/* The kernel takes whole segments of up to 64 KB beyond TCP_NOTSENT_LOWAT; on a slow road that is a long time. */
static size_t road_fd_unsent_room(struct road_fd *road, size_t wanted)
{
    int unsent = 0;
    if (road->unsent_max_bytes == 0)
        return wanted;
    if (road->unsent_room < wanted) {
        if (ioctl(road->write_fd, SIOCOUTQNSD, &unsent) != 0)
            return wanted;
        road->unsent_room = (size_t)unsent < road->unsent_max_bytes ? road->unsent_max_bytes - (size_t)unsent : 0;
    }
    return road->unsent_room < wanted ? road->unsent_room : wanted;
}

ssize_t road_fd_write(struct road *base, const uint8_t *bytes, size_t count, struct why *why)
{
    struct road_fd *road = (struct road_fd *)base;
    if (road->write_fd < 0)
        return why_set(why, ERR_GONE, "is closed");
    count = road_fd_unsent_room(road, count);
    if (count == 0)
        return ERR_AGAIN;
    ssize_t written = road->socket ? send(road->write_fd, bytes, count, MSG_NOSIGNAL) : write(road->write_fd, bytes, count);
    if (written <= 0)
        return road_fd_errno(why);
    road->unsent_room -= (size_t)written < road->unsent_room ? (size_t)written : road->unsent_room;
    return written;
}

int road_fd_finish(struct road *base, struct why *why)
{
    (void)why;
    struct road_fd *road = (struct road_fd *)base;
    if (road->socket)
        shutdown(road->write_fd, SHUT_WR);
    else
        road_fd_close_write(road);
    return 0;
}

void road_fd_free(struct road *base)
{
    struct road_fd *road = (struct road_fd *)base;
    road_fd_close(road);
    mem_free(road);
}

void road_fd_describe(const struct road *base, char *out, size_t size)
{
    const struct road_fd *road = (const struct road_fd *)base;
    snprintf(out, size, "%s", road->what);
}

static const struct road_ops road_fd_ops = {
    .name = "fd",
    .start = road_fd_start,
    .want = road_fd_want,
    .read = road_fd_read,
    .write = road_fd_write,
    .finish = road_fd_finish,
    .free = road_fd_free,
    .describe = road_fd_describe,
};

struct road *road_fd(struct loop *loop, int read_fd, int write_fd, const char *what)
{
    struct road_fd *road = mem_new(sizeof *road);
    road_fd_init(road, loop, &road_fd_ops, what);
    road_fd_open(road, read_fd, write_fd);
    return &road->road;
}
