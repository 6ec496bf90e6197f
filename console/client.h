/*
 * The console's end of the road to a run: kedged's socket when it answers, else `kedged bridge`, which speaks the same
 * language for a run that is over (from its journal); on another machine the bridge over SSH. Rows go into the client's `struct state`; the callbacks say that
 * something changed.
 *
 * Nothing here waits without a deadline. Losing the road is an outcome: `down` is called once, what was heard stays
 * readable.
 */
#ifndef KEDGE_CONSOLE_CLIENT_H
#define KEDGE_CONSOLE_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "console/state.h"
#include "profiles/timeouts.h"
#include "ssh/base/why.h"
#include "ssh/link/loop.h"
#include "ssh/link/road.h"
#include "ssh/session/reach.h"

struct client;

struct client_settings {
    uint64_t run_id;
    struct timeouts timeouts;
    bool follow;         /* keep sending changes */
    uint64_t from_event; /* only events with a greater id */
};

struct client_callbacks { /* each may be NULL */
    void (*changed)(struct client *client, enum wire_type type, const void *row, void *arg); /* already in the state */
    void (*down)(struct client *client, int err, const char *reason, void *arg);
    void (*ask)(struct session *session, const struct session_question *question, void *arg); /* on the way to a host */
};

/* Over a road of the caller's choice (taken over, also on failure). */
struct client *client_new(struct loop *loop, struct road *road, const struct client_settings *settings,
                          const struct client_callbacks *callbacks, void *arg);
/* The run in `folder`: run.id and run.timeout are read from there. */
struct client *client_open(struct loop *loop, const char *folder, bool follow, uint64_t from_event,
                           const struct client_callbacks *callbacks, void *arg, struct why *why);
/* The same on the host that `reach` leads to; `folder`: the run's here, which knows that host's nonce, or "". Never waits; when the host cannot be reached, that is how the road goes down. */
struct client *client_open_far(struct loop *loop, const struct reach_settings *reach, const char *folder, const char *run,
                               const struct client_settings *settings, const struct client_callbacks *callbacks, void *arg,
                               struct why *why);
void client_free(struct client *client); /* at once, whatever the network does; NULL is fine */

struct state *client_state(struct client *client);
bool client_is_live(const struct client *client);       /* a scheduler answers, not a record; known when it was heard */
uint64_t client_heard_ns_ago(const struct client *client); /* since anything came; UINT64_MAX = nothing yet */
bool client_is_down(const struct client *client);
const char *client_down_reason(const struct client *client);
const struct timeouts *client_timeouts(const struct client *client);

/* Turn the loop until `until` is true: 0; ERR_TIMEOUT after deadline_ns (0 = none), ERR_GONE when the road went down. */
int client_wait(struct client *client, bool (*until)(struct client *client, void *arg), void *arg, uint64_t deadline_ns,
                struct why *why);
/* Everything current is in the state. */
int client_wait_complete(struct client *client, struct why *why);
/* Queue an order and return: the reply comes as `changed` with WIRE_REPLY. For who must not wait. */
int client_send_order(struct client *client, enum order_kind kind, const char *name, const char *value, struct why *why);
/* What became of a login to a host that was tried; nobody waits for an answer, and without a road nothing is said. */
void client_tell_login(struct client *client, const char *host, int err, const char *reason);
/* One order and its reply; a refusal is the reply's err with its text. `reply` may be NULL. */
int client_order(struct client *client, enum order_kind kind, const char *name, const char *value, struct wire_reply *reply,
                 struct why *why);

#endif
