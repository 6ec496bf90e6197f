/*
 * A session to a destination as the ssh program would reach it: alias, user, port, keys, files of known hosts, and jump
 * hosts, each of which is a session of its own that carries the next one in a tunnel.
 *
 * The session exists at once and may be given work at once (channels wait until it is up). Nothing else is different from
 * session.h: one `up`, one `down` with the reason, questions of any session on the way.
 */
#ifndef KEDGE_SESSION_REACH_H
#define KEDGE_SESSION_REACH_H

#include <stdbool.h>
#include <stdint.h>

#include "profiles/profile.h"
#include "ssh/base/why.h"
#include "ssh/link/loop.h"
#include "ssh/session/session.h"

struct reach_settings {
    char name[64];              /* of the host, for people */
    char destination[160];      /* [USER@]HOST[:PORT] or an alias */
    char identity[KNOWN_PLACE]; /* a key file; "" = those of the alias and of the agent */
    char pin[96];               /* sha256:… of the host's key; "" = known_hosts */
    char save[KNOWN_PLACE];     /* where accepted keys are noted; "" = nowhere */
    bool accept_new;            /* unknown keys are taken and noted, of jump hosts too */
    uint64_t greet_ns, silent_ns, ask_ns;
};

/* From a profile's host of kind ssh. `save` and `accept_new` are left alone. */
void reach_of_host(const struct profile *profile, const struct profile_host *host, struct reach_settings *settings);
/* From a bare destination; deadlines from `greet_ns`. */
void reach_of_destination(const char *destination, uint64_t greet_ns, struct reach_settings *settings);

struct reach;

struct reach_callbacks {
    void (*up)(struct reach *reach, void *arg); /* may be NULL */
    /* Once; as session_callbacks.down. The reason names the host, and the jump host when it was that one. */
    void (*down)(struct reach *reach, int err, const char *reason, void *arg);
    /* As session_callbacks.ask; answer with session_answer(session, …). NULL = nobody is here. */
    void (*ask)(struct session *session, const struct session_question *question, void *arg);
};

/* Asks `ssh -G` (a few milliseconds for each host on the way, the first time) and dials. NULL when the destination cannot be understood. */
struct reach *reach_new(struct loop *loop, const struct reach_settings *settings, const struct reach_callbacks *callbacks,
                        void *arg, struct why *why);
void reach_free(struct reach *reach); /* at once, with all sessions; allowed in its callbacks; NULL is fine */

struct session *reach_session(struct reach *reach);
/* The host name that the destination means ("203.0.113.5"): how others may reach it, too. */
const char *reach_host(const struct reach *reach);
bool reach_is_up(const struct reach *reach);
/* What is being done, for people: "connecting", "logging in at jump host j", … */
const char *reach_phase(const struct reach *reach, char *out, size_t size);

#endif
