/*
 * Can the hosts of a run still be logged in to (ssh/launch/relogin.h)? Who started the run from here has the keys, so this console asks
 * while it watches, and tells the scheduler, which records it and raises the event: then every viewer sees it.
 */
#ifndef KEDGE_CONSOLE_HEALTH_H
#define KEDGE_CONSOLE_HEALTH_H

#include "console/client.h"
#include "console/place.h"
#include "ssh/link/loop.h"

struct health;

/* NULL when the run was not started here, or has no host over SSH. */
struct health *health_new(struct loop *loop, const struct place *place);
/* Whom to tell, from now on; NULL = nobody. */
void health_tell(struct health *health, struct client *client);
void health_free(struct health *health); /* NULL is fine */

#endif
