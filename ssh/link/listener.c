/*
 * Listening sockets. What is accepted becomes a road at once and is the callback's; nothing is read here.
 *
 * When descriptors run out, a listener that goes on asking spins: it rests for a moment and says so.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "ssh/base/clock.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"
#include "ssh/link/address.h"
#include "ssh/link/road.h"
#include "ssh/link/road_fd.h"

#define LISTENER_BACKLOG 64
#define LISTENER_REST_NS (200 * CLOCK_MS)

struct listener {
    struct loop *loop;
    int fd;
    struct loop_watch *watch;
    struct loop_timer *rest;
    struct road *(*adopt)(struct loop *loop, int fd, const char *what);
    char *address; /* HOST:PORT or the path */
    dev_t device;  /* of the Unix socket's file: it is removed only while it is still ours */
    ino_t inode;
    bool unix_socket;
    bool freed;
    listener_cb *cb;
    void *arg;
};

static void listener_name_peer(struct listener *listener, int fd, const struct sockaddr *peer, char *out, size_t size)
{
    struct ucred who;
    socklen_t bytes = sizeof who;
    if (!listener->unix_socket)
        address_text(peer, out, size);
    else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0)
        snprintf(out, size, "%.100s pid %ld", listener->address, (long)who.pid);
    else
        snprintf(out, size, "%.100s", listener->address);
}

/* 0 = one was accepted, ERR_AGAIN = there is none, ERR_FULL = no descriptors or memory left. */
static int listener_accept_one(struct listener *listener)
{
    struct sockaddr_storage peer;
    socklen_t bytes = sizeof peer;
    int fd = accept4(listener->fd, (struct sockaddr *)&peer, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM ? ERR_FULL
               : errno == ECONNABORTED || errno == EINTR                                 ? 0
                                                                                         : ERR_AGAIN;
    char from[160], what[200];
    listener_name_peer(listener, fd, (const struct sockaddr *)&peer, from, sizeof from);
    snprintf(what, sizeof what, "%s%s", listener->unix_socket ? "unix " : "", from);
    listener->cb(listener->adopt(listener->loop, fd, what), from, listener->arg);
    return 0;
}

static void listener_on_readable(int fd, bool readable, bool writable, void *arg)
{
    (void)fd, (void)readable, (void)writable;
    struct listener *listener = arg;
    int err = 0;
    for (int i = 0; i < LISTENER_BACKLOG && err == 0 && !listener->freed; i++)
        err = listener_accept_one(listener);
    if (err != ERR_FULL || listener->freed)
        return;
    log_at(LOG_WARN, "link", "%s: cannot accept: %s; trying again", listener->address, strerror(errno));
    loop_watch_want(listener->watch, false, false);
    loop_timer_set(listener->rest, LISTENER_REST_NS);
}

static void listener_rested(void *arg)
{
    struct listener *listener = arg;
    loop_watch_want(listener->watch, true, false);
}

static struct listener *listener_new(struct loop *loop, int fd, bool unix_socket, listener_cb *cb, void *arg)
{
    struct listener *listener = mem_new(sizeof *listener);
    *listener = (struct listener){
        .loop = loop, .fd = fd, .unix_socket = unix_socket, .cb = cb, .arg = arg,
        .adopt = unix_socket ? road_unix_adopt : road_tcp_adopt,
    };
    listener->watch = loop_watch_new(loop, fd, listener_on_readable, listener);
    listener->rest = loop_timer_new(loop, listener_rested, listener);
    loop_watch_want(listener->watch, true, false);
    return listener;
}

struct listener *listener_tcp(struct loop *loop, const char *address, listener_cb *cb, void *arg, struct why *why)
{
    char host[ADDRESS_HOST], text[200];
    uint16_t port;
    struct address list[ADDRESS_LIST];
    if (address_split(address, host, &port, why) != 0)
        return NULL;
    if (address_numeric(host, port, list) == 0) {
        why_set(why, ERR_INVALID, "cannot listen on '%s': give the address of an interface in numbers, 0.0.0.0:%u for all",
                address, port);
        return NULL;
    }
    const struct sockaddr *at = (const struct sockaddr *)&list[0].to;
    int yes = 1, fd = socket(at->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        why_errno(why, "cannot listen on %s", address);
        return NULL;
    }
    /* On Linux this allows a port whose old connections are still fading, never one that is listened on. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, at, list[0].bytes) != 0 || listen(fd, LISTENER_BACKLOG) != 0) {
        if (errno == EADDRINUSE) {
            address_holder(at, text, sizeof text);
            why_set(why, ERR_REFUSED, "%s is taken by %s: end that program or choose another port (port 0 = any free one)",
                    address, text);
        } else {
            why_errno(why, "cannot listen on %s", address);
        }
        close(fd);
        return NULL;
    }
    struct listener *listener = listener_new(loop, fd, false, cb, arg);
    socklen_t bytes = sizeof list[0].to;
    getsockname(fd, (struct sockaddr *)&list[0].to, &bytes);
    address_text(at, text, sizeof text);
    listener->address = mem_text(text);
    return listener;
}

/* ---- Unix sockets ---- */

/* The folder stays locked while a stale socket is replaced: of two programs that start at the same time, one must not
 * remove the socket that the other has just made. Returns the descriptor that holds the lock. */
static int listener_lock_folder(const char *path, struct why *why)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? mem_format("%.*s", (int)(slash - path) + 1, path) : mem_text(".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        why_errno(why, "folder %.300s of a socket", folder);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        why_set(why, ERR_REFUSED, "another program is making a socket in %.300s at this moment: try again", folder);
        close(fd);
        fd = -1;
    }
    mem_free(folder);
    return fd;
}

/* Make room at `address`: a socket that nobody answers on is removed, anything else is refused. */
static int listener_clear_stale(const char *path, const struct sockaddr_un *address, struct why *why)
{
    struct stat status;
    if (lstat(path, &status) != 0)
        return errno == ENOENT ? 0 : why_errno(why, "%.400s", path);
    if (!S_ISSOCK(status.st_mode))
        return why_set(why, ERR_REFUSED, "%.400s exists and is not a socket: it is left alone", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return why_errno(why, "socket");
    int err = 0;
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 || errno == EAGAIN)
        err = why_set(why, ERR_REFUSED, "%.400s: another program listens there", path);
    else if (errno != ECONNREFUSED)
        err = why_errno(why, "%.400s", path);
    else if (unlink(path) != 0)
        err = why_errno(why, "cannot replace the stale socket %.400s", path);
    close(fd);
    return err;
}

/* Bound with mode 0600 from the first moment: Linux gives the file the mode of the unbound socket. */
static int listener_bind_unix(const char *path, const struct sockaddr_un *address, int *out, struct why *why)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return why_errno(why, "socket");
    struct stat status;
    int err = 0;
    if (fchmod(fd, 0600) != 0 || bind(fd, (const struct sockaddr *)address, sizeof *address) != 0 ||
        lstat(path, &status) != 0 || ((status.st_mode & 077) && chmod(path, 0600) != 0) || listen(fd, LISTENER_BACKLOG) != 0)
        err = why_errno(why, "cannot listen on %.400s", path);
    if (err)
        close(fd);
    else
        *out = fd;
    return err;
}

struct listener *listener_unix(struct loop *loop, const char *path, listener_cb *cb, void *arg, struct why *why)
{
    struct sockaddr_un address;
    struct listener *listener = NULL;
    int folder_fd, fd = -1;
    if (address_unix(path, &address, &folder_fd, why) != 0)
        return NULL;
    int lock = listener_lock_folder(path, why);
    if (lock >= 0 && listener_clear_stale(path, &address, why) == 0 && listener_bind_unix(path, &address, &fd, why) == 0) {
        struct stat status = {0};
        listener = listener_new(loop, fd, true, cb, arg);
        listener->address = mem_text(path);
        if (lstat(path, &status) == 0) {
            listener->device = status.st_dev;
            listener->inode = status.st_ino;
        }
    }
    if (lock >= 0)
        close(lock);
    if (folder_fd >= 0)
        close(folder_fd);
    return listener;
}

const char *listener_address(const struct listener *listener)
{
    return listener->address;
}

static void listener_release(void *arg)
{
    struct listener *listener = arg;
    mem_free(listener->address);
    mem_free(listener);
}

void listener_free(struct listener *listener)
{
    if (!listener)
        return;
    struct stat status;
    if (listener->unix_socket && lstat(listener->address, &status) == 0 && status.st_dev == listener->device &&
        status.st_ino == listener->inode)
        unlink(listener->address);
    loop_watch_free(listener->watch);
    loop_timer_free(listener->rest);
    close(listener->fd);
    listener->freed = true;
    loop_later(listener->loop, listener_release, listener);
}
