/*
 * Host names → addresses without stopping the loop: getaddrinfo in a helper thread, so that the machine's own rules
 * (/etc/hosts, nsswitch, split DNS) hold. The answer comes back on the loop's thread.
 */
#ifndef KEDGE_LINK_RESOLVE_H
#define KEDGE_LINK_RESOLVE_H

#include <stdint.h>

#include "ssh/base/why.h"
#include "ssh/link/address.h"
#include "ssh/link/loop.h"

struct resolve;

/* count > 0 addresses, or 0 and the reason. The resolve is over: resolve_free may be called inside. */
typedef void resolve_cb(const struct address *list, int count, const char *reason, void *arg);

struct resolve *resolve_start(struct loop *loop, const char *host, uint16_t port, resolve_cb *cb, void *arg,
                              struct why *why);
void resolve_free(struct resolve *resolve); /* the callback will not be called any more; NULL is fine */

#endif
