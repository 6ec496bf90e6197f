/*
 * A client of ssh-agent that never blocks: the library's own one does, and an agent may ask its owner before it signs, or be
 * forwarded over a dead road. One request at a time; each has a deadline.
 */
#ifndef KEDGE_SESSION_AGENT_H
#define KEDGE_SESSION_AGENT_H

#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"
#include "ssh/link/loop.h"
#include "ssh/session/known.h"

#define AGENT_KEYS 32 /* so many keys of an agent are looked at */

struct agent_key {
    char type[64], comment[200];
    uint8_t blob[KNOWN_KEY];
    size_t bytes;
};

struct agent;

/* The answer to the newest request, from the loop. err != 0: `reason` says why there is none. */
typedef void agent_cb(int err, const char *reason, void *arg);

/* Connects; `socket_path` is usually $SSH_AUTH_SOCK. */
struct agent *agent_new(struct loop *loop, const char *socket_path, uint64_t deadline_ns, agent_cb *cb, void *arg,
                        struct why *why);
void agent_free(struct agent *agent); /* NULL is fine */

void agent_list(struct agent *agent);
/* After agent_list was answered. */
const struct agent_key *agent_keys(const struct agent *agent, int *count);

/* `data` as the server will check it; the flags of RSA keys are read from it. */
void agent_sign(struct agent *agent, const uint8_t *blob, size_t blob_bytes, const uint8_t *data, size_t bytes);
/* After agent_sign was answered: the bare signature. */
const uint8_t *agent_signature(const struct agent *agent, size_t *bytes);

#endif
