/*
 * A session: one SSH connection to one host, over any road (TCP, a filter, a tunnel through another session).
 *
 *   connecting → greeting (key exchange) → trusting (is it the host we mean?) → proving (who are we) → up → down
 *
 * The library (libssh2) is never allowed to block and never sees the socket: it reads from and writes to two bounded
 * buffers of
 * the session. It cannot finish a half-sent packet unless it is called again with the same memory, and some of its
 * calls forget
 * that; so no call is begun unless all that it can send fits into the buffer, and there is no half-sent packet, ever.
 * Calls that wait for the peer do not exclude each other; opening channels is one at a time.
 *
 * Every wait has a deadline: connecting, greeting and each step of proving have greet_ns, a person has ask_ns, and a session
 * that is up and hears nothing, also when asked, for silent_ns is down. All calls are on the loop's thread.
 */
#ifndef KEDGE_SESSION_SESSION_H
#define KEDGE_SESSION_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "ssh/base/why.h"
#include "ssh/link/address.h"
#include "ssh/link/loop.h"
#include "ssh/link/road.h"
#include "ssh/session/hostkey.h"

#define SESSION_IDENTITIES 8
#define SESSION_REASON 1400

struct session;

enum session_phase {
    SESSION_CONNECTING,
    SESSION_GREETING,
    SESSION_TRUSTING,
    SESSION_PROVING,
    SESSION_UP,
    SESSION_LEAVING, /* the goodbye is being sent */
    SESSION_DOWN,
};
const char *session_phase_name(enum session_phase phase); /* "connecting", … for people */

struct session_settings {
    char name[128];                                      /* of the host, for people */
    char host[ADDRESS_HOST];
    uint16_t port;
    char user[64];
    struct hostkey_policy policy;
    char identities[SESSION_IDENTITIES][KNOWN_PLACE];    /* key files, "" = unused */
    bool optional[SESSION_IDENTITIES];                   /* nobody named this file: its absence is no news */
    char agent_socket[KNOWN_PLACE];                      /* "" = no agent */
    uint64_t greet_ns, silent_ns, ask_ns;
};

enum session_ask { ASK_HOST_KEY, ASK_PASSPHRASE, ASK_PASSWORD };

struct session_question {
    enum session_ask kind;
    const char *text;  /* one line: what is wanted */
    const char *art;   /* ASK_HOST_KEY: the picture, else "" */
    bool hidden;       /* the answer must not be shown */
};

struct session_callbacks {
    void (*up)(struct session *session, void *arg);
    /* The end, once. err 0 = as we wished. ERR_GONE, ERR_TIMEOUT, ERR_ABSENT: it may come yet; ERR_REFUSED: trying
     * again changes
     * nothing. `reason` is a sentence that names the host and the remedy. */
    void (*down)(struct session *session, int err, const char *reason, void *arg);
    /* Somebody must decide; NULL = nobody is here, which is a refusal. Answer by session_answer, now or later. */
    void (*ask)(struct session *session, const struct session_question *question, void *arg);
};

/* Takes the road over. Callbacks come from the loop, never from inside a call; session_free is allowed in each of them. */
struct session *session_new(struct loop *loop, struct road *road, const struct session_settings *settings,
                            const struct session_callbacks *callbacks, void *arg);
/* ASK_HOST_KEY: "once" or "save", anything else refuses. Others: the secret, which is wiped here, not in the caller's
 * memory.
 * NULL = no answer. */
void session_answer(struct session *session, const char *answer);
/* Say goodbye within `linger_ns`, then down(0). */
void session_close(struct session *session, uint64_t linger_ns);
/* At once, without a goodbye and without a callback. Channels stay with their owners and fail. NULL is fine. */
void session_free(struct session *session);

/* A session by its number: NULL when it is gone. For answers that come later. */
uint64_t session_id(const struct session *session);
struct session *session_find(uint64_t id);

enum session_phase session_get_phase(const struct session *session);
const struct session_settings *session_get_settings(const struct session *session);
uint64_t session_heard_ns_ago(const struct session *session);

#endif
