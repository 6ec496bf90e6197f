/*
 * A road over TCP. A dialled one goes through: name looked up (helper thread) → an address tried → the next one tried
 * when that fails, or stays silent for a while and there is another → connected. The road's own greeting deadline is
 * the link's business.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/link/address.h"
#include "ssh/link/resolve.h"
#include "ssh/link/road.h"
#include "ssh/link/road_fd.h"

#define TCP_QUEUE_BYTES (64 * 1024)
#define TCP_ATTEMPT_NS (3 * CLOCK_SECOND)

struct road_tcp {
    struct road_fd fd; /* first: a road_tcp is a road_fd */
    struct resolve *resolve;
    struct address list[ADDRESS_LIST];
    int count, tried;
    struct loop_timer *attempt; /* NULL for an accepted road */
    struct why failed;          /* the last attempt's reason */
};

static void road_tcp_set_queue(struct road *base, size_t bytes)
{
    struct road_tcp *road = (struct road_tcp *)base;
    int low = bytes < INT32_MAX ? (int)bytes : INT32_MAX;
    road->fd.unsent_max_bytes = (size_t)low;
    road->fd.unsent_room = 0;
    if (road->fd.write_fd >= 0)
        setsockopt(road->fd.write_fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &low, sizeof low);
}

static void road_tcp_tune(struct road_tcp *road)
{
    int yes = 1;
    setsockopt(road->fd.write_fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    road_tcp_set_queue(&road->fd.road, road->fd.unsent_max_bytes ? road->fd.unsent_max_bytes : TCP_QUEUE_BYTES);
}

/* Open a socket towards the next address: 0 = under way, else the list is used up and the reason is in `failed`. */
static int road_tcp_try_next(struct road_tcp *road)
{
    while (road->tried < road->count) {
        const struct address *to = &road->list[road->tried++];
        road_fd_close(&road->fd);
        int fd = socket(to->to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd >= 0 && (connect(fd, (const struct sockaddr *)&to->to, to->bytes) == 0 || errno == EINPROGRESS)) {
            road_fd_open(&road->fd, fd, fd);
            loop_watch_want(road->fd.write_watch, false, true);
            if (road->tried < road->count)
                loop_timer_set(road->attempt, TCP_ATTEMPT_NS);
            return 0;
        }
        road->failed = (struct why){0};
        why_set(&road->failed, ERR_GONE, "cannot be reached: %s", strerror(errno));
        if (fd >= 0)
            close(fd);
    }
    return road->failed.err;
}

static int road_tcp_start(struct road *base, struct why *why)
{
    struct road_tcp *road = (struct road_tcp *)base;
    if (!road->fd.starting)
        return 0;
    if (road->resolve)
        return ERR_AGAIN;
    int status = 0;
    socklen_t bytes = sizeof status;
    struct sockaddr_storage peer;
    socklen_t peer_bytes = sizeof peer;
    if (road->fd.write_fd >= 0 && getsockopt(road->fd.write_fd, SOL_SOCKET, SO_ERROR, &status, &bytes) == 0 && status == 0) {
        if (getpeername(road->fd.write_fd, (struct sockaddr *)&peer, &peer_bytes) != 0)
            return ERR_AGAIN;
        road->fd.starting = false;
        loop_timer_unset(road->attempt);
        road_tcp_tune(road);
        road_fd_want(base, road->fd.want_read, road->fd.want_write);
        return 0;
    }
    if (status) {
        road->failed = (struct why){0};
        why_set(&road->failed, ERR_GONE, "cannot be reached: %s", strerror(status));
    }
    if (road_tcp_try_next(road) == 0)
        return ERR_AGAIN;
    return why_set(why, road->failed.err, "%s", road->failed.text);
}

static void road_tcp_ready(struct road_tcp *road)
{
    if (road->fd.road.ready)
        road->fd.road.ready(road->fd.road.ready_arg);
}

static void road_tcp_attempt_over(void *arg)
{
    struct road_tcp *road = arg;
    road->failed = (struct why){0};
    why_set(&road->failed, ERR_TIMEOUT, "cannot be reached: no answer");
    road_tcp_try_next(road);
    road_tcp_ready(road);
}

static void road_tcp_resolved(const struct address *list, int count, const char *reason, void *arg)
{
    struct road_tcp *road = arg;
    memcpy(road->list, list, (size_t)count * sizeof list[0]);
    road->count = count;
    if (count == 0)
        why_set(&road->failed, ERR_ABSENT, "cannot be reached: %s", reason);
    resolve_free(road->resolve);
    road->resolve = NULL;
    road_tcp_ready(road);
}

static void road_tcp_free(struct road *base)
{
    struct road_tcp *road = (struct road_tcp *)base;
    resolve_free(road->resolve);
    loop_timer_free(road->attempt);
    road_fd_free(base);
}

static const struct road_ops road_tcp_ops = {
    .name = "tcp",
    .start = road_tcp_start,
    .want = road_fd_want,
    .read = road_fd_read,
    .write = road_fd_write,
    .finish = road_fd_finish,
    .free = road_tcp_free,
    .describe = road_fd_describe,
    .set_queue = road_tcp_set_queue,
};

static struct road_tcp *road_tcp_new(struct loop *loop, const char *peer)
{
    char what[sizeof((struct road_fd *)0)->what];
    snprintf(what, sizeof what, "tcp %.180s", peer);
    struct road_tcp *road = mem_new(sizeof *road);
    road_fd_init(&road->fd, loop, &road_tcp_ops, what);
    return road;
}

/* One that is to be connected yet. */
static struct road_tcp *road_tcp_outward(struct loop *loop, const char *peer)
{
    struct road_tcp *road = road_tcp_new(loop, peer);
    road->fd.starting = true;
    road->attempt = loop_timer_new(loop, road_tcp_attempt_over, road);
    return road;
}

struct road *road_tcp_dial(struct loop *loop, const char *address, struct why *why)
{
    char host[ADDRESS_HOST];
    uint16_t port;
    if (address_split(address, host, &port, why) != 0)
        return NULL;
    struct road_tcp *road = road_tcp_outward(loop, address);
    road->count = address_numeric(host, port, road->list);
    if (road->count == 0) {
        road->resolve = resolve_start(loop, host, port, road_tcp_resolved, road, why);
        if (!road->resolve) {
            road_free(&road->fd.road);
            return NULL;
        }
    }
    return &road->fd.road;
}

struct road *road_tcp_again(struct loop *loop, const struct road *standing)
{
    const struct road_tcp *there = (const struct road_tcp *)standing;
    if (standing->ops != &road_tcp_ops || there->fd.starting || there->tried == 0)
        return NULL;
    struct road_tcp *road = road_tcp_outward(loop, there->fd.what + strlen("tcp "));
    road->list[0] = there->list[there->tried - 1];
    road->count = 1;
    return &road->fd.road;
}

struct road *road_tcp_adopt(struct loop *loop, int fd, const char *what)
{
    struct road_tcp *road = road_tcp_new(loop, what);
    road_fd_open(&road->fd, fd, fd);
    road_tcp_tune(road);
    return &road->fd.road;
}
