/*
 * For transports only: what all roads over descriptors share. The TCP and Unix roads begin with a struct road_fd and
 * put their own functions into the ops table where they differ.
 */
#ifndef KEDGE_LINK_ROAD_FD_H
#define KEDGE_LINK_ROAD_FD_H

#include <stdbool.h>
#include <stddef.h>

#include "ssh/link/loop.h"
#include "ssh/link/road.h"

struct road_fd {
    struct road road;
    struct loop *loop;
    int read_fd, write_fd;   /* −1 = closed; the same for sockets */
    int read_flags, write_flags; /* to be restored at the end; −1 = nothing to restore */
    struct loop_watch *read_watch, *write_watch; /* the same when the descriptors are */
    bool socket;
    bool starting;           /* the watch belongs to the connecting code */
    bool want_read, want_write;
    bool dry;                /* the last read took all there was: the next one waits for the descriptor */
    size_t unsent_max_bytes; /* TCP: so many unsent bytes may wait in the kernel; 0 = the kernel decides */
    size_t unsent_room;      /* so many may be written before the kernel is asked again */
    char what[200];
};

/* Fills a zeroed struct; the descriptors are taken over later by road_fd_open. */
void road_fd_init(struct road_fd *road, struct loop *loop, const struct road_ops *ops, const char *what);
/* Takes the descriptors over, makes them non-blocking and watches them. */
void road_fd_open(struct road_fd *road, int read_fd, int write_fd);
void road_fd_close(struct road_fd *road);

int road_fd_start(struct road *road, struct why *why);
void road_fd_want(struct road *road, bool read, bool write);
ssize_t road_fd_read(struct road *road, uint8_t *bytes, size_t room, struct why *why);
ssize_t road_fd_write(struct road *road, const uint8_t *bytes, size_t count, struct why *why);
int road_fd_finish(struct road *road, struct why *why);
void road_fd_free(struct road *road);
void road_fd_describe(const struct road *road, char *out, size_t size);

/* Accepted sockets; `what` is the peer as people know it. */
struct road *road_tcp_adopt(struct loop *loop, int fd, const char *what);
struct road *road_unix_adopt(struct loop *loop, int fd, const char *what);

#endif
