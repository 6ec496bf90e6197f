/* For ssh/session only: what session.c, auth.c and channel.c share. */
#ifndef KEDGE_SESSION_INNER_H
#define KEDGE_SESSION_INNER_H

#include <libssh2.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "ssh/base/buf.h"
#include "ssh/session/arena.h"
#include "ssh/session/flow.h"
#include "ssh/session/session.h"

struct auth;
struct channel;
struct keyboard;
TAILQ_HEAD(channels, channel);

struct session {
    TAILQ_ENTRY(session) entry; /* of all that live */
    uint64_t id;
    struct loop *loop;
    struct road *road;
    struct session_settings settings;
    struct session_callbacks callbacks;
    void *arg;
    LIBSSH2_SESSION *ssh;
    struct arena memory;        /* the library's */
    enum session_phase phase;
    struct loop_timer *timer;   /* of the phase, or of silence when up */
    uint64_t heard_ns;          /* bytes came */
    uint64_t probed_ns;         /* an answer was asked for since; 0 = not */
    struct buf in, out;         /* between the library and the road */
    bool road_over;             /* the road gives nothing more */
    bool deaf;                  /* the library gets errors only: it is being freed */
    struct why over;            /* how the road ended */
    char goodbye[300];          /* the peer's own last words */
    char error[300];            /* of session_error */
    struct auth *auth;
    struct keyboard *keyboard;  /* a conversation that is under way; the library's callback finds it here */
    struct channels channels;
    struct channel *opener;     /* whose opening is under way */

    /* What is to be told to the owner, from session_turn. */
    bool later_coming, freed, tell_up, tell_ask, tell_down;
    int down_err;
    char down_reason[SESSION_REASON];
    enum session_ask asked;
    bool asking, answered;
    bool alone;                 /* it can have no twin: a person was asked, whose words are not ours to say again, or one was refused */
    bool question_hidden;
    char question[SESSION_REASON], art[HOSTKEY_ART];
    char *answer;               /* NULL = none was given */
};

/* living.c */
void session_enlist(struct session *session);
void session_delist(struct session *session);
/* Look soon what can be done. */
void session_wake(struct session *session);
/* Push out what is ready, and wait for what is due. Never calls back. */
void session_flush(struct session *session);
/* The end, with words that follow the host's name. Told later. */
void session_fail(struct session *session, int err, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same for an error code of the library that concerns the whole session. */
void session_fail_by_library(struct session *session, int code);
/* Ask the owner; session->answered says when the answer is there. False when nobody is here. */
bool session_ask(struct session *session, enum session_ask kind, bool hidden, const char *art, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The answer (may be NULL), which the caller wipes with session_wipe and frees. */
char *session_take_answer(struct session *session);
void session_wipe(char *secret); /* and free; NULL is fine */
void session_set_deadline(struct session *session, uint64_t ns);

/* library.c */
/* When its buffers and callbacks are there: session->ssh, which session_free frees. */
void library_begin(struct session *session);
/* Ask for these methods in this order; the library's error code. Only those that it has are named to it: 1.10 moves the rest of the list
 * with memcpy when it drops one. */
int library_prefer(struct session *session, int kind, const char *names);
/* May a library call begin, with all that it may send? */
bool session_has_room(const struct session *session);
/* The library's words for its newest error. */
const char *session_error(struct session *session);

/* auth.c: 0 = the server knows us, ERR_AGAIN = called again when something came, else the whole reason is in `why`. */
struct auth *auth_new(struct session *session);
void auth_free(struct auth *auth);
int auth_step(struct auth *auth, struct why *why);

enum channel_state {
    CHANNEL_WAITING, /* for the session to come up, and for its turn to open */
    CHANNEL_OPENING, /* the peer's yes to a channel */
    CHANNEL_ASKING,  /* its yes to the command */
    CHANNEL_OPEN,
    CHANNEL_CLOSING, /* its goodbye; the owner has left */
    CHANNEL_OVER,    /* failed, or the session is down: `why` */
};

struct channel {
    struct road road; /* first: a channel is a road */
    TAILQ_ENTRY(channel) entry;
    struct loop *loop;
    struct session *session; /* NULL once it is down, or has let go of this channel */
    enum channel_state state;
    LIBSSH2_CHANNEL *ssh;
    char *command;           /* NULL for a tunnel */
    char host[ADDRESS_HOST]; /* a tunnel's far end */
    uint16_t port;
    uint64_t deadline_ns;    /* of the state; 0 = none */
    struct loop_timer *timer;
    struct buf in;           /* of the peer's standard output */
    char errors[1200];       /* the newest of its standard error */
    size_t errors_bytes;
    size_t queue_bytes;      /* accept no more than that before the wire has it */
    struct flow flow;        /* to the peer */
    bool want_read, want_write, finishing, finished;
    bool ended;              /* no more comes on the standard output */
    bool status_known;
    int status;              /* exit status, or −1 with `signal` */
    char signal[32];
    struct why why;
    bool ready_coming, freed;
};

/* channel.c. Both may free a channel that its owner has left. */
void channel_pump(struct channel *channel);
void channel_session_over(struct channel *channel, int err, const char *reason);

#endif
