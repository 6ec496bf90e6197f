/*
 * A road carries bytes: a transport at the bottom, filters on top, all with this one interface (after curl's connection
 * filters). A test link is the real link with one more layer.
 *
 * Every road is non-blocking. The user of a road (link.c, or the filter above) sets `ready` and calls road_want;
 * `ready` is called from the loop, never from inside another road call, and as long as what is wanted can be done
 * (level, not edge). It is the last thing that a road does: the user may free the road inside it. Reasons are words
 * that follow the peer's name ("closed the connection", "cannot be reached: Connection refused").
 */
#ifndef KEDGE_LINK_ROAD_H
#define KEDGE_LINK_ROAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ssh/base/why.h"
#include "ssh/link/loop.h"

struct road;

struct road_ops {
    const char *name;
    /* Continue connecting/handshaking: 0 = stands, ERR_AGAIN = wait for ready (whatever was wanted), else failed. */
    int (*start)(struct road *road, struct why *why);
    void (*want)(struct road *road, bool read, bool write);
    /* > 0 bytes, ERR_AGAIN, ERR_GONE (peer closed: why says how), other err. */
    ssize_t (*read)(struct road *road, uint8_t *bytes, size_t room, struct why *why);
    ssize_t (*write)(struct road *road, const uint8_t *bytes, size_t count, struct why *why);
    /* Push out what was accepted, then tell the peer that no more comes. 0 = done, ERR_AGAIN = call again when
     * writable, else failed. Reading goes on, also after a failed start: then what comes is dropped, until ERR_GONE. */
    int (*finish)(struct road *road, struct why *why);
    void (*free)(struct road *road); /* closes the transport, frees the filters below too */
    /* Write words like "tls tcp 127.0.0.1:4711". */
    void (*describe)(const struct road *road, char *out, size_t size);
    /* Accept only about so many bytes before the wire has taken them: later bytes can still be chosen by priority. May
     * be NULL. */
    void (*set_queue)(struct road *road, size_t bytes);
    const char *(*tls_peer)(const struct road *road); /* NULL when this road is not TLS and has none below */
};

struct road {
    const struct road_ops *ops;
    void (*ready)(void *arg); /* set by the layer above */
    void *ready_arg;
};

void road_on_ready(struct road *road, void (*ready)(void *arg), void *arg);

int road_start(struct road *road, struct why *why);
void road_want(struct road *road, bool read, bool write);
ssize_t road_read(struct road *road, uint8_t *bytes, size_t room, struct why *why);
ssize_t road_write(struct road *road, const uint8_t *bytes, size_t count, struct why *why);
int road_finish(struct road *road, struct why *why);
void road_set_queue(struct road *road, size_t bytes);
void road_free(struct road *road); /* NULL is fine */
void road_describe(const struct road *road, char *out, size_t size);
/* The same without the names of filters: "127.0.0.1:4711". */
void road_where(const struct road *road, char *out, size_t size);
/* The common name of the peer's certificate, through filters; "" while the handshake is not over; NULL when the road
 * is not TLS. */
const char *road_tls_peer(const struct road *road);

/* ---- transports ---- */

/* Dial HOST:PORT ("127.0.0.1:4000", "[::1]:4000", "name:4000"). Names are looked up by the system's resolver in a
 * helper thread; all of its addresses are tried. Failure to find or connect shows at road_start. */
struct road *road_tcp_dial(struct loop *loop, const char *address, struct why *why);
/* Dial once more where a dialled road stands, at that one address; of any thread's loop that does not run yet. NULL: it is no dialled TCP. */
struct road *road_tcp_again(struct loop *loop, const struct road *standing);
/* Stands or fails at once: NULL with ERR_ABSENT (no such socket), ERR_GONE (nobody behind it). */
struct road *road_unix_dial(struct loop *loop, const char *path, struct why *why);
/* Accepted or inherited descriptors (takes them over; they may be one and the same); `what` for describe. They are made
 * non-blocking; that is undone at the end, because stdin and stdout may be shared with a shell. */
struct road *road_fd(struct loop *loop, int read_fd, int write_fd, const char *what);
/* Two ends in memory, each with at most `room` bytes under way; for tests and simulations. */
void road_pair(struct loop *loop, size_t room, struct road **one, struct road **other);

/* ---- listening ---- */

struct listener;
typedef void listener_cb(struct road *road, const char *from, void *arg); /* owns the road now */

/* Address "HOST:PORT", port 0 = any. A taken port is refused with the name and pid of the holder where /proc tells. */
struct listener *listener_tcp(struct loop *loop, const char *address, listener_cb *cb, void *arg, struct why *why);
/* A 0600 Unix socket; a stale one (nobody answers) is replaced, a live one refused. Unlinked by listener_free. */
struct listener *listener_unix(struct loop *loop, const char *path, listener_cb *cb, void *arg, struct why *why);
const char *listener_address(const struct listener *listener); /* with the real port */
void listener_free(struct listener *listener);

/* ---- filters: each takes `below` over, unless it returns NULL ---- */

struct credentials; /* ssh/link/cert.h: CA, own certificate, key */

/* Mutual TLS 1.3 with the run's CA. `server` for accepted roads. The credentials must outlive the road. */
struct road *road_tls(struct loop *loop, struct road *below, const struct credentials *credentials, bool server,
                      struct why *why);

struct slow_settings {
    uint64_t rate_bps;   /* each direction; 0 = unlimited */
    uint64_t delay_ns;   /* one way, each direction */
    uint64_t jitter_ns;  /* uniform from 0 to this, on top of the delay; order is kept */
    uint64_t cut_after_bytes;     /* close after so many bytes written; 0 = never */
    uint64_t corrupt_byte;        /* flip the lowest bit of the n-th byte written (1 = first); 0 = none */
    uint64_t seed;
};
struct road *road_slow(struct loop *loop, struct road *below, const struct slow_settings *settings);
/* Copies all that passes into a capture file (ssh/wire/decode.h); a full disk ends the capture, not the road. */
struct road *road_record(struct loop *loop, struct road *below, const char *path, struct why *why);

#endif
