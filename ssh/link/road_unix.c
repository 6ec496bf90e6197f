#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ssh/base/mem.h"
#include "ssh/link/address.h"
#include "ssh/link/road.h"
#include "ssh/link/road_fd.h"

#define UNIX_QUEUE_BYTES (64 * 1024)

static void road_unix_set_queue(struct road *base, size_t bytes)
{
    struct road_fd *road = (struct road_fd *)base;
    int half = (int)(bytes < 1 << 20 ? bytes / 2 : 1 << 19); /* the kernel doubles it, for its own book-keeping */
    if (road->write_fd >= 0)
        setsockopt(road->write_fd, SOL_SOCKET, SO_SNDBUF, &half, sizeof half);
}

static const struct road_ops road_unix_ops = {
    .name = "unix",
    .start = road_fd_start,
    .want = road_fd_want,
    .read = road_fd_read,
    .write = road_fd_write,
    .finish = road_fd_finish,
    .free = road_fd_free,
    .describe = road_fd_describe,
    .set_queue = road_unix_set_queue,
};

struct road *road_unix_adopt(struct loop *loop, int fd, const char *what)
{
    struct road_fd *road = mem_new(sizeof *road);
    road_fd_init(road, loop, &road_unix_ops, what);
    road_fd_open(road, fd, fd);
    road_unix_set_queue(&road->road, UNIX_QUEUE_BYTES);
    return &road->road;
}

/* A Unix connect does not wait for the network: it stands or fails at once. */
struct road *road_unix_dial(struct loop *loop, const char *path, struct why *why)
{
    struct sockaddr_un address;
    int folder_fd;
    if (address_unix(path, &address, &folder_fd, why) != 0)
        return NULL;
    struct road *road = NULL;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        why_errno(why, "socket");
    } else if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0) {
        char what[160];
        snprintf(what, sizeof what, "unix %.150s", path);
        road = road_unix_adopt(loop, fd, what);
    } else {
        if (errno == ECONNREFUSED)
            why_set(why, ERR_GONE, "nobody answers on %.300s: its program has ended without cleaning up", path);
        else if (errno == EAGAIN)
            why_set(why, ERR_FULL, "the program behind %.300s is too busy to answer", path);
        else
            why_errno(why, "cannot connect to %.300s", path);
        close(fd);
    }
    if (folder_fd >= 0)
        close(folder_fd);
    return road;
}
