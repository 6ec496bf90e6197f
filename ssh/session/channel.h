/*
 * A channel of a session as a road: the standard input and output of a command on the host, or a connection from the host to
 * somewhere else (a tunnel). Whatever runs over a road runs over it: a link to `kedged bridge`, another session.
 *
 * What the command says on standard error is kept (the newest 1,200 bytes), not mixed in. road_finish closes its
 * standard input.
 * road_free lets go at once; the goodbye is the session's business.
 */
#ifndef KEDGE_SESSION_CHANNEL_H
#define KEDGE_SESSION_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/link/road.h"
#include "ssh/session/session.h"

/* They may be asked for before the session is up. `open_ns`: until the command runs, counted from when the session is up. */
struct road *channel_exec(struct session *session, const char *command, uint64_t open_ns);
struct road *channel_tunnel(struct session *session, const char *host, uint16_t port, uint64_t open_ns);

/* How the command ended: true once the host has told. `status` −1 and `signal` when a signal killed it. */
bool channel_exit(const struct road *road, int *status, char signal[32]);
/* Its standard error so far, harmless, one line: the newest words. */
const char *channel_errors(const struct road *road, char *out, size_t size);
/* Can bytes be written now? Without a try. */
size_t channel_room(const struct road *road);
/* The least time that it took the command to have what was written, and us to know; 0 = it is not known yet. */
uint64_t channel_least_ns(const struct road *road);

#endif
